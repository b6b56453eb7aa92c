//! Each model, cipher, sector size and cut gives what the CPU gives.

use crate::testing::{Build, Device, Pace};
use crate::{Engine, Options};

#[test]
fn an_engine_opens_and_passes_its_test() {
    let device = Device::new(Build::default(), Pace::AtOnce);
    let engine = Engine::by_hand(device.port(), Options::default(), true).unwrap();
    assert_eq!(device.loaded(), 0);
    assert_eq!(engine.facts().level, 3);
    drop(engine);
    assert!(!device.is_mapped());
    let device = Device::new(Build::default(), Pace::Thread);
    let engine = Engine::by_port(device.port(), Options::default()).unwrap();
    drop(engine);
}
