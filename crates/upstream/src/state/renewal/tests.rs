//! Whatever comes in whatever order: nothing is under way or unflushed when connections are given
//! up to be made anew, and everything that was asked is answered once.

use std::future::Future;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use xtent_nbd::client::{BlockSizes, Content, Form, Negotiated, Reply};
use xtent_nbd::constants::*;
use xtent_store::{AlignedBuffer, Place, Submitted};

use super::*;
use crate::connection::{Connection, Payload};
use crate::lane::next_id;
use crate::operation::{Operation, Work};
use crate::terms::Terms;
use crate::wire::Wire;

/// The journal has room for this many writes.
const ROOM: usize = 3;
const BLOCK: usize = 512;
const FOUND: Negotiated = Negotiated {
    size: 1 << 20,
    flags: FLAG_SEND_FLUSH | FLAG_CAN_MULTI_CONN,
    form: Form::Simple,
    blocks: BlockSizes::DEFAULT,
};

#[derive(Clone, Copy, Debug)]
enum Event {
    Read,
    Write {
        durably: bool,
    },
    Flush,
    /// Of what is under way, this one is answered.
    Answer(usize),
    AnswerFlushesWithAnError,
    Renew {
        has_successor: bool,
    },
    Stop,
    Lose,
    /// The connection of this lane, if there is one; the other is still to be answered.
    LoseOne(usize),
    Connect,
    Join,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => Just(Event::Read),
        5 => any::<bool>().prop_map(|durably| Event::Write { durably }),
        1 => Just(Event::Flush),
        9 => (0_usize..8).prop_map(Event::Answer),
        2 => any::<bool>().prop_map(|has_successor| Event::Renew { has_successor }),
        1 => Just(Event::Stop),
        1 => Just(Event::Lose),
        2 => (0_usize..2).prop_map(Event::LoseOne),
        3 => Just(Event::Connect),
        1 => Just(Event::Join),
    ]
}

/// A state, and the far ends of its connections.
struct Bench {
    state: State,
    peers: Vec<UnixStream>,
    /// Whether the server has failed a flush.
    is_failing: bool,
    waiting: Vec<Submitted>,
    /// Times that connections were given up while all was well.
    renewed: u32,
}

impl Bench {
    fn new() -> Self {
        let place = Place::Uri("nbd://tested/".into());
        let terms = Arc::new(Terms::new(place, &FOUND, false, ROOM * BLOCK));
        let mut bench = Self {
            state: State::new(terms, 2),
            peers: Vec::new(),
            is_failing: false,
            waiting: Vec::new(),
            renewed: 0,
        };
        bench.connect();
        bench
    }

    fn connection(&mut self, lane: usize) -> Arc<Connection> {
        let (socket, peer) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        self.peers.push(peer);
        let wire = Wire {
            socket: socket.into(),
            tls: None,
        };
        Connection::new(next_id(), lane, Form::Simple, wire)
    }

    fn lose(&mut self, lost: impl Fn(&Connection) -> bool) {
        let connections = self.state.connections.clone();
        for connection in connections.into_iter().flatten().filter(|it| lost(it)) {
            let until = Instant::now() + Duration::from_secs(3600);
            self.state
                .lost_one(&connection, "as ordered".to_owned(), until);
        }
    }

    fn connect(&mut self) {
        self.lose(|it| it.leaves().is_some() && !it.has_requests());
        if matches!(self.state.phase, Phase::Lost) && self.state.leaves().is_none() {
            let connection = match self.state.take_successor() {
                Some((connection, _)) => connection,
                None => self.connection(0),
            };
            let mut todo = Todo::default();
            self.state.connected(connection, &mut todo);
            self.carry_out(todo);
        }
    }

    /// As the threads do it.
    fn carry_out(&mut self, todo: Todo) {
        for connection in todo.send {
            assert!(connection.send().unwrap());
        }
        for (completion, completed) in todo.told {
            completion.complete(completed);
        }
        for peer in &mut self.peers {
            let mut bytes = [0; 1 << 16];
            while peer.read(&mut bytes).is_ok_and(|n| n > 0) {}
        }
    }

    fn begin(&mut self, work: Work, len: usize, room: usize) {
        let (completion, submitted) = Submitted::later();
        let mut operation = Operation::new(work, 0, len as u64, Some(completion));
        operation.room = room;
        let operation = Arc::new(operation);
        let mut todo = Todo::default();
        // As the callers do it.
        if self.state.must_wait(room) {
            self.state.held.push_back(operation);
            self.state.tend_journal(&mut todo);
        } else {
            self.state.start(&operation, &mut todo);
        }
        self.waiting.push(submitted);
        self.carry_out(todo);
    }

    /// Answers the one of this number among those that were sent; [`false`] if there is none.
    fn answer(&mut self, number: usize) -> bool {
        let sent = self
            .state
            .pending
            .iter()
            .filter(|(_, it)| it.connection != 0);
        let cookies: Vec<u64> = sent.map(|(cookie, _)| *cookie).collect();
        let Some(&cookie) = cookies.get(number % cookies.len().max(1)) else {
            return false;
        };
        let piece = self.state.pending.get_mut(&cookie).unwrap();
        let mut connections = self.state.connections.iter().flatten();
        let connection = connections.find(|it| it.id == piece.connection);
        let connection = Arc::clone(connection.unwrap());
        let content = match piece.request.kind {
            CMD_FLUSH if self.is_failing => Content::Error {
                error: 5,
                offset: None,
                message: String::new(),
            },
            _ => Content::Simple,
        };
        let reply = Reply {
            cookie,
            request_offset: None,
            done: true,
            content,
        };
        piece.answer.take(Form::Simple, reply).unwrap();
        let copy = match piece.payload() {
            Some(Payload::Caller(buffer, range)) if !piece.is_replay() => {
                Some(buffer[range].to_vec())
            }
            _ => None,
        };
        let mut todo = Todo::default();
        self.state
            .conclude(&connection, cookie, copy, &mut todo)
            .unwrap();
        self.carry_out(todo);
        true
    }

    /// Does it, and looks at what must be so before and after each.
    fn happen(&mut self, event: Event) {
        let (before, epoch) = (self.state.pending.len(), self.state.epoch);
        let was_renewing = self.state.is_renewing();
        match event {
            Event::Read => {
                let buffer = AlignedBuffer::zeroed(BLOCK).unwrap().into();
                self.begin(Work::Read(Mutex::new(Some(buffer))), BLOCK, 0);
            }
            Event::Write { durably } => {
                let buffer = AlignedBuffer::zeroed(BLOCK).unwrap().into();
                let buffer = Mutex::new(Some(Arc::new(buffer)));
                let room = if durably { 0 } else { BLOCK };
                self.begin(Work::Write { buffer, durably }, BLOCK, room);
            }
            Event::Flush => self.begin(Work::Flush, 0, 0),
            Event::Answer(number) => drop(self.answer(number)),
            Event::AnswerFlushesWithAnError => self.is_failing = true,
            Event::Renew { has_successor } => {
                let successor = has_successor.then(|| (self.connection(0), FOUND));
                let mut todo = Todo::default();
                let is_possible = matches!(self.state.phase, Phase::Serving)
                    && self.state.flush_failure.is_none();
                assert_eq!(self.state.renew(successor, &mut todo).is_ok(), is_possible);
                self.carry_out(todo);
            }
            Event::Stop => {
                let mut todo = Todo::default();
                self.state.stop_renewing(&mut todo);
                self.carry_out(todo);
            }
            Event::Lose => self.state.lost("as ordered".to_owned()),
            Event::LoseOne(lane) => self.lose(|it| it.lane == lane),
            Event::Connect => self.connect(),
            Event::Join => {
                if matches!(self.state.phase, Phase::Serving) && self.state.connections[1].is_none()
                {
                    let connection = self.connection(1);
                    self.state.joined(connection, &mut Todo::default());
                }
            }
        }
        let is_loss = matches!(event, Event::Lose | Event::LoseOne(_) | Event::Connect);
        if self.state.epoch != epoch && !is_loss {
            self.renewed += 1;
            assert_eq!(self.state.pending.len(), 0, "under way on what is given up");
            assert_eq!(self.state.journal.bytes(), 0, "not flushed before");
        }
        if let Some((connection, _)) = &self.state.successor {
            assert!(
                self.state.is_renewing || self.state.is_between,
                "kept for nothing"
            );
            assert!(!connection.is_dead());
        }
        if was_renewing && self.state.is_renewing() && !matches!(event, Event::Answer(_)) {
            assert_eq!(self.state.pending.len(), before, "sent all the same");
        }
    }

    /// Everything is answered, over a connection that is there.
    fn end(mut self) -> u32 {
        loop {
            self.connect();
            if !self.answer(0) && self.state.pending.is_empty() && self.state.held.is_empty() {
                break;
            }
        }
        for mut submitted in std::mem::take(&mut self.waiting) {
            let polled = Pin::new(&mut submitted).poll(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(completed) = polled else {
                panic!("an operation without an end");
            };
            assert!(completed.result.is_ok() || self.is_failing);
        }
        self.renewed
    }
}

proptest! {
    #[test]
    fn nothing_is_left_on_what_is_given_up(
        events in proptest::collection::vec(event(), 0..80),
        fails_at in proptest::option::of(0_usize..160),
    ) {
        let mut bench = Bench::new();
        for (number, event) in events.into_iter().enumerate() {
            if fails_at == Some(number) {
                bench.happen(Event::AnswerFlushesWithAnError);
            }
            bench.happen(event);
        }
        bench.end();
    }
}

#[test]
fn what_was_acknowledged_is_flushed_before() {
    let mut bench = Bench::new();
    bench.happen(Event::Write { durably: false });
    bench.happen(Event::Answer(0));
    bench.happen(Event::Write { durably: false });
    bench.happen(Event::Renew {
        has_successor: true,
    });
    bench.happen(Event::Read);
    // The write, and then the flush that it was waited for with.
    for renewed in [0, 1] {
        bench.happen(Event::Answer(0));
        assert_eq!(bench.renewed, renewed);
    }
    assert_eq!(bench.state.held.len(), 1);
    assert_eq!(bench.end(), 1);
}

#[test]
fn a_lost_connection_comes_first() {
    let mut bench = Bench::new();
    bench.happen(Event::Write { durably: false });
    bench.happen(Event::Renew {
        has_successor: true,
    });
    bench.happen(Event::Write { durably: true });
    bench.happen(Event::Lose);
    assert!(!bench.state.is_renewing() && bench.state.successor.is_none());
    assert_eq!(bench.end(), 0);
}

#[test]
fn after_a_failed_flush_they_stay() {
    let mut bench = Bench::new();
    bench.happen(Event::AnswerFlushesWithAnError);
    bench.happen(Event::Write { durably: false });
    bench.happen(Event::Renew {
        has_successor: true,
    });
    for _ in 0..2 {
        bench.happen(Event::Answer(0));
    }
    assert!(!bench.state.is_renewing() && bench.state.flush_failure.is_some());
    assert_eq!(bench.end(), 0);
}
