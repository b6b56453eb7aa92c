//! A volume that grows with its device while it is served or mounted.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use xtent_luks::Header;
use xtent_store::Store;
use xtent_volume::Volume;

use crate::disk::Disk;
use crate::failure::{Failure, Result};
use crate::signals;

/// What it takes to find out how large a volume could be by now. Keeps neither
/// the volume nor its device open.
pub(crate) struct Growth {
    data: Weak<dyn Store>,
    sizing: Sizing,
    volume: Weak<Volume>,
}

/// What says how large the volume is.
enum Sizing {
    /// It keeps its size: it has no header.
    Fixed,
    /// Its header.
    Header(Header),
    /// It goes from this byte of the device to its end, in whole sectors.
    Rest { offset: u64, sector: u64 },
}

/// A volume that has grown.
#[derive(Clone, Copy)]
pub(crate) struct Grown {
    /// Bytes that it had.
    pub(crate) before: u64,
    /// Bytes that it has.
    pub(crate) now: u64,
}

impl Growth {
    pub(crate) fn new(data: &Disk, header: Option<Header>, volume: &Arc<Volume>) -> Self {
        Self {
            data: Arc::downgrade(&data.store()),
            sizing: header.map_or(Sizing::Fixed, Sizing::Header),
            volume: Arc::downgrade(volume),
        }
    }

    /// Of a volume whose header somebody else has read: it goes from byte `offset` on to the end
    /// of the device, if there is such a byte.
    pub(crate) fn to_the_end(data: &Disk, offset: Option<u64>, volume: &Arc<Volume>) -> Self {
        let sector = volume.sector_size().bytes() as u64;
        Self {
            data: Arc::downgrade(&data.store()),
            sizing: offset.map_or(Sizing::Fixed, |offset| Sizing::Rest { offset, sector }),
            volume: Arc::downgrade(volume),
        }
    }

    /// Looks at the size of the device and lets the volume grow to it, where the
    /// header does not fix its size. It never becomes smaller: somebody may be
    /// using what would be cut off.
    pub(crate) fn look(&self) -> Option<Grown> {
        let (data, volume) = (self.data.upgrade()?, self.volume.upgrade()?);
        let before = volume.size();
        let now = match &self.sizing {
            Sizing::Fixed => {
                tracing::info!(size = before, "the volume keeps its size");
                return None;
            }
            Sizing::Header(header) => match header.segment(data.size()) {
                Ok(segment) => segment.length,
                Err(error) => {
                    tracing::warn!(error = %xtent_store::chain(&error), "the device has become too short for the volume; its size stays");
                    return None;
                }
            },
            Sizing::Rest { offset, sector } => {
                let rest = data.size().saturating_sub(*offset);
                rest - rest % sector
            }
        };
        if now < before {
            tracing::warn!(
                size = before,
                device_has = now,
                "the device has become smaller; the volume's size stays, and what is missing fails"
            );
            return None;
        }
        match volume.grow(now) {
            Ok(true) => {
                tracing::info!(before, now, "the volume has grown");
                Some(Grown { before, now })
            }
            Ok(false) => {
                tracing::info!(size = before, "the volume's size is as it was");
                None
            }
            Err(error) => {
                tracing::warn!(error = %xtent_store::chain(&error), "the volume cannot grow");
                None
            }
        }
    }
}

/// What devices tell that have changed, each of which has a name here.
pub(crate) struct Changes<T> {
    tell: Sender<T>,
    told: Receiver<T>,
}

impl<T: Clone + Ord + Send + Sync + 'static> Changes<T> {
    /// Of no device yet.
    pub(crate) fn new() -> Self {
        let (tell, told) = channel();
        Self { tell, told }
    }

    /// And of this one, if it tells.
    pub(crate) fn of(&self, device: &Disk, name: T) {
        if !device.is_image() {
            return;
        }
        let (tell, changed) = (self.tell.clone(), name.clone());
        device.on_change(move || {
            // Nobody listens any more who is ending.
            let _ = tell.send(changed.clone());
        });
        // It may have grown since it was opened.
        let _ = self.tell.send(name);
    }

    /// Has `look` called with the names of those that have changed, on a thread of its own: to look takes a
    /// while. The thread ends with the last of the devices.
    pub(crate) fn follow(self, look: impl Fn(BTreeSet<T>) + Send + 'static) -> Result<()> {
        let Self { tell, told } = self;
        drop(tell);
        let follow = move || {
            while let Ok(first) = told.recv() {
                // Several notices of one change are one.
                look([first].into_iter().chain(told.try_iter()).collect());
            }
        };
        signals::held_back(|| {
            std::thread::Builder::new()
                .name("growth".into())
                .spawn(follow)
        })?
        .map(drop)
        .map_err(|e| Failure::system("cannot start a thread", e))
    }
}
