//! The vhost-user protocol, of which a device for User Mode Linux needs little: messages on a
//! socket, the client's memory, and where its two queues are. Whatever is not in order ends the
//! connection.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg,
};

use crate::calendar::Calendar;
use crate::mappings::Mappings;
use crate::virtqueue::Queue;

/// Bytes of a message's body at most.
const MOST: usize = 4096;
/// Files that come with a message at most.
const FILES: usize = 8;
/// Regions of memory at most.
const REGIONS: usize = 8;
const HEADER: usize = 12;

// Flags of a message.
const VERSION: u32 = 1;
const REPLY: u32 = 4;
const NEED_REPLY: u32 = 8;

/// `VIRTIO_F_VERSION_1`, and that there are protocol features.
const FEATURES: u64 = 1 << 32 | 1 << 30;
/// `REPLY_ACK`, `BACKEND_REQ`, `INBAND_NOTIFICATIONS`: User Mode Linux needs all of them for time that is
/// simulated, and has them always.
const PROTOCOL_FEATURES: u64 = 1 << 3 | 1 << 5 | 1 << 14;
/// Set in the number of a queue: there is no file.
const NO_FILE: u64 = 1 << 8;
/// The request of the device to the driver: look at a queue.
const VRING_CALL: u32 = 4;

/// What a message was about, as far as others have to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// There may be something in this queue.
    Kick(usize),
    /// The memory is another.
    Memory,
    /// Nothing else.
    None,
}

/// A client's connection.
#[derive(Debug)]
pub struct Session {
    stream: UnixStream,
    /// Where the device's requests go.
    requests: Option<UnixStream>,
    protocol_features: u64,
    regions: Vec<Region>,
    memory: Arc<Mappings>,
    /// Commands, and interrupts.
    pub queues: [Queue; 2],
    /// Calls that did not fit into the socket of requests.
    calls: VecDeque<usize>,
    /// To be answered when its event is dealt with.
    acknowledge: Option<u32>,
}

/// The client's memory has addresses of its guest, which the device uses, and of itself, which say where
/// queues are.
#[derive(Clone, Copy, Debug)]
struct Region {
    guest: u64,
    size: u64,
    own: u64,
}

#[derive(Debug)]
struct Message {
    request: u32,
    flags: u32,
    body: Vec<u8>,
    files: Vec<File>,
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text.into())
}

impl Session {
    /// A client that has just connected, whose memory goes into these mappings.
    pub fn new(stream: UnixStream, memory: Arc<Mappings>) -> Self {
        Self {
            stream,
            requests: None,
            protocol_features: 0,
            regions: Vec::new(),
            memory,
            queues: [Queue::default(), Queue::default()],
            calls: VecDeque::new(),
            acknowledge: None,
        }
    }

    /// What to wait for messages on.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// What to wait for room on, if calls did not fit.
    pub fn blocked(&self) -> Option<&UnixStream> {
        self.requests.as_ref().filter(|_| !self.calls.is_empty())
    }

    /// Receives a message and does what it says; `None` at the end of the connection. After the event,
    /// [`Session::done`].
    ///
    /// # Errors
    /// The message is not in order, or the socket fails.
    pub fn receive(&mut self) -> io::Result<Option<Event>> {
        let Some(message) = read(&mut self.stream)? else {
            return Ok(None);
        };
        self.acknowledge = None;
        let (answered, event) = self.handle(&message)?;
        if !answered && message.flags & NEED_REPLY != 0 {
            self.acknowledge = Some(message.request);
        }
        Ok(Some(event))
    }

    /// Answers the message, if nobody has.
    ///
    /// # Errors
    /// The socket's.
    pub fn done(&mut self) -> io::Result<()> {
        match self.acknowledge.take() {
            Some(request) => self.reply(request, &0_u64.to_le_bytes()),
            None => Ok(()),
        }
    }

    fn reply(&mut self, request: u32, body: &[u8]) -> io::Result<()> {
        self.stream
            .write_all(&message(request, VERSION | REPLY, body))
    }

    /// Whether it is answered, and what others have to know.
    fn handle(&mut self, message: &Message) -> io::Result<(bool, Event)> {
        let body = Body(&message.body);
        let request = message.request;
        // GET_ and SET_FEATURES, OWNER, MEM_TABLE, VRING_NUM, _ADDR, _BASE, ...
        match request {
            1 => self.reply(request, &FEATURES.to_le_bytes())?,
            15 => self.reply(request, &PROTOCOL_FEATURES.to_le_bytes())?,
            17 => self.reply(request, &2_u64.to_le_bytes())?,
            2 if body.long(0)? & !FEATURES != 0 => {
                return Err(invalid("it wants features that were not offered"));
            }
            16 => {
                self.protocol_features = body.long(0)?;
                if self.protocol_features & !PROTOCOL_FEATURES != 0 {
                    return Err(invalid("it wants protocol features that were not offered"));
                }
            }
            // It owns the device, and nobody else does anyway.
            2..=4 => {}
            5 => {
                self.set_memory(body, &message.files)?;
                return Ok((false, Event::Memory));
            }
            8 => {
                let size = body.word(4)?;
                self.queue(body)?.1.set_size(size).map_err(invalid)?;
            }
            9 => self.set_places(body)?,
            10 => {
                let base = body.word(4)?;
                self.queue(body)?.1.set_base(base).map_err(invalid)?;
            }
            11 => {
                let (index, queue) = self.queue(body)?;
                queue.enabled = false;
                let state = [index, queue.base().into()].map(u32::to_le_bytes);
                self.reply(request, state.as_flattened())?;
            }
            // KICK, CALL: not by a file; ERR is of no use.
            12 | 13 if body.long(0)? & NO_FILE != 0 => {}
            12 | 13 => return Err(invalid("a queue with files for its notifications")),
            14 => {}
            // VRING_ENABLE
            18 => {
                if self.protocol_features != PROTOCOL_FEATURES || self.requests.is_none() {
                    return Err(invalid(
                        "it lacks REPLY_ACK, BACKEND_REQ or INBAND_NOTIFICATIONS",
                    ));
                }
                let enabled = body.word(4)? != 0;
                let (index, queue) = self.queue(body)?;
                queue.enabled = enabled;
                return Ok((false, Event::Kick(index as usize)));
            }
            21 => {
                let file = one(&message.files)?;
                self.requests = Some(UnixStream::from(std::os::fd::OwnedFd::from(file)));
            }
            // VRING_KICK
            35 => {
                let (index, _) = self.queue(body)?;
                return Ok((false, Event::Kick(index as usize)));
            }
            _ => return Err(invalid(format!("a message of kind {request}"))),
        }
        Ok((matches!(request, 1 | 11 | 15 | 17), Event::None))
    }

    fn queue(&mut self, body: Body<'_>) -> io::Result<(u32, &mut Queue)> {
        let index = body.word(0)?;
        match self.queues.get_mut(index as usize) {
            Some(queue) => Ok((index, queue)),
            None => Err(invalid(format!("there is no queue {index}"))),
        }
    }

    fn set_memory(&mut self, body: Body<'_>, files: &[File]) -> io::Result<()> {
        let count = body.word(0)? as usize;
        if count > REGIONS || count != files.len() {
            return Err(invalid(
                "regions of memory: too many, or not a file for each",
            ));
        }
        self.memory.clear();
        self.regions.clear();
        for (file, at) in files.iter().zip((8..).step_by(32)) {
            let [guest, size, own, offset] = [0, 8, 16, 24].map(|field| body.long(at + field));
            let (guest, size, own) = (guest?, size?, own?);
            let file = file.try_clone()?;
            self.memory
                .add(guest, size, offset?, Some(file), (true, true))?;
            self.regions.push(Region { guest, size, own });
        }
        Ok(())
    }

    fn set_places(&mut self, body: Body<'_>) -> io::Result<()> {
        let [descriptors, used, available] = [8, 16, 24].map(|at| self.guest(body.long(at)?));
        let (descriptors, used, available) = (descriptors?, used?, available?);
        self.queue(body)?
            .1
            .set_places(descriptors, available, used)
            .map_err(invalid)
    }

    /// The guest's address for one of the client's own.
    fn guest(&self, own: u64) -> io::Result<u64> {
        let find = |region: &Region| {
            let offset = own.checked_sub(region.own)?;
            (offset < region.size).then(|| region.guest + offset)
        };
        self.regions
            .iter()
            .find_map(find)
            .ok_or_else(|| invalid("a queue outside of the memory that was shown"))
    }

    /// Tells the driver to look at a queue, without waiting for it.
    ///
    /// # Errors
    /// The socket's.
    pub fn call(&mut self, queue: usize) -> io::Result<()> {
        // Those that wait say the same.
        if !self.calls.contains(&queue) {
            self.calls.push_back(queue);
        }
        self.send_calls()
    }

    /// Sends the calls that did not fit, as far as they do now.
    ///
    /// # Errors
    /// The socket's.
    pub fn send_calls(&mut self) -> io::Result<()> {
        let Some(requests) = &self.requests else {
            return Ok(());
        };
        while let Some(&queue) = self.calls.front() {
            let bytes = call(queue, 0);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(requests, &bytes, flags) {
                Ok(sent) if sent == bytes.len() => drop(self.calls.pop_front()),
                Err(rustix::io::Errno::AGAIN) => break,
                Ok(_) => return Err(invalid("half a request was sent")),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Tells the driver to look at a queue, and waits until it has taken note: meanwhile it asks for the
    /// time.
    ///
    /// # Errors
    /// It does not take note, or a socket fails.
    pub fn call_and_wait(&mut self, queue: usize, calendar: &mut Calendar) -> io::Result<()> {
        let Some(requests) = &mut self.requests else {
            return Ok(());
        };
        requests.write_all(&call(queue, NEED_REPLY))?;
        loop {
            let mut files = [
                PollFd::new(&*requests, PollFlags::IN),
                PollFd::new(calendar.stream(), PollFlags::IN),
            ];
            match poll(&mut files, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [replied, asked] = files.map(|it| !it.revents().is_empty());
            if asked && !calendar.receive()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if replied {
                let mut reply = [0; HEADER + 8];
                requests.read_exact(&mut reply)?;
                let body = Body(&reply);
                let head = [body.word(0)?, body.word(4)?, body.word(8)?];
                if head != [VRING_CALL, VERSION | REPLY, 8] || body.long(HEADER)? != 0 {
                    return Err(invalid("a call to look at a queue is not answered well"));
                }
                return Ok(());
            }
        }
    }
}

/// A request to look at a queue.
fn call(queue: usize, flags: u32) -> Vec<u8> {
    let state = [u32::try_from(queue).unwrap_or(u32::MAX), 0].map(u32::to_le_bytes);
    message(VRING_CALL, VERSION | flags, state.as_flattened())
}

fn message(request: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut bytes = [request, flags, size].map(u32::to_le_bytes).concat();
    bytes.extend_from_slice(body);
    bytes
}

/// The next message; `None` at the end of the connection.
fn read(stream: &mut UnixStream) -> io::Result<Option<Message>> {
    let mut header = [0; HEADER];
    let mut files = Vec::new();
    // Files come with the first byte.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        &*stream,
        &mut [IoSliceMut::new(&mut header)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            files.extend(fds.map(File::from));
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.contains(ReturnFlags::CTRUNC) || files.len() > FILES {
        return Err(invalid("a message with too many files"));
    }
    stream.read_exact(&mut header[received.bytes..])?;
    let header = Body(&header);
    let (request, flags, size) = (header.word(0)?, header.word(4)?, header.word(8)? as usize);
    if flags & !NEED_REPLY != VERSION {
        return Err(invalid(format!("a message with flags {flags:#x}")));
    }
    if size > MOST {
        return Err(invalid(format!("a message of {size} bytes")));
    }
    let mut body = vec![0; size];
    stream.read_exact(&mut body)?;
    Ok(Some(Message {
        request,
        flags,
        body,
        files,
    }))
}

fn one(files: &[File]) -> io::Result<File> {
    match files {
        [file] => file.try_clone(),
        _ => Err(invalid("a message without its file")),
    }
}

/// A message's body: numbers of 4 and 8 bytes at fixed places.
#[derive(Clone, Copy, Debug)]
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn word(self, at: usize) -> io::Result<u32> {
        self.bytes(at).map(u32::from_le_bytes)
    }

    fn long(self, at: usize) -> io::Result<u64> {
        self.bytes(at).map(u64::from_le_bytes)
    }

    fn bytes<const N: usize>(self, at: usize) -> io::Result<[u8; N]> {
        self.0
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .copied()
            .ok_or_else(|| invalid("a message that is too short"))
    }
}
