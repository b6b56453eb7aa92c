//! The device as User Mode Linux sees it: over vhost-user, with and without simulated time.
#![allow(clippy::unwrap_used)]

mod common;

use std::os::fd::AsFd;

use common::expected::units;
use common::guest::{BASE, CONFIG, Guest, Msi, OWN, region, words};
use common::{DATA, MEMORY, OUT, Simulator, Submission, noise};
use xtent_engine_sim::registers::*;

/// A run of 4 KiB in units of 512 bytes.
fn run(cookie: u64) -> Submission {
    Submission {
        op: OP_RUN,
        log2_unit: 9,
        step: 1,
        units: 8,
        source: BASE + DATA,
        destination: BASE + OUT,
        cookie,
        ..Submission::default()
    }
}

/// Runs, each waited for; when their interrupts came, after the doorbell.
fn runs(guest: &mut Guest, count: u64) -> Vec<u64> {
    let key = noise(1, 64);
    guest.set_up(&key);
    // The device is ahead of the guest by the registers that were read.
    if let Some(now) = guest.clock.as_ref().map(|clock| clock.now) {
        guest.sleep_until(now + 10_000);
    }
    let mut times = Vec::new();
    for cookie in 0..count {
        let mut data = noise(cookie, 4096);
        guest.put(DATA, &data);
        let start = guest.clock.as_ref().map_or(0, |clock| clock.now);
        guest.submit(&run(cookie));
        let msi = guest.interrupt();
        assert_eq!((msi.address, msi.data), (0xa_0000, 0x40));
        times.push(msi.time - start);
        guest.write(REG_INT_STATUS, 1);
        guest.read(REG_INT_STATUS);
        let completion = guest.completed().unwrap();
        assert_eq!(
            (completion.cookie, completion.status, completion.units),
            (cookie, STATUS_DONE, 8)
        );
        units("aes-xts", &key, 512, 0, 1, &mut data);
        assert!(guest.take(OUT, 4096) == data, "run {cookie}");
    }
    times
}

#[test]
fn it_is_found_on_the_bus() {
    let simulator = Simulator::start_for_guest("xts-2rings", &[], false);
    let mut guest = Guest::new(&simulator, false);
    assert_eq!(guest.read_at(CONFIG, 0, 4), [0x1d, 0x1d, 0x74, 0x78]);
    assert_eq!(guest.read_at(CONFIG, 8, 8)[..4], [0, 0, 0x80, 0x10]);
    guest.write_at(CONFIG, 0x10, &[0xff; 4]);
    assert_eq!(guest.read_at(CONFIG, 0x10, 4), [0, 0xe0, 0xff, 0xff]);
    assert_eq!(guest.read_at(CONFIG, 0x34, 1), [0x40]);
    assert_eq!(guest.read_at(CONFIG, 0x40, 4), [0x11, 0, 2, 0]);
    // Beyond what is there, and before memory space is on.
    assert_eq!(guest.read_at(CONFIG, 0x100, 4), [0xff; 4]);
    assert_eq!(guest.read_at(0, 0, 4), [0xff; 4]);
    guest.write_at(CONFIG, 4, &[2, 0]);
    assert_eq!(guest.read(REG_ID), ID);
    // Not whole words; several of them.
    assert_eq!(guest.read_at(0, 0, 2), [0xff; 2]);
    assert_eq!(guest.read_at(0, 2, 4), [0xff; 4]);
    let version = (u32::from(MAJOR) << 16 | u32::from(MINOR)).to_le_bytes();
    assert_eq!(guest.read_at(0, 0, 8), [ID.to_le_bytes(), version].concat());
    // Filled: the table of MSI-X, as far as it can be written.
    guest.command(5, 2, 0, 16, &[0xff]);
    let entry = guest.read_at(2, 0, 16);
    assert_eq!(
        entry,
        [[0xfc].as_slice(), &[0xff; 11], &[1, 0, 0, 0]].concat()
    );
}

#[test]
fn it_encrypts_and_interrupts() {
    let simulator = Simulator::start_for_guest("xts", &[], false);
    for _ in 0..2 {
        let mut guest = Guest::ready(&simulator, false);
        assert_eq!(guest.read(REG_KEY_SLOTS), 0, "a key of the guest before");
        runs(&mut guest, 20);
    }
}

#[test]
fn masked_interrupts_wait() {
    let simulator = Simulator::start_for_guest("xts", &[], false);
    let mut guest = Guest::ready(&simulator, false);
    guest.set_up(&noise(1, 64));
    let pending = |guest: &mut Guest| guest.read_at(2, 0x800, 1)[0];
    // The vector's mask; all vectors' mask.
    for (bar, at, mask, unmask) in [(2, 12, 1, 0), (CONFIG, 0x43, 0xc0, 0x80)] {
        guest.write_at(bar, at, &[mask]);
        guest.submit(&Submission::default());
        while pending(&mut guest) == 0 {}
        assert!(guest.msis.is_empty());
        guest.write_at(bar, at, &[unmask]);
        assert_eq!(guest.interrupt().data, 0x40);
        assert_eq!(pending(&mut guest), 0);
        guest.write(REG_INT_STATUS, 1);
    }
    // Without bus mastering there is no descriptor, and the interrupt of that fault waits, too.
    guest.write_at(CONFIG, 4, &[2, 0]);
    guest.submit(&Submission::default());
    while pending(&mut guest) != 2 {}
    assert!(guest.msis.is_empty());
    guest.write_at(CONFIG, 4, &[6, 0]);
    assert_eq!(guest.interrupt().data, 0x41);
    assert_eq!(guest.read(REG_FAULT) & 0xff, u32::from(FAULT_DESCRIPTOR));
}

/// What a run took in simulated time, in all of the ways that options change.
fn times(options: &[&str]) -> Vec<u64> {
    let simulator = Simulator::start_for_guest("xts", options, true);
    let mut guest = Guest::ready(&simulator, true);
    runs(&mut guest, 5)
}

#[test]
fn time_is_the_same_in_every_run() {
    let first = times(&[]);
    assert_eq!(first, times(&[]));
    // At 100 MHz, as the model says that it has, in cycles of 10 ns.
    assert!(
        first.iter().all(|time| (4000..4600).contains(time)),
        "{first:?}"
    );
    let fast = times(&["--mhz", "200"]);
    let halves: Vec<_> = first.iter().map(|time| time / 2).collect();
    assert_eq!(fast, halves);
    let later: Vec<_> = first.iter().map(|time| time + 1230).collect();
    assert_eq!(times(&["--interrupt-latency", "1230"]), later);
}

/// For the guest, doorbell to interrupt is as many cycles as the co-processor's counters say that the request
/// was under way, whatever the clock.
#[test]
fn a_request_takes_its_cycles() {
    for mhz in [6, 100, 333] {
        let options = ["--mhz", &mhz.to_string(), "--register-latency", "1000"];
        let simulator = Simulator::start_for_guest("xts", &options, true);
        let mut guest = Guest::ready(&simulator, true);
        guest.set_up(&noise(1, 64));
        for cookie in 0..3 {
            let now = guest.clock.as_ref().unwrap().now + 1_000_000;
            guest.sleep_until(now);
            guest.write(REG_COUNTER_CTRL, 1 << COUNTER_CTRL_CLEAR_LOW);
            guest.sleep_until(now + 1_000_000 + 321 * cookie);
            let start = guest.clock.as_ref().unwrap().now;
            guest.submit(&run(cookie));
            let time = guest.interrupt().time - start;
            guest.write(REG_COUNTER_CTRL, 1 << COUNTER_CTRL_SNAPSHOT_LOW);
            guest.write(REG_INT_STATUS, 1);
            let cycles: u64 = (REG_COUNTER_FETCH..REG_COUNTER_INTERRUPT)
                .step_by(8)
                .map(|row| u64::from(guest.read(row)))
                .sum();
            // The doorbell waits for the next cycle, and is two on the bus.
            let more = (time * mhz).div_ceil(1000) - cycles;
            assert!(
                [2, 3].contains(&more),
                "{time} ns for {cycles} cycles at {mhz} MHz"
            );
            guest.completed().unwrap();
        }
    }
}

#[test]
fn a_read_takes_its_time() {
    let simulator = Simulator::start_for_guest("xts", &["--register-latency", "1700"], true);
    let mut guest = Guest::ready(&simulator, true);
    let start = guest.clock.as_ref().unwrap().now;
    assert_eq!(guest.read(REG_ID), ID);
    // The guest looks once in 1000.
    assert_eq!(guest.clock.as_ref().unwrap().now - start, 2000);
    guest.write(REG_INT_STATUS, 1);
    assert_eq!(guest.clock.as_ref().unwrap().now - start, 2000);
    runs(&mut guest, 2);
}

/// A read whose answer takes time, and behind it a write that unmasks what is pending.
#[test]
fn a_write_behind_a_read_unmasks() {
    let simulator = Simulator::start_for_guest("xts", &["--register-latency", "1700"], true);
    let mut guest = Guest::ready(&simulator, true);
    guest.set_up(&noise(1, 64));
    guest.write_at(2, 12, &[1]);
    guest.submit(&Submission::default());
    while guest.read_at(2, 0x800, 1) == [0] {}
    let now = guest.clock.as_ref().unwrap().now;
    guest.post(0, 3, 0, 0, 4, &[]);
    guest.post(1, 4, 2, 12, 1, &[0]);
    guest.kick(0);
    guest.sleep_until(now + 10_000);
    assert!(guest.taken(0).is_some() && guest.taken(0).is_some());
    assert_eq!(guest.interrupt().time, now + 1700);
}

/// A read whose answer is on its way when its queue is turned off, or the memory is shown anew.
#[test]
fn an_answer_that_nobody_waits_for_is_not_written() {
    let simulator = Simulator::start_for_guest("xts", &["--register-latency", "1700"], true);
    for (request, body) in [
        (18, words([0, 0])),
        (11, words([0, 0])),
        (5, [words([1, 0]), region(BASE, MEMORY, OWN, 0)].concat()),
    ] {
        let mut guest = Guest::ready(&simulator, true);
        guest.post(0, 3, 0, 0, 4, &[]);
        guest.kick(0);
        let memory = guest.memory.try_clone().unwrap();
        let files = if request == 5 {
            &[memory.as_fd()][..]
        } else {
            &[]
        };
        // The base of a queue is an answer of its own.
        let done = guest.try_tell(request, &body, files);
        assert!(done || request == 11, "message {request}");
        let bytes = usize::try_from(MEMORY).unwrap();
        let before = guest.take(0, bytes);
        let now = guest.clock.as_ref().unwrap().now;
        guest.sleep_until(now + 10_000);
        assert!(guest.take(0, bytes) == before, "message {request}");
    }
}

/// A guest that turns an interrupt on and off again and again, and never waits.
#[test]
fn interrupts_that_nobody_takes_are_one() {
    let simulator = Simulator::start_for_guest("xts", &[], true);
    let mut guest = Guest::ready(&simulator, true);
    guest.set_up(&noise(1, 64));
    guest.submit(&Submission::default());
    guest.interrupt();
    for _ in 0..200 {
        guest.write(REG_INT_SET, 1);
        guest.write(REG_INT_CLEAR, 1);
    }
    // Writes that have not reached the device raise more, each in a time of its own.
    guest.read(REG_ID);
    let now = guest.clock.as_ref().unwrap().now;
    guest.sleep_until(now + 100_000);
    assert_eq!(guest.msis.len(), 1);
}

/// A timer of the device, which nobody wakes; and all cycles are in the counters, those that were skipped
/// too.
#[test]
fn time_passes_while_nothing_happens() {
    let simulator = Simulator::start_for_guest("xts", &[], true);
    let mut guest = Guest::ready(&simulator, true);
    guest.set_up(&noise(1, 64));
    guest.sleep_until(1_000_000);
    guest.write(REG_COUNTER_CTRL, 1 << COUNTER_CTRL_CLEAR_LOW);
    guest.sleep_until(3_000_000_000);
    guest.write(
        RINGS_OFFSET + RING_COALESCE,
        200 << RING_COALESCE_US_LOW | 8,
    );
    guest.submit(&Submission::default());
    let Msi { time, .. } = guest.interrupt();
    assert!((3_000_200_000..3_000_203_000).contains(&time), "{time}");
    // It stands for a second.
    guest.sleep_until(time + 1_000_000_000);
    guest.write(REG_COUNTER_CTRL, 1 << COUNTER_CTRL_SNAPSHOT_LOW);
    let mut counter = |register: u32| {
        let (low, high) = (guest.read(register), guest.read(register + 4));
        u64::from(high) << 32 | u64::from(low)
    };
    let total = counter(REG_COUNTER_TOTAL);
    // From the clear to the snapshot, each some cycles after the guest wrote it.
    assert!(
        total.abs_diff((time + 1_000_000_000 - 1_000_000) / 10) < 8,
        "{total}"
    );
    let idle = counter(REG_COUNTER_IDLE);
    assert!(
        (299_900_000..300_000_000 + 20_300).contains(&idle),
        "{idle}"
    );
    let interrupt = counter(REG_COUNTER_INTERRUPT);
    assert!(interrupt.abs_diff(100_000_000) < 8, "{interrupt}");
    let rows: u64 = (REG_COUNTER_FETCH..=REG_COUNTER_IDLE)
        .step_by(8)
        .map(&mut counter)
        .sum();
    assert_eq!(rows, total);
}

#[test]
fn a_guest_may_come_again() {
    let mut simulator = Simulator::start_for_guest("xts", &[], true);
    let first = runs(&mut Guest::ready(&simulator, true), 2);
    let mut guest = Guest::ready(&simulator, true);
    assert_eq!(guest.read(REG_KEY_SLOTS), 0);
    assert_eq!(runs(&mut guest, 2), first);
    drop(guest);
    // One whose time is its own does not get the device.
    let mut guest = Guest::raw(&simulator, false);
    assert!(!guest.try_tell(3, &[], &[]));
    assert!(simulator.is_running());
}
