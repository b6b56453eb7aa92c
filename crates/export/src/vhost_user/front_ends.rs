//! The front-ends that are connected, and which of them has the disk.
//!
//! The destination of a migration connects, and asks what the disk is like, while the guest still
//! runs at the source: two can be connected. The rings of one are served at a time. It has the disk
//! until it leaves, or until its guest has moved; another one that is ready waits for that. It is not
//! refused, since the order in which two sockets are heard says nothing: the one that has left may be
//! found to be gone after the next one is ready.

#[cfg(test)]
mod tests;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::session::Session;
use super::work::Work;
use super::{Growth, message};
use crate::Error;
use crate::Shutdown;
use crate::nbd::Listener;

/// Front-ends that can be connected: more wait to be accepted.
const MOST: usize = 2;
/// How long a front-end may take for the rest of a message, which it sends at once, and for our answer. Others
/// wait as long.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// All of them.
pub(super) struct FrontEnds<'a> {
    listener: &'a Listener,
    work: &'a Arc<Work>,
    queues: u16,
    connected: Vec<(UnixStream, Session)>,
}

impl<'a> FrontEnds<'a> {
    pub(super) fn new(listener: &'a Listener, work: &'a Arc<Work>, queues: u16) -> Self {
        Self {
            listener,
            work,
            queues,
            connected: Vec::new(),
        }
    }

    /// Serves them until `shutdown`; what is under way has ended then.
    pub(super) fn serve(mut self, shutdown: &Shutdown, growth: &Growth) -> Result<(), Error> {
        let served = loop {
            if let Err(error) = self.turn(shutdown, growth) {
                break Err(error);
            }
            if shutdown.is_triggered() {
                break Ok(());
            }
        };
        while !self.connected.is_empty() {
            self.part(0, "the server ends");
        }
        served
    }

    /// Waits until there is something to do, and does it.
    fn turn(&mut self, shutdown: &Shutdown, growth: &Growth) -> Result<(), Error> {
        let ready = self.wait(shutdown, growth)?;
        if shutdown.is_triggered() {
            return Ok(());
        }
        if ready.has_grown {
            growth.take();
            for (_, session) in &mut self.connected {
                session.look_at_size();
            }
        }
        // From the last one on, since those behind one that leaves move up.
        for &index in ready.talking.iter().rev() {
            if let Err(reason) = self.hear(index) {
                self.part(index, &reason);
            }
        }
        self.settle();
        if ready.is_asked {
            self.accept();
        }
        Ok(())
    }

    /// What there is to do, once there is something.
    fn wait(&self, shutdown: &Shutdown, growth: &Growth) -> Result<Ready, Error> {
        let has_room = self.connected.len() < MOST;
        let mut fds = vec![
            PollFd::from_borrowed_fd(shutdown.event(), PollFlags::IN),
            PollFd::from_borrowed_fd(growth.0.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(
                self.listener.as_fd(),
                match has_room {
                    true => PollFlags::IN,
                    false => PollFlags::empty(),
                },
            ),
        ];
        let streams = self.connected.iter().map(|(stream, _)| stream);
        fds.extend(streams.map(|stream| PollFd::new(stream, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::io("cannot wait for a virtual machine", error)),
        }
        let mut is_ready = fds.iter().skip(1).map(|fd| !fd.revents().is_empty());
        Ok(Ready {
            has_grown: is_ready.next().unwrap_or_default(),
            is_asked: is_ready.next().unwrap_or_default() && has_room,
            talking: is_ready
                .enumerate()
                .filter_map(|(index, is_ready)| is_ready.then_some(index))
                .collect(),
        })
    }

    fn accept(&mut self) {
        let socket = match self.listener.accept() {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a virtual machine");
                std::thread::sleep(ACCEPT_PAUSE);
                return;
            }
        };
        let stream = UnixStream::from(socket);
        let set_up = stream
            .set_write_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_nonblocking(false));
        if let Err(error) = set_up {
            tracing::warn!(%error, "cannot accept a virtual machine");
            return;
        }
        tracing::info!("a virtual machine has connected");
        let session = Session::new(Arc::clone(self.work), self.queues);
        self.connected.push((stream, session));
    }

    /// Answers the next message; why it is the last, if it is.
    fn hear(&mut self, index: usize) -> Result<(), String> {
        let Some((stream, session)) = self.connected.get_mut(index) else {
            return Ok(());
        };
        match message::receive(stream, PATIENCE) {
            Ok(None) => Err("it has left".into()),
            Ok(Some(message)) => session.hear(message, stream).map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The end of one, once what is under way has ended.
    fn part(&mut self, index: usize, reason: &str) {
        let (stream, mut session) = self.connected.remove(index);
        session.stop_all();
        drop((stream, session));
        self.work.carrier.memory().trim();
        tracing::info!(reason, "the virtual machine is disconnected");
    }

    /// Gives the disk to one that waits for it, if no other has it.
    fn settle(&mut self) {
        let mut is_free = true;
        for (_, session) in &mut self.connected {
            session.let_go();
            is_free &= !session.has_disk();
        }
        for (_, session) in &mut self.connected {
            if session.has_disk() || !session.wants_disk() {
                continue;
            }
            match std::mem::take(&mut is_free) {
                true => session.take_disk(),
                false => session.complain(),
            }
        }
    }
}

/// What there is to do.
struct Ready {
    has_grown: bool,
    /// Somebody wants to connect.
    is_asked: bool,
    /// Who has said something, or has left.
    talking: Vec<usize>,
}
