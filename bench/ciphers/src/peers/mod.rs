//! Other libraries. None has a call for a run of sectors: each is given one
//! sector per call, with its number as the tweak, in the cheapest way that is
//! right: keys are set once, and between sectors only the tweak changes.

mod evp;
mod gcrypt;
mod rust;

use crate::contestant::{Contestant, Entry, Task};

/// Makes a contestant for a task, if the library has its cipher.
type Make = Box<dyn Fn(&Task) -> Option<Box<dyn Contestant>>>;

/// A library.
pub(crate) struct Peer {
    /// With its version.
    pub(crate) name: String,
    /// Whether its ciphertext is that of our cipher, rather than of a variant.
    same_cipher: bool,
    make: Make,
}

impl Peer {
    fn new<C: Contestant + 'static>(
        name: impl Into<String>,
        make: impl Fn(&Task) -> Option<C> + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            same_cipher: true,
            make: Box::new(move |task| {
                make(task).map(|contestant| Box::new(contestant) as Box<dyn Contestant>)
            }),
        }
    }

    /// What takes part in the comparison of a cipher.
    pub(crate) fn entry(&self, task: &Task) -> Option<Entry> {
        Some(Entry {
            name: self.name.clone(),
            backend: None,
            run: 1,
            same_cipher: self.same_cipher,
            contestant: (self.make)(task)?,
        })
    }
}

/// All that are built in or found on this system, and notes on those that are
/// not.
pub(crate) fn all() -> (Vec<Peer>, Vec<String>) {
    let mut peers = Vec::new();
    let mut notes = Vec::new();
    for found in evp::all().into_iter().chain([gcrypt::peer()]) {
        match found {
            Ok(peer) => peers.push(peer),
            Err(note) => notes.push(note),
        }
    }
    peers.extend(rust::all());
    (peers, notes)
}

/// The tweak of a sector: its number, little endian.
fn tweak<const N: usize>(number: u64) -> [u8; N] {
    let mut tweak = [0; N];
    tweak[..8].copy_from_slice(&number.to_le_bytes());
    tweak
}

/// The version of a crate that this program was built with.
fn version(package: &str) -> &'static str {
    const LOCK: &str = include_str!("../../Cargo.lock");
    LOCK.split("[[package]]")
        .find_map(|entry| {
            let entry = entry.trim().strip_prefix("name = \"")?;
            let rest = entry
                .strip_prefix(package)?
                .strip_prefix("\"\nversion = \"")?;
            rest.split('"').next()
        })
        .unwrap_or("")
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_come_from_the_lock_file() {
        assert!(super::version("hctr2-rs").contains('.'));
        assert_eq!(super::version("no-such-package"), "");
    }
}
