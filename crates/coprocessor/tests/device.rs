//! The suite of the ciphers, through an engine: each cipher, key length, sector size and length of run, in each model of
//! sharing the work, gives what the CPU gives, and the committed vectors are met.
//!
//! It runs against the model of the device in this process, and against the simulated hardware where that is there.
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

#[path = "../../sector-cipher/tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Random, for_all, lengths, size, spec, unhex};
use sector_cipher::{CipherSpec, SectorCount, SectorSize, hazmat};
use serde_json::Value;
use xtent_coprocessor::testing::{Build, Device, Pace};
use xtent_coprocessor::{
    Address, Direction, Engine, Error, ErrorKind, Keyed, Model, Options, RequestSize, Tweaks,
};

/// Every way to share the work.
const MODELS: [Model; 9] = [
    Model::Runs,
    Model::Units(Tweaks::Engine),
    Model::Units(Tweaks::Cpu),
    Model::Mixed(Tweaks::Engine, RequestSize::Bytes512),
    Model::Mixed(Tweaks::Engine, RequestSize::Bytes4096),
    Model::Mixed(Tweaks::Engine, RequestSize::Run),
    Model::Mixed(Tweaks::Cpu, RequestSize::Bytes512),
    Model::Mixed(Tweaks::Cpu, RequestSize::Bytes4096),
    Model::Mixed(Tweaks::Cpu, RequestSize::Run),
];

/// A key by an engine, and by the CPU.
struct Pair {
    keyed: Keyed,
    cpu: sector_cipher::Cipher,
    what: String,
}

impl Pair {
    fn new(
        engine: &Arc<Engine>,
        spec: CipherSpec,
        key: &[u8],
        size: SectorSize,
        count: SectorCount,
        model: Model,
    ) -> Result<Self, Error> {
        Ok(Self {
            keyed: engine.key(spec, key, size, count, model)?,
            cpu: sector_cipher::Cipher::new(spec, size, count, key, None).unwrap(),
            what: format!("{spec} {} {} {count:?} {model:?}", key.len(), size.bytes()),
        })
    }

    /// There and back.
    fn check(&self, engine: &Engine, first: u128, step: u128, plain: Vec<u8>) {
        let what = format!("{}: {} bytes from {first:#x}", self.what, plain.len());
        let mut expected = plain.clone();
        for (n, sector) in expected
            .chunks_mut(self.cpu.sector_size().bytes())
            .enumerate()
        {
            let tweak = (first + step * n as u128).to_le_bytes();
            hazmat::encrypt_unit(&self.cpu, tweak, sector).unwrap();
        }
        let (encrypted, result) =
            engine.run(self.keyed.crypt(Direction::Encrypt, first, plain.clone()));
        result.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(encrypted == expected, "{what}: encryption");
        let (decrypted, result) =
            engine.run(self.keyed.crypt(Direction::Decrypt, first, encrypted));
        result.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(decrypted == plain, "{what}: decryption");
    }
}

/// Goes through all that the engine can; gives how many combinations that were.
fn suite(engine: &Arc<Engine>, lengths: &[usize]) -> usize {
    let mut count = 0;
    for_all(|name, key, bytes, random| {
        for model in MODELS {
            for counted in [SectorCount::Units512, SectorCount::Large] {
                let pair = Pair::new(engine, spec(name), key, size(bytes), counted, model);
                let pair = match pair {
                    Err(error) if error.kind() == ErrorKind::Unsupported => continue,
                    pair => pair.unwrap(),
                };
                count += 1;
                let step = match counted {
                    SectorCount::Units512 => bytes as u128 / 512,
                    SectorCount::Large => 1,
                };
                let mut length = |sectors: usize, first| {
                    pair.check(engine, first, step, random.bytes(sectors * bytes));
                };
                if counted == SectorCount::Units512 {
                    for &sectors in lengths {
                        length(sectors, 5 + sectors as u128);
                    }
                }
                length(0, 0);
                if name.ends_with("-plain64") {
                    // Carries from one half of the tweak to the other, and as far as there are any.
                    length(5, (1 << 32) - 2);
                    length(5, (1 << 64) - 2 * step);
                    length(3, 0_u128.wrapping_sub(3 * step));
                }
            }
        }
    });
    count
}

fn vectors(engine: &Arc<Engine>) -> usize {
    let mut count = 0;
    let files = [
        include_str!("../../sector-cipher/tests/data/xts-reference.json"),
        include_str!("../../sector-cipher/tests/data/fast-reference.json"),
        include_str!("../../sector-cipher/tests/data/hctr2-reference.json"),
        include_str!("../../sector-cipher/tests/data/eme2-reference.json"),
        include_str!("../../sector-cipher/tests/data/aez10-reference.json"),
    ];
    for file in files {
        for vector in serde_json::from_str::<Vec<Value>>(file).unwrap() {
            let text = |field: &str| vector[field].as_str().unwrap();
            let (key, plain, encrypted) =
                (unhex(text("key")), unhex(text("pt")), unhex(text("ct")));
            let bytes = usize::try_from(vector["sector_size"].as_u64().unwrap()).unwrap();
            for model in MODELS {
                let spec = spec(text("cipher"));
                let keyed = match engine.key(spec, &key, size(bytes), SectorCount::Units512, model)
                {
                    Err(error) if error.kind() == ErrorKind::Unsupported => continue,
                    keyed => keyed.unwrap(),
                };
                let first = vector["sector"].as_u64().unwrap().into();
                let (data, result) =
                    engine.run(keyed.crypt(Direction::Encrypt, first, plain.clone()));
                result.unwrap();
                assert!(data == encrypted, "{spec} {bytes} {model:?}");
                let (data, result) = engine.run(keyed.crypt(Direction::Decrypt, first, data));
                result.unwrap();
                assert!(data == plain, "{spec} {bytes} {model:?}");
                count += 1;
            }
        }
    }
    count
}

/// Combinations of ciphers that runs have: key lengths times sector sizes times two ways to count.
const XTS: usize = 2 * 4 * 2;

#[test]
fn a_whole_engine_is_the_cpu() {
    let device = Device::new(Build::default(), Pace::AtOnce);
    let engine = Engine::by_hand(device.port(), Options::default(), true).unwrap();
    // Runs of six ciphers, one of which has a second name; units of 512 bytes; and mixed models, in either name of XTS.
    let others = 5 * XTS;
    assert_eq!(
        suite(&engine, &lengths()),
        others + 2 * (XTS + 2 * XTS / 4 + 6 * XTS)
    );
    assert_eq!(vectors(&engine), 26 * 6 + 26 * 6 + xts_vectors_of_512() * 2);
    assert_eq!(device.loaded(), 0, "no key is left");
}

/// How many of the vectors of XTS have sectors of 512 bytes.
fn xts_vectors_of_512() -> usize {
    let file = include_str!("../../sector-cipher/tests/data/xts-reference.json");
    let all: Vec<Value> = serde_json::from_str(file).unwrap();
    all.iter()
        .filter(|vector| vector["sector_size"] == 512)
        .count()
}

/// Where the device takes little at a time, a run is cut, and the sectors count on.
#[test]
fn a_small_engine_is_the_cpu() {
    let build = Build {
        log2_bytes: 12,
        log2_ring: 1,
        rings: 1,
        slots: 2,
        ..Build::default()
    };
    let device = Device::new(build, Pace::AtOnce);
    let options = Options {
        memory: 0,
        ..Options::default()
    };
    let engine = Engine::by_hand(device.port(), options, true).unwrap();
    suite(&engine, &[1, 2, 7, 8, 9, 33, 70]);
    assert_ne!(device.requests(), 0);
}

#[test]
fn engines_of_the_lower_levels_are_the_cpu() {
    for (level, combinations) in [(1, 6 * 2 * XTS), (2, 2 * (6 * XTS + 2 * XTS / 4))] {
        let build = Build {
            level,
            ciphers: 1,
            ..Build::default()
        };
        let device = Device::new(build, Pace::AtOnce);
        let engine = Engine::by_hand(device.port(), Options::default(), true).unwrap();
        assert_eq!(suite(&engine, &[1, 2, 9, 70]), combinations);
    }
}

/// The IVs of `plain` begin again after 2^32.
#[test]
fn plain_begins_again() {
    let device = Device::new(Build::default(), Pace::AtOnce);
    let engine = Engine::by_hand(device.port(), Options::default(), true).unwrap();
    for bytes in [512, 4096] {
        for model in MODELS {
            let (spec, size) = (spec("aes-xts-plain"), size(bytes));
            let key: Vec<u8> = (0..32).collect();
            let count = SectorCount::Units512;
            let keyed = match engine.key(spec, &key, size, count, model) {
                Err(error) if error.kind() == ErrorKind::Unsupported => continue,
                keyed => keyed.unwrap(),
            };
            let cpu = sector_cipher::Cipher::new(spec, size, count, &key, None).unwrap();
            let first = (7_u64 << 32) - 4 * (bytes as u64 / 512);
            let plain = Random::new(1).bytes(10 * bytes);
            let mut expected = plain.clone();
            cpu.encrypt(first, &mut expected);
            let (data, result) = engine.run(keyed.crypt(Direction::Encrypt, first.into(), plain));
            result.unwrap();
            assert!(data == expected, "{bytes} {model:?}");
        }
    }
}

/// With threads, rings and interrupts as in real life.
#[test]
fn an_engine_with_its_thread_is_the_cpu() {
    for vectors in [1, 16] {
        let device = Device::new(
            Build {
                vectors,
                ..Build::default()
            },
            Pace::Thread,
        );
        let engine = Engine::by_port(device.port(), Options::default()).unwrap();
        suite(&engine, &[1, 9]);
    }
}

#[test]
#[ignore = "needs the simulated hardware: make engine-test"]
fn the_simulated_hardware_is_the_cpu() {
    let socket = std::env::var_os("XTENT_ENGINE_SOCKET")
        .expect("XTENT_ENGINE_SOCKET names the socket of xtent-engine-sim");
    let address = Address::VfioUser(socket.into());
    let options = Options {
        // It is slow: a cycle takes microseconds.
        watchdog: Duration::from_secs(120),
        ..Options::default()
    };
    let engine = Engine::open(&address, options).unwrap();
    println!("{:?}", engine.facts());
    let combinations = suite(&engine, &[1, 2, 9, 33]);
    let known = vectors(&engine);
    println!("{combinations} combinations, {known} vectors");
    assert_ne!(combinations, 0);
    assert_ne!(known, 0);
    let counters = engine.counters().unwrap();
    println!("{counters:?}");
    let rows = [
        counters.fetch,
        counters.source,
        counters.cipher,
        counters.destination,
        counters.completion,
        counters.interrupt,
        counters.idle,
    ];
    assert_eq!(rows.iter().sum::<u64>(), counters.total);
    assert_eq!(counters.failed, 0);
}
