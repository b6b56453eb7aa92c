//! An engine for tests, in this process ([`LaterEngine`]).
//!
//! Other crates switch this module on for their tests only:
//!
//! ```toml
//! [dev-dependencies]
//! xtent-volume = { workspace = true, features = ["testing"] }
//! ```

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use sector_cipher::Cipher;
use xtent_store::{Act, Buffer, Completed, Completion, Error, ErrorKind, Submitted};

use crate::{CipherEngine, Config, Crypted, Direction};

/// Encrypts and decrypts on a thread of its own, always one of the runs under way that chance picks.
pub struct LaterEngine {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    cipher: Cipher,
    state: Mutex<State>,
    changed: Condvar,
}

struct Run {
    direction: Direction,
    first: u64,
    buffer: Buffer,
    completion: Completion,
}

struct State {
    waiting: Vec<Run>,
    most_waiting: usize,
    /// Bytes of the runs that have ended well, in order.
    done: Vec<usize>,
    fails: Option<Direction>,
    is_wrong: bool,
    is_held: bool,
    is_closed: bool,
    /// State of the generator that picks.
    random: u64,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LaterEngine {
    /// For a volume with this key, and an order of completion that `seed` makes.
    ///
    /// # Panics
    /// If the key is none for the cipher.
    pub fn new(config: &Config, key: &[u8], seed: u64) -> Arc<Self> {
        let &Config {
            cipher: spec,
            sector_size,
            sector_count,
            ..
        } = config;
        let cipher = Cipher::new(spec, sector_size, sector_count, key, None)
            .unwrap_or_else(|error| panic!("an engine for tests: {error}"));
        let shared = Arc::new(Shared {
            cipher,
            state: Mutex::new(State {
                waiting: Vec::new(),
                most_waiting: 0,
                done: Vec::new(),
                fails: None,
                is_wrong: false,
                is_held: false,
                is_closed: false,
                random: seed | 1,
            }),
            changed: Condvar::new(),
        });
        let worker = Arc::clone(&shared);
        let thread = Some(std::thread::spawn(move || work(&worker)));
        Arc::new(Self { shared, thread })
    }

    /// From now on completes nothing, or all again.
    pub fn hold(&self, is_held: bool) {
        self.shared.state().is_held = is_held;
        self.shared.changed.notify_all();
    }

    /// From now on fails, after it has spoilt some of the bytes, what is encrypted, or decrypted, or nothing.
    pub fn fail(&self, fails: Option<Direction>) {
        self.shared.state().fails = fails;
    }

    /// From now on does, or does not, something else to the first byte than the cipher does.
    pub fn be_wrong(&self, is_wrong: bool) {
        self.shared.state().is_wrong = is_wrong;
    }

    /// Runs under way.
    pub fn waiting(&self) -> usize {
        self.shared.state().waiting.len()
    }

    /// The most runs that ever were under way at a time.
    pub fn most_waiting(&self) -> usize {
        self.shared.state().most_waiting
    }

    /// Bytes of each run that has ended well since this was called last, in their order.
    pub fn take_done(&self) -> Vec<usize> {
        std::mem::take(&mut self.shared.state().done)
    }
}

impl CipherEngine for LaterEngine {
    fn crypt(&self, direction: Direction, first: u64, buffer: Buffer) -> Crypted {
        let (completion, submitted) = Submitted::later();
        let mut state = self.shared.state();
        state.waiting.push(Run {
            direction,
            first,
            buffer,
            completion,
        });
        state.most_waiting = state.most_waiting.max(state.waiting.len());
        drop(state);
        self.shared.changed.notify_all();
        Box::pin(async move {
            let Completed { buffer, result } = submitted.await;
            // The thread gives back what it was given, and ends after all that waits.
            let buffer = buffer.unwrap_or_else(|| unreachable!("a run was lost"));
            (buffer, result.map(|()| 0).map_err(Into::into))
        })
    }

    fn failure(&self) -> Option<String> {
        None
    }
}

fn work(shared: &Shared) {
    let mut state = shared.state();
    loop {
        let is_held = state.is_held && !state.is_closed;
        if state.waiting.is_empty() || is_held {
            if state.is_closed {
                return;
            }
            state = shared
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        // Xorshift.
        state.random ^= state.random << 13;
        state.random ^= state.random >> 7;
        state.random ^= state.random << 17;
        let pick = usize::try_from(state.random % state.waiting.len() as u64).unwrap_or_default();
        let run = state.waiting.swap_remove(pick);
        let fails = state.fails == Some(run.direction);
        let is_wrong = state.is_wrong;
        drop(state);
        let Run {
            direction,
            first,
            mut buffer,
            completion,
        } = run;
        let len = buffer.len();
        // Half of it, in whole sectors.
        let sector = shared.cipher.sector_size().bytes();
        let reached = if fails {
            len / 2 / sector * sector
        } else {
            len
        };
        match direction {
            Direction::Encrypt => shared.cipher.encrypt(first, &mut buffer[..reached]),
            Direction::Decrypt => shared.cipher.decrypt(first, &mut buffer[..reached]),
        }
        if is_wrong {
            buffer[0] ^= 1;
        }
        let result = match fails {
            true => Err(Error::new(
                ErrorKind::Io,
                Act::Operation,
                std::path::Path::new("the engine"),
                None,
            )),
            false => Ok(()),
        };
        state = shared.state();
        if !fails {
            state.done.push(len);
        }
        drop(state);
        completion.complete(Completed::new(Some(buffer), result));
        state = shared.state();
    }
}

impl Drop for LaterEngine {
    fn drop(&mut self) {
        self.shared.state().is_closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
