//! One front-end's time: what it says of its memory and rings.

mod memory;
mod rings;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, PoisonError};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::config::{self, VHOST_F_LOG_ALL};
use super::dirty::Dirty;
use super::guest::Guest;
use super::inflight::Inflight;
use super::message::{self, Broken, Message, Reply};
use super::work::Work;
use rings::Setup;

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const RESET_OWNER: u32 = 4;
const SET_MEM_TABLE: u32 = 5;
const SET_LOG_BASE: u32 = 6;
const SET_LOG_FD: u32 = 7;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const GET_QUEUE_NUM: u32 = 17;
const SET_VRING_ENABLE: u32 = 18;
const SET_BACKEND_REQ_FD: u32 = 21;
const GET_CONFIG: u32 = 24;
const SET_CONFIG: u32 = 25;
const GET_INFLIGHT_FD: u32 = 31;
const SET_INFLIGHT_FD: u32 = 32;
const RESET_DEVICE: u32 = 34;

/// `MQ`, `LOG_SHMFD`, `REPLY_ACK`, `BACKEND_REQ`, `CONFIG`, `INFLIGHT_SHMFD`, `RESET_DEVICE`.
const PROTOCOL_FEATURES: u64 = 1 << 0 | LOG_SHMFD | REPLY_ACK | 1 << 5 | 1 << 9 | 1 << 12 | 1 << 13;
const LOG_SHMFD: u64 = 1 << 1;
const REPLY_ACK: u64 = 1 << 3;
/// Of a ring's flags: writes to the used ring go into the log.
const VHOST_VRING_F_LOG: u32 = 1;
/// Longest part of the configuration space that is asked for.
const LONGEST_CONFIG: usize = 256;

/// What a front-end has said, and the rings that are served for it.
pub(super) struct Session {
    work: Arc<Work>,
    /// Rings that the guest may have.
    queues: u16,
    features: u64,
    protocol_features: u64,
    /// Where the front-end is told of changes.
    channel: Option<UnixStream>,
    /// Bytes of the disk, as far as the front-end knows; none before it has asked.
    size: Option<u64>,
    guest: Option<Arc<Guest>>,
    /// Pages of it that were written.
    dirty: Arc<Dirty>,
    inflight: Option<Arc<Inflight>>,
    rings: Vec<Setup>,
    /// Its rings may be served: no other front-end's are.
    has_disk: bool,
    /// The log says that it waits for the disk.
    has_complained: bool,
}

impl Session {
    pub(super) fn new(work: Arc<Work>, queues: u16) -> Self {
        Self {
            size: None,
            work,
            queues,
            features: 0,
            protocol_features: 0,
            channel: None,
            guest: None,
            dirty: Arc::default(),
            inflight: None,
            rings: (0..queues).map(|_| Setup::default()).collect(),
            has_disk: false,
            has_complained: false,
        }
    }

    /// Whether its rings may be served.
    pub(super) fn has_disk(&self) -> bool {
        self.has_disk
    }

    /// Whether it has rings that would be served if it had the disk.
    pub(super) fn wants_disk(&self) -> bool {
        (0..self.rings.len()).any(|index| self.plan(index).is_some())
    }

    /// Serves its rings from now on.
    pub(super) fn take_disk(&mut self) {
        self.has_disk = true;
        self.start_all();
    }

    /// Gives the disk away if it is not to have it any more: its guest has moved. That is the one
    /// reason for which a front-end stops all rings while it keeps a log, but for a guest that starts
    /// anew just then. One that starts anew otherwise keeps its disk.
    pub(super) fn let_go(&mut self) {
        if self.keeps_log() && !self.rings.iter().any(|ring| self.is_on(ring)) {
            self.has_disk = false;
        }
    }

    /// Has the log say that another one has the disk.
    pub(super) fn complain(&mut self) {
        if !std::mem::replace(&mut self.has_complained, true) {
            tracing::warn!(
                "a virtual machine waits for the disk: another one has it, and has neither left nor moved"
            );
        }
    }

    /// Tells the front-end if the disk has grown; one whose rings are not served when they are, since QEMU
    /// does not listen before.
    pub(super) fn look_at_size(&mut self) {
        let size = self.work.carrier.volume().size();
        if self.size == Some(size) || !self.is_served() {
            return;
        }
        let Some(channel) = &self.channel else {
            tracing::info!(
                size,
                "the virtual machine cannot be told of a disk that has grown"
            );
            return;
        };
        tracing::info!(size, "the virtual machine is told that its disk has grown");
        match message::tell_of_change(channel) {
            Ok(()) => self.size = Some(size),
            Err(error) => tracing::warn!(%error, "the virtual machine was not told"),
        }
    }

    /// Does what a message says, and answers it. The end of the session if it cannot be answered.
    pub(super) fn hear(&mut self, message: Message, socket: &UnixStream) -> io::Result<()> {
        let (request, needs_reply) = (message.request, message.needs_reply);
        let done = self.carry_out(message);
        if let Err(why) = done {
            tracing::warn!(request, why, "a virtual machine's wish is refused");
        }
        let wants = needs_reply && self.protocol_features & REPLY_ACK != 0
            || request == SET_LOG_BASE && self.protocol_features & LOG_SHMFD != 0;
        match done {
            Ok(Some(reply)) => message::reply(socket, request, &reply),
            Ok(None) if wants => message::reply(socket, request, &Reply::long(0)),
            Err(_) if wants => message::reply(socket, request, &Reply::long(1)),
            Ok(None) => Ok(()),
            Err(why) => match request {
                // What it waits for will not come.
                GET_FEATURES
                | GET_PROTOCOL_FEATURES
                | GET_QUEUE_NUM
                | GET_VRING_BASE
                | GET_CONFIG
                | GET_INFLIGHT_FD => Err(io::Error::other(why)),
                _ => Ok(()),
            },
        }
    }

    fn carry_out(&mut self, mut message: Message) -> Result<Option<Reply>, Broken> {
        let long = |value: u64| Ok(Some(Reply::long(value)));
        match message.request {
            SET_OWNER => {}
            RESET_OWNER | RESET_DEVICE => self.reset(),
            GET_FEATURES => return long(config::features(self.work.carrier.volume())),
            SET_FEATURES => self.set_features(message.longs::<1>(0)?[0])?,
            GET_PROTOCOL_FEATURES => return long(PROTOCOL_FEATURES),
            SET_PROTOCOL_FEATURES => {
                self.protocol_features = message.longs::<1>(0)?[0] & PROTOCOL_FEATURES;
                // Whether a log is kept is said by both.
                self.dirty.keep(self.keeps_log());
                self.start_all();
            }
            GET_QUEUE_NUM => return long(self.queues.into()),
            SET_MEM_TABLE => self.set_memory(&mut message)?,
            SET_LOG_BASE => self.set_log(&mut message)?,
            SET_LOG_FD => {
                let event = message.files.pop().map(unblocked);
                self.dirty.set_event(event.transpose()?);
            }
            SET_VRING_NUM => {
                let [index, entries] = message.words(0)?;
                self.set_entries(index, entries)?;
            }
            SET_VRING_ADDR => {
                let [index, flags] = message.words(0)?;
                let [descriptors, used, available, log] = message.longs(8)?;
                let used_in_log = (flags & VHOST_VRING_F_LOG != 0).then_some(log);
                self.set_places(index, [descriptors, used, available], used_in_log)?;
            }
            SET_VRING_BASE => {
                let [index, base] = message.words(0)?;
                let next = u16::try_from(base).map_err(|_| "no index of a ring")?;
                let ring = self.ring(index)?;
                Self::stop(ring);
                ring.next = next;
            }
            GET_VRING_BASE => return self.take_base(&message).map(Some),
            SET_VRING_KICK => {
                let (index, event) = event(&mut message)?;
                // Without one the ring would have to be looked at all the time.
                let kick = event.ok_or("rings without an event are not served")?;
                let ring = self.ring(index)?;
                Self::stop(ring);
                ring.kick = Some(kick);
                self.start(index as usize);
            }
            SET_VRING_CALL => {
                let (index, event) = event(&mut message)?;
                let ring = self.ring(index)?;
                let mut call = ring.call.lock().unwrap_or_else(PoisonError::into_inner);
                *call = event;
                if let (Some(event), Some(_)) = (&*call, &ring.served) {
                    // What was given back before was told to the one before. Once this one is stored:
                    // what is given back in between would be told to that one alone.
                    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
                }
            }
            SET_VRING_ERR => {
                let (index, _) = event(&mut message)?;
                self.ring(index)?;
            }
            SET_VRING_ENABLE => {
                let [index, enable] = message.words(0)?;
                let ring = self.ring(index)?;
                ring.is_enabled = enable != 0;
                match ring.is_enabled {
                    true => self.start(index as usize),
                    false => Self::stop(ring),
                }
            }
            SET_BACKEND_REQ_FD => self.set_channel(&mut message)?,
            GET_CONFIG => return self.config(&message).map(Some),
            // The one thing to be set is the cache's mode, which is not offered.
            SET_CONFIG => return Err("nothing of the disk can be set"),
            GET_INFLIGHT_FD => return self.make_inflight(&message).map(Some),
            SET_INFLIGHT_FD => self.set_inflight(&mut message)?,
            _ => return Err("the request is not known"),
        }
        Ok(None)
    }

    fn reset(&mut self) {
        self.stop_all();
        for ring in &mut self.rings {
            *ring = Setup::default();
        }
        self.features = 0;
        self.dirty.keep(false);
    }

    fn set_features(&mut self, features: u64) -> Result<(), Broken> {
        if features & !config::features(self.work.carrier.volume()) != 0 {
            return Err("features that were not offered");
        }
        // The log begins and ends while the rings are served.
        if (features ^ self.features) & !VHOST_F_LOG_ALL != 0 {
            self.stop_all();
        }
        self.features = features;
        self.dirty.keep(self.keeps_log());
        self.start_all();
        Ok(())
    }

    fn set_channel(&mut self, message: &mut Message) -> Result<(), Broken> {
        let file = message.files.pop();
        let file = file.ok_or("a channel without a descriptor")?;
        let channel = UnixStream::from(OwnedFd::from(file));
        // A front-end that does not read is not waited for.
        channel
            .set_nonblocking(true)
            .map_err(|_| "a channel that is no socket")?;
        self.channel = Some(channel);
        Ok(())
    }

    /// What is beyond what this device has is zeros: front-ends ask for all that they know.
    fn config(&mut self, message: &Message) -> Result<Reply, Broken> {
        let words: [u32; 3] = message.words(0)?;
        let (offset, size) = (words[0] as usize, words[1] as usize);
        if offset > LONGEST_CONFIG || size > LONGEST_CONFIG {
            return Err("more than a configuration space");
        }
        self.size = Some(self.work.carrier.volume().size());
        let space = config::space(self.work.carrier.volume(), self.queues);
        let bytes = space.into_iter().chain(std::iter::repeat(0));
        let mut body = words.map(u32::to_le_bytes).concat();
        body.extend(bytes.skip(offset).take(size));
        Ok(Reply { body, file: None })
    }
}

/// The ring that an event is for, and the event, which nothing waits for from now on.
fn event(message: &mut Message) -> Result<(u32, Option<File>), Broken> {
    const NONE: u64 = 1 << 8;
    let [word] = message.longs(0)?;
    #[expect(clippy::cast_possible_truncation, reason = "its lowest byte")]
    let index = word as u8;
    if word & NONE != 0 {
        return Ok((index.into(), None));
    }
    let file = message.files.pop().ok_or("an event without a descriptor")?;
    Ok((index.into(), Some(unblocked(file)?)))
}

/// An event that nothing waits for.
fn unblocked(file: File) -> Result<File, Broken> {
    let flags = fcntl_getfl(&file).map_err(|_| "an event that is none")?;
    fcntl_setfl(&file, flags | OFlags::NONBLOCK).map_err(|_| "an event that is none")?;
    Ok(file)
}
