//! What the co-processor does, against the ciphers of `sector-cipher`.
#![allow(clippy::unwrap_used)]

mod common;

use common::expected::{ecb, units};
use common::{DATA, DONE, Driver, LISTS, OUT, Simulator, Submission, noise, place};
use xtent_engine_sim::registers::*;

const DECRYPT: u8 = 1 << FLAG_DECRYPT;
const IN_PLACE: u8 = 1 << FLAG_IN_PLACE;
const SOURCE_LIST: u8 = 1 << FLAG_SOURCE_LIST;
const DESTINATION_LIST: u8 = 1 << FLAG_DESTINATION_LIST;

#[test]
fn it_says_what_is_built() {
    for (design, level, rings, bus, ciphers, key_bits) in [
        ("ecb", 1, 1, 16, 1, 2),
        ("xts-512", 2, 1, 16, 1, 2),
        ("xts", 3, 1, 16, 3, 2),
        ("xts-2rings", 3, 2, 16, 3, 2),
        ("xts-bus4", 3, 1, 4, 3, 2),
    ] {
        let simulator = Simulator::start(design, &[]);
        let mut driver = Driver::new(&simulator);
        assert_eq!(driver.read(REG_VERSION) >> 16, u32::from(MAJOR));
        assert_eq!(
            driver.field(REG_CAP0, CAP0_LEVEL_LOW, CAP0_LEVEL_BITS),
            level,
            "{design}"
        );
        assert_eq!(
            driver.field(REG_CAP0, CAP0_RINGS_LOW, CAP0_RINGS_BITS),
            rings,
            "{design}"
        );
        assert_eq!(
            driver.field(REG_CAP0, CAP0_BUS_BYTES_LOW, CAP0_BUS_BYTES_BITS),
            bus,
            "{design}"
        );
        assert_eq!(
            driver.field(REG_CAP1, CAP1_CIPHERS_LOW, CAP1_CIPHERS_BITS),
            ciphers,
            "{design}"
        );
        assert_eq!(
            driver.field(REG_CAP1, CAP1_KEY_BITS_LOW, CAP1_KEY_BITS_BITS),
            key_bits,
            "{design}"
        );
        assert_eq!(driver.eventfds.len(), rings as usize + 1);
    }
}

#[test]
fn blocks() {
    for design in ["ecb", "xts-512", "xts", "xts-bus4"] {
        let simulator = Simulator::start(design, &[]);
        let mut driver = Driver::new(&simulator);
        let key = noise(1, 32);
        assert_eq!(driver.key(3, CIPHER_ECB, 256, &key), DONE);
        assert_eq!(driver.read(REG_KEY_SLOTS), 8);
        driver.ring(0);
        for blocks in [1_u16, 2, 31, 32, 33, 64, 65, 500] {
            let data = noise(blocks.into(), 16 * usize::from(blocks));
            driver.put(DATA + 16, &data);
            let mut submission = Submission {
                op: OP_ECB,
                slot: 3,
                log2_unit: 4,
                units: blocks.into(),
                source: place(DATA + 16),
                destination: place(OUT + 0xff0),
                cookie: u64::from(blocks) << 40 | 1,
                ..Submission::default()
            };
            let completion = driver.run(0, &submission);
            assert_eq!(
                (completion.status, completion.units),
                (STATUS_DONE, submission.units),
                "{design}"
            );
            let encrypted = driver.get(OUT + 0xff0, data.len());
            assert_eq!(
                encrypted,
                ecb(&key, false, &data),
                "{design}, {blocks} blocks"
            );
            assert_eq!(
                driver.get(OUT + 0xff0 + 16 * u64::from(blocks), 16),
                [0; 16],
                "beyond the last block"
            );
            submission.source = submission.destination;
            submission.destination = 0;
            submission.flags = DECRYPT | IN_PLACE;
            assert_eq!(driver.run(0, &submission).status, STATUS_DONE);
            assert_eq!(
                driver.get(OUT + 0xff0, data.len()),
                data,
                "{design}, {blocks} blocks back"
            );
            driver.put(OUT + 0xff0, &vec![0; data.len()]);
        }
    }
}

#[test]
fn units_with_encrypted_tweaks() {
    for design in ["xts-512", "xts"] {
        let simulator = Simulator::start(design, &[]);
        let mut driver = Driver::new(&simulator);
        let key = noise(2, 64);
        assert_eq!(driver.key(0, CIPHER_ECB, 256, &key[..32]), DONE);
        driver.ring(0);
        for sector in [0, 1, 0x1234_5678_9abc] {
            let mut data = noise(sector, 512);
            driver.put(DATA, &data);
            let mut number = [0; 16];
            number[..8].copy_from_slice(&sector.to_le_bytes());
            let tweak = ecb(&key[32..], false, &number);
            let submission = Submission {
                op: OP_XTS,
                log2_unit: 9,
                units: 1,
                tweak: u128::from_le_bytes(tweak.try_into().unwrap()),
                source: place(DATA),
                destination: place(OUT),
                cookie: sector,
                ..Submission::default()
            };
            assert_eq!(driver.run(0, &submission).status, STATUS_DONE, "{design}");
            units("aes-xts", &key, 512, sector, 1, &mut data);
            assert_eq!(driver.get(OUT, 512), data, "{design}, sector {sector}");
        }
    }
}

#[test]
fn runs() {
    for design in ["xts", "xts-bus4"] {
        let simulator = Simulator::start(design, &[]);
        let mut driver = Driver::new(&simulator);
        let key = noise(3, 64);
        assert_eq!(driver.key(31, CIPHER_XTS, 256, &key), DONE);
        driver.ring(0);
        let mut cookie = 0;
        for log2_unit in 9..=12 {
            let unit = 1 << log2_unit;
            // As far as the other side counts.
            let last = u64::MAX >> (log2_unit - 9);
            for (count, tweak, step) in
                [(1, 0, 1), (2, last - 8, 8), (7, 0xffff_fffe, 3), (16, 1, 0)]
            {
                cookie += 1;
                let data = noise(cookie, count * unit);
                driver.put(DATA, &data);
                let submission = Submission {
                    op: OP_RUN,
                    slot: 31,
                    log2_unit,
                    step,
                    units: u32::try_from(count).unwrap(),
                    tweak: tweak.into(),
                    source: place(DATA),
                    destination: place(OUT),
                    cookie,
                    ..Submission::default()
                };
                let completion = driver.run(0, &submission);
                assert_eq!(
                    (completion.status, completion.units),
                    (STATUS_DONE, submission.units)
                );
                let mut wanted = data.clone();
                units("aes-xts", &key, unit, tweak, step.into(), &mut wanted);
                assert_eq!(
                    driver.get(OUT, data.len()),
                    wanted,
                    "{design}, {submission:?}"
                );
                let back = Submission {
                    flags: DECRYPT | IN_PLACE,
                    source: place(OUT),
                    destination: 0,
                    ..submission
                };
                assert_eq!(driver.run(0, &back).status, STATUS_DONE);
                assert_eq!(driver.get(OUT, data.len()), data, "{design}, {back:?}");
            }
        }
    }
}

#[test]
fn lists() {
    let simulator = Simulator::start("xts", &[]);
    let mut driver = Driver::new(&simulator);
    let key = noise(4, 64);
    assert_eq!(driver.key(0, CIPHER_XTS, 256, &key), DONE);
    driver.ring(0);
    let pieces: [u32; 6] = [16, 4096, 48, 2000, 4080, 2048];
    let bytes: u32 = pieces.iter().sum();
    assert_eq!(bytes, 24 * 512);
    let data = noise(5, bytes as usize);
    // Each piece where the next but one ends.
    let mut entries = Vec::new();
    let mut done = 0;
    for (i, &piece) in (0..).zip(&pieces) {
        let at = DATA + 0x2000 * (5 - i) + 0x10 * i;
        driver.put(at, &data[done..done + piece as usize]);
        entries.push((at, piece));
        done += piece as usize;
    }
    let source = driver.list(LISTS, &entries);
    let outs: Vec<_> = entries
        .iter()
        .rev()
        .map(|&(at, piece)| (at - DATA + OUT, piece))
        .collect();
    let destination = driver.list(LISTS + 0x1000, &outs);
    let submission = Submission {
        op: OP_RUN,
        flags: SOURCE_LIST | DESTINATION_LIST,
        log2_unit: 9,
        step: 1,
        units: bytes / 512,
        tweak: 77,
        source,
        destination,
        source_entries: 6,
        destination_entries: 6,
        cookie: 9,
        ..Submission::default()
    };
    assert_eq!(driver.run(0, &submission).status, STATUS_DONE);
    let mut wanted = data.clone();
    units("aes-xts", &key, 512, 77, 1, &mut wanted);
    let out: Vec<u8> = outs
        .iter()
        .flat_map(|&(at, piece)| driver.get(at, piece as usize))
        .collect();
    assert!(out == wanted, "through two lists");
    let short = Submission {
        source_entries: 5,
        ..submission
    };
    assert_eq!(driver.run(0, &short).status, STATUS_LIST);
}

#[test]
fn memory_of_any_latency() {
    let mut cycles = Vec::new();
    for [read, write] in [["1", "1"], ["40", "20"], ["600", "400"]] {
        let options = ["--read-latency", read, "--write-latency", write];
        let simulator = Simulator::start("xts", &options);
        let mut driver = Driver::new(&simulator);
        let key = noise(11, 64);
        assert_eq!(driver.key(0, CIPHER_XTS, 256, &key), DONE);
        driver.ring(0);
        driver.write(REG_COUNTER_CTRL, 1 << COUNTER_CTRL_CLEAR_LOW);
        let mut data = noise(12, 64 * 512);
        driver.put(DATA, &data);
        let submission = Submission {
            op: OP_RUN,
            log2_unit: 9,
            step: 1,
            units: 64,
            source: place(DATA),
            destination: place(OUT),
            ..Submission::default()
        };
        assert_eq!(driver.run(0, &submission).status, STATUS_DONE);
        units("aes-xts", &key, 512, 0, 1, &mut data);
        assert!(driver.get(OUT, data.len()) == data, "{options:?}");
        driver.write(REG_COUNTER_CTRL, 1 << COUNTER_CTRL_SNAPSHOT_LOW);
        let rows = [
            REG_COUNTER_FETCH,
            REG_COUNTER_SOURCE,
            REG_COUNTER_CIPHER,
            REG_COUNTER_DESTINATION,
            REG_COUNTER_COMPLETION,
        ];
        cycles.push(rows.map(|row| driver.counter(row)).iter().sum::<u64>());
    }
    assert!(cycles.is_sorted_by(|a, b| a < b), "{cycles:?}");
    // 2048 blocks.
    assert!(cycles[0] > 2048, "{cycles:?}");
}

/// As many requests under way as the ring holds, of all kinds and sizes, for two rings at once.
#[test]
fn many_at_once() {
    let simulator = Simulator::start("xts-2rings", &[]);
    let mut driver = Driver::new(&simulator);
    let keys = [noise(9, 64), noise(10, 64)];
    assert_eq!(driver.key(0, CIPHER_XTS, 256, &keys[0]), DONE);
    assert_eq!(driver.key(1, CIPHER_XTS, 256, &keys[1]), DONE);
    for ring in 0..2 {
        driver.ring(ring);
    }
    let area = 0x8000;
    for round in 0..6 {
        let sizes = noise(round, 32);
        let mut wanted = Vec::new();
        for (i, size) in (0..).zip(&sizes) {
            let ring = usize::from(i % 2 == 1);
            let (count, tweak) = (usize::from(size % 9) + 1, round << 20 | i << 8);
            let mut data = noise(tweak, count * 512);
            driver.put(DATA + area * i, &data);
            let slot = size >> 4 & 1;
            let submission = Submission {
                op: OP_RUN,
                slot,
                log2_unit: 9,
                step: 1,
                units: u32::try_from(count).unwrap(),
                tweak: tweak.into(),
                source: place(DATA + area * i),
                destination: place(OUT + area * i),
                cookie: tweak,
                ..Submission::default()
            };
            driver.submit(ring, &submission);
            units(
                "aes-xts",
                &keys[usize::from(slot)],
                512,
                tweak,
                1,
                &mut data,
            );
            wanted.push((i, tweak, data));
        }
        driver.doorbell(0);
        driver.doorbell(1);
        for (i, cookie, data) in &wanted {
            let completion = driver.completion(usize::from(i % 2 == 1));
            assert_eq!(
                (completion.cookie, completion.status),
                (*cookie, STATUS_DONE),
                "round {round}, request {i}"
            );
            assert!(
                driver.get(OUT + area * i, data.len()) == *data,
                "round {round}, request {i}"
            );
        }
    }
}

/// Every cipher that there is, with units of its size.
#[test]
#[ignore = "its model takes minutes to build: rtl/cosim/test.sh --all"]
fn other_ciphers() {
    let simulator = Simulator::start("all", &[]);
    let mut driver = Driver::new(&simulator);
    assert_eq!(
        driver.field(REG_CAP1, CAP1_CIPHERS_LOW, CAP1_CIPHERS_BITS),
        0x7f
    );
    driver.ring(0);
    for (slot, (cipher, mode, bytes)) in (0..).zip([
        (CIPHER_XTS, "aes-xts", 64),
        (CIPHER_FAST_BRW, "capi:fast(aes)", 32),
        (CIPHER_FAST_HORNER, "capi:fast_horner(aes)", 32),
        (CIPHER_HCTR2, "aes-hctr2", 32),
        (CIPHER_EME2, "capi:eme2(aes)", 64),
        (CIPHER_AEZ10, "capi:aez10(aes)", 32),
    ]) {
        let key = noise(slot, bytes);
        let slot = u8::try_from(slot).unwrap();
        assert_eq!(driver.key(slot.into(), cipher, 256, &key), DONE, "{mode}");
        for count in [1_u8, 5] {
            let data = noise(count.into(), 4096 * usize::from(count));
            driver.put(DATA, &data);
            let submission = Submission {
                op: OP_RUN,
                slot,
                log2_unit: 12,
                step: 8,
                units: count.into(),
                tweak: 800,
                source: place(DATA),
                destination: place(OUT),
                ..Submission::default()
            };
            assert_eq!(driver.run(0, &submission).status, STATUS_DONE, "{mode}");
            let mut wanted = data.clone();
            units(mode, &key, 4096, 800, 8, &mut wanted);
            assert!(driver.get(OUT, data.len()) == wanted, "{mode}");
            let back = Submission {
                flags: DECRYPT | IN_PLACE,
                source: place(OUT),
                destination: 0,
                ..submission
            };
            assert_eq!(driver.run(0, &back).status, STATUS_DONE, "{mode}");
            assert!(driver.get(OUT, data.len()) == data, "{mode} back");
        }
    }
}

/// How fast the model is, by its counters; no limits.
#[test]
#[ignore = "measures: rtl/cosim/test.sh device speed -- --ignored --nocapture"]
fn speed() {
    let simulator = Simulator::start("xts", &["--verbose"]);
    let mut driver = Driver::new(&simulator);
    assert_eq!(driver.key(0, CIPHER_XTS, 256, &noise(8, 64)), DONE);
    driver.ring(0);
    for log2_unit in [9, 12] {
        driver.write(REG_COUNTER_CTRL, 1 << COUNTER_CTRL_CLEAR_LOW);
        let start = std::time::Instant::now();
        for cookie in 0..4 {
            let submission = Submission {
                op: OP_RUN,
                log2_unit,
                step: 1,
                units: 1 << (20 - log2_unit),
                source: place(DATA),
                destination: place(OUT),
                cookie,
                ..Submission::default()
            };
            driver.submit(0, &submission);
        }
        driver.doorbell(0);
        for _ in 0..4 {
            assert_eq!(driver.completion(0).status, STATUS_DONE);
        }
        let seconds = start.elapsed().as_secs_f64() / 4.0;
        driver.write(REG_COUNTER_CTRL, 1 << COUNTER_CTRL_SNAPSHOT_LOW);
        let cycles = driver.counter(REG_COUNTER_TOTAL) / 4;
        println!(
            "units of {} bytes: {seconds:.3} s and {cycles} cycles a MiB",
            1 << log2_unit
        );
        for (name, register) in [
            ("fetch", REG_COUNTER_FETCH),
            ("source", REG_COUNTER_SOURCE),
            ("cipher", REG_COUNTER_CIPHER),
            ("destination", REG_COUNTER_DESTINATION),
            ("completion", REG_COUNTER_COMPLETION),
        ] {
            println!("  {name} {}", driver.counter(register));
        }
    }
}
