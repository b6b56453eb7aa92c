//! Who comes while the device is reset, at the moments that matter.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, subscriber};

use super::{by_hand, encrypts, load, options, texts};
use crate::memory::Memory;
use crate::testing::{Build, Device, Flaw, Pace, Port};
use crate::{Direction, Engine, Error, ErrorKind, Model};

/// What is done once, at a moment; nothing before it is set.
type Then = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

fn set(then: &Then, what: impl FnOnce() + Send + 'static) {
    *then.lock().unwrap() = Some(Box::new(what));
}

fn run(then: &Then) {
    let what = then.lock().unwrap().take();
    what.into_iter().for_each(|what| what());
}

/// Does it when something is logged.
struct AtEvent(Then);

impl Subscriber for AtEvent {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        run(&self.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Does it when the memory is taken away, which is what a device out of service comes to.
struct AtUnmap(Box<dyn Port>, Then);

impl Port for AtUnmap {
    fn read(&self, register: u32) -> Result<u32, Error> {
        self.0.read(register)
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
        run(&self.1);
        self.0.unmap(memory)
    }
    fn interrupts(&self, counters: &[OwnedFd]) -> Result<usize, Error> {
        self.0.interrupts(counters)
    }
}

/// One that waited for the keys while they were loaded again would be as late as one that hears of the reset.
#[test]
fn a_key_that_goes_once_all_are_loaded_again_does_not_stay() {
    let (device, engine) = by_hand(Build::default(), Pace::AtOnce, options());
    let a = load(&engine, 1, Model::Runs).unwrap();
    let b = load(&engine, 2, Model::Runs).unwrap();
    encrypts(&engine, &b, 2, 4096);
    let then = Then::default();
    let (before, seen) = (device.clone(), Arc::new(Mutex::new(None)));
    let heard = Arc::clone(&seen);
    set(&then, move || {
        *heard.lock().unwrap() = Some(before.loaded());
        drop(a);
    });
    device.spoil(0, Flaw::Hangs);
    let (_, result) = subscriber::with_default(AtEvent(then), || {
        engine.run(b.crypt(Direction::Encrypt, 9, texts(2, 9, 512).0))
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Failed);
    assert_eq!(*seen.lock().unwrap(), Some(0b11), "loaded again");
    assert_eq!(device.loaded(), 0b10);
    encrypts(&engine, &b, 2, 4096);
}

#[test]
fn an_engine_that_is_put_out_of_service_gets_no_key() {
    let device = Device::new(Build::default(), Pace::AtOnce);
    let then = Then::default();
    let port = AtUnmap(device.port(), Arc::clone(&then));
    let engine = Engine::by_hand(Box::new(port), options(), false).unwrap();
    let keyed = load(&engine, 1, Model::Runs).unwrap();
    let loaded = Arc::new(Mutex::new(None));
    let (late, for_late) = (Arc::clone(&loaded), Arc::clone(&engine));
    set(&then, move || {
        *late.lock().unwrap() = Some(load(&for_late, 2, Model::Runs));
    });
    device.spoil(0, Flaw::Cookie);
    let (_, result) = engine.run(keyed.crypt(Direction::Encrypt, 9, texts(1, 9, 512).0));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Dead);
    let late = loaded.lock().unwrap().take().expect("it came to that");
    assert_eq!(late.err().map(|e| e.kind()), Some(ErrorKind::Dead));
    assert_eq!(device.loaded(), 0);
}
