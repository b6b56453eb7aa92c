//! The rings of a front-end: what is known of each, and whether it is served.

use std::fs::File;
use std::sync::Arc;

use xtent_store::chain;

use super::Session;
use crate::vhost_user::config::{
    MOST_ENTRIES, VHOST_USER_F_PROTOCOL_FEATURES, VIRTIO_BLK_F_FLUSH, VIRTIO_RING_F_EVENT_IDX,
};
use crate::vhost_user::guest::Guest;
use crate::vhost_user::message::{Broken, Message, Reply};
use crate::vhost_user::ring::{Call, Layout, Ring};

/// A ring, as far as it is known.
#[derive(Default)]
pub(super) struct Setup {
    pub(super) entries: u16,
    /// Descriptors, used, available: the front-end's addresses.
    pub(super) places: Option<[u64; 3]>,
    /// Where the log has the used ring, if it has.
    pub(super) used_in_log: Option<u64>,
    pub(super) next: u16,
    pub(super) kick: Option<File>,
    pub(super) call: Call,
    pub(super) is_enabled: bool,
    pub(super) served: Option<Ring>,
}

impl Session {
    pub(super) fn ring(&mut self, index: u32) -> Result<&mut Setup, Broken> {
        let ring = self.rings.get_mut(index as usize);
        ring.ok_or("there is no such ring")
    }

    pub(super) fn set_entries(&mut self, index: u32, entries: u32) -> Result<(), Broken> {
        let entries = u16::try_from(entries).ok();
        let entries = entries.filter(|it| it.is_power_of_two() && *it <= MOST_ENTRIES);
        let ring = self.ring(index)?;
        Self::stop(ring);
        ring.entries = entries.ok_or("a ring has a power of two of entries, 1024 at most")?;
        Ok(())
    }

    pub(super) fn set_places(
        &mut self,
        index: u32,
        places: [u64; 3],
        used_in_log: Option<u64>,
    ) -> Result<(), Broken> {
        let ring = self.ring(index)?;
        if ring.places != Some(places) {
            Self::stop(ring);
            ring.places = Some(places);
        }
        ring.used_in_log = used_in_log;
        if let Some(served) = &ring.served {
            served.log_used_at(used_in_log);
        }
        let is_there = |guest: &Arc<Guest>| places.iter().all(|&at| guest.place(at).is_some());
        if !self.guest.as_ref().is_none_or(is_there) {
            tracing::warn!(ring = index, "the guest's ring is in no memory of its");
        }
        self.start_all();
        Ok(())
    }

    /// Stops a ring, and says where it stands.
    pub(super) fn take_base(&mut self, message: &Message) -> Result<Reply, Broken> {
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

    /// Stops a ring, once what is under way has ended.
    pub(super) fn stop(ring: &mut Setup) {
        if let Some(served) = ring.served.take() {
            ring.next = served.stop();
        }
    }

    /// Stops all of them.
    pub(in crate::vhost_user) fn stop_all(&mut self) {
        let served = self.rings.iter().filter_map(|ring| ring.served.as_ref());
        served.for_each(Ring::begin_to_stop);
        self.rings.iter_mut().for_each(Self::stop);
    }

    /// Serves each ring of which all is known that is needed; none while what it writes could not
    /// be noted in the log, where there is to be one.
    pub(super) fn start_all(&mut self) {
        match self.is_logged() {
            true => (0..self.rings.len()).for_each(|index| self.start(index)),
            false => self.stop_all(),
        }
    }

    /// Whether the front-end wants the ring to be served. Without the features of the protocol a ring
    /// is enabled from the start.
    pub(super) fn is_on(&self, ring: &Setup) -> bool {
        let is_enabled = ring.is_enabled || self.features & VHOST_USER_F_PROTOCOL_FEATURES == 0;
        is_enabled && ring.kick.is_some()
    }

    /// Whether any is served.
    pub(in crate::vhost_user) fn is_served(&self) -> bool {
        self.rings.iter().any(|ring| ring.served.is_some())
    }

    /// How a ring is to be served, if all is known that is needed for it.
    pub(super) fn plan(&self, index: usize) -> Option<(Layout, Arc<Guest>, &File)> {
        let guest = self.guest.as_ref()?;
        let ring = self.rings.get(index)?;
        if ring.served.is_some() || ring.entries == 0 || !self.is_on(ring) || !self.is_logged() {
            return None;
        }
        let ([descriptors, used, available], kick) = (ring.places?, ring.kick.as_ref()?);
        let layout = Layout {
            entries: ring.entries,
            descriptors: guest.place(descriptors)?,
            available: guest.place(available)?,
            used: guest.place(used)?,
            next: ring.next,
            has_event_index: self.features & VIRTIO_RING_F_EVENT_IDX != 0,
            // 5.2.6.2
            writes_through: self.features & VIRTIO_BLK_F_FLUSH == 0,
            used_in_log: ring.used_in_log,
        };
        Some((layout, Arc::clone(guest), kick))
    }

    pub(super) fn start(&mut self, index: usize) {
        if !self.has_disk {
            return;
        }
        let Some((layout, guest, kick)) = self.plan(index) else {
            return;
        };
        let Ok(kick) = kick.try_clone() else {
            tracing::warn!(ring = index, "no descriptor for a ring: it is not served");
            return;
        };
        let inflight = self.inflight.as_ref();
        let kept = inflight.and_then(|all| all.ring(index, layout.entries));
        if inflight.is_some() && kept.is_none() {
            tracing::warn!(
                ring = index,
                "what is under way is not kept: there is no room for it"
            );
        }
        let Some(ring) = self.rings.get_mut(index) else {
            return;
        };
        let (call, work) = (Arc::clone(&ring.call), Arc::clone(&self.work));
        let name = format!("vhost-{index}");
        match Ring::start(name, &layout, guest, kick, call, kept, work) {
            Ok(served) => {
                ring.served = Some(served);
                // One that knows the disk from before does not ask again.
                self.look_at_size();
            }
            Err(error) => tracing::warn!(ring = index, error = %chain(&error), "not served"),
        }
    }
}
