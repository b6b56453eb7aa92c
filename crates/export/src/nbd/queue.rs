//! The queue between connections and workers. Connections take turns, so that
//! none waits for more than a little of another one's work, whatever that has
//! asked for.
//!
//! A connection's requests are taken in the order in which they came, with one
//! exception: work of which a small message can ask gigabytes is done in pieces,
//! and by half of the workers at most. A flush thus waits for one request of
//! each other connection at worst, and a worker is soon free for it.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::shutdown::Shutdown;
use super::worker::Job;

/// The jobs of all connections.
pub(super) struct Queue {
    state: Mutex<State>,
    more: Condvar,
    /// Workers that may be at bulk work at a time.
    most_bulk: usize,
}

#[derive(Default)]
struct State {
    /// What each connection waits for, by its link's address; none is empty.
    lanes: HashMap<usize, Lane>,
    /// The connections in `lanes`, the one whose turn is next first.
    turns: VecDeque<usize>,
    /// Jobs so far, to number them.
    arrivals: u64,
    /// Workers at bulk work.
    bulk: usize,
    /// Workers that wait for a job.
    idle: usize,
    closed: bool,
}

/// One connection's jobs, numbered in order of arrival.
#[derive(Default)]
struct Lane {
    prompt: VecDeque<(u64, Job)>,
    bulk: VecDeque<(u64, Job)>,
}

impl Lane {
    /// The first job, or the first that is not bulk work.
    fn pick(&mut self, is_bulk_allowed: bool) -> Option<Job> {
        let number = |jobs: &VecDeque<(u64, Job)>| jobs.front().map(|first| first.0);
        let jobs = match (number(&self.prompt), number(&self.bulk)) {
            (Some(prompt), Some(bulk)) if is_bulk_allowed && bulk < prompt => &mut self.bulk,
            (None, Some(_)) if is_bulk_allowed => &mut self.bulk,
            _ => &mut self.prompt,
        };
        jobs.pop_front().map(|(_, job)| job)
    }

    fn is_empty(&self) -> bool {
        self.prompt.is_empty() && self.bulk.is_empty()
    }
}

impl State {
    fn push(&mut self, job: Job) {
        let connection = Arc::as_ptr(job.link()).addr();
        let number = self.arrivals;
        self.arrivals += 1;
        let lane = self.lanes.entry(connection).or_insert_with(|| {
            self.turns.push_back(connection);
            Lane::default()
        });
        match job.is_bulk() {
            true => lane.bulk.push_back((number, job)),
            false => lane.prompt.push_back((number, job)),
        }
    }

    /// The next job of the first connection in turn that has one.
    fn pick(&mut self, is_bulk_allowed: bool) -> Option<Job> {
        for turn in 0..self.turns.len() {
            let connection = self.turns[turn];
            let Some(lane) = self.lanes.get_mut(&connection) else {
                continue;
            };
            let Some(job) = lane.pick(is_bulk_allowed) else {
                continue;
            };
            self.turns.remove(turn);
            if lane.is_empty() {
                self.lanes.remove(&connection);
            } else {
                self.turns.push_back(connection);
            }
            self.bulk += usize::from(job.is_bulk());
            return Some(job);
        }
        None
    }
}

impl Queue {
    /// For so many workers.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            state: Mutex::default(),
            more: Condvar::new(),
            most_bulk: (workers / 2).max(1),
        }
    }

    pub(super) fn push(&self, job: Job) {
        let mut state = self.state();
        state.push(job);
        // A call that wakes nobody is still a system call.
        let wake = state.idle > 0;
        drop(state);
        if wake {
            self.more.notify_one();
        }
    }

    /// Lets the workers end once the queue is empty.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.more.notify_all();
    }

    /// A worker's life.
    pub(super) fn work(&self, shutdown: &Shutdown, grace: Duration) {
        while let Some(mut job) = self.next() {
            let is_bulk = job.is_bulk();
            // Should the volume panic, this client loses its connection and
            // the others their worker not.
            let run = AssertUnwindSafe(|| job.perform(shutdown, grace));
            let is_unfinished = catch_unwind(run).unwrap_or_else(|_| {
                tracing::error!("a request panicked; its connection is closed");
                job.break_off();
                false
            });
            if is_bulk {
                self.end_bulk(is_unfinished.then_some(job));
            }
        }
    }

    /// Takes back what is left of bulk work.
    fn end_bulk(&self, rest: Option<Job>) {
        let mut state = self.state();
        state.bulk -= 1;
        if let Some(rest) = rest {
            state.push(rest);
        }
        // Whoever found nothing but bulk work could have some now.
        let wake = state.idle > 0 && state.lanes.values().any(|lane| !lane.bulk.is_empty());
        drop(state);
        if wake {
            self.more.notify_one();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            let is_bulk_allowed = state.bulk < self.most_bulk;
            if let Some(job) = state.pick(is_bulk_allowed) {
                return Some(job);
            }
            // Bulk work that is left is for those who are at it.
            if state.closed {
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
