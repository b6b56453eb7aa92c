//! The driver against the model of the device, where more than its results is to be seen.

mod faults;
mod keys;
mod load;
mod opening;
mod resets;
mod socket;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use sector_cipher::{Cipher, CipherSpec, SectorCount, SectorSize};

use crate::testing::{Build, Device, Pace};
use crate::{Direction, Engine, Error, Keyed, Model, Options, RequestSize, Tweaks};

const COUNT: SectorCount = SectorCount::Units512;
const MODELS: [Model; 3] = [
    Model::Runs,
    Model::Units(Tweaks::Engine),
    Model::Mixed(Tweaks::Engine, RequestSize::Bytes512),
];

fn xts() -> CipherSpec {
    "aes-xts-plain64".parse().unwrap()
}

fn sectors_of(bytes: u32) -> SectorSize {
    SectorSize::new(bytes).unwrap()
}

/// A key that differs from others by its number.
fn key_bytes(number: u8) -> Vec<u8> {
    (0..64)
        .map(|i: u8| i.wrapping_mul(number | 1) ^ number)
        .collect()
}

fn load(engine: &Arc<Engine>, number: u8, model: Model) -> Result<Keyed, Error> {
    engine.key(xts(), &key_bytes(number), sectors_of(512), COUNT, model)
}

/// Options for engines without a thread, whose time is the test's: with a watchdog that does not hold it up.
fn options() -> Options {
    Options {
        watchdog: Duration::from_millis(40),
        ..Options::default()
    }
}

/// Options for engines with a thread: long enough for threads that wait for a processor.
fn patient() -> Options {
    Options {
        watchdog: Duration::from_secs(1),
        ..Options::default()
    }
}

/// A device that is told when to work, and an engine without a thread.
fn held(build: Build, options: Options) -> (Device, Arc<Engine>) {
    by_hand(build, Pace::Held, options)
}

fn by_hand(build: Build, pace: Pace, options: Options) -> (Device, Arc<Engine>) {
    let device = Device::new(build, pace);
    let engine = Engine::by_hand(device.port(), options, false).unwrap();
    (device, engine)
}

/// Plaintext, and what it becomes from sector `first` on.
fn texts(number: u8, first: u64, len: usize) -> (Vec<u8>, Vec<u8>) {
    let plain: Vec<u8> = (0..len)
        .map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1] ^ number | 1)
        .collect();
    let mut encrypted = plain.clone();
    let key = key_bytes(number);
    let cipher = Cipher::new(xts(), sectors_of(512), COUNT, &key, None).unwrap();
    cipher.encrypt(first, &mut encrypted);
    (plain, encrypted)
}

/// Encrypts, and has it looked at.
fn encrypts(engine: &Engine, keyed: &Keyed, number: u8, len: usize) {
    let (plain, encrypted) = texts(number, 9, len);
    let (data, result) = engine.run(keyed.crypt(Direction::Encrypt, 9, plain));
    result.unwrap();
    assert!(data == encrypted);
}
