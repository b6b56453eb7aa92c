//! A co-processor that attacks its driver: whatever it has in its registers, whatever it writes into the memory that it
//! shares, and whenever, each request ends once and soon, a failed one leaves its data alone, and a device that was found out
//! is asked nothing more.
#![no_main]

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sector_cipher::{SectorCount, SectorSize};
use xtent_coprocessor::registers as reg;
use xtent_coprocessor::testing::{Build, Device, Memory, Pace, Port};
use xtent_coprocessor::{
    Direction, Engine, Error, Keyed, Model, OnFailure, Options, RequestSize, Tweaks,
};

/// What the attacker does at one access to its registers: what, with two numbers.
type Move = (u8, u8, u32);

/// Ring entries, policies; jobs (key, direction, sectors); what the attacker does.
type Input = (u8, u8, Vec<(u8, u8, u8)>, Vec<Move>);

/// Looks at the device until a request has ended, at most.
const PATIENCE: usize = 3000;

struct Attacker {
    device: Device,
    honest: Box<dyn Port>,
    moves: Mutex<Vec<Move>>,
    memory: Mutex<Option<Arc<Memory>>>,
}

impl Attacker {
    /// Makes a move; a value that a register is to read, if it is that.
    fn make(&self) -> Option<u32> {
        let next = self
            .moves
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let (what, small, number) = next?;
        let memory = self
            .memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        // Words of the memory: completions lie at its start, behind the submissions.
        let place = |memory: &Memory| number as usize % (memory.len() / 8) * 8;
        match (what % 10, memory) {
            (0, _) => return Some(number),
            (1, _) => return Some(u32::MAX),
            (2, Some(memory)) => memory.write(place(&memory), &[small; 8]),
            // A word from elsewhere: an old completion, a request, data.
            (3, Some(memory)) => {
                let from = usize::from(small) * 16 % memory.len();
                let word = memory.load(from);
                memory.store(place(&memory), word);
            }
            // A completion that could be one, but for a little.
            (4, Some(memory)) => {
                let [status, done, head, cookie] = number.to_le_bytes();
                let at = usize::from(small) % 64 * 16;
                memory.store(at, cookie.into());
                let last = [done, 0, 0, 0, status % 16, status >> 4 & 3, head, 0];
                memory.store(at + 8, u64::from_le_bytes(last));
            }
            // It does not work for a while.
            (5, _) => {}
            _ => {
                self.device.work(usize::from(small % 4));
            }
        }
        None
    }
}

impl Port for Attacker {
    fn read(&self, register: u32) -> Result<u32, Error> {
        let lie = self.make();
        let truth = self.honest.read(register)?;
        Ok(match register {
            // It has to look like an engine to get in at all.
            reg::REG_ID | reg::REG_VERSION => truth,
            _ => lie.unwrap_or(truth),
        })
    }

    fn write(&self, register: u32, value: u32) -> Result<(), Error> {
        self.make();
        self.honest.write(register, value)
    }

    fn write_secret(&self, register: u32, value: &[u8; 4]) -> Result<(), Error> {
        self.honest.write_secret(register, value)
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<(), Error> {
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(memory));
        self.honest.map(memory)
    }

    fn unmap(&self, memory: &Memory) -> Result<(), Error> {
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.honest.unmap(memory)
    }

    fn interrupts(&self, counters: &[OwnedFd]) -> Result<usize, Error> {
        self.honest.interrupts(counters)
    }
}

type Job = Pin<Box<dyn Future<Output = (Vec<u8>, Result<usize, Error>)> + Send>>;

fuzz_target!(|input: Input| {
    let (ring, policy, jobs, moves) = input;
    let device = Device::new(Build::default(), Pace::Held);
    let port = Attacker {
        honest: device.port(),
        device: device.clone(),
        moves: Mutex::new(moves),
        memory: Mutex::new(None),
    };
    let on_failure = match policy % 2 {
        0 => OnFailure::Fail,
        _ => OnFailure::Cpu,
    };
    let options = Options {
        memory: 64 << 10,
        ring_entries: 1 << (ring % 6),
        rings: usize::from(ring >> 4),
        watchdog: Duration::from_millis(4),
        on_failure,
        ..Options::default()
    };
    let Ok(engine) = Engine::by_hand(Box::new(port), options, false) else {
        return;
    };
    let models = [
        Model::Runs,
        Model::Units(Tweaks::Engine),
        Model::Mixed(Tweaks::Engine, RequestSize::Bytes512),
        Model::Mixed(Tweaks::Cpu, RequestSize::Run),
    ];
    let spec = "aes-xts-plain64".parse().unwrap();
    let key: Vec<u8> = (0..64).collect();
    let size = SectorSize::new(512).unwrap();
    let load = |model| {
        engine
            .key(spec, &key, size, SectorCount::Units512, model)
            .ok()
    };
    let keys: Vec<Keyed> = models.into_iter().filter_map(load).collect();
    if keys.is_empty() {
        return;
    }
    let mut under_way: Vec<(Vec<u8>, Job)> = Vec::new();
    for (key, direction, sectors) in jobs.into_iter().take(16) {
        let data = vec![key ^ 0x5a; 512 * usize::from(sectors % 48)];
        let direction = match direction % 2 {
            0 => Direction::Encrypt,
            _ => Direction::Decrypt,
        };
        let keyed = &keys[usize::from(key) % keys.len()];
        let job = keyed.crypt(direction, u128::from(key) << 60, data.clone());
        under_way.push((data, Box::pin(job)));
    }
    let mut context = Context::from_waker(Waker::noop());
    let mut rounds = 0;
    while !under_way.is_empty() {
        under_way.retain_mut(|(before, job)| match job.as_mut().poll(&mut context) {
            std::task::Poll::Pending => true,
            std::task::Poll::Ready((data, result)) => {
                assert_eq!(data.len(), before.len());
                match result {
                    Ok(by_cpu) => {
                        assert!(by_cpu <= data.len());
                        assert!(by_cpu == 0 || on_failure == OnFailure::Cpu);
                    }
                    Err(_) => {
                        assert!(on_failure == OnFailure::Fail, "the CPU would have done it");
                        assert!(data == *before, "a failed request leaves its data alone");
                    }
                }
                false
            }
        });
        device.work(3);
        engine.let_pass(Duration::from_millis(1));
        rounds += 1;
        assert!(rounds < PATIENCE, "requests that do not end");
    }
    if engine.failure().is_some() {
        let requests = device.requests();
        let (_, result) = engine.run(keys[0].crypt(Direction::Encrypt, 0, vec![0; 512]));
        assert_eq!(result.is_ok(), on_failure == OnFailure::Cpu);
        assert_eq!(device.requests(), requests);
    }
});
