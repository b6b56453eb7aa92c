//! Messages of the vhost-user protocol, one after the other on a Unix socket: a header of request,
//! flags and length, what it says, and descriptors. The specification is QEMU's
//! `docs/interop/vhost-user.rst`.
//!
//! Of our own, since the crate `vhost` takes no memory table that is longer than its regions, as
//! Linux' own front-end (`virtio_uml`) sends it, and cannot tell a front-end that a disk has grown.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

pub(super) const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
pub(super) const NEED_REPLY: u32 = 1 << 3;
const HEADER: usize = 12;
/// Longest message: a configuration space, or eight regions of memory, and more.
const LONGEST: usize = 1024;
/// Most descriptors of a message.
pub(super) const MOST_FILES: usize = 8;

/// What a front-end says.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) request: u32,
    /// It wants to know whether that was done.
    pub(super) needs_reply: bool,
    pub(super) body: Vec<u8>,
    pub(super) files: Vec<File>,
}

/// What was wrong.
pub(super) type Broken = &'static str;

impl Message {
    /// The body, as so many words of 4 bytes from an offset on.
    pub(super) fn words<const N: usize>(&self, from: usize) -> Result<[u32; N], Broken> {
        let bytes = self.body.get(from..from + 4 * N);
        let (words, _) = bytes.ok_or("a message is too short")?.as_chunks::<4>();
        Ok(std::array::from_fn(|i| u32::from_le_bytes(words[i])))
    }

    /// As [`Message::words`], of 8 bytes.
    pub(super) fn longs<const N: usize>(&self, from: usize) -> Result<[u64; N], Broken> {
        let bytes = self.body.get(from..from + 8 * N);
        let (longs, _) = bytes.ok_or("a message is too short")?.as_chunks::<8>();
        Ok(std::array::from_fn(|i| u64::from_le_bytes(longs[i])))
    }
}

/// Reads the next message, all of which has to be there within the time; none at the end.
pub(super) fn receive(socket: &UnixStream, time: Duration) -> io::Result<Option<Message>> {
    let mut header = [0; HEADER];
    let mut files = Vec::new();
    let until = Instant::now() + time;
    if !fill(socket, &mut header, &mut files, until)? {
        return Ok(None);
    }
    let (words, _) = header.as_chunks::<4>();
    let [request, flags, length] = std::array::from_fn(|i| u32::from_le_bytes(words[i]));
    let broken = |why| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    if flags & 3 != VERSION {
        return broken("a message of another version");
    }
    let length = length as usize;
    if length > LONGEST {
        return broken("a message is too long");
    }
    let mut body = vec![0; length];
    if !fill(socket, &mut body, &mut files, until)? {
        return broken("a message has no end");
    }
    Ok(Some(Message {
        request,
        needs_reply: flags & NEED_REPLY != 0,
        body,
        files,
    }))
}

/// Fills the buffer; false at an end before its first byte.
fn fill(
    socket: &UnixStream,
    mut buf: &mut [u8],
    files: &mut Vec<File>,
    until: Instant,
) -> io::Result<bool> {
    let mut is_first = true;
    while !buf.is_empty() {
        // Not zero, which would be "without limit".
        let left = until.saturating_duration_since(Instant::now());
        socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            socket,
            &mut [IoSliceMut::new(buf)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        );
        let received = match received {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?.bytes,
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                files.extend(fds.map(File::from));
            }
        }
        if files.len() > MOST_FILES {
            return Err(io::Error::other("a message has too many descriptors"));
        }
        match received {
            0 if is_first => return Ok(false),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
        is_first = false;
        buf = &mut buf[received..];
    }
    Ok(true)
}

/// What is answered.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) body: Vec<u8>,
    pub(super) file: Option<OwnedFd>,
}

impl Reply {
    pub(super) fn long(value: u64) -> Self {
        Self {
            body: value.to_le_bytes().to_vec(),
            file: None,
        }
    }
}

/// Answers a request.
pub(super) fn reply(socket: &UnixStream, request: u32, reply: &Reply) -> io::Result<()> {
    send(socket, request, VERSION | REPLY, reply)
}

/// Tells a front-end, on the channel that it has given for that, that the configuration space has
/// changed.
pub(super) fn tell_of_change(socket: &UnixStream) -> io::Result<()> {
    const CONFIG_CHANGE_MSG: u32 = 2;
    send(socket, CONFIG_CHANGE_MSG, VERSION, &Reply::default())
}

/// Says anything.
pub(super) fn send(socket: &UnixStream, request: u32, flags: u32, reply: &Reply) -> io::Result<()> {
    let length = u32::try_from(reply.body.len()).map_err(io::Error::other)?;
    let mut bytes = [request, flags, length].map(u32::to_le_bytes).concat();
    bytes.extend(&reply.body);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = reply.file.iter().map(AsFd::as_fd).collect();
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    // Far less than a socket takes at a time.
    let sent = sendmsg(
        socket,
        &[IoSlice::new(&bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    match sent == bytes.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}
