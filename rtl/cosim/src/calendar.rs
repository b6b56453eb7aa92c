//! The calendar of User Mode Linux's `time-travel=ext:`, for one guest: it asks for the time at which it
//! wants to go on, waits, and is told when it may. `um_timetravel.h` of Linux has the messages.
//!
//! The guest is never let run free, so its time is always the calendar's.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Bytes of a message: operation, number, time.
const MESSAGE: usize = 16;
/// A guest that wants to sleep for ever asks for this.
pub const NEVER: u64 = i64::MAX as u64;
/// The time of day at the start, 2026-01-01 in nanoseconds, whatever the host's clock says: the same for
/// all.
const TIME_OF_DAY: u64 = 1_767_225_600_000_000_000;

// Operations.
const ACK: u32 = 0;
const START: u32 = 1;
const REQUEST: u32 = 2;
const WAIT: u32 = 3;
const GET: u32 = 4;
const UPDATE: u32 = 5;
const RUN: u32 = 6;
const GET_TOD: u32 = 8;
const BROADCAST: u32 = 9;

/// A guest's connection.
#[derive(Debug)]
pub struct Calendar {
    stream: UnixStream,
    now: u64,
    /// When the guest wants to go on.
    request: Option<u64>,
    /// It waits for that.
    waiting: bool,
    number: u32,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    op: u32,
    number: u32,
    time: u64,
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text.into())
}

impl Calendar {
    /// For a guest that has just connected: its time is 0.
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            now: 0,
            request: None,
            waiting: false,
            number: 0,
        }
    }

    /// What to wait for messages on.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// The guest's time in nanoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// When the guest, which waits, wants to go on; `None` while it runs.
    pub fn request(&self) -> Option<u64> {
        self.request.filter(|_| self.waiting)
    }

    /// Something happens while the guest waits.
    pub fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// Receives a message and answers it; `false` at the end of the connection.
    ///
    /// # Errors
    /// The message is not in order, or the socket fails.
    pub fn receive(&mut self) -> io::Result<bool> {
        let Some(message) = self.read()? else {
            return Ok(false);
        };
        let time = message.time;
        let mut answer = 0;
        match message.op {
            START => {
                self.start(message.number)?;
                return Ok(true);
            }
            REQUEST if time < self.now => {
                return Err(invalid(format!(
                    "it asks for {time} ns, and {} ns it is already",
                    self.now
                )));
            }
            REQUEST => self.request = Some(time),
            WAIT if self.request.is_none() => {
                return Err(invalid("it waits, and has not said for when"));
            }
            WAIT => self.waiting = true,
            GET => answer = self.now,
            UPDATE if time != self.now => {
                return Err(invalid(format!(
                    "its time is {time} ns, and it was told {} ns",
                    self.now
                )));
            }
            // There is nobody else to be told.
            UPDATE | BROADCAST => {}
            GET_TOD => answer = TIME_OF_DAY + self.now,
            op => return Err(invalid(format!("a message of kind {op} about time"))),
        }
        self.write(ACK, message.number, answer)?;
        Ok(true)
    }

    /// Answers the first message. Clients of Linux 6.12 and later take two files from the answer whether
    /// there are any or not: of a memory that they share with a calendar that has it, and of a log. They do
    /// without if it does not begin with the right version.
    fn start(&mut self, number: u32) -> io::Result<()> {
        let memory = memfd_create("no-shared-calendar", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, 4096)?;
        let files = [memory.as_fd(), memory.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        let bytes = message(ACK, number, 0);
        let sent = sendmsg(
            &self.stream,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        if sent == bytes.len() {
            Ok(())
        } else {
            Err(invalid("half an answer was sent"))
        }
    }

    /// Lets the guest go on at the time that it asked for.
    ///
    /// # Errors
    /// It does not say that it has heard, or the socket fails.
    pub fn run(&mut self) -> io::Result<()> {
        let time = self.request.take().unwrap_or(self.now);
        self.waiting = false;
        self.now = time;
        self.number = self.number.wrapping_add(1);
        self.write(RUN, self.number, time)?;
        match self.read()? {
            Some(Message {
                op: ACK, number, ..
            }) if number == self.number => Ok(()),
            Some(Message { op, .. }) => Err(invalid(format!(
                "a message of kind {op} about time, where it should say that it runs"
            ))),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    fn write(&mut self, op: u32, number: u32, time: u64) -> io::Result<()> {
        self.stream.write_all(&message(op, number, time))
    }

    fn read(&mut self) -> io::Result<Option<Message>> {
        let mut bytes = [0; MESSAGE];
        match self.stream.read(&mut bytes)? {
            0 => return Ok(None),
            read => self.stream.read_exact(&mut bytes[read..])?,
        }
        let [a, b, c, d, e, f, g, h, time @ ..] = bytes;
        Ok(Some(Message {
            op: u32::from_ne_bytes([a, b, c, d]),
            number: u32::from_ne_bytes([e, f, g, h]),
            time: u64::from_ne_bytes(time),
        }))
    }
}

fn message(op: u32, number: u32, time: u64) -> [u8; MESSAGE] {
    let mut bytes = [0; MESSAGE];
    bytes[..4].copy_from_slice(&op.to_ne_bytes());
    bytes[4..8].copy_from_slice(&number.to_ne_bytes());
    bytes[8..].copy_from_slice(&time.to_ne_bytes());
    bytes
}
