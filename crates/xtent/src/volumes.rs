//! The volumes of a running server: its exports, and beside each what is told of it.

use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::Value;
use xtent_control::{FixedSize, Served};
use xtent_export::metrics;
use xtent_export::nbd::{Address, Export, Exports, Listing};
use xtent_volume::{DiscardPolicy, Volume};

use crate::failure::{Exit, Failure, Result};
use crate::growth::{Grown, Growth};
use crate::registry::{self, Entry, Registration};
use crate::wanted::Opened;

/// What is told of one when a server is ready.
pub(crate) struct Told {
    pub(crate) served: Served,
    pub(crate) uris: Vec<String>,
    pub(crate) sector_size: u64,
    pub(crate) discard: DiscardPolicy,
}

/// A volume that somebody else has taken over.
pub(crate) struct Loss {
    number: u64,
    pub(crate) export: String,
    pub(crate) device: String,
}

/// All of them.
pub(crate) struct Volumes {
    exports: Exports,
    addresses: Vec<Address>,
    losses: Sender<Loss>,
    kept: Mutex<Kept>,
    registration: Registration,
    /// Who else is told when one has grown.
    on_growth: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct Kept {
    all: Vec<One>,
    /// To number them.
    next: u64,
}

/// What there is beside an export.
struct One {
    number: u64,
    growth: Arc<Growth>,
    entry: Entry,
    discard: DiscardPolicy,
    /// Somebody is removing it.
    is_ending: bool,
}

impl One {
    fn is(&self, export: &str) -> bool {
        self.entry.export.as_deref() == Some(export)
    }
}

impl Kept {
    /// Gives its number.
    fn push(&mut self, growth: Growth, entry: Entry, discard: DiscardPolicy) -> u64 {
        let number = self.next;
        self.next += 1;
        self.all.push(One {
            number,
            growth: Arc::new(growth),
            entry,
            discard,
            is_ending: false,
        });
        number
    }

    fn entries(&self) -> Vec<Entry> {
        self.all.iter().map(|one| one.entry.clone()).collect()
    }
}

impl Volumes {
    /// Of a server that clients find at `addresses`; registers the process for `xtent status`. Those
    /// that somebody else takes over are told to `losses`, each once.
    pub(crate) fn new(
        opened: Vec<Opened>,
        addresses: Vec<Address>,
        losses: Sender<Loss>,
    ) -> Result<Self> {
        let exports = Exports::new();
        let mut kept = Kept::default();
        for one in opened {
            add(&exports, &mut kept, &addresses, &losses, one)?;
        }
        let registration = registry::register(&kept.entries());
        Ok(Self {
            exports,
            addresses,
            losses,
            kept: Mutex::new(kept),
            registration,
            on_growth: OnceLock::new(),
        })
    }

    /// What the protocols offer.
    pub(crate) fn exports(&self) -> &Exports {
        &self.exports
    }

    /// The first of them, and its UUID, if it has a header, as a virtual machine knows it by as much of it as fits.
    pub(crate) fn first(&self) -> Option<(Arc<Volume>, Option<String>)> {
        let exported = self.exports.exported().into_iter().next()?;
        let kept = self.kept();
        let one = kept.all.iter().find(|one| one.is(&exported.name))?;
        let uuid = one.entry.uuid.as_deref().filter(|uuid| !uuid.is_empty());
        Some((exported.volume, uuid.map(|uuid| uuid.replace('-', ""))))
    }

    /// Has `tell` called when one has grown; of the first call only.
    pub(crate) fn on_growth(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_growth.set(Box::new(tell));
    }

    /// This process's place in the registry.
    pub(crate) fn registration(&self) -> &Registration {
        &self.registration
    }

    /// Where clients find an export.
    pub(crate) fn uris(&self, export: &str) -> Vec<String> {
        uris(&self.addresses, export)
    }

    /// Offers one more; where clients find it.
    pub(crate) fn add(&self, one: Opened) -> Result<Vec<String>> {
        let uris = self.uris(&one.name);
        // Whoever removes it at once finds it here.
        let mut kept = self.kept();
        add(&self.exports, &mut kept, &self.addresses, &self.losses, one)?;
        self.registration.update(&kept.entries());
        Ok(uris)
    }

    /// Parts from an export's clients, flushes it and lets go of it; an error if it is not
    /// there, or could not be flushed.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        self.remove_where(name, |one| one.is(name))
    }

    /// The same of one that is lost; not of another that has its name by now.
    pub(crate) fn remove_lost(&self, loss: &Loss) -> Result<()> {
        self.remove_where(&loss.export, |one| one.number == loss.number)
    }

    fn remove_where(&self, name: &str, which: impl Fn(&One) -> bool) -> Result<()> {
        // It is the caller's alone from here on: whoever is second would remove another that
        // has got the name meanwhile.
        let (number, growth) = match self.kept().all.iter_mut().find(|one| which(one)) {
            Some(one) if one.is_ending => {
                return Err(Failure::new(
                    Exit::Busy,
                    format!("the export {name:?} is being removed already"),
                ));
            }
            Some(one) => {
                one.is_ending = true;
                (one.number, Arc::clone(&one.growth))
            }
            None => {
                return Err(Failure::parameters(format!(
                    "there is no export named {name:?}"
                )));
            }
        };
        growth.stop();
        let result = self.exports.remove(name);
        growth.end();
        let mut kept = self.kept();
        kept.all.retain(|one| one.number != number);
        self.registration.update(&kept.entries());
        Ok(result?)
    }

    /// Looks at the device of an export, or lets it have the size that its header says by now; its size
    /// before and after.
    pub(crate) fn look(&self, name: &str, fixed: Option<&FixedSize>) -> Result<(u64, u64)> {
        let before = self.exports.listing(name)?.size;
        for (number, growth) in self.growths(|one| one.is(name)) {
            if let Some(grown) = growth.look_or_grow(fixed)? {
                self.have_grown(&HashMap::from([(number, grown)]));
            }
        }
        Ok((before, self.exports.listing(name)?.size))
    }

    /// Those whose devices have changed, as [`Growth::has_changed`] has it.
    pub(crate) fn changed(&self) -> Vec<String> {
        let of = |one: &One| Some((one.entry.export.clone()?, Arc::clone(&one.growth)));
        // A device may be away, and nobody else is to wait for that.
        let growths: Vec<_> = self.kept().all.iter().filter_map(of).collect();
        let changed = growths.into_iter().filter(|(_, it)| it.has_changed());
        changed.map(|(name, _)| name).collect()
    }

    /// Looks at the devices of some exports; which volumes have grown.
    pub(crate) fn look_at(&self, which: impl Fn(&str) -> bool) -> Vec<(Entry, Grown)> {
        let is_meant = |one: &One| which(one.entry.export.as_deref().unwrap_or_default());
        self.look_at_growths(self.growths(is_meant))
    }

    /// For whoever has let go of them: on return nobody who looks holds one any more, and nobody will.
    pub(crate) fn end_looking(&self) {
        for (_, growth) in self.growths(|_| true) {
            growth.end();
        }
    }

    fn growths(&self, which: impl Fn(&One) -> bool) -> Vec<(u64, Arc<Growth>)> {
        let kept = self.kept();
        let meant = kept.all.iter().filter(|one| which(one));
        meant
            .map(|one| (one.number, Arc::clone(&one.growth)))
            .collect()
    }

    fn look_at_growths(&self, growths: Vec<(u64, Arc<Growth>)>) -> Vec<(Entry, Grown)> {
        let look = |growth: &Growth| {
            growth.look().unwrap_or_else(|failure| {
                let error = failure.to_string().replace('\n', "; ");
                tracing::warn!(error, "the size of a volume's device is not known");
                None
            })
        };
        // A device may be away, and nobody else is to wait for that.
        let found: HashMap<_, _> = growths
            .into_iter()
            .filter_map(|(number, growth)| Some((number, look(&growth)?)))
            .collect();
        self.have_grown(&found)
    }

    /// Tells of those that have grown, by their numbers.
    fn have_grown(&self, found: &HashMap<u64, Grown>) -> Vec<(Entry, Grown)> {
        let mut kept = self.kept();
        let mut grown = Vec::new();
        for one in &mut kept.all {
            if let Some(&found) = found.get(&one.number) {
                one.entry.size = one.entry.size.max(found.now);
                grown.push((one.entry.clone(), found));
            }
        }
        if !grown.is_empty() {
            // First, so that who is told finds what is true.
            self.registration.update(&kept.entries());
            drop(kept);
            if let Some(tell) = self.on_growth.get() {
                tell();
            }
        }
        grown
    }

    /// Each of them, as it is now.
    pub(crate) fn list(&self) -> Vec<Served> {
        self.told().into_iter().map(|told| told.served).collect()
    }

    /// The same, with what does not change.
    pub(crate) fn told(&self) -> Vec<Told> {
        let listed = self.exports.list();
        let mut exported: HashMap<_, _> = self
            .exports
            .exported()
            .into_iter()
            .map(|it| (it.name, it.volume))
            .collect();
        let kept = self.kept();
        let told = |listing: Listing| {
            let one = kept.all.iter().find(|one| one.is(&listing.name))?;
            Some(Told {
                uris: one.entry.uris.clone(),
                sector_size: one.entry.sector_size,
                discard: one.discard,
                served: Served {
                    device: one.entry.device.clone(),
                    partition: one.entry.partition,
                    uuid: one.entry.uuid.clone(),
                    size: listing.size,
                    read_only: one.entry.read_only,
                    clients: listing.clients,
                    ending: listing.is_ending,
                    metrics: exported
                        .remove(&listing.name)
                        .map_or(Value::Null, |volume| metrics::json(&volume)),
                    name: listing.name,
                },
            })
        };
        listed.into_iter().filter_map(told).collect()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(
    exports: &Exports,
    kept: &mut Kept,
    addresses: &[Address],
    losses: &Sender<Loss>,
    one: Opened,
) -> Result<()> {
    let discard = one.volume.discard_policy();
    exports.add(Export {
        name: one.name.clone(),
        description: String::new(),
        volume: one.volume,
        allowed: one.allowed,
    })?;
    let entry = Entry {
        uris: uris(addresses, &one.name),
        export: Some(one.name.clone()),
        ..one.entry
    };
    let device = entry.device.clone();
    let number = kept.push(one.growth, entry, discard);
    if let Some(image) = &one.image {
        let (losses, export) = (losses.clone(), one.name);
        image.on_loss(move || {
            // Nobody listens any more who is ending.
            let _ = losses.send(Loss {
                number,
                export,
                device,
            });
        });
    }
    Ok(())
}

fn uris(addresses: &[Address], export: &str) -> Vec<String> {
    addresses.iter().map(|it| it.uri(export)).collect()
}
