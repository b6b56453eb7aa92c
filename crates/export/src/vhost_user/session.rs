//! One front-end's time: what it says of its memory and rings.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, PoisonError};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use xtent_store::chain;

use super::config::{
    self, MOST_ENTRIES, VHOST_USER_F_PROTOCOL_FEATURES, VIRTIO_BLK_F_FLUSH, VIRTIO_RING_F_EVENT_IDX,
};
use super::guest::{Guest, Region};
use super::inflight::{self, Inflight};
use super::message::{self, Broken, Message, Reply};
use super::ring::{Call, Layout, Ring};
use super::work::Work;

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const RESET_OWNER: u32 = 4;
const SET_MEM_TABLE: u32 = 5;
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

/// `MQ`, `REPLY_ACK`, `BACKEND_REQ`, `CONFIG`, `INFLIGHT_SHMFD`, `RESET_DEVICE`.
const PROTOCOL_FEATURES: u64 = 1 << 0 | REPLY_ACK | 1 << 5 | 1 << 9 | 1 << 12 | 1 << 13;
const REPLY_ACK: u64 = 1 << 3;
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
    inflight: Option<Arc<Inflight>>,
    rings: Vec<Setup>,
}

/// A ring, as far as it is known.
#[derive(Default)]
struct Setup {
    entries: u16,
    /// Descriptors, used, available: the front-end's addresses.
    places: Option<[u64; 3]>,
    next: u16,
    kick: Option<File>,
    call: Call,
    is_enabled: bool,
    served: Option<Ring>,
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
            inflight: None,
            rings: (0..queues).map(|_| Setup::default()).collect(),
        }
    }

    fn ring(&mut self, index: u32) -> Result<&mut Setup, Broken> {
        let ring = self.rings.get_mut(index as usize);
        ring.ok_or("there is no such ring")
    }

    /// Tells the front-end if the disk has grown.
    pub(super) fn look_at_size(&mut self) {
        let size = self.work.carrier.volume().size();
        if self.size == Some(size) {
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
        let wants = needs_reply && self.protocol_features & REPLY_ACK != 0;
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
            }
            GET_QUEUE_NUM => return long(self.queues.into()),
            SET_MEM_TABLE => self.set_memory(&mut message)?,
            SET_VRING_NUM => {
                let [index, entries] = message.words(0)?;
                self.set_entries(index, entries)?;
            }
            SET_VRING_ADDR => {
                let [index, _] = message.words(0)?;
                // Descriptors, used, available; the log's is not used.
                self.set_places(index, message.longs(8)?)?;
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
                if let (Some(event), Some(_)) = (&event, &ring.served) {
                    // What was given back before was told to the one before.
                    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
                }
                *ring.call.lock().unwrap_or_else(PoisonError::into_inner) = event;
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
    }

    fn set_features(&mut self, features: u64) -> Result<(), Broken> {
        if features & !config::features(self.work.carrier.volume()) != 0 {
            return Err("features that were not offered");
        }
        if features != self.features {
            self.stop_all();
            self.features = features;
            self.start_all();
        }
        Ok(())
    }

    /// The whole of the guest's memory. Room for more regions than there are is ignored, since
    /// Linux' `virtio_uml` sends it.
    fn set_memory(&mut self, message: &mut Message) -> Result<(), Broken> {
        let [count, _] = message.words(0)?;
        let count = count as usize;
        if count == 0 || count > message::MOST_FILES {
            return Err("no number of regions");
        }
        let mut regions = Vec::new();
        for index in 0..count {
            let [guest, size, user, start] = message.longs(8 + 32 * index)?;
            regions.push((Region { user, guest, size }, start));
        }
        let files = std::mem::take(&mut message.files);
        let guest = Guest::new(regions, files).map_err(|bad| {
            tracing::warn!(why = bad.0, "memory");
            "the guest's memory cannot be had"
        })?;
        self.stop_all();
        self.guest = Some(Arc::new(guest));
        self.start_all();
        Ok(())
    }

    fn set_entries(&mut self, index: u32, entries: u32) -> Result<(), Broken> {
        let entries = u16::try_from(entries).ok();
        let entries = entries.filter(|it| it.is_power_of_two() && *it <= MOST_ENTRIES);
        let ring = self.ring(index)?;
        Self::stop(ring);
        ring.entries = entries.ok_or("a ring has a power of two of entries, 1024 at most")?;
        Ok(())
    }

    fn set_places(&mut self, index: u32, places: [u64; 3]) -> Result<(), Broken> {
        let ring = self.ring(index)?;
        if ring.places != Some(places) {
            Self::stop(ring);
            ring.places = Some(places);
        }
        self.start(index as usize);
        Ok(())
    }

    /// Stops a ring, and says where it stands.
    fn take_base(&mut self, message: &Message) -> Result<Reply, Broken> {
        let [index, _] = message.words(0)?;
        let ring = self.ring(index)?;
        Self::stop(ring);
        // It is served again when it gets a new event.
        ring.kick = None;
        let words = [index, ring.next.into()];
        Ok(Reply {
            body: words.map(u32::to_le_bytes).concat(),
            file: None,
        })
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

    fn make_inflight(&self, message: &Message) -> Result<Reply, Broken> {
        let (rings, entries) = self.inflight_of(message)?;
        let file = inflight::create(rings, entries).map_err(|error| {
            tracing::warn!(%error, "inflight");
            "no memory for what is under way"
        })?;
        let length = inflight::length(rings, entries);
        let mut body = [length, 0].map(u64::to_le_bytes).concat();
        body.extend([rings, entries].map(u16::to_le_bytes).concat());
        body.extend([0; 4]);
        Ok(Reply {
            body,
            file: Some(file.into()),
        })
    }

    /// Rings and entries that memory is asked for.
    fn inflight_of(&self, message: &Message) -> Result<(u16, u16), Broken> {
        let [both] = message.words(16)?;
        let bytes = both.to_le_bytes();
        let rings = u16::from_le_bytes([bytes[0], bytes[1]]);
        let entries = u16::from_le_bytes([bytes[2], bytes[3]]);
        match rings > 0 && rings <= self.queues && entries > 0 && entries <= MOST_ENTRIES {
            true => Ok((rings, entries)),
            false => Err("no number of rings and entries"),
        }
    }

    fn set_inflight(&mut self, message: &mut Message) -> Result<(), Broken> {
        let (rings, entries) = self.inflight_of(message)?;
        let [_, start] = message.longs(0)?;
        let file = message.files.pop();
        let file = file.ok_or("memory without a descriptor")?;
        let inflight = Inflight::new(file, start, rings, entries).map_err(|error| {
            tracing::warn!(%error, "inflight");
            "the memory for what is under way cannot be had"
        })?;
        self.stop_all();
        self.inflight = Some(Arc::new(inflight));
        self.start_all();
        Ok(())
    }

    /// Stops a ring, once what is under way has ended.
    fn stop(ring: &mut Setup) {
        if let Some(served) = ring.served.take() {
            ring.next = served.stop();
        }
    }

    /// Stops all of them.
    pub(super) fn stop_all(&mut self) {
        let served = self.rings.iter().filter_map(|ring| ring.served.as_ref());
        served.for_each(Ring::begin_to_stop);
        self.rings.iter_mut().for_each(Self::stop);
    }

    /// Serves each ring of which all is known that is needed.
    fn start_all(&mut self) {
        (0..self.rings.len()).for_each(|index| self.start(index));
    }

    fn start(&mut self, index: usize) {
        let Some(guest) = self.guest.clone() else {
            return;
        };
        // Without the features of the protocol a ring is enabled from the start.
        let is_enabled = self.features & VHOST_USER_F_PROTOCOL_FEATURES == 0;
        let Some(ring) = self.rings.get_mut(index) else {
            return;
        };
        if ring.served.is_some() || ring.entries == 0 || !(is_enabled || ring.is_enabled) {
            return;
        }
        let (Some(places), Some(kick)) = (ring.places, &ring.kick) else {
            return;
        };
        let (Some(descriptors), Some(used), Some(available), Ok(kick)) = (
            guest.place(places[0]),
            guest.place(places[1]),
            guest.place(places[2]),
            kick.try_clone(),
        ) else {
            tracing::warn!(ring = index, "the guest's ring is in no memory of its");
            return;
        };
        let layout = Layout {
            entries: ring.entries,
            descriptors,
            available,
            used,
            next: ring.next,
            has_event_index: self.features & VIRTIO_RING_F_EVENT_IDX != 0,
            // 5.2.6.2
            writes_through: self.features & VIRTIO_BLK_F_FLUSH == 0,
        };
        let inflight = self.inflight.as_ref();
        let kept = inflight.and_then(|all| all.ring(index, ring.entries));
        if inflight.is_some() && kept.is_none() {
            tracing::warn!(
                ring = index,
                "what is under way is not kept: there is no room for it"
            );
        }
        let (call, work) = (Arc::clone(&ring.call), Arc::clone(&self.work));
        let name = format!("vhost-{index}");
        match Ring::start(name, &layout, guest, kick, call, kept, work) {
            Ok(served) => {
                ring.served = Some(served);
                if self.size.is_none() {
                    // One that knows the disk from before does not ask again.
                    self.look_at_size();
                }
            }
            Err(error) => tracing::warn!(ring = index, error = %chain(&error), "not served"),
        }
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
    let flags = fcntl_getfl(&file).map_err(|_| "an event that is none")?;
    fcntl_setfl(&file, flags | OFlags::NONBLOCK).map_err(|_| "an event that is none")?;
    Ok((index.into(), Some(file)))
}
