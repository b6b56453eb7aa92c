//! The process: its arguments, its socket, signals, and clients one after the other.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::process::Output;

use common::guest::{Guest, VERSION, message, send, words};
use common::{Driver, Simulator, command, command_with};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use xtent_engine_sim::registers::{BAR_BYTES, REG_ID, RING_SQ_LO};

const DESIGN: &str = "xts";

fn refused(output: &Output, says: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in says {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn it_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let output = command("no-such-design", &socket).output().unwrap();
    refused(
        &output,
        &[
            "there is no ",
            "rtl/cosim/model.sh no-such-design",
            "--list",
        ],
    );
    refused(
        &command("../xts", &socket).output().unwrap(),
        &["no name of a design"],
    );
    fs::write(folder.path().join("xts.so"), "no library").unwrap();
    let output = command_with(folder.path(), "xts", &socket)
        .output()
        .unwrap();
    refused(&output, &["cannot use", "rtl/cosim/model.sh xts"]);
    let output = command_with(folder.path(), "xts", &socket)
        .args(["--trace", "vcd"])
        .output()
        .unwrap();
    refused(&output, &["there is no ", "rtl/cosim/model.sh --trace xts"]);
    assert!(!socket.exists());
}

/// Without a socket, with two, and what is only for a guest.
#[test]
fn it_has_one_front() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    for options in [
        &["--vhost-user", "elsewhere"][..],
        &["--time", "elsewhere"],
        &["--mhz", "100"],
        &["--register-latency", "100"],
        &["--spoil", "hang"],
        &["--spoil", "hang:1,rust:2"],
    ] {
        let output = command(DESIGN, &socket).args(options).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}");
    }
    assert!(!socket.exists());
}

#[test]
fn it_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "mine").unwrap();
    refused(
        &command(DESIGN, &path).output().unwrap(),
        &["cannot listen on", "choose another path"],
    );
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    let simulator = Simulator::start(DESIGN, &[]);
    refused(
        &command(DESIGN, &simulator.socket()).output().unwrap(),
        &["cannot listen on"],
    );
    assert_eq!(
        Driver::new(&simulator).read(REG_ID),
        xtent_engine_sim::registers::ID
    );
}

/// Also while a guest waits for it, and while it waits for the guest.
#[test]
fn it_ends_with_a_guest() {
    for timed in [false, true] {
        let mut simulator = Simulator::start_for_guest(DESIGN, &[], timed);
        let guest = Guest::ready(&simulator, timed);
        simulator.signal(Signal::SIGTERM);
        assert!(simulator.wait().success());
        assert!(!simulator.socket().exists() && !simulator.time_socket().exists());
        drop(guest);
        let mut simulator = Simulator::start_for_guest(DESIGN, &["--once"], timed);
        drop(Guest::ready(&simulator, timed));
        assert!(simulator.wait().success());
        let mut simulator = Simulator::start_for_guest(DESIGN, &[], timed);
        let mut guest = Guest::ready(&simulator, timed);
        guest.stream.write_all(&[1, 0, 0]).unwrap();
        simulator.signal(Signal::SIGTERM);
        assert!(simulator.wait().success());
    }
}

/// The clock waits for what does not come, and more writes than may wait are behind it.
#[test]
fn it_ends_with_a_clock_that_stands() {
    let end = |mut simulator: Simulator, clock| {
        simulator.signal(Signal::SIGTERM);
        // Who stopped it has to take note of its end.
        waitpid(clock, Some(WaitPidFlag::__WALL)).unwrap();
        assert!(simulator.wait().success());
        assert!(!simulator.socket().exists());
    };
    let simulator = Simulator::start(DESIGN, &[]);
    let _driver = Driver::new(&simulator);
    let clock = simulator.hold_clock();
    end(simulator, clock);
    let simulator = Simulator::start_for_guest(DESIGN, &[], false);
    let mut guest = Guest::ready(&simulator, false);
    let clock = simulator.hold_clock();
    guest.post(0, 5, 0, 0, BAR_BYTES, &[0]);
    let kick = message(35, VERSION, &words([0, 0]));
    assert!(send(&guest.stream, &kick, &[]));
    end(simulator, clock);
}

#[test]
fn its_socket_is_private_and_goes_away_with_it() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut simulator = Simulator::start(DESIGN, &[]);
        let metadata = fs::metadata(simulator.socket()).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        // With a client, whose connection ends.
        let driver = (signal == Signal::SIGTERM).then(|| Driver::new(&simulator));
        simulator.signal(signal);
        let status = simulator.wait();
        assert_eq!(status.code(), Some(0), "{signal}: {status}");
        assert!(!simulator.socket().exists(), "{signal}");
        drop(driver);
    }
}

#[test]
fn it_ends_after_one_client_if_it_is_to() {
    let mut simulator = Simulator::start(DESIGN, &["--once"]);
    drop(Driver::new(&simulator));
    assert_eq!(simulator.wait().code(), Some(0));
    assert!(!simulator.socket().exists());
}

#[test]
fn the_next_client_finds_a_new_device() {
    let simulator = Simulator::start(DESIGN, &[]);
    for _ in 0..3 {
        let mut driver = Driver::new(&simulator);
        let register = common::ring_register(0, RING_SQ_LO);
        assert_eq!(driver.read(register), 0);
        driver.write(register, 0x40);
        assert_eq!(driver.read(register), 0x40);
        driver.client.reset().unwrap();
        assert_eq!(driver.read(register), 0);
        driver.write(register, 0x80);
    }
}
