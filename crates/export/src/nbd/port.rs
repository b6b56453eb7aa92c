//! The connection thread's own side of the socket: receiving, and every wait,
//! each of which ends when the server stops or a deadline passes.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::exports::Served;
use super::link::{Gone, Link};
use super::shutdown::Ending;
use super::tls::closed_by;

/// How long clients are waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// From the connection to the chosen export; a client that takes longer
    /// has to connect again.
    pub(super) handshake: Duration,
    /// For a client to take its last replies, or, when the server stops, to
    /// complete the request it is sending; and then for writing zeros.
    pub(super) grace: Duration,
    /// For a client to close its side after ours, so that replies on their way
    /// are not lost to a reset.
    pub(super) linger: Duration,
}

impl Timeouts {
    pub(super) const DEFAULT: Self = Self {
        handshake: Duration::from_secs(30),
        grace: Duration::from_secs(5),
        linger: Duration::from_secs(1),
    };
}

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum Closed {
    /// The client closed its side at this point.
    EndOfStream(&'static str),
    /// The stream broke off at this point, which TLS shows.
    CutOff(&'static str),
    /// The client said goodbye.
    Disconnect,
    /// The handshake ended without an export, for this reason.
    Handshake(&'static str),
    /// The stream cannot be followed any longer.
    Protocol(super::proto::RequestError),
    /// A read failed after its simple reply had begun.
    ReadFailed,
    /// Somebody else has taken the volume over.
    Fenced,
    /// Neither requests nor room for replies in time.
    TimedOut(&'static str),
    /// The server stops, or the export is removed.
    Stopping,
    /// No memory for a connection.
    NoMemory,
    /// TLS failed, for this reason.
    Tls(String),
    /// The socket failed.
    Socket(Errno),
    /// A worker found the socket broken.
    Broken,
}

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::EndOfStream(place) => write!(f, "client closed the connection {place}"),
            Self::CutOff(place) => write!(
                f,
                "the connection was cut off {place}, without the end that TLS has"
            ),
            Self::Tls(reason) => f.write_str(reason),
            Self::Disconnect => f.write_str("client disconnected"),
            Self::Handshake(reason) => f.write_str(reason),
            Self::Protocol(error) => error.fmt(f),
            Self::ReadFailed => f.write_str("a read failed after its reply had begun"),
            Self::Fenced => f.write_str("somebody else has taken the volume over"),
            Self::TimedOut(what) => write!(f, "timed out: {what}"),
            Self::NoMemory => f.write_str("no memory for a connection"),
            Self::Stopping => f.write_str("the server stops, or the export is removed"),
            Self::Socket(error) => write!(f, "socket: {error}"),
            Self::Broken => f.write_str("client is gone"),
        }
    }
}

/// What the thread waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// Bytes from the client.
    Input,
    /// Room for replies.
    Room,
    /// Fewer requests in flight.
    Jobs,
    /// The end of all jobs, whether the client is still there or not.
    End,
}

/// The connection thread's side.
pub(super) struct Port {
    pub(super) link: Arc<Link>,
    ending: Ending,
    timeouts: Timeouts,
    /// When waiting for the client ends; none in undisturbed transmission.
    deadline: Option<Instant>,
    stopping: bool,
}

impl Port {
    pub(super) fn new(link: Arc<Link>, ending: Ending, timeouts: Timeouts) -> Self {
        Self {
            link,
            ending,
            timeouts,
            deadline: Some(Instant::now() + timeouts.handshake),
            stopping: false,
        }
    }

    /// From now on the connection ends with this export, too.
    pub(super) fn choose(&mut self, export: &Arc<Served>) {
        self.ending = self.ending.or_of(export);
    }

    /// What the connection ends with.
    pub(super) fn ending(&self) -> &Ending {
        &self.ending
    }

    /// The handshake is over; from now on the client has all the time it wants.
    pub(super) fn begin_transmission(&mut self) {
        if !self.stopping {
            self.deadline = None;
        }
    }

    /// Whether the server stops, or the export is removed; from the first time on, waits have a
    /// deadline.
    pub(super) fn check_stop(&mut self) -> bool {
        if !self.stopping && self.ending.is_here() {
            self.stopping = true;
            self.set_deadline(self.timeouts.grace);
        }
        self.stopping
    }

    /// Whether the deadline has passed, for clients that never let us wait.
    pub(super) fn expired(&self) -> bool {
        self.deadline.is_some_and(|at| Instant::now() >= at)
    }

    fn set_deadline(&mut self, from_now: Duration) {
        let new = Instant::now() + from_now;
        self.deadline = Some(self.deadline.map_or(new, |old| old.min(new)));
    }

    /// Waits for the client or for a wake-up, whichever is first; spurious
    /// returns are possible. Queued replies go out meanwhile.
    pub(super) fn wait(&mut self, what: For) -> Result<(), Closed> {
        self.check_stop();
        let (is_broken, room) = {
            let outbox = self.link.outbox();
            let room = what == For::Room || outbox.has_output();
            (outbox.is_broken(), room)
        };
        if is_broken && !matches!(what, For::End | For::Room) {
            return Err(Closed::Broken);
        }
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, what == For::Input);
        events.set(PollFlags::OUT, room);
        let mut fds = [
            PollFd::new(&self.link.event, PollFlags::IN),
            PollFd::new(&self.link.socket, events),
        ];
        // A socket without events of interest still reports a hang-up: once is
        // enough, more would turn a wait for jobs into a spin.
        let jobs_only = events.is_empty();
        let count = if jobs_only && is_broken { 1 } else { 2 };
        // Jobs end by themselves: only the client is given a deadline.
        let deadline = if jobs_only { None } else { self.deadline };
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds[..count], timeout.as_ref()) {
            Ok(0) => {
                return Err(Closed::TimedOut(match what {
                    For::Input => "waiting for the client",
                    _ => "the client does not take its replies",
                }));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Closed::Socket(error)),
        }
        let woken = !fds[0].revents().is_empty();
        let ready = fds[1].revents();
        if woken {
            let _ = rustix::io::read(&self.link.event, &mut [0_u8; 8]);
        }
        if what != For::Room && ready.contains(PollFlags::OUT) {
            self.link.try_send_queue();
        }
        if jobs_only && ready.intersects(PollFlags::HUP | PollFlags::ERR) {
            // Nobody is there for the replies of these jobs.
            self.link.break_off();
        }
        Ok(())
    }

    /// Receives into `space` what has come; nothing if that would mean waiting.
    /// `place` says where a client that goes away has stopped.
    pub(super) fn try_receive(
        &mut self,
        space: &mut [u8],
        place: &'static str,
    ) -> Result<Option<usize>, Closed> {
        let Some(channel) = self.link.tls.get() else {
            return self.try_receive_bytes(space, place);
        };
        // It gives nothing only where nothing is left in it: waiting for the socket is safe then.
        match channel.receive(space, |room| Ok(self.receive_now(room)?)) {
            Ok(0) => Err(Closed::EndOfStream(place)),
            Ok(received) => Ok(Some(received)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(closed_by(&error, place)),
        }
    }

    /// As [`Port::try_receive`], the bytes as they come.
    pub(super) fn try_receive_bytes(
        &self,
        space: &mut [u8],
        place: &'static str,
    ) -> Result<Option<usize>, Closed> {
        match self.receive_now(space) {
            Ok(0) => Err(Closed::EndOfStream(place)),
            Ok(received) => Ok(Some(received)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(Closed::Socket(error)),
        }
    }

    fn receive_now(&self, space: &mut [u8]) -> rustix::io::Result<usize> {
        let socket = &self.link.socket;
        rustix::io::retry_on_intr(|| recv(socket, &mut *space, RecvFlags::DONTWAIT))
            .map(|(received, _)| received)
    }

    /// Receives into `space`, waiting for the client if need be.
    pub(super) fn receive(
        &mut self,
        space: &mut [u8],
        place: &'static str,
    ) -> Result<usize, Closed> {
        loop {
            match self.try_receive(space, place)? {
                Some(received) => return Ok(received),
                None => self.wait(For::Input)?,
            }
        }
    }

    /// Fills `space`.
    pub(super) fn receive_all(
        &mut self,
        mut space: &mut [u8],
        place: &'static str,
    ) -> Result<(), Closed> {
        while !space.is_empty() {
            let received = self.receive(space, place)?;
            space = &mut space[received..];
        }
        Ok(())
    }

    /// Bytes that wait in the socket and in TLS, which may come to fewer.
    pub(super) fn pending_input(&self) -> u64 {
        let buffered = self.link.tls.get().map_or(0, xtent_tls::Channel::buffered);
        rustix::io::ioctl_fionread(&self.link.socket).unwrap_or(0) + buffered as u64
    }

    /// Takes the turn to send, after everything queued. `at_turn` runs when
    /// nothing is before it any more, and no worker can answer until it ends.
    pub(super) fn take_turn<R>(
        &mut self,
        at_turn: impl FnOnce() -> R,
    ) -> Result<(Turn, R), Closed> {
        let link = Arc::clone(&self.link);
        loop {
            match link.try_take_turn() {
                Ok(Some(outbox)) => {
                    let result = at_turn();
                    drop(outbox);
                    let link = Arc::clone(&link);
                    return Ok((Turn { link }, result));
                }
                Ok(None) => self.wait(For::Room)?,
                Err(Gone) => return Err(Closed::Broken),
            }
        }
    }

    /// Waits until the workers are done and the client has taken all replies,
    /// then closes this side and reads on a little, so that no reply is lost.
    pub(super) fn finish(&mut self) {
        self.deadline = None;
        loop {
            let (what, jobs) = {
                let mut outbox = self.link.outbox();
                outbox.set_notify(true);
                let jobs = outbox.jobs();
                match outbox.has_output() {
                    true => (For::Room, jobs),
                    false if jobs > 0 => (For::End, jobs),
                    false => break,
                }
            };
            if jobs == 0 && self.deadline.is_none() {
                // The rest is up to the client.
                self.set_deadline(self.timeouts.grace);
            }
            if what == For::Room {
                self.link.try_send_queue();
            }
            if self.wait(what).is_err() {
                self.link.break_off();
            }
        }
        if let Some(channel) = self.link.tls.get() {
            channel.close(|records| self.link.try_send_records(records));
        }
        if rustix::net::shutdown(&self.link.socket, rustix::net::Shutdown::Write).is_ok() {
            self.deadline = None;
            self.set_deadline(self.timeouts.linger);
            while !self.expired() && self.drop_input().is_ok() {}
        }
    }

    /// Drops what comes, whatever it is.
    fn drop_input(&mut self) -> Result<(), Closed> {
        match self.try_receive_bytes(&mut [0; 4096], "")? {
            Some(_) => Ok(()),
            None => self.wait(For::Input),
        }
    }
}

/// The right to send; ends when dropped.
pub(super) struct Turn {
    link: Arc<Link>,
}

impl Turn {
    /// Sends all of `slices`, waiting for the client if need be. After a
    /// failure nothing more goes out on this connection: the client could not
    /// tell where the next reply begins.
    pub(super) fn send(
        &mut self,
        port: &mut Port,
        mut slices: &mut [IoSlice<'_>],
    ) -> Result<(), Closed> {
        while !slices.is_empty() {
            let step = match self.link.try_send(slices) {
                Ok(sent) => {
                    IoSlice::advance_slices(&mut slices, sent);
                    Ok(())
                }
                Err(Errno::AGAIN) => port.wait(For::Room),
                Err(error) => Err(Closed::Socket(error)),
            };
            if step.is_err() {
                self.link.break_off();
                return step;
            }
        }
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.link.end_turn();
    }
}
