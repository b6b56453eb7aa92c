//! The threads that requests are carried out on. A request is a future: it holds a thread
//! while it computes or waits in a system call, and none while a store that completes later
//! is at work on it.
//!
//! Clients take turns, so that none waits for more than a little of another one's work,
//! whatever that has asked for. A client's requests begin in the order in which they came,
//! with one exception: work of which a small message can ask gigabytes is done in pieces,
//! and by half of the threads at most. A flush thus waits for one request of each other
//! client at worst, and a thread is soon free for it.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use async_task::{Builder, Runnable};

/// How much work a request can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As much as its message says by its own length, or little.
    Prompt,
    /// A small message can have asked for any amount of it.
    Bulk,
}

/// Whose request it is, by number, and what kind.
type Label = (u64, Kind);

/// The requests that can go on, and the threads that wait for them.
pub(crate) struct Executor {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    /// What each client has ready; none is empty.
    lanes: HashMap<u64, Lane>,
    /// The clients in `lanes`, the one whose turn is next first.
    turns: VecDeque<u64>,
    /// Requests put in so far, to number them.
    arrivals: u64,
    /// Threads at bulk work.
    bulk: usize,
    /// Threads that wait for work.
    idle: usize,
    /// Requests that have not ended.
    live: usize,
    closed: bool,
    /// Threads that may be at bulk work at a time.
    most_bulk: usize,
    /// Requests that could go on and wait for a thread.
    ready: usize,
    /// Threads of the executor's own: those there are, and may be.
    threads: usize,
    most_threads: usize,
}

/// One client's requests, numbered in order of arrival.
#[derive(Default)]
struct Lane {
    prompt: VecDeque<(u64, Runnable<Label>)>,
    bulk: VecDeque<(u64, Runnable<Label>)>,
}

impl Lane {
    /// The first request, or the first that is not bulk work.
    fn pick(&mut self, is_bulk_allowed: bool) -> Option<Runnable<Label>> {
        let number = |lane: &VecDeque<(u64, _)>| lane.front().map(|first| first.0);
        let lane = match (number(&self.prompt), number(&self.bulk)) {
            (Some(prompt), Some(bulk)) if is_bulk_allowed && bulk < prompt => &mut self.bulk,
            (None, Some(_)) if is_bulk_allowed => &mut self.bulk,
            _ => &mut self.prompt,
        };
        lane.pop_front().map(|(_, request)| request)
    }

    fn is_empty(&self) -> bool {
        self.prompt.is_empty() && self.bulk.is_empty()
    }
}

impl State {
    fn push(&mut self, request: Runnable<Label>) {
        let (client, kind) = *request.metadata();
        let number = self.arrivals;
        self.arrivals += 1;
        self.ready += 1;
        let lane = self.lanes.entry(client).or_insert_with(|| {
            self.turns.push_back(client);
            Lane::default()
        });
        match kind {
            Kind::Bulk => lane.bulk.push_back((number, request)),
            Kind::Prompt => lane.prompt.push_back((number, request)),
        }
    }

    /// The next request of the first client in turn that has one.
    fn pick(&mut self, is_bulk_allowed: bool) -> Option<Runnable<Label>> {
        for turn in 0..self.turns.len() {
            let client = self.turns[turn];
            let Some(lane) = self.lanes.get_mut(&client) else {
                continue;
            };
            let Some(request) = lane.pick(is_bulk_allowed) else {
                continue;
            };
            self.turns.remove(turn);
            if lane.is_empty() {
                self.lanes.remove(&client);
            } else {
                self.turns.push_back(client);
            }
            self.ready -= 1;
            self.bulk += usize::from(request.metadata().1 == Kind::Bulk);
            return Some(request);
        }
        None
    }
}

/// Threads of `count` that may be at bulk work at a time.
fn share_of_bulk(count: usize) -> usize {
    (count / 2).max(1)
}

impl Executor {
    /// For so many threads, each of which calls [`Executor::work`].
    pub(crate) fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                most_bulk: share_of_bulk(threads),
                ..State::default()
            }),
            more: Condvar::new(),
        })
    }

    /// With threads of its own: none until [`Executor::open`].
    pub(crate) fn with_own_threads() -> Arc<Self> {
        let executor = Self::new(1);
        executor.state().closed = true;
        executor
    }

    /// Starts a thread of its own, and more up to `most` as there is work for them. They end
    /// after [`Executor::close`], and this may be called again then.
    pub(crate) fn open(self: &Arc<Self>, most: usize) -> std::io::Result<()> {
        let mut state = self.state();
        state.closed = false;
        state.most_threads = most.max(1);
        state.most_bulk = share_of_bulk(most);
        if state.threads > 0 {
            return Ok(());
        }
        self.start_thread(&mut state)
    }

    fn start_thread(self: &Arc<Self>, state: &mut State) -> std::io::Result<()> {
        let executor = Arc::clone(self);
        std::thread::Builder::new()
            .name(format!("worker-{}", state.threads))
            .spawn(move || executor.work())?;
        state.threads += 1;
        Ok(())
    }

    /// Has a client's request carried out. It is polled by the threads alone, never here.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        client: u64,
        kind: Kind,
        request: impl Future<Output = ()> + Send + 'static,
    ) {
        self.state().live += 1;
        let live = Live(Arc::clone(self));
        let request = async move {
            let _live = live;
            request.await;
        };
        let executor = Arc::clone(self);
        let (runnable, task) = Builder::new()
            .metadata((client, kind))
            .spawn(move |_| request, move |ready| executor.push(ready));
        task.detach();
        runnable.schedule();
    }

    fn push(self: &Arc<Self>, request: Runnable<Label>) {
        let mut state = self.state();
        state.push(request);
        if state.ready > state.idle
            && state.threads < state.most_threads
            && let Err(error) = self.start_thread(&mut state)
        {
            // There is one at least.
            tracing::warn!(%error, "cannot start a worker thread");
        }
        // A call that wakes nobody is still a system call.
        let wake = state.idle > 0;
        drop(state);
        if wake {
            self.more.notify_one();
        }
    }

    /// Lets the threads end once every request has ended.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.more.notify_all();
    }

    /// A thread's life.
    pub(crate) fn work(&self) {
        while let Some(request) = self.next() {
            let is_bulk = request.metadata().1 == Kind::Bulk;
            // Should a request panic, it is dropped, and the others keep their thread.
            if catch_unwind(AssertUnwindSafe(|| request.run())).is_err() {
                tracing::error!("a request panicked");
            }
            if is_bulk {
                self.end_bulk();
            }
        }
    }

    fn end_bulk(&self) {
        let mut state = self.state();
        state.bulk -= 1;
        // Whoever found nothing but bulk work could have some now.
        let wake = state.idle > 0 && state.lanes.values().any(|lane| !lane.bulk.is_empty());
        drop(state);
        if wake {
            self.more.notify_one();
        }
    }

    fn next(&self) -> Option<Runnable<Label>> {
        let mut state = self.state();
        loop {
            let is_bulk_allowed = state.bulk < state.most_bulk;
            if let Some(request) = state.pick(is_bulk_allowed) {
                return Some(request);
            }
            if state.closed && state.live == 0 {
                state.threads = state.threads.saturating_sub(1);
                return None;
            }
            state.idle += 1;
            state = self
                .more
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Threads of its own that there are.
    #[cfg(test)]
    pub(crate) fn threads(&self) -> usize {
        self.state().threads
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that has not ended.
struct Live(Arc<Executor>);

impl Drop for Live {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.live -= 1;
        let is_end = state.closed && state.live == 0;
        drop(state);
        if is_end {
            self.0.more.notify_all();
        }
    }
}

/// Lets what waits go first.
pub(crate) async fn give_way() {
    let mut has_waited = false;
    poll_fn(|context| match has_waited {
        true => Poll::Ready(()),
        false => {
            has_waited = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which one thread begins what was put in before it came.
    fn order(requests: &[(u64, Kind, &'static str)]) -> Vec<&'static str> {
        let executor = Executor::new(1);
        let begun = Arc::new(Mutex::new(Vec::new()));
        for (client, kind, name) in requests.iter().copied() {
            let begun = Arc::clone(&begun);
            executor.spawn(client, kind, async move {
                begun.lock().unwrap().push(name);
                give_way().await;
                assert_ne!(name, "panics");
            });
        }
        executor.close();
        executor.work();
        let begun = begun.lock().unwrap();
        let mut first_times = Vec::new();
        for name in begun.iter() {
            if !first_times.contains(name) {
                first_times.push(*name);
            }
        }
        first_times
    }

    #[test]
    fn clients_take_turns() {
        let (prompt, bulk) = (Kind::Prompt, Kind::Bulk);
        let all = [
            (1, bulk, "1a"),
            (1, prompt, "1b"),
            (1, prompt, "panics"),
            (2, prompt, "2a"),
            (2, bulk, "2b"),
        ];
        assert_eq!(order(&all), ["1a", "2a", "1b", "2b", "panics"]);
    }

    #[test]
    fn threads_come_with_the_work_and_go_with_the_last_client() {
        let executor = Executor::with_own_threads();
        for _ in 0..2 {
            executor.open(3).unwrap();
            assert_eq!(executor.state().threads, 1);
            // Each needs a thread of its own to get past the barrier.
            let barrier = Arc::new(std::sync::Barrier::new(3));
            let (done, ended) = std::sync::mpsc::channel();
            for client in 0..3 {
                let (barrier, done) = (Arc::clone(&barrier), done.clone());
                executor.spawn(client, Kind::Prompt, async move {
                    barrier.wait();
                    let _ = done.send(());
                });
            }
            for _ in 0..3 {
                ended.recv().unwrap();
            }
            assert_eq!(executor.state().threads, 3);
            executor.close();
            while executor.state().threads > 0 {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_request_that_waits_holds_no_thread() {
        let executor = Executor::new(1);
        let (completion, submitted) = xtent_store::Submitted::later();
        let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let end = Arc::clone(&ended);
        executor.spawn(1, Kind::Prompt, async move {
            let _ = submitted.await;
            end.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        executor.spawn(1, Kind::Prompt, async move { drop(completion) });
        // Requests that wait are waited for.
        executor.close();
        executor.work();
        assert!(ended.load(std::sync::atomic::Ordering::SeqCst));
    }
}
