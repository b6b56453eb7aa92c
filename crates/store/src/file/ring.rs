//! A file store whose operations complete later, by io_uring.
//!
//! One thread has the ring. Whoever submits leaves the operation in a queue, and rings a
//! bell if that thread waits in the kernel. So what a connection's thread does (it may
//! end, or wait for something else) has no part in how operations under way get on.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use io_uring::register::{Probe, Restriction};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::FileStore;
use super::flight::Flight;
use super::settling::{Earlier, Unsettled};
use crate::{Completion, Error, Limits, Operation, Store, Submitted};

/// Operations that the kernel has at a time; those beyond wait in the queue. The ring for
/// its answers has twice the room, so that none is ever lost.
const DEPTH: u32 = 256;
/// Marks the answer to the read of the bell.
const BELL: u64 = u64::MAX;
/// Where the kernel leaves the bell's count, which nobody reads. It is no ring's own: it
/// has to outlive them all.
static COUNT: AtomicU64 = AtomicU64::new(0);

impl FileStore {
    /// The same store, with operations that complete later: any number of them wait for
    /// the disk without a thread for each. Where the kernel has no io_uring, or forbids
    /// it, the store as it is.
    ///
    /// The ring is made here, and its thread with the first operation: a process can give
    /// up its privileges in between.
    pub fn complete_later(self: Arc<Self>) -> Arc<dyn Store> {
        match make_ring().and_then(|ring| Ok((ring, eventfd(0, EventfdFlags::CLOEXEC)?))) {
            Ok((ring, bell)) => {
                match bell.try_clone() {
                    Ok(bell) => self.settling.add_bell(bell),
                    Err(error) => {
                        tracing::debug!(%error, "no second descriptor of a bell");
                        return self;
                    }
                }
                Arc::new(RingStore {
                    shared: Arc::new(Shared {
                        store: self,
                        bell,
                        queue: Mutex::default(),
                    }),
                    ring: Mutex::new(Some(ring)),
                    thread: OnceLock::new(),
                })
            }
            Err(error) => {
                tracing::debug!(%error, "no io_uring: operations wait on threads of their own");
                self
            }
        }
    }
}

/// What the ring is used for.
const OPERATIONS: [u8; 4] = [
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
];

/// A ring that does what it is used for and nothing else: others of its operations would
/// be system calls that a sandbox forbids.
fn make_ring() -> io::Result<IoUring> {
    let build = |is_cooperative: bool| {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_r_disabled();
        if is_cooperative {
            // The thread waits in the kernel anyway; it need not be interrupted.
            builder.setup_coop_taskrun();
        }
        builder.build(DEPTH)
    };
    // Linux has that from 5.19 on, and restrictions from 5.10 on.
    let mut ring = build(true).or_else(|_| build(false))?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if !OPERATIONS.iter().all(|&code| probe.is_supported(code)) {
        return Err(Errno::NOSYS.into());
    }
    let mut allowed = OPERATIONS.map(Restriction::sqe_op);
    ring.submitter().register_restrictions(&mut allowed)?;
    ring.submitter().register_enable_rings()?;
    // It may be forbidden to use what may be made; and the restrictions have to hold.
    let forbidden = opcode::Nop::new().build();
    // SAFETY: it points to no memory.
    let pushed = unsafe { ring.submission().push(&forbidden) };
    pushed.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    let answer = ring
        .completion()
        .next()
        .map(|answer: cqueue::Entry| answer.result());
    match answer {
        Some(answer) if answer == -Errno::ACCESS.raw_os_error() => Ok(ring),
        _ => Err(io::Error::other("it cannot be restricted")),
    }
}

/// A [`FileStore`] with a ring.
struct RingStore {
    shared: Arc<Shared>,
    /// Until the thread has it.
    ring: Mutex<Option<IoUring>>,
    /// Once there was an operation; [`None`] within if it could not be started.
    thread: OnceLock<Option<JoinHandle<()>>>,
}

struct Shared {
    store: Arc<FileStore>,
    bell: OwnedFd,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// In order of arrival.
    waiting: VecDeque<(Flight, Completion)>,
    /// Whether the thread hears of new operations by the bell only.
    is_asleep: bool,
    /// Whether the thread ends once nothing is under way.
    is_closing: bool,
    /// Whether the thread has ended.
    is_closed: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring_bell(&self) {
        // It fails only if it has been rung 2^64 times.
        let _ = rustix::io::retry_on_intr(|| rustix::io::write(&self.bell, &1_u64.to_ne_bytes()));
    }
}

impl RingStore {
    /// Whether there is a thread; starts it first.
    fn has_thread(&self) -> bool {
        let thread = self.thread.get_or_init(|| {
            let ring = self
                .ring
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take()?;
            let driver = Driver::new(ring, Arc::clone(&self.shared));
            let builder = thread::Builder::new().name("xtent-ring".into());
            builder
                .spawn(move || driver.run())
                .inspect_err(|error| tracing::warn!(%error, "cannot start the ring's thread"))
                .ok()
        });
        thread.is_some()
    }
}

impl Drop for RingStore {
    /// Waits for what is under way.
    fn drop(&mut self) {
        self.shared.queue().is_closing = true;
        self.shared.ring_bell();
        // Whoever is told of an end may let go of the store with it, on that very thread.
        if let Some(Some(thread)) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Store for RingStore {
    fn size(&self) -> u64 {
        self.shared.store.size()
    }
    fn is_read_only(&self) -> bool {
        self.shared.store.is_read_only()
    }
    fn limits(&self) -> Limits {
        self.shared.store.limits()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        self.shared.store.read_at(buf, offset)
    }
    fn try_read_at(&self, buf: &mut [u8], offset: u64) -> Result<bool, Error> {
        self.shared.store.try_read_at(buf, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.shared.store.write_at(data, offset)
    }
    fn takes_write_at_once(&self, offset: u64, len: u64) -> Result<bool, Error> {
        self.shared.store.takes_write_at_once(offset, len)
    }
    fn write_at_durably(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.shared.store.write_at_durably(data, offset)
    }
    fn flush(&self) -> Result<(), Error> {
        self.shared.store.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.shared.store.discard(offset, len)
    }
    fn completes_later(&self) -> bool {
        true
    }

    fn submit(&self, operation: Operation) -> Submitted {
        let store = &self.shared.store;
        // Rings take no discards of block devices before Linux 6.12.
        let is_for_a_ring =
            !(store.is_block_device() && matches!(operation, Operation::Discard { .. }));
        if !is_for_a_ring || !self.has_thread() {
            return Submitted::ended(store.perform(operation));
        }
        let flight = match Flight::prepare(store, operation) {
            Ok(flight) => flight,
            Err(completed) => return Submitted::ended(completed),
        };
        let (completion, submitted) = Submitted::later();
        let mut queue = self.shared.queue();
        if queue.is_closed {
            // The completion, dropped, says so.
            return submitted;
        }
        queue.waiting.push_back((flight, completion));
        let is_asleep = std::mem::take(&mut queue.is_asleep);
        drop(queue);
        if is_asleep {
            self.shared.ring_bell();
        }
        submitted
    }
}

/// What the kernel works on. If all is given up before its answer, as in a panic, whoever
/// waits hears of it, and the memory is never freed.
struct UnderWay {
    flight: ManuallyDrop<Flight>,
    completion: Completion,
    /// Of a durable write, or a flush.
    unsettled: Option<Unsettled>,
    /// Of one of these that went well: what has to be known before that can be told.
    waits_for: Option<Earlier>,
}

/// The ring's thread.
struct Driver {
    ring: IoUring,
    shared: Arc<Shared>,
    /// By the number that the kernel's answer has.
    under_way: Vec<Option<UnderWay>>,
    /// Numbers that are not in use.
    free: Vec<usize>,
    /// Those of which the kernel is to be asked.
    to_ask: VecDeque<usize>,
    /// Those that went well, and wait.
    held: Vec<usize>,
    /// Whether the kernel reads the bell.
    is_listening: bool,
}

impl Driver {
    fn new(ring: IoUring, shared: Arc<Shared>) -> Self {
        // One is the bell's.
        let depth = (DEPTH - 1) as usize;
        Self {
            ring,
            shared,
            under_way: std::iter::repeat_with(|| None).take(depth).collect(),
            free: (0..depth).rev().collect(),
            to_ask: VecDeque::with_capacity(depth),
            held: Vec::new(),
            is_listening: false,
        }
    }

    fn run(mut self) {
        let mut answers = Vec::new();
        while self.take_new() {
            self.ask();
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => thread::yield_now(),
                Err(error) => {
                    tracing::error!(%error, "the kernel does not take operations any more");
                    return;
                }
            }
            let told = self.ring.completion();
            answers.extend(told.map(|answer| (answer.user_data(), answer.result())));
            for (number, answer) in answers.drain(..) {
                self.answered(number, answer);
            }
            self.look_at_held();
        }
    }

    /// Takes what there is room for; false if that is the end.
    fn take_new(&mut self) -> bool {
        let mut queue = self.shared.queue();
        while let Some(number) = self.free.pop() {
            let Some((flight, completion)) = queue.waiting.pop_front() else {
                self.free.push(number);
                break;
            };
            let settling = &self.shared.store.settling;
            self.under_way[number] = Some(UnderWay {
                unsettled: flight.is_about_others().then(|| settling.begin()),
                waits_for: None,
                flight: ManuallyDrop::new(flight),
                completion,
            });
            self.to_ask.push_back(number);
        }
        // With others waiting, there is no room for more: answers come first.
        queue.is_asleep = queue.waiting.is_empty();
        !(queue.is_closing && self.free.len() == self.under_way.len())
    }

    /// Puts what is to be asked before the kernel.
    fn ask(&mut self) {
        if !self.is_listening {
            let bell = types::Fd(self.shared.bell.as_raw_fd());
            let entry = opcode::Read::new(bell, COUNT.as_ptr().cast(), 8).build();
            self.is_listening = self.push(&entry.user_data(BELL));
        }
        while let Some(number) = self.to_ask.pop_front() {
            let Some(one) = &mut self.under_way[number] else {
                continue;
            };
            let entry = one.flight.entry(&self.shared.store);
            if !self.push(&entry.user_data(number as u64)) {
                self.to_ask.push_front(number);
                break;
            }
        }
    }

    /// False if there is no room.
    fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: an operation's memory belongs to its flight, which lies in `under_way`
        // from here to the kernel's answer, and of which nothing is freed otherwise: it
        // is in a `ManuallyDrop`, and what a `Buffer` points to does not move. Nobody
        // else can reach it meanwhile. The bell's count is static. The files are those of
        // `shared`, which this thread has.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    fn answered(&mut self, number: u64, answer: i32) {
        if number == BELL {
            self.is_listening = false;
            return;
        }
        let Ok(number) = usize::try_from(number) else {
            return;
        };
        let Some(mut one) = self.under_way.get_mut(number).and_then(Option::take) else {
            return;
        };
        match one.flight.answered(answer, &self.shared.store) {
            None => {
                self.under_way[number] = Some(one);
                self.to_ask.push_back(number);
            }
            Some(Ok(())) if one.unsettled.is_some() => {
                one.unsettled = None;
                one.waits_for = Some(self.shared.store.settling.now());
                self.under_way[number] = Some(one);
                self.held.push(number);
            }
            Some(result) => self.end(number, one, result),
        }
    }

    /// Ends those that need not wait any more.
    fn look_at_held(&mut self) {
        for number in std::mem::take(&mut self.held) {
            let store = &self.shared.store;
            let waits = |one: &mut UnderWay| {
                one.waits_for
                    .is_some_and(|earlier| !store.settling.have_ended(earlier))
            };
            match self.under_way[number].take_if(|one| !waits(one)) {
                Some(one) => {
                    let result = store.check_flushes(one.flight.act());
                    self.end(number, one, result);
                }
                None => self.held.push(number),
            }
        }
    }

    fn end(&mut self, number: usize, one: UnderWay, result: Result<(), Error>) {
        self.free.push(number);
        // Before anybody is told.
        drop(one.unsettled);
        let flight = ManuallyDrop::into_inner(one.flight);
        one.completion.complete(flight.ended(result));
    }
}

/// Whether the ring can be asked again.
fn is_passing(error: &io::Error) -> bool {
    let passing = [Errno::INTR, Errno::AGAIN, Errno::BUSY, Errno::NOMEM];
    passing
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// However the thread ends, those who wait hear of it.
impl Drop for Driver {
    fn drop(&mut self) {
        // What the kernel would have said of these nobody will know.
        if self
            .under_way
            .iter()
            .flatten()
            .any(|one| one.unsettled.is_some())
        {
            self.shared.store.flushes_failed(Errno::IO);
        }
        let mut queue = self.shared.queue();
        queue.is_closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
    }
}
