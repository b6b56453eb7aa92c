//! Keys and their slots.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use sector_cipher::{Cipher, CipherSpec, SectorCount, hazmat};

use super::{
    COUNT, MODELS, by_hand, encrypts, held, key_bytes, load, options, sectors_of, texts, xts,
};
use crate::memory::Memory;
use crate::registers as reg;
use crate::testing::{Build, Device, Flaw, Pace, Port};
use crate::{Direction, Engine, Error, ErrorKind, Model, OnFailure, Options, RequestSize, Tweaks};

#[test]
fn slots_are_wiped_on_drop_and_used_again() {
    let (device, engine) = by_hand(
        Build {
            slots: 3,
            ..Build::default()
        },
        Pace::AtOnce,
        options(),
    );
    let a = load(&engine, 1, Model::Runs).unwrap();
    let b = load(&engine, 2, Model::Units(Tweaks::Engine)).unwrap();
    assert_eq!(device.loaded(), 0b111);
    let error = load(&engine, 3, Model::Runs).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Slots);
    assert!(error.advice().unwrap().contains("CPU"));
    drop(a);
    assert_eq!(device.loaded(), 0b110);
    // One of two slots is not enough, and is not kept.
    assert_eq!(
        load(&engine, 3, MODELS[2]).err().unwrap().kind(),
        ErrorKind::Slots
    );
    assert_eq!(device.loaded(), 0b110);
    let c = load(&engine, 3, Model::Mixed(Tweaks::Cpu, RequestSize::Run)).unwrap();
    encrypts(&engine, &b, 2, 4096);
    encrypts(&engine, &c, 3, 4096);
    drop((b, c));
    assert_eq!(device.loaded(), 0);
    // The engine goes with the last key, not before.
    let d = load(&engine, 4, Model::Runs).unwrap();
    let future = d.crypt(Direction::Encrypt, 9, texts(4, 9, 512).0);
    drop((engine, d));
    assert_eq!(device.loaded(), 1);
    assert!(device.is_mapped());
    drop(future);
    assert_eq!(device.loaded(), 0);
    assert!(!device.is_mapped());
}

/// A slot has no other key as long as the device may have requests for it.
#[test]
fn a_slot_with_requests_under_way_is_not_used_again() {
    let (device, engine) = held(
        Build {
            slots: 1,
            ..Build::default()
        },
        options(),
    );
    let keyed = load(&engine, 1, Model::Runs).unwrap();
    let mut future = Box::pin(keyed.crypt(Direction::Encrypt, 9, texts(1, 9, 512).0));
    assert!(
        future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    drop((future, keyed));
    assert_eq!(device.loaded(), 0, "wiped at once");
    assert_eq!(
        load(&engine, 2, Model::Runs).err().unwrap().kind(),
        ErrorKind::Slots
    );
    assert_eq!(device.work(9), 1, "with an error that nobody waits for");
    engine.let_pass(engine.shared().tick());
    load(&engine, 2, Model::Runs).unwrap();
    assert_eq!(engine.failure(), None);
}

#[test]
fn a_reset_gives_keys_that_are_in_use_back_and_no_others() {
    let (device, engine) = by_hand(Build::default(), Pace::AtOnce, options());
    let a = load(&engine, 1, Model::Runs).unwrap();
    let b = load(&engine, 2, Model::Units(Tweaks::Engine)).unwrap();
    let c = load(&engine, 3, Model::Runs).unwrap();
    drop(a);
    encrypts(&engine, &b, 2, 4096);
    device.spoil(0, Flaw::Hangs);
    let (_, result) = engine.run(c.crypt(Direction::Encrypt, 9, texts(3, 9, 512).0));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Failed);
    assert_eq!(device.loaded(), 0b1110);
    encrypts(&engine, &b, 2, 4096);
    encrypts(&engine, &c, 3, 4096);
}

#[test]
fn what_an_engine_cannot_do_is_said() {
    let (device, engine) = by_hand(Build::default(), Pace::AtOnce, options());
    let key = |spec: &str, len, bytes, model| {
        let spec = spec.parse().unwrap();
        let kind = engine.key(spec, &key_bytes(7)[..len], sectors_of(bytes), COUNT, model);
        kind.err().map(|error| error.kind())
    };
    let unsupported = Some(ErrorKind::Unsupported);
    assert_eq!(key("aes-xts-plain64", 64, 512, Model::Runs), None);
    assert_eq!(key("aes-xts-plain64be", 64, 512, Model::Runs), unsupported);
    assert_eq!(key("aes-cbc-plain64", 32, 512, Model::Runs), unsupported);
    assert_eq!(
        key("aes-cbc-essiv:sha256", 24, 512, Model::Runs),
        unsupported
    );
    assert_eq!(
        key("xchacha12,aes-adiantum-plain64", 32, 512, Model::Runs),
        unsupported
    );
    assert_eq!(
        key("capi:xcb(aes)-plain64", 32, 512, Model::Runs),
        unsupported
    );
    for model in &MODELS[1..] {
        assert_eq!(key("aes-hctr2-plain64", 32, 512, *model), unsupported);
    }
    assert_eq!(
        key("aes-xts-plain64", 64, 1024, Model::Units(Tweaks::Cpu)),
        unsupported
    );
    assert_eq!(
        key("aes-xts-plain64", 48, 512, Model::Runs),
        Some(ErrorKind::Request)
    );
    // Equal halves: the device refuses them for runs.
    let halves = [7; 64];
    let error = engine
        .key(xts(), &halves, sectors_of(512), COUNT, Model::Runs)
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("halves"));
    assert_eq!(device.loaded(), 0);
    let build = Build {
        key_bits: 1,
        level: 2,
        ciphers: 1,
        ..Build::default()
    };
    let (_, engine) = by_hand(build, Pace::AtOnce, options());
    for (len, model, is_supported) in [
        (32, MODELS[1], true),
        (64, MODELS[1], false),
        (32, Model::Runs, false),
    ] {
        let made = engine.key(xts(), &key_bytes(1)[..len], sectors_of(512), COUNT, model);
        assert_eq!(made.is_ok(), is_supported, "{len} {model:?}");
    }
}

#[test]
fn what_is_no_run_is_refused() {
    let (device, engine) = by_hand(Build::default(), Pace::AtOnce, options());
    for model in MODELS {
        let keyed = load(&engine, 1, model).unwrap();
        for (first, len) in [
            (0, 511),
            (0, 513),
            (u128::MAX, 1024),
            (u128::MAX - 3, 5 * 512),
        ] {
            let (data, result) = engine.run(keyed.crypt(Direction::Encrypt, first, vec![7; len]));
            assert_eq!(
                result.unwrap_err().kind(),
                ErrorKind::Request,
                "{first:#x} {len}"
            );
            assert!(data == vec![7; len]);
        }
        let (_, result) = engine.run(keyed.crypt(Direction::Encrypt, u128::MAX, Vec::new()));
        result.unwrap();
    }
    assert_eq!(device.requests(), 0);
}

#[test]
fn threads_share_engines_and_keys() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Engine>();
    shared::<crate::Keyed>();
    shared::<Error>();
}

/// Key commands are carried out, but not seen to end as long as this says so.
struct NeverDone(Box<dyn Port>, Arc<AtomicBool>);

impl Port for NeverDone {
    fn read(&self, register: u32) -> Result<u32, Error> {
        match register {
            reg::REG_KEY_STATUS if self.1.load(Ordering::SeqCst) => Ok(1),
            _ => self.0.read(register),
        }
    }
    fn write(&self, register: u32, value: u32) -> Result<(), Error> {
        self.0.write(register, value)
    }
    fn write_secret(&self, register: u32, value: &[u8; 4]) -> Result<(), Error> {
        self.0.write_secret(register, value)
    }
    fn map(&self, memory: &Arc<Memory>) -> Result<(), Error> {
        self.0.map(memory)
    }
    fn unmap(&self, memory: &Memory) -> Result<(), Error> {
        self.0.unmap(memory)
    }
    fn interrupts(&self, counters: &[OwnedFd]) -> Result<usize, Error> {
        self.0.interrupts(counters)
    }
}

fn never_done() -> (Device, Arc<Engine>, Arc<AtomicBool>) {
    let device = Device::new(Build::default(), Pace::AtOnce);
    let is_busy = Arc::new(AtomicBool::new(false));
    let port = NeverDone(device.port(), Arc::clone(&is_busy));
    let engine = Engine::by_hand(Box::new(port), options(), false).unwrap();
    (device, engine, is_busy)
}

#[test]
fn a_slot_whose_command_did_not_end_is_not_used_before_a_reset() {
    let (device, engine, is_busy) = never_done();
    let a = load(&engine, 1, Model::Runs).unwrap();
    encrypts(&engine, &a, 1, 4096);
    // A load that comes to nothing, and a key that is not seen to be gone.
    is_busy.store(true, Ordering::SeqCst);
    let error = load(&engine, 2, Model::Runs).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Dead);
    drop(a);
    is_busy.store(false, Ordering::SeqCst);
    let b = load(&engine, 3, Model::Runs).unwrap();
    assert_eq!(device.loaded(), 0b110, "the third slot");
    engine.let_pass(engine.shared().tick());
    assert_eq!(engine.failure(), None);
    assert_eq!(device.resets(), 2);
    assert_eq!(device.loaded(), 0b100);
    encrypts(&engine, &b, 3, 4096);
    let c = load(&engine, 4, Model::Units(Tweaks::Engine)).unwrap();
    assert_eq!(device.loaded(), 0b111);
    encrypts(&engine, &c, 4, 4096);
}

#[test]
fn an_engine_that_does_not_take_its_keys_back_is_left_without_any() {
    let (device, engine, is_busy) = never_done();
    let keyed = load(&engine, 1, Model::Runs).unwrap();
    encrypts(&engine, &keyed, 1, 4096);
    device.spoil(0, Flaw::Hangs);
    is_busy.store(true, Ordering::SeqCst);
    let (_, result) = engine.run(keyed.crypt(Direction::Encrypt, 9, texts(1, 9, 512).0));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Dead);
    assert!(engine.failure().unwrap().contains("key command"));
    assert_eq!(device.loaded(), 0);
    assert!(!device.is_mapped());
}

/// An encrypted tweak is as good as a part of the key for its sector.
#[test]
fn nothing_is_left_of_encrypted_tweaks() {
    for tweaks in [Tweaks::Engine, Tweaks::Cpu] {
        let (_, engine) = by_hand(Build::default(), Pace::AtOnce, options());
        let keyed = load(&engine, 1, Model::Units(tweaks)).unwrap();
        encrypts(&engine, &keyed, 1, 40 * 512);
        let shared = engine.shared();
        for ring in &shared.lock().rings {
            let mut submissions = vec![1; reg::SQE_BYTES << ring.log2];
            shared.memory.read(ring.submissions, &mut submissions);
            assert!(submissions.iter().all(|&byte| byte == 0));
        }
    }
}

/// What the CPU does in the place of an engine that is gone: as one run, or where it counts no further by sectors.
#[test]
fn the_cpu_counts_tweaks_as_the_engine_does() {
    let options = Options {
        on_failure: OnFailure::Cpu,
        ..options()
    };
    let (device, engine) = by_hand(Build::default(), Pace::AtOnce, options);
    let key = key_bytes(3);
    let mut cases = Vec::new();
    for iv in ["plain64", "plain"] {
        for (bytes, count, step) in [
            (512_u32, SectorCount::Units512, 1_u128),
            (4096, SectorCount::Units512, 8),
            (4096, SectorCount::Large, 1),
        ] {
            let spec: CipherSpec = format!("aes-xts-{iv}").parse().unwrap();
            let size = sectors_of(bytes);
            let keyed = engine.key(spec, &key, size, count, Model::Runs).unwrap();
            let cpu = Cipher::new(spec, size, count, &key, None).unwrap();
            cases.push((iv, bytes as usize, step, keyed, cpu));
        }
    }
    device.spoil(0, Flaw::Vanishes);
    let ends = [0, 3, 8, (1 << 32) - 16, u128::from(u64::MAX) - 15, 1 << 100];
    for (iv, bytes, step, keyed, cpu) in &cases {
        for first in ends {
            let plain: Vec<u8> = (0..5 * bytes).map(|i| i.to_le_bytes()[0]).collect();
            let mut expected = plain.clone();
            for (number, sector) in expected.chunks_mut(*bytes).enumerate() {
                let tweak = first + step * number as u128;
                let tweak = if *iv == "plain" {
                    tweak & 0xffff_ffff
                } else {
                    tweak
                };
                hazmat::encrypt_unit(cpu, tweak.to_le_bytes(), sector).unwrap();
            }
            let what = format!("{iv}, {bytes} bytes, step {step}, from {first:#x}");
            let (data, result) = engine.run(keyed.crypt(Direction::Encrypt, first, plain.clone()));
            result.unwrap();
            assert!(data == expected, "{what}");
            let (data, result) = engine.run(keyed.crypt(Direction::Decrypt, first, data));
            result.unwrap();
            assert!(data == plain, "{what}");
        }
    }
    assert!(engine.failure().is_some());
}
