//! The guest's side of vhost-user, `virtio_pcidev` and of a calendar: what User Mode Linux does, in
//! little. Every message waits for its answer.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use xtent_engine_sim::registers::*;

use super::{Completion, MEMORY, Simulator, Submission};

/// Where the guest's memory begins, for the device and for itself.
pub const BASE: u64 = 0x20_0000;
pub const OWN: u64 = 0x7000_0000_0000;
/// Places in it: the queues, and what their messages are in.
pub const QUEUES: [u64; 2] = [0x30_0000, 0x31_0000];
const PARTS: [u64; 3] = [0, 0x4000, 0x8000];
pub const MESSAGES: u64 = 0x32_0000;
/// Where the answer to a command is, after it.
pub const ANSWERS: u64 = 0x8000;
pub const QUEUE_SIZE: u16 = 16;
const LOG_RING: u32 = 4;

pub const CONFIG: u8 = 0xff;
pub const VERSION: u32 = 1;
const REPLY: u32 = 4;
const NEED_REPLY: u32 = 8;

/// A message of vhost-user.
pub fn message(request: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).unwrap();
    let mut bytes = [request, flags, size].map(u32::to_le_bytes).concat();
    bytes.extend_from_slice(body);
    bytes
}

/// Sends bytes with files; whether anybody took them.
pub fn send(stream: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(files)));
    }
    sendmsg(
        stream,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )
    .is_ok_and(|sent| sent == bytes.len())
}

pub fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.map(u32::to_le_bytes).concat()
}

/// A region of memory as a message has it.
pub fn region(guest: u64, size: u64, own: u64, offset: u64) -> Vec<u8> {
    [guest, size, own, offset].map(u64::to_le_bytes).concat()
}

/// The guest's side of the calendar.
pub struct Clock {
    pub stream: UnixStream,
    pub now: u64,
    number: u32,
}

impl Clock {
    fn new(simulator: &Simulator) -> Self {
        let stream = UnixStream::connect(simulator.time_socket()).unwrap();
        let mut clock = Self {
            stream,
            now: 0,
            number: 0,
        };
        clock.ask(1, 7);
        clock
    }

    fn send(&mut self, op: u32, number: u32, time: u64) {
        let mut bytes = words([op, number]);
        bytes.extend_from_slice(&time.to_le_bytes());
        self.stream.write_all(&bytes).unwrap();
    }

    fn receive(&mut self) -> (u32, u32, u64) {
        let mut bytes = [0; 16];
        self.stream.read_exact(&mut bytes).unwrap();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let time = u64::from_le_bytes(bytes[8..].try_into().unwrap());
        (word(0), word(4), time)
    }

    /// Asks, and gets the time of the answer.
    pub fn ask(&mut self, op: u32, time: u64) -> u64 {
        self.number += 1;
        self.send(op, self.number, time);
        let (op, number, time) = self.receive();
        assert_eq!((op, number), (0, self.number));
        time
    }
}

/// An interrupt that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Msi {
    pub address: u64,
    pub data: u32,
    /// Of the guest.
    pub time: u64,
}

pub struct Guest {
    pub stream: UnixStream,
    pub requests: UnixStream,
    pub memory: File,
    pub clock: Option<Clock>,
    /// Chains given to each queue, and seen to come back.
    given: [u16; 2],
    seen: [u16; 2],
    pub msis: VecDeque<Msi>,
    tail: u16,
    head: u16,
}

impl Guest {
    /// Connects, and says nothing yet.
    pub fn raw(simulator: &Simulator, timed: bool) -> Self {
        let clock = timed.then(|| Clock::new(simulator));
        let stream = UnixStream::connect(simulator.socket()).unwrap();
        let memory = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        memory.set_len(MEMORY).unwrap();
        Self {
            stream,
            requests: UnixStream::pair().unwrap().0,
            memory,
            clock,
            given: [0; 2],
            seen: [0; 2],
            msis: VecDeque::new(),
            tail: 0,
            head: 0,
        }
    }

    /// Connects, and sets the queues up.
    pub fn new(simulator: &Simulator, timed: bool) -> Self {
        let mut guest = Self::raw(simulator, timed);
        guest.handshake();
        for buffer in 0..10 {
            guest.give_interrupt_buffer(buffer);
        }
        guest.kick(1);
        guest
    }

    /// A guest whose device is on: BARs, bus mastering, MSI-X with data 0x40 and up.
    pub fn ready(simulator: &Simulator, timed: bool) -> Self {
        let mut guest = Self::new(simulator, timed);
        guest.write_at(CONFIG, 4, &6_u16.to_le_bytes());
        guest.write_at(CONFIG, 0x42, &0x8000_u16.to_le_bytes());
        let vectors =
            1 + (u16::from_le_bytes(guest.read_at(CONFIG, 0x42, 2).try_into().unwrap()) & 0x7ff);
        for vector in 0..u32::from(vectors) {
            let entry = words([0xa_0000, 0, 0x40 + vector, 0]);
            for (at, word) in (16 * u64::from(vector)..).step_by(4).zip(entry.chunks(4)) {
                guest.write_at(2, at, word);
            }
        }
        assert_eq!(guest.read(REG_ID), ID);
        guest
    }

    /// All that comes before the first buffer.
    pub fn handshake(&mut self) {
        self.tell(3, &[], &[]);
        assert_eq!(self.get(1), 1 << 32 | 1 << 30);
        let features = self.get(15);
        assert_eq!(features, 1 << 3 | 1 << 5 | 1 << 14);
        self.tell(16, &features.to_le_bytes(), &[]);
        let (ours, theirs) = UnixStream::pair().unwrap();
        self.requests = ours;
        self.tell(21, &[], &[theirs.as_fd()]);
        self.tell(2, &(1_u64 << 32 | 1 << 30).to_le_bytes(), &[]);
        let memory = self.memory.try_clone().unwrap();
        let table = [words([1, 0]), region(BASE, MEMORY, OWN, 0)].concat();
        self.tell(5, &table, &[memory.as_fd()]);
        for index in 0..2 {
            self.tell(8, &words([index, QUEUE_SIZE.into()]), &[]);
            self.tell(10, &words([index, 0]), &[]);
            self.tell(9, &places(index), &[]);
        }
        for index in 0..2 {
            self.tell(18, &words([index, 1]), &[]);
        }
    }

    /// A message whose answer says that it was done.
    pub fn tell(&mut self, request: u32, body: &[u8], files: &[BorrowedFd<'_>]) {
        assert!(self.try_tell(request, body, files), "message {request}");
    }

    /// The same; whether it was done, or the connection has ended.
    pub fn try_tell(&mut self, request: u32, body: &[u8], files: &[BorrowedFd<'_>]) -> bool {
        send(
            &self.stream,
            &message(request, VERSION | NEED_REPLY, body),
            files,
        ) && self.reply() == Some((request, 0))
    }

    pub fn get(&mut self, request: u32) -> u64 {
        assert!(send(&self.stream, &message(request, VERSION, &[]), &[]));
        let (to, value) = self.reply().unwrap();
        assert_eq!(to, request);
        value
    }

    /// An answer; `None` at the end of the connection.
    fn reply(&mut self) -> Option<(u32, u64)> {
        while !self.wait_for_any()[0] {}
        let mut bytes = [0; 20];
        self.stream.read_exact(&mut bytes).ok()?;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((word(4), word(8)), (VERSION | REPLY, 8));
        Some((word(0), u64::from_le_bytes(bytes[12..].try_into().unwrap())))
    }

    /// Waits for the answer, a request of the device, or the calendar; requests are dealt with.
    fn wait_for_any(&mut self) -> [bool; 2] {
        let mut files = vec![
            PollFd::new(&self.stream, PollFlags::IN),
            PollFd::new(&self.requests, PollFlags::IN),
        ];
        if let Some(clock) = &self.clock {
            files.push(PollFd::new(&clock.stream, PollFlags::IN));
        }
        poll(&mut files, None).unwrap();
        let ready: Vec<_> = files.iter().map(|it| !it.revents().is_empty()).collect();
        if ready[1] {
            self.answer_call();
        }
        [ready[0], ready.get(2) == Some(&true)]
    }

    /// A request to look at a queue: asks for the time as User Mode Linux does, and wants to run at once.
    fn answer_call(&mut self) {
        let mut bytes = [0; 20];
        if self.requests.read_exact(&mut bytes).is_err() {
            // The device is gone, or has not got the socket yet.
            self.requests = UnixStream::pair().unwrap().0;
            return;
        }
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(8)), (4, 8));
        if let Some(clock) = &mut self.clock {
            clock.now = clock.ask(4, u64::MAX);
            clock.ask(2, clock.now);
        }
        if word(12) == 1 {
            self.take_interrupts();
        }
        if word(4) & NEED_REPLY != 0 {
            let reply = message(4, VERSION | REPLY, &0_u64.to_le_bytes());
            self.requests.write_all(&reply).unwrap();
        }
    }

    pub fn kick(&mut self, queue: u32) {
        self.tell(35, &words([queue, 0]), &[]);
    }

    /// Writes descriptors of a chain: (guest's address, size, whether to write), from an index on.
    pub fn chain(&mut self, queue: usize, first: u16, parts: &[(u64, u32, bool)]) {
        for (i, &(address, size, write)) in (first..).zip(parts) {
            let more = usize::from(i - first) + 1 < parts.len();
            let flags = u16::from(more) | u16::from(write) << 1;
            self.descriptor(queue, i, address, size, flags, i + 1);
        }
        self.offer(queue, first);
    }

    pub fn descriptor(
        &self,
        queue: usize,
        index: u16,
        address: u64,
        size: u32,
        flags: u16,
        next: u16,
    ) {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend_from_slice(&size.to_le_bytes());
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&next.to_le_bytes());
        self.put(QUEUES[queue] + PARTS[0] + 16 * u64::from(index), &bytes);
    }

    /// Makes a chain available.
    pub fn offer(&mut self, queue: usize, head: u16) {
        let available = QUEUES[queue] + PARTS[1];
        let index = u64::from(self.given[queue] % QUEUE_SIZE);
        self.put(available + 4 + 2 * index, &head.to_le_bytes());
        self.given[queue] = self.given[queue].wrapping_add(1);
        self.put(available + 2, &self.given[queue].to_le_bytes());
    }

    /// A chain that came back: its head, and what was written.
    pub fn taken(&mut self, queue: usize) -> Option<(u32, u32)> {
        let used = QUEUES[queue] + PARTS[2];
        let index = self.take(used + 2, 2);
        if u16::from_le_bytes(index.try_into().unwrap()) == self.seen[queue] {
            return None;
        }
        let entry = self.take(used + 4 + 8 * u64::from(self.seen[queue] % QUEUE_SIZE), 8);
        self.seen[queue] = self.seen[queue].wrapping_add(1);
        let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap());
        Some((word(0), word(4)))
    }

    fn give_interrupt_buffer(&mut self, buffer: u16) {
        let place = BASE + MESSAGES + 0x1000 + 32 * u64::from(buffer);
        self.chain(1, buffer, &[(place, 20, true)]);
    }

    fn take_interrupts(&mut self) {
        while let Some((buffer, size)) = self.taken(1) {
            assert_eq!(size, 20);
            let bytes = self.take(MESSAGES + 0x1000 + 32 * u64::from(buffer), 20);
            assert_eq!(bytes[..8], [7, 0, 0, 0, 4, 0, 0, 0]);
            self.msis.push_back(Msi {
                address: u64::from_le_bytes(bytes[8..16].try_into().unwrap()),
                data: u32::from_le_bytes(bytes[16..].try_into().unwrap()),
                time: self.clock.as_ref().map_or(0, |clock| clock.now),
            });
            self.give_interrupt_buffer(buffer.try_into().unwrap());
        }
    }

    /// Makes a command of `virtio_pcidev` available, in one of eight slots.
    pub fn post(&mut self, slot: u16, op: u8, bar: u8, at: u64, size: u32, data: &[u8]) {
        let mut bytes = vec![op, bar, 0, 0];
        bytes.extend_from_slice(&size.to_le_bytes());
        bytes.extend_from_slice(&at.to_le_bytes());
        bytes.extend_from_slice(data);
        let place = MESSAGES + 0x100 * u64::from(slot);
        self.put(place, &bytes);
        let mut parts = vec![(BASE + place, u32::try_from(bytes.len()).unwrap(), false)];
        if matches!(op, 1 | 3) {
            parts.push((BASE + place + ANSWERS, size, true));
        }
        self.chain(0, 2 * slot, &parts);
    }

    /// A command, carried out.
    pub fn command(&mut self, op: u8, bar: u8, at: u64, size: u32, data: &[u8]) -> Vec<u8> {
        let is_read = matches!(op, 1 | 3);
        self.post(0, op, bar, at, size, data);
        self.kick(0);
        let written = loop {
            if let Some((_, written)) = self.taken(0) {
                break written;
            }
            // As User Mode Linux does.
            let until = self.clock.as_ref().unwrap().now + 1000;
            self.sleep_until(until);
        };
        assert_eq!(written, if is_read { size } else { 0 });
        self.take(MESSAGES + ANSWERS, written as usize)
    }

    pub fn read_at(&mut self, bar: u8, at: u64, size: u32) -> Vec<u8> {
        if bar == CONFIG {
            self.command(1, 0, at, size, &[])
        } else {
            self.command(3, bar, at, size, &[])
        }
    }

    pub fn write_at(&mut self, bar: u8, at: u64, data: &[u8]) {
        let size = u32::try_from(data.len()).unwrap();
        if bar == CONFIG {
            self.command(2, 0, at, size, data);
        } else {
            self.command(4, bar, at, size, data);
        }
    }

    pub fn read(&mut self, register: u32) -> u32 {
        u32::from_le_bytes(self.read_at(0, register.into(), 4).try_into().unwrap())
    }

    pub fn write(&mut self, register: u32, value: u32) {
        self.write_at(0, register.into(), &value.to_le_bytes());
    }

    /// Lets time pass up to a moment, and takes the interrupts on the way.
    pub fn sleep_until(&mut self, time: u64) {
        while self.clock.as_ref().unwrap().now < time {
            self.pause(time);
        }
    }

    /// Waits for a moment, or an interrupt before it.
    pub fn pause(&mut self, time: u64) {
        let clock = self.clock.as_mut().unwrap();
        clock.ask(2, time);
        clock.ask(3, u64::MAX);
        while !self.wait_for_any()[1] {}
        let clock = self.clock.as_mut().unwrap();
        let (op, number, now) = clock.receive();
        assert_eq!(op, 6);
        assert!(now >= clock.now && now <= time, "{now} instead of {time}");
        clock.now = now;
        clock.send(0, number, 0);
    }

    /// The next interrupt.
    pub fn interrupt(&mut self) -> Msi {
        loop {
            if let Some(msi) = self.msis.pop_front() {
                return msi;
            }
            match &self.clock {
                Some(clock) => {
                    let patience = clock.now + 1_000_000_000;
                    self.pause(patience);
                    let now = self.clock.as_ref().unwrap().now;
                    assert!(now < patience || !self.msis.is_empty(), "no interrupt");
                }
                None => drop(self.wait_for_any()),
            }
        }
    }

    pub fn put(&self, at: u64, data: &[u8]) {
        self.memory.write_all_at(data, at).unwrap();
    }

    pub fn take(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.memory.read_exact_at(&mut data, at).unwrap();
        data
    }

    /// Loads a key of XTS-AES-256 into slot 0, and turns ring 0 on.
    pub fn set_up(&mut self, key: &[u8]) {
        for (register, word) in (REG_KEY_DATA..).step_by(4).zip(key.as_chunks().0) {
            self.write(register, u32::from_le_bytes(*word));
        }
        let command = u32::from(CIPHER_XTS) << KEY_CMD_CIPHER_LOW
            | 1 << KEY_CMD_KEY_BITS_LOW
            | 1 << KEY_CMD_COMMAND_LOW;
        self.write(REG_KEY_CMD, command);
        while self.read(REG_KEY_STATUS) >> KEY_STATUS_BUSY_LOW & 1 != 0 {}
        assert_eq!(self.read(REG_KEY_SLOTS), 1);
        let low = |place: u64| u32::try_from(BASE + place).unwrap();
        for (register, value) in [
            (RING_SQ_LO, low(super::SQ)),
            (RING_SQ_HI, 0),
            (RING_CQ_LO, low(super::CQ)),
            (RING_CQ_HI, 0),
            (RING_SIZE, LOG_RING),
            (RING_CONTROL, 1),
        ] {
            self.write(RINGS_OFFSET + register, value);
        }
        self.write(REG_INT_SET, 1 | 1 << INT_STATUS_FAULT_LOW);
        self.write(REG_CTRL, 1);
    }

    /// Submits a request, and rings the doorbell.
    pub fn submit(&mut self, submission: &Submission) {
        let index = u64::from(self.tail) % (1 << LOG_RING);
        self.put(super::SQ + index * SQE_BYTES as u64, &submission.bytes());
        self.tail = self.tail.wrapping_add(1);
        self.write(RINGS_OFFSET + RING_TAIL, self.tail.into());
    }

    /// The next completion, if it is there.
    pub fn completed(&mut self) -> Option<Completion> {
        let index = u64::from(self.head) % (1 << LOG_RING);
        let bytes = self.take(super::CQ + index * CQE_BYTES as u64, CQE_BYTES);
        if u16::from(bytes[CQE_PHASE]) == self.head >> LOG_RING & 1 {
            return None;
        }
        self.head = self.head.wrapping_add(1);
        self.write(RINGS_OFFSET + RING_CQ_HEAD, self.head.into());
        Some(Completion::of(&bytes))
    }
}

/// Where a queue is, as a message has it.
pub fn places(queue: u32) -> Vec<u8> {
    let place = |part: u64| OWN + QUEUES[queue as usize] + part;
    let mut bytes = words([queue, 0]);
    for place in [place(PARTS[0]), place(PARTS[2]), place(PARTS[1]), u64::MAX] {
        bytes.extend_from_slice(&place.to_le_bytes());
    }
    bytes
}

/// A file that is none for memory, or a socket.
pub fn pipe() -> OwnedFd {
    std::io::pipe().unwrap().1.into()
}
