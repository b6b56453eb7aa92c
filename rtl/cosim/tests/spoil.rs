//! Faults around the co-processor: what a driver sees of each, and that nothing else changes.
#![allow(clippy::unwrap_used)]

mod common;

use common::expected::units;
use common::guest::Guest;
use common::{DATA, DONE, Driver, OUT, Simulator, Submission, guest, noise, place, ring_register};
use xtent_engine_sim::registers::*;

fn run(cookie: u64) -> Submission {
    Submission {
        op: OP_RUN,
        log2_unit: 9,
        step: 1,
        units: 2,
        source: place(DATA),
        destination: place(OUT),
        cookie,
        ..Submission::default()
    }
}

fn driver(simulator: &Simulator) -> Driver {
    let mut driver = Driver::new(simulator);
    set_up(&mut driver);
    driver
}

fn set_up(driver: &mut Driver) {
    assert_eq!(driver.key(0, CIPHER_XTS, 256, &noise(1, 64)), DONE);
    driver.ring(0);
    driver.put(DATA, &noise(2, 1024));
}

/// Statuses of this many runs, one after the other, on a device with a fault.
fn statuses(spoil: &str, count: u64) -> Vec<u8> {
    let simulator = Simulator::start("xts", &["--spoil", spoil]);
    let mut driver = driver(&simulator);
    (0..count)
        .map(|cookie| driver.run(0, &run(cookie)).status)
        .collect()
}

#[test]
fn reads_fail() {
    assert_eq!(
        statuses("read-error:2", 6),
        [0, STATUS_READ, 0, STATUS_READ, 0, STATUS_READ]
    );
}

/// The device then writes over what it had written, so there must be room for that before the next fails.
#[test]
fn writes_fail() {
    let all = statuses("write-error:50", 60);
    let wrong = |status: &&u8| **status != STATUS_DONE;
    let errors: Vec<_> = all.iter().filter(wrong).collect();
    assert!((4..8).contains(&errors.len()), "{all:?}");
    assert!(errors.iter().all(|&&status| status == STATUS_WRITE));
}

#[test]
fn completions_are_wrong() {
    let simulator = Simulator::start(
        "xts",
        &["--spoil", "wrong-cookie:2,wrong-units:3,bad-status:5"],
    );
    let mut driver = driver(&simulator);
    for i in 1..=10_u64 {
        driver.submit(0, &run(i));
        driver.doorbell(0);
        let completion = driver.completion(0);
        let cookie = if i % 2 == 0 { !i } else { i };
        let units = if i % 3 == 0 { 3 } else { 2 };
        let status = if i % 5 == 0 { 0xff } else { STATUS_DONE };
        assert_eq!(
            (completion.cookie, completion.units, completion.status),
            (cookie, units, status)
        );
    }
}

#[test]
fn completions_are_lost_or_double() {
    let simulator = Simulator::start("xts", &["--spoil", "lost-completion:3,double-completion:2"]);
    let mut driver = driver(&simulator);
    driver.submit(0, &run(1));
    driver.submit(0, &run(2));
    driver.doorbell(0);
    assert_eq!([(); 2].map(|()| driver.completion(0).cookie), [1, 2]);
    // Whoever believes it reads beyond what the device has completed.
    while driver.read(ring_register(0, RING_COMPLETED)) != 2 {}
    assert_eq!(driver.completed(0).unwrap().cookie, 2);
    driver.interrupt(1);
    let code = driver.field(REG_FAULT, FAULT_CODE_LOW.into(), FAULT_CODE_BITS.into());
    assert_eq!(code, u32::from(FAULT_DOORBELL));
    driver.write(REG_FAULT, 1);
    driver.write(ring_register(0, RING_CONTROL), 0);
    while driver.read(ring_register(0, RING_STATE)) >> RING_STATE_ACTIVE_LOW & 1 != 0 {}
    driver.acknowledge(u32::MAX);
    // Those of the first two, as far as nobody has waited for them.
    driver.signals(0);
    driver.ring(0);
    // The third.
    driver.submit(0, &run(3));
    driver.doorbell(0);
    driver.interrupt(0);
    assert_eq!(driver.read(ring_register(0, RING_COMPLETED)), 1);
    assert_eq!(driver.completed(0), None);
}

#[test]
fn interrupts_are_lost() {
    let simulator = Simulator::start("xts", &["--spoil", "lost-interrupt:2"]);
    let mut driver = driver(&simulator);
    driver.run(0, &run(1));
    driver.acknowledge(1);
    driver.submit(0, &run(2));
    driver.doorbell(0);
    while driver.read(REG_INT_STATUS) & 1 == 0 {}
    assert_eq!(driver.completed(0).unwrap().cookie, 2);
    driver.acknowledge(1);
    driver.submit(0, &run(3));
    driver.doorbell(0);
    assert_eq!(driver.interrupt(0), 1, "that of the second came");
}

/// When interrupts come, of a run after the doorbell.
fn times(spoil: &str) -> Vec<u64> {
    let simulator = Simulator::start_for_guest("xts", &["--spoil", spoil], true);
    let mut guest = Guest::ready(&simulator, true);
    guest.set_up(&noise(1, 64));
    guest.sleep_until(10_000);
    guest.submit(&Submission {
        source: guest::BASE + DATA,
        destination: guest::BASE + OUT,
        ..run(1)
    });
    guest.sleep_until(10_000_000);
    assert_eq!(guest.completed().unwrap().status, STATUS_DONE);
    guest.msis.iter().map(|msi| msi.time).collect()
}

#[test]
fn interrupts_are_late_or_double() {
    let [right] = times("hang:100")[..] else {
        panic!("not one interrupt")
    };
    assert_eq!(times("late-interrupt:1"), [right + 1_000_000]);
    assert_eq!(times("double-interrupt:1"), [right, right + 10_000]);
    assert!(times("lost-interrupt:1").is_empty());
}

#[test]
fn it_hangs_until_a_reset() {
    let simulator = Simulator::start("xts", &["--spoil", "hang:2"]);
    let mut driver = driver(&simulator);
    driver.run(0, &run(1));
    for round in 0..3 {
        // The completion is there, and the bus has not answered for it.
        for cookie in [2, 3] {
            driver.submit(0, &run(cookie));
        }
        driver.doorbell(0);
        while driver.completed(0).is_none() {}
        let state = |driver: &mut Driver| driver.read(ring_register(0, RING_COMPLETED));
        assert_eq!((state(&mut driver), driver.completed(0)), (1, None));
        assert_eq!(driver.read(REG_STATUS) >> STATUS_IDLE_LOW & 1, 0);
        driver.write(REG_CTRL, 1 << CTRL_RESET_LOW);
        while driver.read(REG_STATUS) >> STATUS_READY_LOW & 1 == 0 {}
        set_up(&mut driver);
        let completion = driver.run(0, &run(4));
        assert_eq!(completion.status, STATUS_DONE, "round {round}");
        let mut wanted = noise(2, 1024);
        units("aes-xts", &noise(1, 64), 512, 0, 1, &mut wanted);
        assert!(driver.get(OUT, 1024) == wanted);
    }
}

/// Simulated time does not wait for a device that hangs.
#[test]
fn time_passes_while_it_hangs() {
    let simulator = Simulator::start_for_guest("xts", &["--spoil", "hang:1"], true);
    let mut guest = Guest::ready(&simulator, true);
    guest.set_up(&noise(1, 64));
    guest.submit(&Submission::default());
    guest.sleep_until(1_000_000_000_000);
    assert!(guest.msis.is_empty());
    guest.write(REG_CTRL, 1 << CTRL_RESET_LOW);
    while guest.read(REG_STATUS) >> STATUS_READY_LOW & 1 == 0 {}
}

/// Ones also where cycles that were skipped are added.
#[test]
fn counters_vanish_too() {
    let simulator = Simulator::start_for_guest("xts", &["--spoil", "vanish:1"], true);
    let mut guest = Guest::ready(&simulator, true);
    guest.set_up(&noise(1, 64));
    guest.sleep_until(1_000_000_000);
    guest.write(REG_COUNTER_CTRL, 1 << COUNTER_CTRL_SNAPSHOT_LOW);
    assert!(guest.read(REG_COUNTER_TOTAL) >= 90_000_000);
    guest.submit(&Submission::default());
    guest.sleep_until(1_001_000_000);
    for register in [REG_COUNTER_TOTAL, REG_COUNTER_IDLE, REG_COUNTER_INTERRUPT] {
        let halves = [register, register + 4].map(|half| guest.read(half));
        assert_eq!(halves, [u32::MAX; 2]);
    }
}

/// Whoever brings eventfds is not told of a line that was up.
#[test]
fn lines_vanish_too() {
    let simulator = Simulator::start("xts", &["--spoil", "vanish:2"]);
    let mut driver = driver(&simulator);
    for i in 1..=2 {
        driver.submit(0, &run(i));
        driver.doorbell(0);
        while driver.completed(0).is_none() {}
        if i == 1 {
            driver.interrupt(0);
        }
    }
    assert_eq!(driver.read(REG_ID), u32::MAX);
    driver.show_eventfds();
    assert_eq!(driver.signals(0), 0);
}

#[test]
fn it_vanishes_for_good() {
    let mut simulator = Simulator::start("xts", &["--spoil", "vanish:2"]);
    let mut driver = driver(&simulator);
    driver.run(0, &run(1));
    driver.submit(0, &run(2));
    driver.doorbell(0);
    while driver.completed(0).is_none() {}
    assert_eq!(driver.read(REG_ID), u32::MAX);
    driver.write(REG_CTRL, 1 << CTRL_RESET_LOW);
    driver.client.reset().unwrap();
    assert_eq!(driver.read(REG_STATUS), u32::MAX);
    drop(driver);
    let mut guest = vfio_user::Client::new(&simulator.socket()).unwrap();
    let mut id = [0; 4];
    guest.region_read(0, REG_ID.into(), &mut id).unwrap();
    assert_eq!(id, [0xff; 4]);
    assert!(simulator.is_running());
}
