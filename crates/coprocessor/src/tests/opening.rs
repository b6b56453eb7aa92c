//! What is opened, and what is not.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{by_hand, options};
use crate::memory::Memory;
use crate::registers as reg;
use crate::testing::{Build, Device, Flaw, Pace, Port};
use crate::{Engine, Error, ErrorKind, Options};

/// A device some of whose registers read something else.
struct Lying(Box<dyn Port>, Vec<(u32, u32)>);

impl Port for Lying {
    fn read(&self, register: u32) -> Result<u32, Error> {
        let lie = self.1.iter().find(|(of, _)| *of == register);
        lie.map_or_else(|| self.0.read(register), |(_, value)| Ok(*value))
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

fn opened(lies: Vec<(u32, u32)>) -> Result<Arc<Engine>, Error> {
    let device = Device::new(Build::default(), Pace::AtOnce);
    let port = Box::new(Lying(device.port(), lies));
    let engine = Engine::by_hand(port, options(), true);
    if engine.is_err() {
        assert!(!device.is_mapped(), "it has no memory");
    }
    engine
}

#[test]
fn another_device_is_refused() {
    let good = |register| {
        Device::new(Build::default(), Pace::AtOnce)
            .port()
            .read(register)
            .unwrap()
    };
    let with = |register: u32, low: u32, bits: u32, value: u32| {
        let mask = ((1 << bits) - 1) << low;
        (register, good(register) & !mask | value << low)
    };
    opened(Vec::new()).unwrap();
    let cases = [
        (reg::REG_ID, u32::MAX),
        (reg::REG_ID, 0),
        (reg::REG_VERSION, 2 << 16),
        (reg::REG_CAP0, u32::MAX),
        (reg::REG_CAP1, 0),
        (reg::REG_CAP2, u32::MAX),
        with(reg::REG_CAP0, reg::CAP0_LEVEL_LOW, 4, 0),
        with(reg::REG_CAP0, reg::CAP0_LEVEL_LOW, 4, 4),
        with(reg::REG_CAP0, reg::CAP0_RINGS_LOW, 4, 0),
        with(reg::REG_CAP0, reg::CAP0_RINGS_LOW, 4, 9),
        with(reg::REG_CAP0, reg::CAP0_SLOTS_LOW, 8, 33),
        with(reg::REG_CAP0, reg::CAP0_ADDRESS_BITS_LOW, 7, 65),
        with(reg::REG_CAP2, reg::CAP2_LOG2_BYTES_LOW, 6, 63),
    ];
    for case in cases {
        let error = opened(vec![case]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{case:x?}: {error}");
    }
    // What a later minor version adds is its own affair.
    opened(vec![(reg::REG_VERSION, 1 << 16 | 7)]).unwrap();
    // It is one, but cannot reach memory where it is.
    let few = with(reg::REG_CAP0, reg::CAP0_ADDRESS_BITS_LOW, 7, 24);
    assert_eq!(
        opened(vec![few]).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
}

#[test]
fn a_device_that_cannot_be_reset_is_not_used() {
    let ring = reg::RINGS_OFFSET + reg::RINGS_STRIDE;
    for lie in [
        (reg::REG_STATUS, 0),
        (reg::REG_STATUS, u32::MAX),
        (reg::REG_CTRL, 1),
        (ring + reg::RING_CONTROL, 1),
        (reg::REG_STATUS, 1 | 1 << reg::STATUS_FAULT_LOW),
        (reg::REG_KEY_STATUS, 1),
    ] {
        let error = opened(vec![lie]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Dead, "{lie:x?}: {error}");
    }
}

/// One wrong bit in any request of the test, and the engine is not used.
#[test]
fn the_test_finds_a_wrong_bit_wherever_it_is() {
    for level in 1..=3 {
        let build = Build {
            level,
            ciphers: if level == 3 { 0x7f } else { 1 },
            ..Build::default()
        };
        let (device, engine) = by_hand(build, Pace::AtOnce, options());
        crate::selftest::run(&engine).unwrap();
        let all = device.requests();
        assert!(all >= 32, "{all}");
        drop(engine);
        for number in (0..all).step_by(5) {
            let device = Device::new(build, Pace::AtOnce);
            device.spoil(number, Flaw::WrongBit);
            let error = Engine::by_hand(device.port(), Options::default(), true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Dead);
            assert!(error.to_string().contains("failed its test"), "{error}");
            assert!(!device.is_mapped());
        }
    }
}

/// The largest request that is made, behind the end of `plain`'s numbers and before one sector more.
#[test]
fn the_test_has_a_run_that_is_cut() {
    let build = Build {
        log2_bytes: 16,
        ..Build::default()
    };
    let (device, engine) = by_hand(build, Pace::AtOnce, options());
    crate::selftest::run(&engine).unwrap();
    let (all, counters) = (device.requests(), engine.counters().unwrap());
    let device = Device::new(build, Pace::AtOnce);
    device.spoil(all - 3, Flaw::Hangs);
    let error = Engine::by_hand(device.port(), options(), true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    for ahead in 1..=3 {
        let device = Device::new(build, Pace::AtOnce);
        device.spoil(all - ahead, Flaw::WrongBit);
        let error = Engine::by_hand(device.port(), options(), true).unwrap_err();
        assert!(error.to_string().contains("a long run"), "{error}");
        assert!(counters.bytes > 1 << 16);
    }
}

#[test]
fn an_engine_prints_what_it_is_and_no_more() {
    let (_, engine) = by_hand(Build::default(), Pace::AtOnce, options());
    let text = format!("{engine:?}");
    assert!(
        text.contains("level: 3") && text.contains("failure: None"),
        "{text}"
    );
}
