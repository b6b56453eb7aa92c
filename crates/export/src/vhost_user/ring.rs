//! A ring in service: one thread takes what the guest has put in, does at once what need not wait,
//! and gives it back; what waits is given back by whoever ends it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress};

use super::guest::Guest;
use super::inflight::RingInflight;
use super::request::{self, Chain, Request, Status};
use super::work::{Scratch, Work};
use crate::{Error, ErrorKind};

/// Bytes after which the guest is told, though there is more to do.
const WORTH_TELLING: u64 = 128 << 10;

/// What the front-end says of a ring.
pub(super) struct Layout {
    pub(super) entries: u16,
    pub(super) descriptors: GuestAddress,
    pub(super) available: GuestAddress,
    pub(super) used: GuestAddress,
    /// The next request's index, where nothing is known of requests under way.
    pub(super) next: u16,
    pub(super) has_event_index: bool,
    /// The driver knows no flush: what is written is durable before it is given back.
    pub(super) writes_through: bool,
    /// Where the log of written pages has the used ring, if not at the guest's address.
    pub(super) used_in_log: Option<u64>,
}

impl Layout {
    /// Bytes of a used ring: flags, index, entries, event.
    pub(super) fn used_length(entries: u16) -> u64 {
        6 + 8 * u64::from(entries)
    }
}

/// Where the guest is told that something was given back; it can change at any time.
pub(super) type Call = Arc<Mutex<Option<File>>>;

/// What the ring's thread and those who end its requests share.
pub(super) struct Shared {
    pub(super) guest: Arc<Guest>,
    pub(super) writes_through: bool,
    /// The descriptors, and how many there are.
    table: (GuestAddress, u16),
    has_event_index: bool,
    /// The log says that the guest asks for what cannot be.
    has_complained: AtomicBool,
    state: Mutex<State>,
    /// Nothing is under way.
    none: Condvar,
    call: Call,
    /// Nothing more is taken.
    is_stopped: AtomicBool,
}

struct State {
    queue: Queue,
    /// See [`Layout::used_in_log`].
    used_in_log: Option<u64>,
    inflight: Option<RingInflight>,
    under_way: usize,
    /// Somebody waits for nothing to be under way: telling nobody is a system call as well.
    is_awaited: bool,
    /// Something was given back that the guest was not told.
    is_untold: bool,
    /// The guest cannot be told any more: its ring is not in memory.
    is_broken: bool,
}

/// A ring that is served, until it is stopped or dropped.
pub(super) struct Ring {
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Ring {
    /// Begins to serve.
    pub(super) fn start(
        name: String,
        layout: &Layout,
        guest: Arc<Guest>,
        kick: File,
        call: Call,
        mut inflight: Option<RingInflight>,
        work: Arc<Work>,
    ) -> Result<Self, Error> {
        let (queue, left) = queue(layout, &guest, inflight.as_mut())?;
        let shared = Arc::new(Shared {
            guest,
            writes_through: layout.writes_through,
            table: (layout.descriptors, layout.entries),
            has_event_index: layout.has_event_index,
            has_complained: AtomicBool::new(false),
            state: Mutex::new(State {
                queue,
                used_in_log: layout.used_in_log,
                inflight,
                under_way: 0,
                is_awaited: false,
                is_untold: false,
                is_broken: false,
            }),
            none: Condvar::new(),
            call,
            is_stopped: AtomicBool::new(false),
        });
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::io("cannot make an event", e))?;
        let stop = Arc::new(stop);
        let (told, ring) = (Arc::clone(&stop), Arc::clone(&shared));
        let serve = move || ring.serve(&kick, &told, left, &work);
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(serve)
            .map_err(|e| Error::io("cannot start a thread for a ring", e))?;
        Ok(Self {
            shared,
            stop,
            thread: Some(thread),
        })
    }

    /// Ends what is under way, and serves no more; the index of the next request.
    pub(super) fn stop(mut self) -> u16 {
        self.end();
        self.shared.state().queue.next_avail()
    }

    /// Whether it is served no more, whatever the guest does.
    #[cfg(test)]
    pub(super) fn is_broken(&self) -> bool {
        self.shared.state().is_broken
    }

    /// Has it take nothing more.
    pub(super) fn begin_to_stop(&self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
    }

    /// From now on the log has the used ring there; see [`Layout::used_in_log`].
    pub(super) fn log_used_at(&self, used_in_log: Option<u64>) {
        self.shared.state().used_in_log = used_in_log;
    }

    fn end(&mut self) {
        self.begin_to_stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("serving a ring panicked");
        }
        let mut state = self.shared.state();
        state.is_awaited = true;
        while state.under_way > 0 {
            state = self
                .shared
                .none
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        // Whoever ended the last one may not have told yet, and who serves the ring next does not know.
        self.shared.call();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end();
        }
    }
}

/// The ring as the layout says, if it is in memory; and what was under way when it was served last.
fn queue(
    layout: &Layout,
    guest: &Guest,
    inflight: Option<&mut RingInflight>,
) -> Result<(Queue, Vec<u16>), Error> {
    let bad = |why: String| Error {
        kind: ErrorKind::Argument,
        message: format!("the guest's ring cannot be served: {why}"),
        source: None,
    };
    let mut queue = Queue::new(layout.entries).map_err(|e| bad(e.to_string()))?;
    queue.set_size(layout.entries);
    queue
        .try_set_desc_table_address(layout.descriptors)
        .and_then(|()| queue.try_set_avail_ring_address(layout.available))
        .and_then(|()| queue.try_set_used_ring_address(layout.used))
        .map_err(|e| bad(e.to_string()))?;
    queue.set_event_idx(layout.has_event_index);
    queue.set_ready(true);
    if !queue.is_valid(&**guest.map()) {
        return Err(bad("parts of it are not in memory".into()));
    }
    let used = queue
        .used_idx(&**guest.map(), Ordering::Acquire)
        .map_err(|e| bad(e.to_string()))?
        .0;
    queue.set_next_used(used);
    // Of a ring that was served with another list, where it was left counts: requests that nobody carries out any more
    // may lie between.
    let left = match inflight.and_then(|inflight| inflight.begin(used)) {
        None => {
            queue.set_next_avail(layout.next);
            Vec::new()
        }
        Some(left) => {
            // As many as there are entries.
            let count = u16::try_from(left.len()).unwrap_or(layout.entries);
            queue.set_next_avail(used.wrapping_add(count));
            left
        }
    };
    Ok((queue, left))
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's life.
    fn serve(self: &Arc<Self>, kick: &File, stop: &OwnedFd, left: Vec<u16>, work: &Arc<Work>) {
        let Some(mut scratch) = Scratch::new(work.carrier.volume()) else {
            tracing::error!("no memory to serve a ring");
            return;
        };
        let left = match work.is_resumed || left.is_empty() {
            true => left,
            // They stay on the list, and nobody is told of them: whoever asked for a write anew, after an error, could
            // find the old one in its place later.
            false => {
                tracing::warn!(
                    lost = left.len(),
                    "requests that were under way when the last server was killed are not carried out: the guest waits for them"
                );
                Vec::new()
            }
        };
        self.state().under_way = left.len();
        // Whoever served the ring before may have been killed between giving back and telling. A guest
        // with an event index is told of an index that it waits for once, when that is passed: where
        // it was passed then, nothing that is given back from now on would be told.
        self.call();
        for head in left {
            if let Some(request) = self.look_at(head, work) {
                self.carry_out(request, work, &mut scratch);
            }
        }
        self.tell();
        // Also before the first kick: one can have come before there was anybody to see it.
        loop {
            self.take_all(work, &mut scratch);
            if is_over(kick, stop) {
                return;
            }
        }
    }

    /// Takes what is in the ring, until there is nothing more.
    fn take_all(self: &Arc<Self>, work: &Arc<Work>, scratch: &mut Scratch) {
        let mut has_taken = true;
        loop {
            // Where the guest's ring is gone, the rest finds out as well.
            let mut state = self.state();
            let _ = state.queue.disable_notification(&**self.guest.map());
            self.mark_used(&state);
            drop(state);
            let had_taken = std::mem::replace(&mut has_taken, false);
            let mut untold = 0;
            while let Some(head) = self.take() {
                has_taken = true;
                let Some(request) = self.look_at(head, work) else {
                    continue;
                };
                untold += self.carry_out(request, work, scratch);
                if untold >= WORTH_TELLING {
                    self.tell();
                    untold = 0;
                }
            }
            self.tell();
            if self.is_stopped.load(Ordering::Relaxed) {
                return;
            }
            let mut state = self.state();
            let has_more = state.queue.enable_notification(&**self.guest.map());
            self.mark_used(&state);
            if state.is_broken || !matches!(has_more, Ok(true)) {
                return;
            }
            // One can have come just before; but a ring that says so twice, and has none, counts wrong.
            if !has_taken && !had_taken {
                tracing::warn!(
                    "a guest's ring says that it has more than fits: it is served no more"
                );
                state.is_broken = true;
                return;
            }
        }
    }

    /// Takes the next request.
    fn take(&self) -> Option<u16> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state();
        if state.is_broken {
            return None;
        }
        let chain = state.queue.pop_descriptor_chain(&**self.guest.map())?;
        let head = chain.head_index();
        // Each has a descriptor of its own, until it is given back.
        if state.under_way >= usize::from(self.table.1) {
            tracing::warn!("a guest's ring has more under way than fits: it is served no more");
            state.is_broken = true;
            return None;
        }
        if let Some(inflight) = &mut state.inflight {
            inflight.take(head);
        }
        state.under_way += 1;
        Some(head)
    }

    /// What a request is that was taken; none that cannot be understood: it is given back.
    fn look_at(&self, head: u16, work: &Work) -> Option<Request> {
        let (table, entries) = self.table;
        let request = request::parse((table, entries, head), &self.guest, work.carrier.volume());
        if request.is_none() {
            self.complain("descriptors that are no request");
            self.give_back(head, 0);
        }
        request
    }

    /// Says once that the guest asks for what cannot be: it can do so all the time.
    pub(super) fn complain(&self, what: &str) {
        if !self.has_complained.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                what,
                "a guest's request is malformed; more of the kind are not told"
            );
        }
    }

    /// Carries it out, or has it carried out; the bytes that were moved here.
    fn carry_out(
        self: &Arc<Self>,
        request: Request,
        work: &Arc<Work>,
        scratch: &mut Scratch,
    ) -> u64 {
        match request {
            Request::Serve(chain, command) => work.carry_out(self, chain, command, scratch),
            Request::Refuse(chain, status) => {
                self.end(&chain, status, 0);
                0
            }
        }
    }

    /// The end of a request of which `written` bytes were written for the guest, which is not
    /// told yet.
    pub(super) fn end(&self, chain: &Chain, status: Status, written: u64) {
        let written = chain.end(&self.guest, status, written);
        self.give_back(chain.head, written);
    }

    fn give_back(&self, head: u16, written: u32) {
        let mut state = self.state();
        let State {
            queue,
            inflight,
            is_untold,
            is_broken,
            ..
        } = &mut *state;
        if let Some(inflight) = inflight {
            inflight.before_return(head);
        }
        match queue.add_used(&**self.guest.map(), head, written) {
            Ok(()) => {
                *is_untold = true;
                if let Some(inflight) = inflight {
                    inflight.after_return(head, queue.next_used());
                }
            }
            Err(error) => {
                if !*is_broken {
                    tracing::warn!(%error, "the guest's ring is not in memory any more");
                }
                *is_broken = true;
            }
        }
        self.mark_used(&state);
        self.one_less(&mut state);
    }

    /// The used ring was written, which the log may have elsewhere. Small as it is, all of it is marked.
    fn mark_used(&self, state: &State) {
        if let Some(at) = state.used_in_log {
            self.guest
                .dirty()
                .mark(at, Layout::used_length(self.table.1));
        }
    }

    /// Leaves a request without an answer: it is under way for whoever serves the ring next.
    pub(super) fn leave(&self) {
        self.one_less(&mut self.state());
    }

    fn one_less(&self, state: &mut State) {
        state.under_way -= 1;
        if state.under_way == 0 && state.is_awaited {
            self.none.notify_all();
        }
    }

    /// Tells the guest what was given back, if it wants to know.
    pub(super) fn tell(&self) {
        let mut state = self.state();
        if !std::mem::take(&mut state.is_untold) {
            return;
        }
        let wants = match self.has_event_index {
            true => state.queue.needs_notification(&**self.guest.map()).ok(),
            false => self.wants_interrupts(&state.queue),
        };
        drop(state);
        self.guest.dirty().tell();
        if wants == Some(true) {
            self.call();
        }
    }

    /// What the driver says where it has no event index.
    fn wants_interrupts(&self, queue: &Queue) -> Option<bool> {
        const NO_INTERRUPT: u16 = 1;
        let available = GuestAddress(queue.avail_ring());
        let flags = self.guest.map().load::<u16>(available, Ordering::SeqCst);
        Some(u16::from_le(flags.ok()?) & NO_INTERRUPT == 0)
    }

    fn call(&self) {
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = &*call {
            // It does not wait; where the counter is full, the guest will look.
            let _ = rustix::io::write(call, &1_u64.to_ne_bytes());
        }
    }
}

/// Waits for the guest; true if the ring is to be served no more.
fn is_over(kick: &File, stop: &OwnedFd) -> bool {
    let mut fds = [
        PollFd::new(stop, PollFlags::IN),
        PollFd::new(kick, PollFlags::IN),
    ];
    match poll(&mut fds, None) {
        Ok(_) => {}
        Err(Errno::INTR) => return false,
        Err(error) => {
            tracing::error!(%error, "cannot wait for a guest");
            return true;
        }
    }
    if !fds[0].revents().is_empty() {
        return true;
    }
    if fds[1].revents().is_empty() {
        return false;
    }
    let mut count = [0; 8];
    match rustix::io::read(kick, &mut count) {
        Ok(8) | Err(Errno::AGAIN | Errno::INTR) => false,
        other => {
            tracing::warn!(
                ?other,
                "a guest's event is none: the ring is served no more"
            );
            true
        }
    }
}
