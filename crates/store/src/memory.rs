//! Memory for data on its way: page-aligned, reused, and bounded over
//! everybody who takes from it.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::AlignedBuffer;

/// Smallest buffer that is worth sharing.
const SMALLEST: usize = 16 << 10;
/// Buffers up to here have sizes that are powers of two, larger ones multiples of it.
const LARGE: usize = 1 << 20;

/// Buffers of a bounded number of bytes in all. [`Memory::take`] never waits;
/// [`Memory::wait_for`] waits its turn behind those that came before.
///
/// Whoever waits for a buffer holds none, or those who wait could wait for each other.
pub struct Memory {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    limit: usize,
    /// Bytes in use and idle.
    allocated: usize,
    /// Buffers not in use; by size, ascending.
    idle: Vec<AlignedBuffer>,
    /// Who waits, in order of arrival, by number.
    waiting: VecDeque<(u64, Waker)>,
    /// The number of whoever waits next.
    next: u64,
}

impl State {
    /// Room for a buffer of `class` bytes: one that is idle, or none yet, counted.
    /// [`None`] if the limit does not allow it.
    fn room(&mut self, class: usize) -> Option<Option<AlignedBuffer>> {
        let footprint = AlignedBuffer::footprint(class);
        let fits = self.idle.partition_point(|idle| idle.len() < class);
        if let Some(idle) = self.idle.get(fits)
            && idle.len() == class
        {
            return Some(Some(self.idle.remove(fits)));
        }
        // Idle buffers of other sizes give way.
        while self.allocated + footprint > self.limit {
            self.forget_one()?;
        }
        self.allocated += footprint;
        Some(None)
    }

    /// Gives the largest idle buffer back to the system.
    fn forget_one(&mut self) -> Option<()> {
        let gone = self.idle.pop()?;
        self.allocated -= AlignedBuffer::footprint(gone.len());
        Some(())
    }

    /// Whoever waits first looks again.
    fn wake_first(&mut self) -> Option<Waker> {
        self.waiting.front().map(|(_, waker)| waker.clone())
    }
}

/// Bytes behind a buffer of `len`.
const fn class(len: usize) -> usize {
    match len {
        0..=SMALLEST => SMALLEST,
        _ if len <= LARGE => len.next_power_of_two(),
        _ => len.next_multiple_of(LARGE),
    }
}

impl Memory {
    /// At most `limit` bytes, idle buffers included.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                limit,
                ..State::default()
            }),
        })
    }

    /// Changes the limit. What is in use beyond a lower one stays until it is given back.
    pub fn set_limit(&self, limit: usize) {
        let mut state = self.lock();
        state.limit = limit;
        while state.allocated > limit && state.forget_one().is_some() {}
        let next = state.wake_first();
        drop(state);
        if let Some(waker) = next {
            waker.wake();
        }
    }

    /// Gives the buffers that nobody uses back to the system.
    pub fn trim(&self) {
        let mut state = self.lock();
        while state.forget_one().is_some() {}
    }

    /// A buffer of `len` bytes with any contents, if the limit allows one and
    /// nobody waits.
    pub fn take(self: &Arc<Self>, len: usize) -> Option<Buffer> {
        let class = class(len);
        let mut state = self.lock();
        if !state.waiting.is_empty() {
            return None;
        }
        let room = state.room(class)?;
        drop(state);
        self.fill(room, class, len)
    }

    /// As [`Memory::take`], once others have given enough back; [`None`] if it can
    /// never be had.
    pub async fn wait_for(self: &Arc<Self>, len: usize) -> Option<Buffer> {
        let class = class(len);
        let mut place = Place {
            memory: self,
            number: None,
        };
        let room = poll_fn(|context| place.poll(class, context.waker())).await;
        drop(place);
        self.fill(room?, class, len)
    }

    fn fill(
        self: &Arc<Self>,
        room: Option<AlignedBuffer>,
        class: usize,
        len: usize,
    ) -> Option<Buffer> {
        let bytes = room.or_else(|| AlignedBuffer::zeroed(class).ok());
        if bytes.is_none() {
            let mut state = self.lock();
            state.allocated -= AlignedBuffer::footprint(class);
        }
        Some(Buffer {
            bytes: Some(bytes?),
            len,
            memory: Some(Arc::clone(self)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes allocated now.
    pub fn allocated(&self) -> usize {
        self.lock().allocated
    }
}

/// A place among those who wait; given up when dropped.
struct Place<'a> {
    memory: &'a Memory,
    /// None before the first look.
    number: Option<u64>,
}

impl Place<'_> {
    /// What [`State::room`] gives; [`None`] if the limit will never allow it.
    fn poll(&mut self, class: usize, waker: &Waker) -> Poll<Option<Option<AlignedBuffer>>> {
        let mut state = self.memory.lock();
        if AlignedBuffer::footprint(class) > state.limit {
            return Poll::Ready(None);
        }
        let is_first = match (self.number, state.waiting.front()) {
            (None, front) => front.is_none(),
            (Some(number), front) => front.is_some_and(|(first, _)| *first == number),
        };
        if is_first && let Some(room) = state.room(class) {
            return Poll::Ready(Some(room));
        }
        match self.number {
            None => {
                let number = state.next;
                state.next += 1;
                state.waiting.push_back((number, waker.clone()));
                self.number = Some(number);
            }
            Some(number) => {
                if let Some((_, old)) = state.waiting.iter_mut().find(|(n, _)| *n == number) {
                    old.clone_from(waker);
                }
            }
        }
        Poll::Pending
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else {
            return;
        };
        let mut state = self.memory.lock();
        state.waiting.retain(|(other, _)| *other != number);
        // What is left may do for the next.
        let next = state.wake_first();
        drop(state);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

/// Page-aligned bytes that one owner has, such as an operation under way. It goes
/// back to its [`Memory`] when dropped.
pub struct Buffer {
    /// Present until dropped.
    bytes: Option<AlignedBuffer>,
    len: usize,
    /// Where it came from, if it was not made alone.
    memory: Option<Arc<Memory>>,
}

impl Buffer {
    /// Cuts it to its first `len` bytes; does nothing if it is not longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Parts it from its [`Memory`]: it counts there as long as the share is there, however
    /// long the bytes are.
    pub fn part(&mut self) -> Share {
        let footprint = self.bytes.as_deref().map_or(0, <[u8]>::len);
        Share {
            memory: self.memory.take(),
            footprint: AlignedBuffer::footprint(footprint),
        }
    }

    /// Undoes [`Buffer::part`], with the share that it gave.
    pub fn join(&mut self, mut share: Share) {
        self.memory = share.memory.take();
    }
}

/// What a [`Buffer`] counts for in its [`Memory`], for one that others may keep for ever. Dropped, it
/// is free for the next buffer.
pub struct Share {
    memory: Option<Arc<Memory>>,
    footprint: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            let mut state = memory.lock();
            state.allocated -= self.footprint;
            let next = state.wake_first();
            drop(state);
            if let Some(waker) = next {
                waker.wake();
            }
        }
    }
}

/// A buffer that no [`Memory`] counts.
impl From<AlignedBuffer> for Buffer {
    fn from(bytes: AlignedBuffer) -> Self {
        Self {
            len: bytes.len(),
            bytes: Some(bytes),
            memory: None,
        }
    }
}

impl std::fmt::Debug for Buffer {
    /// Its length: what is in it may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes
            .as_deref()
            .map_or(&[], |bytes| &bytes[..self.len])
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        self.bytes
            .as_deref_mut()
            .map_or(&mut [], |bytes| &mut bytes[..len])
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let (Some(bytes), Some(memory)) = (self.bytes.take(), &self.memory) {
            let mut state = memory.lock();
            if state.allocated > state.limit {
                state.allocated -= AlignedBuffer::footprint(bytes.len());
            } else {
                let at = state.idle.partition_point(|idle| idle.len() < bytes.len());
                state.idle.insert(at, bytes);
            }
            let next = state.wake_first();
            drop(state);
            if let Some(waker) = next {
                waker.wake();
            }
        }
    }
}

/// Runs a future on this thread until it is done.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;

    #[test]
    fn buffers_are_aligned_and_as_long_as_asked() {
        let memory = Memory::new(1 << 20);
        for len in [0, 1, 512, 4096, 70_000] {
            let mut buffer = memory.take(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(PAGE), 0);
            buffer.fill(7);
            buffer.truncate(100);
            assert_eq!(buffer.len(), len.min(100));
        }
        assert_eq!(class(LARGE + 1), 2 * LARGE);
        assert_eq!(class(33 * LARGE), 33 * LARGE);
    }

    #[test]
    fn the_limit_holds_and_idle_buffers_give_way() {
        let limit = 4 * AlignedBuffer::footprint(1 << 16);
        let memory = Memory::new(limit);
        let mut held: Vec<_> = std::iter::from_fn(|| memory.take(1 << 16)).collect();
        assert_eq!(held.len(), 4);
        assert!(memory.take(1).is_none());
        held.pop();
        assert!(memory.take(1 << 16).is_some(), "reused");
        assert!(memory.take(1 << 17).is_none());
        held.clear();
        assert_eq!(memory.allocated(), 3 * AlignedBuffer::footprint(1 << 16));
        let large = memory.take(1 << 17).unwrap();
        assert!(memory.allocated() <= limit);
        drop(large);
        assert!(memory.take(1 << 20).is_none());
    }

    #[test]
    fn a_limit_that_changes_holds_from_then_on() {
        let one = AlignedBuffer::footprint(SMALLEST);
        let memory = Memory::new(3 * one);
        let held = [memory.take(1).unwrap(), memory.take(1).unwrap()];
        drop(memory.take(1));
        memory.set_limit(one);
        assert_eq!(memory.allocated(), 2 * one, "the idle one is gone");
        assert!(memory.take(1).is_none());
        drop(held);
        assert_eq!(memory.allocated(), one, "no more than that is kept");
        assert!(block_on(memory.wait_for(LARGE)).is_none());
        memory.trim();
        assert_eq!(memory.allocated(), 0);
        memory.set_limit(2 * one);
        assert!(memory.take(1).is_some());
    }

    #[test]
    fn a_buffer_that_is_parted_counts_until_its_share_is_gone() {
        let one = AlignedBuffer::footprint(SMALLEST);
        let memory = Memory::new(one);
        let mut buffer = memory.take(100).unwrap();
        let share = buffer.part();
        assert!(memory.take(1).is_none());
        buffer.join(share);
        drop(buffer);
        let mut kept = memory.take(100).unwrap();
        let share = kept.part();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| block_on(memory.wait_for(1)).is_some());
            while memory.lock().waiting.is_empty() {
                std::thread::yield_now();
            }
            drop(share);
            assert!(waiter.join().unwrap());
        });
        assert_eq!((kept.len(), memory.allocated()), (100, one));
        drop(kept);
        assert_eq!(memory.allocated(), one, "it was counted no more");
    }

    #[test]
    fn those_who_wait_are_served_in_order() {
        let memory = Memory::new(2 * AlignedBuffer::footprint(1 << 16));
        let poll = |future: &mut std::pin::Pin<Box<dyn Future<Output = Option<Buffer>> + '_>>| {
            let mut context = std::task::Context::from_waker(Waker::noop());
            match future.as_mut().poll(&mut context) {
                Poll::Ready(buffer) => buffer,
                Poll::Pending => None,
            }
        };
        let held = (memory.take(1 << 16), memory.take(1 << 16));
        let mut large: std::pin::Pin<Box<dyn Future<Output = _>>> =
            Box::pin(memory.wait_for(1 << 17));
        let mut small: std::pin::Pin<Box<dyn Future<Output = _>>> =
            Box::pin(memory.wait_for(1 << 16));
        assert!(poll(&mut large).is_none() && poll(&mut small).is_none());
        drop(held.0);
        assert!(poll(&mut large).is_none(), "there is not enough yet");
        assert!(poll(&mut small).is_none(), "it came later");
        assert!(memory.take(1).is_none(), "as did this");
        drop(held.1);
        let got = poll(&mut large).unwrap();
        assert!(poll(&mut small).is_none());
        drop(got);
        drop(large);
        assert!(poll(&mut small).is_some());
        drop(small);
        assert!(memory.take(1).is_some());
        assert!(block_on(memory.wait_for(1 << 20)).is_none());
    }

    #[test]
    fn a_place_given_up_goes_to_the_next() {
        let memory = Memory::new(AlignedBuffer::footprint(SMALLEST));
        let held = memory.take(1).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| block_on(memory.wait_for(1)).is_some());
            while memory.lock().waiting.is_empty() {
                std::thread::yield_now();
            }
            {
                let mut second = std::pin::pin!(memory.wait_for(1));
                let mut context = std::task::Context::from_waker(Waker::noop());
                assert!(second.as_mut().poll(&mut context).is_pending());
            }
            assert_eq!(memory.lock().waiting.len(), 1);
            drop(held);
            assert!(waiter.join().unwrap());
        });
    }
}
