//! Memory that a front-end shares: the guest's, what is under way, and the log of pages that were
//! written.

use std::sync::Arc;

use super::{LOG_SHMFD, Session};
use crate::vhost_user::config::{MOST_ENTRIES, VHOST_F_LOG_ALL};
use crate::vhost_user::dirty::Log;
use crate::vhost_user::guest::{Guest, Region};
use crate::vhost_user::inflight::{self, Inflight};
use crate::vhost_user::message::{self, Broken, Message, Reply};
use crate::vhost_user::ring::Layout;

impl Session {
    /// The whole of the guest's memory. Room for more regions than there are is ignored, since
    /// Linux' `virtio_uml` sends it.
    pub(super) fn set_memory(&mut self, message: &mut Message) -> Result<(), Broken> {
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
        let guest = Guest::new(regions, files, Arc::clone(&self.dirty)).map_err(|bad| {
            tracing::warn!(why = bad.0, "memory");
            "the guest's memory cannot be had"
        })?;
        self.stop_all();
        self.guest = Some(Arc::new(guest));
        if !self.is_logged() {
            tracing::warn!("the log does not reach over the guest's memory: nothing is served");
        }
        self.start_all();
        Ok(())
    }

    /// Whether the front-end wants to know which pages are written.
    pub(super) fn keeps_log(&self) -> bool {
        self.features & VHOST_F_LOG_ALL != 0 && self.protocol_features & LOG_SHMFD != 0
    }

    /// The end of all that the rings write, as the log has it.
    fn end_in_log(&self) -> u64 {
        let memory = self.guest.as_ref().map_or(0, |guest| guest.end());
        let used = self.rings.iter().filter_map(|ring| {
            let length = Layout::used_length(ring.entries);
            Some(ring.used_in_log?.saturating_add(length))
        });
        used.fold(memory, u64::max)
    }

    /// Whether all that the rings write would be in the log, if there is to be one.
    pub(super) fn is_logged(&self) -> bool {
        let end = self.end_in_log();
        !self.keeps_log() || self.dirty.log_is(|log| log.reaches(end))
    }

    /// The log, which takes the place of the one before, also if it cannot be had: QEMU reads no other
    /// one from then on, whatever it is answered.
    pub(super) fn set_log(&mut self, message: &mut Message) -> Result<(), Broken> {
        let log = Self::log_of(message);
        let end = self.end_in_log();
        // So that all that is written is in the one before or in this one.
        if self.keeps_log() && !log.as_ref().is_ok_and(|log| log.reaches(end)) {
            self.stop_all();
        }
        let (log, had) = match log {
            Ok(log) => (Some(log), Ok(())),
            Err(why) => (None, Err(why)),
        };
        self.dirty.set(log);
        self.start_all();
        had?;
        match self.is_logged() {
            true => Ok(()),
            false => Err("the log is too short for the guest's memory: nothing is served"),
        }
    }

    fn log_of(message: &mut Message) -> Result<Log, Broken> {
        let [length, start] = message.longs(0)?;
        let file = message.files.pop();
        let file = file.ok_or("a log without a descriptor")?;
        Log::new(file, start, length).map_err(|error| {
            tracing::warn!(%error, "log");
            "the log cannot be had"
        })
    }

    pub(super) fn make_inflight(&self, message: &Message) -> Result<Reply, Broken> {
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

    pub(super) fn set_inflight(&mut self, message: &mut Message) -> Result<(), Broken> {
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
}
