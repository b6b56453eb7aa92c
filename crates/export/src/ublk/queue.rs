//! A queue of the device, and the thread that has it: it takes requests from the driver and gives
//! them back, over a ring of io_uring. The driver takes a queue's commands from one thread only.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::{ManuallyDrop, size_of};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use xtent_store::AlignedBuffer;

use super::abi::{self, Command, Descriptor, IoCommand};
use super::ring::restrict;
use super::work::{Answer, carry_out};
use super::{DEPTH, LARGEST};
use crate::request::Carrier;
use crate::shutdown::Shutdown;

/// Marks the answer to the read of the bell, and of the server's end.
const BELL: u64 = u64::MAX;
const END: u64 = u64::MAX - 1;
/// Where the kernel leaves the bells' counts, which nobody reads; they outlive every ring.
static COUNTS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// The requests of a queue, in the driver's memory.
pub(super) struct Descriptors {
    start: NonNull<Descriptor>,
    bytes: usize,
    depth: u16,
}

// SAFETY: it has the mapping alone, and reads from it only.
unsafe impl Send for Descriptors {}

impl Descriptors {
    pub(super) fn map(file: &File, queue: u16, depth: u16) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let bytes = (usize::from(depth) * size_of::<Descriptor>()).next_multiple_of(page);
        // SAFETY: a new mapping, wherever the system puts it, is nobody else's memory.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                abi::start_of_descriptors(queue, page),
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            start,
            bytes,
            depth,
        })
    }

    /// What the driver has last said of a place.
    fn get(&self, tag: u16) -> Option<Descriptor> {
        if tag >= self.depth {
            return None;
        }
        // SAFETY: the mapping has a descriptor for each place below `depth`, of plain numbers, and
        // lives as long as `self`. The driver writes to it before it tells of the request and not
        // again before the next one, which it is asked for by this thread; volatile all the same.
        Some(unsafe { self.start.as_ptr().add(tag.into()).read_volatile() })
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made, which nobody refers to any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// By which those who carry requests out give them back.
pub(super) struct Ended {
    bell: OwnedFd,
    answers: Mutex<Vec<Answer>>,
}

impl Ended {
    /// Has the queue's thread answer the driver. It looks by itself after each request that it has given to be
    /// carried out; `later`, it waits and has to be called.
    pub(super) fn push(&self, answer: Answer, later: bool) {
        self.answers().push(answer);
        if !later {
            return;
        }
        // It fails only if it has been rung 2^64 times.
        let _ = rustix::io::retry_on_intr(|| rustix::io::write(&self.bell, &1_u64.to_ne_bytes()));
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, Vec<Answer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place for a request.
enum Slot {
    /// The driver has it, with the memory.
    Asked(AlignedBuffer),
    /// It is being carried out, with the memory.
    UnderWay,
    /// It is of no use any more. The memory stays: the driver may still know it.
    Given(#[allow(dead_code, reason = "keeps the memory")] Option<AlignedBuffer>),
}

/// What a queue takes, before there is one.
pub(super) struct Prepared {
    number: u16,
    ring: IoUring,
    is_encoded: bool,
    carrier: Arc<Carrier>,
    ended: Arc<Ended>,
    shutdown: Shutdown,
    slots: Vec<Slot>,
}

/// A queue that is served.
struct Queue {
    number: u16,
    ring: IoUring,
    file: Arc<File>,
    descriptors: Descriptors,
    is_encoded: bool,
    carrier: Arc<Carrier>,
    ended: Arc<Ended>,
    shutdown: Shutdown,
    /// Never freed, not by a panic either: the driver forgets the memory with this thread and the ring,
    /// and not before.
    slots: ManuallyDrop<Vec<Slot>>,
    /// Whether no request is begun any more.
    is_ending: bool,
}

impl Prepared {
    pub(super) fn new(
        number: u16,
        depth: u16,
        is_encoded: bool,
        carrier: &Arc<Carrier>,
        shutdown: &Shutdown,
    ) -> io::Result<Self> {
        let slots = (0..depth)
            .map(|_| AlignedBuffer::zeroed(LARGEST as usize).map(Slot::Asked))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            number,
            ring: make_ring()?,
            is_encoded,
            carrier: Arc::clone(carrier),
            ended: Arc::new(Ended {
                bell: eventfd(0, EventfdFlags::CLOEXEC)?,
                answers: Mutex::default(),
            }),
            shutdown: shutdown.clone(),
            slots,
        })
    }

    /// The thread's life. Says once whether the driver has taken the queue.
    pub(super) fn serve(
        self,
        file: Arc<File>,
        descriptors: Descriptors,
        tell: &Sender<io::Result<()>>,
    ) -> io::Result<()> {
        // One that ends, or panics, is not left alone: the others' requests would wait for its own.
        let _end = End(self.shutdown.clone());
        let mut queue = Queue {
            number: self.number,
            ring: self.ring,
            file,
            descriptors,
            is_encoded: self.is_encoded,
            carrier: self.carrier,
            ended: self.ended,
            shutdown: self.shutdown,
            slots: ManuallyDrop::new(self.slots),
            is_ending: false,
        };
        let begun = queue.begin();
        let is_begun = begun.is_ok();
        let _ = tell.send(begun);
        match is_begun {
            true => queue.serve(),
            false => Ok(()),
        }
    }
}

/// Has all queues end when it is dropped.
struct End(Shutdown);

impl Drop for End {
    fn drop(&mut self) {
        self.0.trigger();
    }
}

impl Queue {
    /// Asks for the first requests.
    fn begin(&mut self) -> io::Result<()> {
        self.listen(BELL)?;
        self.listen(END)?;
        for tag in 0..self.descriptors.depth {
            self.ask(abi::FETCH, tag, 0)?;
        }
        self.ring.submit()?;
        // What is refused is answered at once.
        let mut answers = self.ring.completion();
        match answers.find(|answer| answer.result() < 0) {
            Some(answer) => Err(io::Error::from_raw_os_error(-answer.result())),
            None => Ok(()),
        }
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut told = Vec::new();
        loop {
            let ended = std::mem::take(&mut *self.ended.answers());
            for answer in ended {
                self.answer(answer)?;
            }
            if !self.is_needed() {
                // What was answered last.
                self.ring.submit()?;
                return Ok(());
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => std::thread::yield_now(),
                Err(error) => return Err(error),
            }
            let answers = self.ring.completion();
            told.extend(answers.map(|answer| (answer.user_data(), answer.result())));
            for (what, result) in told.drain(..) {
                match what {
                    BELL => self.listen(BELL)?,
                    END => self.is_ending = true,
                    tag => self.take(u16::try_from(tag).unwrap_or(u16::MAX), result)?,
                }
            }
        }
    }

    /// Whether the driver has a request for this queue, or may have one; at the end, whether one is
    /// under way.
    fn is_needed(&self) -> bool {
        self.slots.iter().any(|slot| match slot {
            Slot::UnderWay => true,
            Slot::Asked(_) => !self.is_ending,
            Slot::Given(_) => false,
        })
    }

    /// Takes what the driver has answered.
    fn take(&mut self, tag: u16, result: i32) -> io::Result<()> {
        let Some(slot) = self.slots.get_mut(usize::from(tag)) else {
            return Ok(());
        };
        let Slot::Asked(memory) = std::mem::replace(slot, Slot::UnderWay) else {
            *slot = Slot::Given(None);
            return Err(io::Error::other(
                "the driver tells of a request that it does not have",
            ));
        };
        // The device was stopped; or it is the next server's to carry out.
        if result != 0 || self.is_ending {
            *slot = Slot::Given(Some(memory));
            if result < 0 && result != -Errno::NODEV.raw_os_error() {
                tracing::warn!(error = %io::Error::from_raw_os_error(-result), "the driver gives up a place");
            }
            return Ok(());
        }
        let Some(descriptor) = self.descriptors.get(tag) else {
            return Ok(());
        };
        carry_out(&self.carrier, &descriptor, (tag, memory), &self.ended);
        Ok(())
    }

    /// Tells the driver how a request ended, and asks for the next one in its place.
    fn answer(&mut self, answer: Answer) -> io::Result<()> {
        let Answer {
            tag,
            memory,
            result,
        } = answer;
        let Some(slot) = self.slots.get_mut(usize::from(tag)) else {
            return Ok(());
        };
        *slot = Slot::Asked(memory);
        self.ask(abi::COMMIT_AND_FETCH, tag, result)
    }

    fn ask(&mut self, command: Command, tag: u16, result: i32) -> io::Result<()> {
        let Some(Slot::Asked(memory)) = self.slots.get(usize::from(tag)) else {
            return Ok(());
        };
        let words = IoCommand {
            queue: self.number,
            tag,
            result,
            address: memory.as_ptr() as u64,
        };
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd16::new(file, command.code(self.is_encoded))
            .cmd(words.bytes())
            .build()
            .user_data(tag.into());
        // SAFETY: the memory has `LARGEST` bytes, the most that the driver was told of, and is the
        // driver's while the slot is `Asked`: nobody reads or writes it, and it is never freed, as the
        // slots are not. The file is open as long as `self`.
        unsafe { self.push(&entry) }
    }

    /// Has the kernel read one of the bells.
    fn listen(&mut self, which: u64) -> io::Result<()> {
        let (bell, count) = match which {
            END => (self.shutdown.event().as_raw_fd(), &COUNTS[1]),
            _ => (self.ended.bell.as_raw_fd(), &COUNTS[0]),
        };
        let entry = match which {
            // It is never read empty: every queue is to see it.
            END => opcode::PollAdd::new(types::Fd(bell), POLL_IN).build(),
            _ => opcode::Read::new(types::Fd(bell), count.as_ptr().cast(), 8).build(),
        };
        // SAFETY: the count is static. The files are open as long as `self`.
        unsafe { self.push(&entry.user_data(which)) }
    }

    /// # Safety
    ///
    /// What the entry points to stays as long as the kernel may use it.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the caller's.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }
}

/// `POLLIN`.
const POLL_IN: u32 = 1;

/// A ring for commands with 16 bytes of their own, and for the bells.
fn make_ring() -> io::Result<IoUring> {
    let entries = u32::from(DEPTH) + 2;
    let mut ring = IoUring::builder()
        .dontfork()
        .setup_r_disabled()
        .build(entries.next_power_of_two())?;
    let allowed = [
        opcode::UringCmd16::CODE,
        opcode::Read::CODE,
        opcode::PollAdd::CODE,
    ];
    restrict(&mut ring, &allowed, false)?;
    Ok(ring)
}

/// Whether the ring can be asked again.
fn is_passing(error: &io::Error) -> bool {
    let passing = [Errno::INTR, Errno::AGAIN, Errno::BUSY, Errno::NOMEM];
    passing
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
