//! What happens around a request: memory that is not there, interrupts, clients that leave, counters.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::os::fd::AsRawFd;

use common::expected::units;
use common::{
    DATA, DONE, Driver, LOG_RING, OUT, Simulator, Submission, noise, place, ring_register,
};
use rustix::fs::{MemfdFlags, memfd_create};
use xtent_engine_sim::registers::*;

/// Memory that the device cannot reach ends a request with an error, and no other.
#[test]
fn memory_that_is_not_there() {
    let simulator = Simulator::start("xts", &[]);
    let mut driver = Driver::new(&simulator);
    let key = noise(6, 64);
    assert_eq!(driver.key(0, CIPHER_XTS, 256, &key), DONE);
    driver.ring(0);
    let other = File::from(memfd_create("other", MemfdFlags::CLOEXEC).unwrap());
    other.set_len(0x2000).unwrap();
    let elsewhere = 0x7000_0000_0000;
    driver
        .client
        .dma_map(0, elsewhere, 0x2000, other.as_raw_fd())
        .unwrap();
    let good = Submission {
        op: OP_RUN,
        log2_unit: 9,
        step: 1,
        units: 16,
        source: place(DATA),
        destination: place(OUT),
        ..Submission::default()
    };
    let data = noise(7, 16 * 512);
    driver.put(DATA, &data);
    let mut wanted = data.clone();
    units("aes-xts", &key, 512, 0, 1, &mut wanted);
    let from = |source| Submission { source, ..good };
    let to = |destination| Submission {
        destination,
        ..good
    };
    let check_good = |driver: &mut Driver| {
        assert_eq!(driver.run(0, &good).status, STATUS_DONE);
        assert!(driver.get(OUT, data.len()) == wanted);
        driver.put(OUT, &vec![0; data.len()]);
    };
    let unread = |driver: &mut Driver, submission| {
        let completion = driver.run(0, &submission);
        assert_eq!(completion.status, STATUS_READ, "{submission:?}");
        check_good(driver);
        completion.units
    };
    // What cannot be written cannot be erased either, as the device has to: that stops the ring.
    let unwritten = |driver: &mut Driver, submission| {
        let completion = driver.run(0, &submission);
        assert_eq!(completion.status, STATUS_WRITE, "{submission:?}");
        assert_eq!(driver.interrupt(1), 1);
        let code = driver.field(REG_FAULT, FAULT_CODE_LOW.into(), FAULT_CODE_BITS.into());
        assert_eq!(code, u32::from(FAULT_ERASE));
        driver.write(REG_FAULT, 1);
        driver.write(ring_register(0, RING_CONTROL), 0);
        while driver.read(ring_register(0, RING_STATE)) >> RING_STATE_ACTIVE_LOW & 1 != 0 {}
        driver.acknowledge(u32::MAX);
        driver.ring(0);
        check_good(driver);
        completion.units
    };
    assert_eq!(unread(&mut driver, from(elsewhere + 0x10_0000)), 0);
    assert_eq!(unwritten(&mut driver, to(elsewhere + 0x10_0000)), 0);
    // Four units are there, and all.
    assert!(unread(&mut driver, from(elsewhere + 0x1800)) <= 4);
    assert_eq!(driver.run(0, &from(elsewhere)).status, STATUS_DONE);
    other.set_len(0x1000).unwrap();
    assert!(unread(&mut driver, from(elsewhere)) <= 8);
    assert!(unwritten(&mut driver, to(elsewhere)) <= 8);
    other.set_len(0).unwrap();
    assert_eq!(unread(&mut driver, from(elsewhere)), 0);
    assert_eq!(unwritten(&mut driver, to(elsewhere)), 0);
    assert_eq!(
        other.metadata().unwrap().len(),
        0,
        "the file was made longer"
    );
    driver.client.dma_unmap(elsewhere, 0x2000).unwrap();
    assert_eq!(unread(&mut driver, from(elsewhere)), 0);
    // Without bus mastering there is no descriptor either.
    driver
        .client
        .region_write(common::CONFIG, 4, &2_u16.to_le_bytes())
        .unwrap();
    driver.submit(0, &good);
    driver.doorbell(0);
    driver.interrupt(1);
    assert_eq!(
        driver.field(REG_FAULT, FAULT_CODE_LOW.into(), FAULT_CODE_BITS.into()),
        u32::from(FAULT_DESCRIPTOR)
    );
}

#[test]
fn interrupts_go_to_their_vectors() {
    let simulator = Simulator::start("xts-2rings", &[]);
    let mut driver = Driver::new(&simulator);
    driver.ring(0);
    driver.ring(1);
    for (ring, cookie) in [(1, 5), (0, 6), (1, 7), (1, 8), (0, 9)] {
        let submission = Submission {
            cookie,
            ..Submission::default()
        };
        driver.submit(ring, &submission);
        driver.doorbell(ring);
        assert_eq!(driver.interrupt(ring), 1);
        assert_eq!(driver.read(REG_INT_STATUS), 1 << ring);
        driver.acknowledge(1 << ring);
        let completion = driver.completed(ring).unwrap();
        assert_eq!(
            (completion.status, completion.cookie),
            (STATUS_DONE, cookie)
        );
    }
    // Beyond the ring: a fault of ring 1, and ring 0 goes on.
    let tail = (1_u32 << LOG_RING) + 4;
    driver.write(ring_register(1, RING_TAIL), tail);
    assert_eq!(driver.interrupt(2), 1);
    assert_eq!(driver.read(REG_INT_STATUS), 1 << INT_STATUS_FAULT_LOW);
    let fault = u32::from(FAULT_DOORBELL) | 1 << FAULT_RING_LOW;
    assert_eq!(driver.read(REG_FAULT), fault);
    assert_eq!(driver.run(0, &Submission::default()).status, STATUS_DONE);
}

/// The clock runs until the timer has.
#[test]
fn interrupts_that_wait() {
    let simulator = Simulator::start("xts", &[]);
    let mut driver = Driver::new(&simulator);
    driver.write(
        ring_register(0, RING_COALESCE),
        200 << RING_COALESCE_US_LOW | 8,
    );
    driver.ring(0);
    for cookie in 0..3 {
        driver.submit(
            0,
            &Submission {
                cookie,
                ..Submission::default()
            },
        );
    }
    driver.doorbell(0);
    assert_eq!(driver.interrupt(0), 1);
    for cookie in 0..3 {
        assert_eq!(driver.completed(0).unwrap().cookie, cookie);
    }
}

/// Who leaves takes keys, rings and requests along.
#[test]
fn clients_that_leave() {
    let simulator = Simulator::start("xts", &[]);
    for round in 0..4 {
        let mut driver = Driver::new(&simulator);
        assert_eq!(driver.read(REG_KEY_SLOTS), 0);
        assert_eq!(driver.read(ring_register(0, RING_CONTROL)), 0);
        assert_eq!(
            driver.read(REG_STATUS) & 7,
            1 << STATUS_READY_LOW | 1 << STATUS_IDLE_LOW
        );
        let key = noise(round, 64);
        assert_eq!(driver.key(0, CIPHER_XTS, 256, &key), DONE);
        driver.ring(0);
        let mut data = noise(round, 4096);
        driver.put(DATA, &data);
        let mut submission = Submission {
            op: OP_RUN,
            log2_unit: 12,
            units: 1,
            source: place(DATA),
            destination: place(OUT),
            ..Submission::default()
        };
        assert_eq!(driver.run(0, &submission).status, STATUS_DONE);
        units("aes-xts", &key, 4096, 0, 1, &mut data);
        assert!(driver.get(OUT, 4096) == data);
        // A request that is still under way.
        submission.units = 256;
        driver.submit(0, &submission);
        driver.doorbell(0);
        if round == 2 {
            driver.client.reset().unwrap();
            assert_eq!(driver.read(REG_KEY_SLOTS), 0);
        }
    }
}

#[test]
fn counters_sum_up() {
    let simulator = Simulator::start("xts", &[]);
    let mut driver = Driver::new(&simulator);
    assert_eq!(driver.key(0, CIPHER_XTS, 256, &noise(8, 64)), DONE);
    driver.ring(0);
    driver.write(REG_COUNTER_CTRL, 1 << COUNTER_CTRL_CLEAR_LOW);
    for cookie in 0..20 {
        let submission = Submission {
            op: OP_RUN,
            log2_unit: 9,
            step: 1,
            units: 8,
            source: place(DATA),
            destination: place(OUT),
            cookie,
            ..Submission::default()
        };
        assert_eq!(driver.run(0, &submission).status, STATUS_DONE);
    }
    driver.write(REG_COUNTER_CTRL, 1 << COUNTER_CTRL_SNAPSHOT_LOW);
    let rows: u64 = (REG_COUNTER_FETCH..=REG_COUNTER_IDLE)
        .step_by(8)
        .map(|row| driver.counter(row))
        .sum();
    assert_eq!(driver.counter(REG_COUNTER_TOTAL), rows);
    assert_eq!(driver.counter(REG_COUNTER_REQUESTS), 20);
    assert_eq!(driver.counter(REG_COUNTER_FAILED), 0);
    assert_eq!(driver.counter(REG_COUNTER_UNITS), 160);
    assert_eq!(driver.counter(REG_COUNTER_BYTES), 160 * 512);
    assert_eq!(driver.counter(REG_COUNTER_INTERRUPTS), 20);
}
