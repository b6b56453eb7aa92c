//! Many jobs on several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use super::{MODELS, load, patient, texts};
use crate::registers as reg;
use crate::testing::{Build, Device, Flaw, Pace};
use crate::{Direction, Engine, Keyed, OnFailure, Options, RequestSize, Tweaks};

/// Random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

const THREADS: usize = 4;
const JOBS: usize = 600;

/// Jobs of all models and lengths, some of which are given up.
fn jobs(engine: &Engine, keys: &[(u8, Keyed)], seed: u64) -> usize {
    let mut random = Random(seed);
    let mut done = 0;
    for number in 0..JOBS {
        let (key, keyed) = &keys[random.below(keys.len())];
        let len = 512 * (1 + random.below(60));
        let first = random.below(1 << 30) as u64;
        let (plain, encrypted) = texts(*key, first, len);
        let (direction, from, to) = match random.below(2) {
            0 => (Direction::Encrypt, plain, encrypted),
            _ => (Direction::Decrypt, encrypted, plain),
        };
        let future = keyed.crypt(direction, first.into(), from);
        if random.below(8) == 0 {
            let mut future = Box::pin(future);
            // Whatever comes of it, nobody waits for it.
            let _ = future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            continue;
        }
        let (data, result) = engine.run(future);
        result.unwrap_or_else(|e| panic!("seed {seed}, job {number}: {e}"));
        assert!(
            data == to,
            "seed {seed}, job {number}: {direction:?}, {len} bytes"
        );
        done += 1;
    }
    done
}

fn all(device: &Device, engine: &Arc<Engine>, mut between: impl FnMut()) {
    let models = [
        MODELS[0],
        MODELS[1],
        MODELS[2],
        crate::Model::Mixed(Tweaks::Cpu, RequestSize::Run),
    ];
    let keys: Vec<_> = (1..)
        .zip(models)
        .map(|(n, model)| (n, load(engine, n, model).unwrap()))
        .collect();
    let done = AtomicUsize::new(0);
    let running = AtomicUsize::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (keys, done, running) = (&keys, &done, &running);
            scope.spawn(move || {
                done.fetch_add(jobs(engine, keys, thread as u64), Ordering::SeqCst);
                running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        while running.load(Ordering::SeqCst) > 0 {
            between();
            std::thread::yield_now();
        }
    });
    assert!(done.into_inner() > THREADS * JOBS * 3 / 4);
    drop(keys);
    assert_eq!(device.loaded(), 0);
}

#[test]
fn thousands_of_jobs_on_several_threads() {
    for (rings, log2_ring, memory) in [(3, 8, 1 << 20), (1, 0, 0), (8, 2, 128 << 10)] {
        let build = Build {
            rings,
            log2_ring,
            ..Build::default()
        };
        let device = Device::new(build, Pace::Thread);
        let engine = Engine::by_port(
            device.port(),
            Options {
                memory,
                ..Options::default()
            },
        )
        .unwrap();
        all(&device, &engine, || {});
        assert_eq!(engine.failure(), None);
        let counters = engine.counters().unwrap();
        assert_eq!(counters.requests, device.requests());
        assert_ne!(counters.requests, 0);
    }
}

/// A device that fails now and then, and the CPU at its side: everything is right all the same.
#[test]
fn thousands_of_jobs_with_faults() {
    let device = Device::new(Build::default(), Pace::Thread);
    let options = Options {
        memory: 1 << 20,
        on_failure: OnFailure::Cpu,
        ..patient()
    };
    let engine = Engine::by_port(device.port(), options).unwrap();
    let flaws = [
        Flaw::Status(reg::STATUS_WRITE),
        Flaw::Hangs,
        Flaw::NoInterrupt,
        Flaw::ManyInterrupts,
        Flaw::Status(reg::STATUS_READ),
        Flaw::Fault(reg::FAULT_COMPLETION),
    ];
    let mut next = device.requests();
    let mut flaw = flaws.into_iter().cycle();
    all(&device, &engine, || {
        // Far enough from one to the next that each reset is followed by requests.
        if device.requests() >= next {
            device.spoil(300, flaw.next().unwrap());
            next = device.requests() + 3000;
        }
    });
    assert_eq!(engine.failure(), None);
    assert!(device.resets() > 1, "{}", device.resets());
}
