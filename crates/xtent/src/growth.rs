//! A volume that grows with its device while it is served or mounted.

mod told;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};

use xtent_control::FixedSize;
use xtent_luks::Header;
use xtent_store::Store;
use xtent_upstream::Upstream;
use xtent_volume::Volume;

use crate::disk::Disk;
use crate::failure::{Exit, Failure, Result};
use crate::registry::{Entry, Registration};

pub(crate) use told::{Changes, Told};

/// What it takes to find out how large a volume could be by now. Keeps neither
/// the volume nor its device open.
pub(crate) struct Growth {
    data: Weak<dyn Store>,
    /// The same, if a server is asked for its size.
    upstream: Weak<Upstream>,
    /// Whether volume and device are being given up; locked for reading as long as they are held here.
    has_ended: RwLock<bool>,
    uuid: Option<String>,
    /// The byte of the device where it begins, if it goes on to its end.
    offset: Option<u64>,
    volume: Weak<Volume>,
    /// Of a device that does not tell of its changes, if the volume goes on to its end.
    seen: Option<Seen>,
}

/// What is looked at. Whoever waits for its end may go on once all of it has been let go of, so the lock is the last.
struct Held<'a> {
    data: Arc<dyn Store>,
    volume: Arc<Volume>,
    _has_ended: RwLockReadGuard<'a, bool>,
}

/// Bytes that a device had.
struct Seen {
    /// When the volume took its size from it.
    taken: AtomicU64,
    /// The last time.
    last: AtomicU64,
}

impl Seen {
    fn new(size: u64) -> Self {
        Self {
            taken: AtomicU64::new(size),
            last: AtomicU64::new(size),
        }
    }

    fn take(&self, size: u64) {
        self.taken.store(size, Ordering::Relaxed);
    }

    /// Whether it has another size than was taken, and has had that the last time already: one that is being
    /// written longer and longer has not.
    fn has_settled(&self, now: u64) -> bool {
        let last = self.last.swap(now, Ordering::Relaxed);
        now == last && now != self.taken.load(Ordering::Relaxed)
    }
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
    /// Of a volume with this header, or without one, which keeps its size.
    pub(crate) fn new(data: &Disk, header: Option<&Header>, volume: &Arc<Volume>) -> Self {
        let growing = header.filter(|header| header.fixed_size().is_none());
        let uuid = header.map(|header| header.uuid().to_owned());
        Self::to_the_end(data, growing.map(Header::data_offset), uuid, volume)
    }

    /// Of a volume whose header somebody else has read: it goes from byte `offset` on to the end
    /// of the device, if there is such a byte.
    pub(crate) fn to_the_end(
        data: &Disk,
        offset: Option<u64>,
        uuid: Option<String>,
        volume: &Arc<Volume>,
    ) -> Self {
        Self {
            data: Arc::downgrade(&data.store()),
            upstream: data.upstream().map(Arc::downgrade).unwrap_or_default(),
            has_ended: RwLock::new(false),
            uuid,
            offset,
            volume: Arc::downgrade(volume),
            seen: offset.filter(|_| !data.is_image()).map(|offset| {
                let size = data.size();
                // It may have grown while somebody was asked for a passphrase.
                match room(size, offset, volume) > volume.size() {
                    true => Seen::new(0),
                    false => Seen::new(size),
                }
            }),
        }
    }

    /// Volume and device as long as they are open, to be held no longer than needed.
    fn hold(&self) -> Option<Held<'_>> {
        let has_ended = self.has_ended.read();
        let has_ended = has_ended.unwrap_or_else(PoisonError::into_inner);
        if *has_ended {
            return None;
        }
        let (data, volume) = self.data.upgrade().zip(self.volume.upgrade())?;
        Some(Held {
            data,
            volume,
            _has_ended: has_ended,
        })
    }

    /// Has looks at the server of the volume fail from now on, at once, those under way too: for whoever is about to
    /// close the volume.
    pub(crate) fn stop(&self) {
        if let Some(upstream) = self.upstream.upgrade() {
            upstream.stop_looking();
        }
    }

    /// For whoever has let go of the volume: on return nobody holds it or its device here any more.
    pub(crate) fn end(&self) {
        self.stop();
        *self
            .has_ended
            .write()
            .unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Whether its device, if that does not tell of it, has got another size than when it was last looked
    /// at, and stays so. To be asked in regular intervals; it is cheap.
    pub(crate) fn has_changed(&self) -> bool {
        let (Some(seen), Some(held)) = (&self.seen, self.hold()) else {
            return false;
        };
        seen.has_settled(held.data.size())
    }

    /// Looks at the size of the device and lets the volume grow to it, where the
    /// header does not fix its size. It never becomes smaller: somebody may be
    /// using what would be cut off.
    ///
    /// # Errors
    /// If the device's size cannot be asked for, or the device is smaller than it says.
    pub(crate) fn look(&self) -> Result<Option<Grown>> {
        let Some(held) = self.hold() else {
            return Ok(None);
        };
        let (data, volume) = (&held.data, &held.volume);
        let before = volume.size();
        let Some(offset) = self.offset else {
            tracing::info!(size = before, "the volume keeps its size");
            return Ok(None);
        };
        let known = data.size();
        // A connection that was made anew may have found it already.
        let size = match room(known, offset, volume) > before {
            true => known,
            false => data.look_at_size()?,
        };
        if let Some(seen) = &self.seen {
            seen.take(size);
        }
        let now = room(size, offset, volume);
        if now < before {
            tracing::warn!(
                size = before,
                device_has = now,
                "the device has become smaller; the volume's size stays, and what is missing fails"
            );
            return Ok(None);
        }
        grow(volume, now)
    }

    /// Lets the volume become as large as its header says by now.
    ///
    /// # Errors
    /// If that is smaller, if there is no room for it, or if it is another volume's header.
    fn grow_to(&self, FixedSize { uuid, size }: &FixedSize) -> Result<Option<Grown>> {
        let Some(held) = self.hold() else {
            return Ok(None);
        };
        let volume = &held.volume;
        if self.uuid.as_ref() != Some(uuid) {
            return Err(Failure::new(
                Exit::Device,
                "another volume of the same device is open here",
            ));
        }
        let size = *size;
        let before = volume.size();
        if size < before {
            return Err(Failure::new(
                Exit::Busy,
                format!("the volume has {before} bytes, and becomes no smaller while it is open"),
            ));
        }
        grow(volume, size)
    }

    /// The one or the other.
    pub(crate) fn look_or_grow(&self, fixed: Option<&FixedSize>) -> Result<Option<Grown>> {
        match fixed {
            None => self.look(),
            Some(fixed) => self.grow_to(fixed),
        }
    }
}

/// Bytes in whole sectors from this one on to the end of a device of that size.
fn room(size: u64, offset: u64, volume: &Volume) -> u64 {
    let rest = size.saturating_sub(offset);
    rest - rest % volume.sector_size().bytes() as u64
}

/// Has a volume become as large as it can be, and says so in the registry and to the kernel, which `tell` does:
/// gives the size before and after. What it is to be called with is what [`Growth::look_or_grow`] takes.
pub(crate) fn resizing(
    growth: &Arc<Growth>,
    registration: Arc<Registration>,
    entry: Entry,
    tell: impl Fn(u64) -> Result<()> + Send + Sync + 'static,
) -> impl Fn(Option<&FixedSize>) -> Result<(u64, u64)> + Send + Sync + 'static {
    let growth = Arc::clone(growth);
    let registered_size = Mutex::new(entry.size);
    move |fixed| {
        let before = *held(&registered_size);
        growth.look_or_grow(fixed)?;
        // One at a time from here on, so that the last to tell has the latest size; somebody else may have found it.
        let mut known = held(&registered_size);
        let now = growth.hold().map_or(*known, |it| it.volume.size());
        if now > *known {
            registration.update(&[Entry {
                size: now,
                ..entry.clone()
            }]);
            *known = now;
        }
        // It may not have taken what it was told the last time.
        tell(*known)?;
        Ok((before, *known))
    }
}

/// Has `look` called when a volume's device has changed, which it tells or `has_changed` finds from time to time;
/// what fails is for the log.
pub(crate) fn follow_one(
    told: Told<()>,
    has_changed: impl Fn() -> bool + Send + 'static,
    look: impl Fn() -> Result<(u64, u64)> + Send + 'static,
) -> Result<()> {
    let changed = move || has_changed().then_some(()).into_iter().collect();
    told.follow(changed, move |_| {
        if let Err(failure) = look() {
            let error = failure.to_string().replace('\n', "; ");
            tracing::warn!(error, "the volume keeps its size");
        }
    })
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn grow(volume: &Volume, now: u64) -> Result<Option<Grown>> {
    let before = volume.size();
    match volume.grow(now)? {
        true => {
            tracing::info!(before, now, "the volume has grown");
            Ok(Some(Grown { before, now }))
        }
        false => {
            tracing::info!(size = before, "the volume's size is as it was");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_counts_once_it_stays() {
        let seen = Seen::new(10);
        assert!(!seen.has_settled(10));
        // Longer each time.
        for size in 11..20 {
            assert!(!seen.has_settled(size));
        }
        assert!(seen.has_settled(19));
        // Until somebody has looked.
        assert!(seen.has_settled(19));
        seen.take(19);
        assert!(!seen.has_settled(19));
        // There and back.
        assert!(!seen.has_settled(5));
        assert!(!seen.has_settled(19));
        assert!(!seen.has_settled(19));
        // Shorter is something to be said, too.
        assert!(!seen.has_settled(5));
        assert!(seen.has_settled(5));
    }
}
