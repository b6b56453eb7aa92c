//! Who waits for what, and futures that nobody waits for.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::{MODELS, encrypts, held, load, options, texts};
use crate::memory::Memory;
use crate::port::Port;
use crate::registers as reg;
use crate::shared::Cause;
use crate::testing::{Build, Device, Pace};
use crate::{Direction, Engine, Error, Keyed, Model, Options, Wait};

type Done = (Vec<u8>, Result<usize, Error>);
type Job = Pin<Box<dyn Future<Output = Done> + Send>>;

fn job(keyed: &Keyed, len: usize) -> Job {
    Box::pin(keyed.crypt(Direction::Encrypt, 9, texts(1, 9, len).0))
}

fn poll(job: &mut Job) -> Poll<Done> {
    job.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Says in which order things were woken.
struct Order(usize, Arc<Mutex<Vec<usize>>>);

impl Wake for Order {
    fn wake(self: Arc<Self>) {
        let mut order = self.1.lock().unwrap();
        if order.last() != Some(&self.0) {
            order.push(self.0);
        }
    }
}

/// Jobs go on in the order in which they came, whatever they wait for.
fn in_order(build: Build, options: Options, len: usize) {
    let (device, engine) = held(build, options);
    let keyed = load(&engine, 1, Model::Runs).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut jobs: Vec<_> = (0..9).map(|_| Some(job(&keyed, len))).collect();
    let mut done = Vec::new();
    for round in 0..100 {
        for (number, slot) in jobs.iter_mut().enumerate() {
            let Some(job) = slot else { continue };
            let waker = Waker::from(Arc::new(Order(number, Arc::clone(&order))));
            if let Poll::Ready((data, result)) = job.as_mut().poll(&mut Context::from_waker(&waker))
            {
                result.unwrap();
                assert!(data == texts(1, 9, len).1);
                done.push(number);
                *slot = None;
            }
        }
        device.work(1 + round % 2);
        engine.let_pass(Duration::from_micros(1));
    }
    assert_eq!(done, (0..9).collect::<Vec<_>>());
    assert_eq!(device.requests(), 9);
}

#[test]
fn a_full_ring_is_waited_for_in_order() {
    for log2_ring in [0, 1, 2] {
        let build = Build {
            log2_ring,
            rings: 1,
            ..Build::default()
        };
        in_order(build, options(), 1024);
    }
}

#[test]
fn memory_is_waited_for_in_order() {
    // Room for two at a time.
    let options = Options {
        memory: 64 << 10,
        ..options()
    };
    in_order(
        Build {
            rings: 1,
            ..Build::default()
        },
        options,
        32 << 10,
    );
}

/// One that gives up its place leaves it to the next.
#[test]
fn whoever_leaves_the_line_holds_nobody_up() {
    let (device, engine) = held(
        Build {
            log2_ring: 0,
            rings: 1,
            ..Build::default()
        },
        options(),
    );
    let keyed = load(&engine, 1, Model::Runs).unwrap();
    let mut jobs: Vec<_> = (0..4).map(|_| job(&keyed, 512)).collect();
    assert!(jobs.iter_mut().all(|job| poll(job).is_pending()));
    drop(jobs.drain(1..3));
    for mut job in jobs {
        while poll(&mut job).is_pending() {
            device.work(1);
            engine.let_pass(Duration::from_micros(1));
        }
    }
    assert_eq!(device.requests(), 2);
}

/// Memory that the device works on stays its own when nobody waits any more.
#[test]
fn a_future_that_is_dropped_leaves_its_memory_to_the_device() {
    for model in MODELS {
        let options = Options {
            memory: 64 << 10,
            ..options()
        };
        let (device, engine) = held(Build::default(), options);
        let keyed = load(&engine, 1, model).unwrap();
        let before = engine.shared().memory.len() - engine.shared().data_bytes;
        let len = 32 << 10;
        let (mut a, mut b) = (job(&keyed, len), job(&keyed, len));
        assert!(poll(&mut a).is_pending() && poll(&mut b).is_pending());
        let used = device.used(before);
        assert_ne!(used, 0);
        drop((a, b));
        assert_eq!(
            device.used(before),
            used,
            "it is there as long as the device may use it"
        );
        let mut c = job(&keyed, len);
        assert!(poll(&mut c).is_pending());
        let mut rounds = 0;
        let (data, result) = loop {
            device.work(1);
            engine.let_pass(Duration::from_micros(1));
            rounds += 1;
            if let Poll::Ready(end) = poll(&mut c) {
                break end;
            }
        };
        result.unwrap();
        assert!(data == texts(1, 9, len).1, "{rounds}");
        // Rings take turns: one of those that were given up may be behind it.
        while device.work(1) > 0 {}
        engine.let_pass(Duration::from_micros(1));
        assert_eq!(device.used(before), 0);
        assert_eq!(engine.failure(), None);
    }
}

/// The clock is not needed for anything but faults: without interrupts, the driver looks.
#[test]
fn polling_needs_no_interrupts() {
    let device = Device::new(
        Build {
            vectors: 0,
            ..Build::default()
        },
        Pace::Thread,
    );
    let options = Options {
        wait: Wait::Polling(Duration::from_micros(20)),
        ..Options::default()
    };
    let engine = Engine::by_port(device.port(), options).unwrap();
    let keyed = load(&engine, 1, Model::Runs).unwrap();
    for _ in 0..50 {
        encrypts(&engine, &keyed, 1, 8192);
    }
    let device = Device::new(
        Build {
            vectors: 0,
            ..Build::default()
        },
        Pace::Thread,
    );
    let error = Engine::by_port(device.port(), Options::default()).unwrap_err();
    assert!(error.to_string().contains("polling"), "{error}");
}

/// Completions are told together, and none is forgotten.
#[test]
fn coalesced_interrupts_tell_of_all() {
    for (coalesce, coalesce_us) in [(0, 0), (1, 0), (8, 0), (8, 50), (255, 65535)] {
        let device = Device::new(Build::default(), Pace::Thread);
        let options = Options {
            coalesce,
            coalesce_us,
            ..Options::default()
        };
        let engine = Engine::by_port(device.port(), options).unwrap();
        let keyed = load(&engine, 1, MODELS[1]).unwrap();
        encrypts(&engine, &keyed, 1, 100 * 512);
    }
}

/// A bus that writes later: a clear of interrupts arrives when something is read behind it. Before it arrives, or just
/// then, the device completes a request.
struct Posted {
    honest: Box<dyn Port>,
    device: Device,
    is_before: bool,
    clear: Mutex<Option<u32>>,
}

impl Port for Posted {
    fn read(&self, register: u32) -> Result<u32, Error> {
        if let Some(bits) = self.clear.lock().unwrap().take() {
            if self.is_before {
                self.device.work(1);
            }
            self.honest.write(reg::REG_INT_STATUS, bits)?;
            if !self.is_before {
                self.device.work(1);
            }
        }
        self.honest.read(register)
    }
    fn write(&self, register: u32, value: u32) -> Result<(), Error> {
        if register == reg::REG_INT_STATUS {
            *self.clear.lock().unwrap() = Some(value);
            return Ok(());
        }
        self.honest.write(register, value)
    }
    fn write_secret(&self, register: u32, value: &[u8; 4]) -> Result<(), Error> {
        self.honest.write_secret(register, value)
    }
    fn map(&self, memory: &Arc<Memory>) -> Result<(), Error> {
        self.honest.map(memory)
    }
    fn unmap(&self, memory: &Memory) -> Result<(), Error> {
        self.honest.unmap(memory)
    }
    fn interrupts(&self, counters: &[OwnedFd]) -> Result<usize, Error> {
        self.honest.interrupts(counters)
    }
}

/// A completion that meets the clear of the interrupt before is not left for another one, which would not come.
#[test]
fn a_clear_on_its_way_hides_no_completion() {
    for is_before in [false, true] {
        let device = Device::new(
            Build {
                rings: 1,
                ..Build::default()
            },
            Pace::Held,
        );
        let port = Posted {
            honest: device.port(),
            device: device.clone(),
            is_before,
            clear: Mutex::new(None),
        };
        let engine = Engine::by_hand(Box::new(port), options(), false).unwrap();
        let keyed = load(&engine, 1, Model::Runs).unwrap();
        let (mut a, mut b) = (job(&keyed, 512), job(&keyed, 512));
        assert!(poll(&mut a).is_pending() && poll(&mut b).is_pending());
        device.work(1);
        let shared = engine.shared();
        shared.attend(shared.now(), Cause::Interrupt(1));
        assert!(poll(&mut a).is_ready());
        assert!(poll(&mut b).is_ready(), "before: {is_before}");
        assert_eq!(shared.port.read(reg::REG_INT_STATUS).unwrap(), 0);
    }
}

/// A thread attends to the engine, not those who wait: interrupts without a reason do nothing.
#[test]
fn interrupts_for_nothing_do_nothing() {
    let device = Device::new(Build::default(), Pace::Thread);
    let engine = Engine::by_port(device.port(), Options::default()).unwrap();
    let keyed = load(&engine, 1, Model::Runs).unwrap();
    for _ in 0..100 {
        device.interrupt();
        encrypts(&engine, &keyed, 1, 512);
        device.interrupt();
    }
    assert_eq!(engine.failure(), None);
}

/// The last future may be dropped on the engine's own thread.
#[test]
fn the_engine_may_end_on_its_own_thread() {
    struct Last(Mutex<Option<Job>>, AtomicUsize);
    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::SeqCst);
            drop(self.0.lock().unwrap().take());
        }
    }
    let device = Device::new(Build::default(), Pace::Held);
    let engine = Engine::start(device.port(), Options::default(), None).unwrap();
    let keyed = load(&engine, 1, Model::Runs).unwrap();
    let last = Arc::new(Last(Mutex::new(None), AtomicUsize::new(0)));
    let mut future = job(&keyed, 512);
    let waker = Waker::from(Arc::clone(&last));
    assert!(
        future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    *last.0.lock().unwrap() = Some(future);
    drop((keyed, engine));
    assert_eq!(device.work(9), 1);
    while device.is_mapped() {
        std::thread::yield_now();
    }
    assert_eq!(last.1.load(Ordering::SeqCst), 1);
    assert_eq!(device.loaded(), 0);
}
