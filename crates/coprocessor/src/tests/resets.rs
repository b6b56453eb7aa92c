//! Who comes while the device is reset, at the moments that matter.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, subscriber};

use super::{by_hand, encrypts, load, options, texts};
use crate::memory::Memory;
use crate::registers as reg;
use crate::shared::Life;
use crate::testing::{Build, Device, Flaw, Pace, Port};
use crate::{Direction, Engine, Error, ErrorKind, Model};

/// What is done once, at a moment, from when it is set.
type Then = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

fn set(then: &Then, what: impl FnOnce() + Send + 'static) {
    *then.lock().unwrap() = Some(Box::new(what));
}

/// Whether there was something to do.
fn run(then: &Then) -> bool {
    let what = then.lock().unwrap().take();
    what.map(|what| what()).is_some()
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

/// A way to a device on which something is done.
#[derive(Default)]
struct Moments {
    /// When a key command is looked at, which then does not end before a reset.
    at_key: Then,
    is_key_busy: AtomicBool,
    /// Whether key commands cannot be looked at at all.
    is_gone: AtomicBool,
    /// When the memory is taken away, which is what a device out of service comes to.
    at_unmap: Then,
}

struct Watched(Box<dyn Port>, Arc<Moments>);

impl Port for Watched {
    fn read(&self, register: u32) -> Result<u32, Error> {
        if register == reg::REG_KEY_STATUS {
            if self.1.is_gone.load(Ordering::SeqCst) {
                return Err(Error::by(ErrorKind::Dead, "it is gone", "it was stolen"));
            }
            if run(&self.1.at_key) {
                self.1.is_key_busy.store(true, Ordering::SeqCst);
            }
            if self.1.is_key_busy.load(Ordering::SeqCst) {
                return Ok(1 << reg::KEY_STATUS_BUSY_LOW);
            }
        }
        self.0.read(register)
    }
    fn write(&self, register: u32, value: u32) -> Result<(), Error> {
        if register == reg::REG_CTRL && value >> reg::CTRL_RESET_LOW & 1 != 0 {
            self.1.is_key_busy.store(false, Ordering::SeqCst);
        }
        self.0.write(register, value)
    }
    fn write_secret(&self, register: u32, value: &[u8; 4]) -> Result<(), Error> {
        self.0.write_secret(register, value)
    }
    fn map(&self, memory: &Arc<Memory>) -> Result<(), Error> {
        self.0.map(memory)
    }
    fn unmap(&self, memory: &Memory) -> Result<(), Error> {
        run(&self.1.at_unmap);
        self.0.unmap(memory)
    }
    fn interrupts(&self, counters: &[OwnedFd]) -> Result<usize, Error> {
        self.0.interrupts(counters)
    }
}

fn watched(pace: Pace) -> (Device, Arc<Engine>, Arc<Moments>) {
    let device = Device::new(Build::default(), pace);
    let moments = Arc::<Moments>::default();
    let port = Watched(device.port(), Arc::clone(&moments));
    let engine = Engine::by_hand(Box::new(port), options(), false).unwrap();
    (device, engine, moments)
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
    let (device, engine, moments) = watched(Pace::AtOnce);
    let keyed = load(&engine, 1, Model::Runs).unwrap();
    let loaded = Arc::new(Mutex::new(None));
    let (late, for_late) = (Arc::clone(&loaded), Arc::clone(&engine));
    set(&moments.at_unmap, move || {
        *late.lock().unwrap() = Some(load(&for_late, 2, Model::Runs));
    });
    device.spoil(0, Flaw::Cookie);
    let (_, result) = engine.run(keyed.crypt(Direction::Encrypt, 9, texts(1, 9, 512).0));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Dead);
    let late = loaded.lock().unwrap().take().expect("it came to that");
    assert_eq!(late.err().map(|e| e.kind()), Some(ErrorKind::Dead));
    assert_eq!(device.loaded(), 0);
}

#[test]
fn a_key_command_that_does_not_end_before_a_reset_is_no_trouble_behind_it() {
    let (device, engine, moments) = watched(Pace::Held);
    let a = load(&engine, 1, Model::Runs).unwrap();
    let b = load(&engine, 2, Model::Runs).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let job = || Box::pin(b.crypt(Direction::Encrypt, 9, texts(2, 9, 512).0));
    let mut done = job();
    assert!(done.as_mut().poll(&mut context).is_pending());
    assert_eq!(device.work(1), 1);
    engine.let_pass(engine.shared().tick());
    assert!(done.as_mut().poll(&mut context).is_ready());
    // While `a` is cleared the watchdog finds that this one is late.
    let mut late = job();
    assert!(late.as_mut().poll(&mut context).is_pending());
    let resetting = Arc::new(Mutex::new(None));
    let (other, kept) = (Arc::clone(&engine), Arc::clone(&resetting));
    set(&moments.at_key, move || {
        let shared = Arc::clone(other.shared());
        let pass = thread::spawn(move || other.let_pass(Duration::from_secs(1)));
        *kept.lock().unwrap() = Some(pass);
        while matches!(shared.lock().life, Life::Up) {
            thread::yield_now();
        }
    });
    drop(a);
    let pass = resetting.lock().unwrap().take().expect("it came to that");
    pass.join().unwrap();
    assert_eq!(device.resets(), 2);
    engine.let_pass(engine.shared().tick());
    assert_eq!(engine.failure(), None);
    assert_eq!((device.resets(), device.loaded()), (2, 0b10));
}

/// Whether a key command finds it first, or keys that are loaded again.
#[test]
fn the_reason_of_a_device_out_of_service_is_told_with_its_cause() {
    for hangs in [false, true] {
        let (device, engine, moments) = watched(Pace::AtOnce);
        let a = load(&engine, 1, Model::Runs).unwrap();
        if hangs {
            encrypts(&engine, &a, 1, 4096);
            device.spoil(0, Flaw::Hangs);
        }
        moments.is_gone.store(true, Ordering::SeqCst);
        match hangs {
            true => drop(engine.run(a.crypt(Direction::Encrypt, 9, texts(1, 9, 512).0))),
            false => drop(a),
        }
        engine.let_pass(engine.shared().tick());
        let reason = engine.failure().unwrap();
        assert!(reason.ends_with("it is gone: it was stolen"), "{reason}");
    }
}
