//! Tokens of type systemd-fido2, with security keys in software. They need the kernel's uhid,
//! loop devices and dm-crypt, and to be the only such keys of the machine: `make test-fido2` runs
//! this in a guest.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use xtent_tests::fido2::SecurityKey;
use xtent_tests::luks::{Container, Maker, Shape};
use xtent_tests::nbd::nbdsh;
use xtent_tests::scratch::assert_same;
use xtent_tests::terminal::Terminal;
use xtent_tests::xtent::{binary, token_helper, xtent};
use xtent_tests::{Cmd, Scratch, pattern};

const PASSPHRASE: &str = "typed by nobody in these tests";
const PIN: &str = "2468";
const WITH_PIN: &[&str] = &["--fido2-with-client-pin=yes"];

fn volume(maker: Maker, scratch: &Scratch) -> Container {
    Shape::LUKS2.image_with_key(maker, scratch, 1 << 20, PASSPHRASE.as_bytes())
}

/// A command of `xtent` that may use tokens, on an emulated machine, where the helper may belong to
/// another user than this root.
fn unlocking(words: &[&str]) -> Cmd {
    let helpers = token_helper().parent().unwrap().display();
    xtent()
        .args(words)
        .arg("--token-timeout=300")
        .arg(format!("--token-helpers={helpers}"))
}

/// `xtent key test` that may use tokens only.
fn by_token(image: &Path) -> Cmd {
    unlocking(&["key", "test", "--json", "--token-only"]).arg(image)
}

fn assert_opened(command: Cmd, token: u32, keyslot: u32) {
    let found = command.ok().json();
    assert_eq!(found["token"], token, "{found}");
    assert_eq!(found["keyslot"], keyslot, "{found}");
}

/// What cryptsetup does with the tokens, without any passphrase.
fn cryptsetup_by_token(image: &Path, token: u32) {
    Cmd::peer("cryptsetup")
        .args(["open", "--test-passphrase", "--token-only"])
        .args(["--token-id", &token.to_string()])
        .arg(image)
        .ok();
}

#[test]
#[ignore = "needs uhid: make test-fido2"]
fn a_touch_opens_the_volume_for_every_command() {
    let scratch = Scratch::new();
    let container = volume(Maker::Cryptsetup, &scratch);
    let image = &container.image;
    let data = pattern(1 << 20, 7);
    container.encrypt(&data);
    let key = SecurityKey::touched("one", &[]);
    key.enroll(image, PASSPHRASE, &[], "");
    let listed = xtent().args(["token", "list"]).arg(image).ok().out();
    assert_eq!(listed, "token 0: systemd-fido2, for keyslot 1\n");
    let plain = scratch.join("plain");
    unlocking(&["decrypt", "--token-only"])
        .args([image, &plain])
        .ok();
    assert_same(&fs::read(&plain).unwrap(), &data, "decrypted");

    let socket = scratch.join("nbd");
    let mut server = unlocking(&["serve", "--token-only"])
        .arg(format!("--nbd=unix:{}", socket.display()))
        .arg(image)
        .spawn();
    server.wait_for_line(|line| line.contains("nbd+unix"));
    nbdsh(
        &format!("nbd+unix:///?socket={}", socket.display()),
        &format!("assert h.pread(4, 0) == bytes({:?})", &data[..4]),
    );
    server.signal(Signal::TERM);
    assert_eq!(server.finish().code(), Some(0));

    let device = Cmd::peer("losetup")
        .args(["--find", "--show"])
        .arg(image)
        .ok()
        .out();
    unlocking(&["open", "--token-only", "xtent-fido2", device.trim()]).ok();
    let mapped = fs::read("/dev/mapper/xtent-fido2");
    xtent().args(["close", "xtent-fido2"]).ok();
    Cmd::peer("losetup").args(["--detach", device.trim()]).ok();
    assert_same(&mapped.unwrap(), &data, "mapped");
}

/// The person is told to touch it, and the command waits for that.
#[test]
#[ignore = "needs uhid: make test-fido2"]
fn the_touch_is_asked_for_and_waited_for() {
    let scratch = Scratch::new();
    let image = volume(Maker::Xtent, &scratch).image;
    SecurityKey::touched("one", &[]).enroll(&image, PASSPHRASE, &[], "");
    let mut key = SecurityKey::untouched("one", &[]);
    let command =
        || Terminal::start(unlocking(&["key", "test", "--token-only", "--quiet"]).arg(&image));
    let mut terminal = command();
    terminal.expect("token 0: Please confirm presence on security token");
    key.wait_until_it_blinks();
    key.touch();
    let (code, shown) = terminal.end();
    assert_eq!(code, 0, "{shown}");

    // Ctrl-C, of which the key learns nothing: it blinks on until its own time is over.
    let mut terminal = command();
    terminal.expect("Please confirm presence");
    key.wait_until_it_blinks();
    terminal.interrupt();
    let (code, shown) = terminal.end();
    assert_eq!(code, 130, "{shown}");
    by_token(&image).fails(2).says(&["still blinks"]);
    key.run_out_of_patience();
    let waiting = by_token(&image).spawn();
    key.wait_until_it_blinks();
    key.touch();
    assert_eq!(waiting.finish().json()["token"], 0);

    // Nobody touches it.
    let waiting = by_token(&image).spawn();
    key.wait_until_it_blinks();
    key.run_out_of_patience();
    let done = waiting.finish();
    assert_eq!(done.code(), Some(2), "{}", done.text());
    done.says(&["no token opens", "it was not touched in time"]);
    by_token(&image)
        .arg("--token-timeout=3")
        .fails(2)
        .says(&["token 0", "no answer in 3 s"]);
    // It may blink by now or not.
    key.pull();

    // Pulled out while it blinks; then the passphrase is next.
    let mut key = SecurityKey::untouched("one", &[]);
    let mut terminal = Terminal::start(unlocking(&["key", "test"]).arg(&image));
    terminal.expect("Please confirm presence");
    key.wait_until_it_blinks();
    key.pull();
    terminal.expect("was pulled out");
    terminal.expect("Passphrase for");
    terminal.type_secret(PASSPHRASE);
    terminal.expect("opens keyslot 0");
    assert_eq!(terminal.end().0, 0);
}

#[test]
#[ignore = "needs uhid: make test-fido2"]
fn the_right_key_is_found_among_those_that_are_there() {
    let scratch = Scratch::new();
    let image = volume(Maker::Xtent, &scratch).image;
    let one = SecurityKey::touched("one", &[]);
    one.enroll(&image, PASSPHRASE, &[], "");
    one.pull();
    by_token(&image)
        .fails(2)
        .says(&["token 0 (systemd-fido2)", "device is not there"]);
    let _another = SecurityKey::touched("another", &[]);
    by_token(&image)
        .fails(2)
        .says(&["device is not there: Wrong security token"]);
    let _one = SecurityKey::touched("one", &[]);
    assert_opened(by_token(&image), 0, 1);
}

/// libfido2 does not see what it may not open.
#[test]
#[ignore = "needs uhid: make test-fido2"]
fn a_user_who_may_not_open_the_key_is_told_so() {
    let scratch = Scratch::new();
    let image = volume(Maker::Xtent, &scratch).image;
    let key = SecurityKey::touched("one", &[]);
    key.enroll(&image, PASSPHRASE, &[], "");
    // Where every user may go.
    let allow = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    allow(scratch.path());
    allow(&image);
    for program in [binary(), token_helper()] {
        let copy = scratch.join(program.file_name().unwrap().to_str().unwrap());
        fs::copy(program, copy).unwrap();
    }
    Cmd::peer("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(scratch.join("xtent"))
        .args(["key", "test", "--token-only", "--token-timeout=300"])
        .arg(&image)
        .fails(2)
        .says(&["device is not there: /dev/hidraw", "not open to this user"]);
}

/// Without a touch, on keys that allow that; others say what they want when they are enrolled.
#[test]
#[ignore = "needs uhid: make test-fido2"]
fn a_key_may_open_without_a_touch() {
    let scratch = Scratch::new();
    let image = volume(Maker::Cryptsetup, &scratch).image;
    let options = ["--fido2-with-user-presence=no"];
    let key = SecurityKey::touched("one", &["--silent"]);
    key.enroll(&image, PASSPHRASE, &options, "");
    key.pull();
    let key = SecurityKey::untouched("one", &["--silent"]);
    assert_opened(by_token(&image), 0, 1);
    key.pull();

    let key = SecurityKey::touched("two", &[]);
    key.enroll(&image, PASSPHRASE, &options, "");
    by_token(&image)
        .args(["--token-id", "1"])
        .ok()
        .says(&["confirm presence"]);
}

fn assert_pin_is_wanted(protocol: &str) {
    let scratch = Scratch::new();
    let image = volume(Maker::Xtent, &scratch).image;
    let key = SecurityKey::touched("one", &["--pin", PIN, "--protocol", protocol]);
    key.enroll(&image, PASSPHRASE, WITH_PIN, PIN);
    by_token(&image).fails(2).says(&["token 0", "needs a PIN"]);
    let (wrong, right) = (
        scratch.file("wrong", b"1357\n"),
        scratch.file("right", format!("{PIN}\n").as_bytes()),
    );
    let with = |file: &Path| by_token(&image).arg("--token-pin-file").arg(file);
    with(&wrong).fails(2).says(&["token 0", "PIN is wrong"]);
    assert_opened(with(&right), 0, 1);
    // As systemd gives it to a unit.
    let credentials = scratch.folder("credentials");
    fs::write(credentials.join("cryptsetup.fido2-pin"), PIN).unwrap();
    assert_opened(
        by_token(&image).env("CREDENTIALS_DIRECTORY", &credentials),
        0,
        1,
    );
}

#[test]
#[ignore = "needs uhid: make test-fido2"]
fn a_pin_is_wanted_by_protocol_1() {
    assert_pin_is_wanted("1");
}

#[test]
#[ignore = "needs uhid: make test-fido2"]
fn a_pin_is_wanted_by_protocol_2() {
    assert_pin_is_wanted("2");
}

#[test]
#[ignore = "needs uhid: make test-fido2"]
fn the_pin_is_asked_for_on_the_terminal() {
    let scratch = Scratch::new();
    let image = volume(Maker::Xtent, &scratch).image;
    let key = SecurityKey::touched("one", &["--pin", PIN]);
    key.enroll(&image, PASSPHRASE, WITH_PIN, PIN);
    let mut terminal = Terminal::start(unlocking(&["key", "test"]).arg(&image));
    terminal.expect("PIN of token 0 (systemd-fido2)");
    terminal.type_secret("1357");
    terminal.expect("the PIN is wrong");
    terminal.expect("PIN of token 0 (systemd-fido2)");
    terminal.type_secret(PIN);
    terminal.expect("Unlocked by token 0 (systemd-fido2), keyslot 1");
    let (code, shown) = terminal.end();
    assert_eq!(code, 0, "{shown}");

    // After three wrong ones a key takes none until it is plugged in again.
    let mut terminal = Terminal::start(unlocking(&["key", "test"]).arg(&image));
    for _ in 0..3 {
        terminal.expect("PIN of token 0 (systemd-fido2)");
        terminal.type_secret("1357");
    }
    terminal.expect("plug it in again");
    terminal.expect("Passphrase for");
    terminal.interrupt();
    let (code, shown) = terminal.end();
    assert_eq!(code, 130, "{shown}");
    assert!(!shown.contains(PIN) && !shown.contains("1357"), "{shown}");
}

/// What Xtent adds and takes away leaves the rest to cryptsetup and systemd.
#[test]
#[ignore = "needs uhid: make test-fido2"]
fn one_of_two_keys_is_removed() {
    let scratch = Scratch::new();
    let image = volume(Maker::Cryptsetup, &scratch).image;
    let one = SecurityKey::touched("one", &[]);
    one.enroll(&image, PASSPHRASE, &[], "");
    one.pull();
    let two = SecurityKey::touched("two", &[]);
    two.enroll(&image, PASSPHRASE, &[], "");
    // A touch lets somebody in who types from now on.
    let new = scratch.file("new", b"new passphrase");
    unlocking(&["key", "add", "--token-only", "--pbkdf", "pbkdf2"])
        .args(["--pbkdf-force-iterations", "1000", "--new-key-file"])
        .args([&new, &image])
        .ok();
    xtent()
        .args(["token", "remove", "--token-id", "0"])
        .arg(&image)
        .ok();
    xtent()
        .args(["key", "kill", "--key-file"])
        .args([&new, &image])
        .arg("1")
        .ok();
    let slots = Cmd::peer("systemd-cryptenroll").arg(&image).ok().out();
    let slots: Vec<Vec<&str>> = slots
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        slots,
        [["0", "password"], ["2", "fido2"], ["3", "password"]]
    );
    assert_opened(by_token(&image), 1, 2);
    cryptsetup_by_token(&image, 1);
    let attached = Cmd::new("/lib/systemd/systemd-cryptsetup")
        .args(["attach", "xtent-fido2"])
        .arg(&image)
        .args(["-", "fido2-device=auto,headless"])
        .run();
    Cmd::peer("cryptsetup").args(["close", "xtent-fido2"]).ok();
    assert_eq!(attached.code(), Some(0), "{}", attached.text());

    // And systemd's own removal leaves ours working.
    Cmd::peer("systemd-cryptenroll")
        .arg("--wipe-slot=fido2")
        .arg(&image)
        .ok();
    by_token(&image).fails(1).says(&["no token"]);
    let found = xtent()
        .args(["key", "test", "--json", "--key-file"])
        .args([&new, &image])
        .ok();
    assert_eq!(found.json()["keyslot"], 3);
}
