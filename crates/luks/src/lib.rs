//! LUKS1 and LUKS2 metadata: parse, validate, edit, write crash-safely. Never
//! on the data path: it hands the volume a key, a cipher name and a segment.
//!
//! Every operation reads the metadata afresh under cryptsetup's own lock, and
//! holds that lock only while metadata is read or written, never while a key
//! is derived.

use std::path::Path;
use std::sync::Arc;

use xtent_secret::SecretBytes;
use xtent_store::{FileStore, Store};

pub mod af;
pub mod error;
pub mod kdf;
pub mod lock;
mod luks1;

pub use error::{Error, ErrorKind};
pub use kdf::{Kdf, KdfChoice, KdfLimits};

/// Version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// LUKS1.
    Luks1,
    /// LUKS2.
    Luks2,
}

/// Where the metadata is: the device itself or a detached header file.
#[derive(Clone)]
pub struct Device {
    store: Arc<dyn Store>,
    lock: lock::Target,
}

/// Where the plaintext's sectors are, as the header says, resolved against the
/// data device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// dm-crypt's cipher name, `aes-xts-plain64`.
    pub encryption: String,
    /// Bytes per sector.
    pub sector_size: u32,
    /// First byte on the data device.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Added to every sector number, in 512-byte units.
    pub iv_tweak: u64,
}

/// What `unlock` found.
pub struct Unlocked {
    /// The volume key.
    pub key: SecretBytes,
    /// The keyslot that opened.
    pub keyslot: u32,
}

/// What to make.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// LUKS1 or LUKS2.
    pub version: Version,
    /// dm-crypt's cipher name.
    pub encryption: String,
    /// Bytes of volume key.
    pub key_length: usize,
    /// Bytes per sector; 512 for LUKS1.
    pub sector_size: u32,
    /// Key derivation for the first keyslot.
    pub kdf: KdfChoice,
    /// Hash for LUKS1 (AF and digest) and for LUKS2's digest and AF, by cryptsetup's names: `sha256`.
    pub hash: String,
    /// Random if absent.
    pub uuid: Option<String>,
    /// LUKS2 only.
    pub label: Option<String>,
    /// LUKS2 only.
    pub subsystem: Option<String>,
    /// First byte of data on the data device; the default by version and alignment if absent.
    pub data_offset: Option<u64>,
    /// Whether data lives on another device (then the offset's default is 0).
    pub detached: bool,
}

/// How `change_key` may behave.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChangeOptions {
    /// LUKS1 with every slot in use: overwrite the slot in place, although a
    /// kill in between loses that key.
    pub allow_unsafe_in_place: bool,
}

impl Device {
    /// The metadata on `file`.
    pub fn new(_file: Arc<FileStore>) -> Self {
        todo!()
    }
    /// The metadata on any store, without locks: for tests.
    pub fn without_locks(_store: Arc<dyn Store>) -> Self {
        todo!()
    }
    /// Parses and validates; recovers a LUKS2 header from its good copy in
    /// memory (written back by the next operation that writes, or by `repair`).
    pub fn read(&self) -> Result<Header, Error> {
        todo!()
    }
    /// Writes new metadata with one keyslot. The caller has made sure that
    /// whatever was on the device may go.
    pub fn format(
        &self,
        _options: &FormatOptions,
        _passphrase: &SecretBytes,
    ) -> Result<Header, Error> {
        todo!()
    }
    /// Finds the keyslot that `passphrase` opens and checks the volume key
    /// against the digest. With `keyslot`, tries that one only (even one of
    /// priority "ignore").
    pub fn unlock(
        &self,
        _passphrase: &SecretBytes,
        _keyslot: Option<u32>,
        _limits: &KdfLimits,
    ) -> Result<Unlocked, Error> {
        todo!()
    }
    /// Adds a key to `keyslot` or the first free one; returns it.
    pub fn add_key(
        &self,
        _unlocked: &Unlocked,
        _new: &SecretBytes,
        _keyslot: Option<u32>,
        _kdf: &KdfChoice,
    ) -> Result<u32, Error> {
        todo!()
    }
    /// Replaces the key of the keyslot that `old` opens; returns the keyslot
    /// now in use. At any instant the old or the new key opens.
    pub fn change_key(
        &self,
        _old: &SecretBytes,
        _keyslot: Option<u32>,
        _new: &SecretBytes,
        _kdf: &KdfChoice,
        _options: ChangeOptions,
        _limits: &KdfLimits,
    ) -> Result<u32, Error> {
        todo!()
    }
    /// Wipes a keyslot. Refuses the last one unless `even_last`.
    pub fn kill_slot(&self, _keyslot: u32, _even_last: bool) -> Result<(), Error> {
        todo!()
    }
    /// Wipes every keyslot: the data is gone for good.
    pub fn erase(&self) -> Result<(), Error> {
        todo!()
    }
    /// Copies header and keyslot areas to a new file, mode 0400 (cryptsetup's format).
    pub fn backup(&self, _to: &Path) -> Result<(), Error> {
        todo!()
    }
    /// What a restore of `from` would do: see [`RestorePlan`].
    pub fn plan_restore(&self, _from: &Path) -> Result<RestorePlan, Error> {
        todo!()
    }
    /// Carries out a plan, crash-safely as far as the format allows.
    pub fn restore(&self, _plan: RestorePlan) -> Result<(), Error> {
        todo!()
    }
    /// Writes both LUKS2 copies anew from the good one. `Ok(false)`: nothing to do.
    pub fn repair(&self) -> Result<bool, Error> {
        todo!()
    }
}

/// A validated backup and what stands against restoring it. Refusals
/// (different data offset, key size or sector size on a device that has a LUKS header of the
/// same version) are errors of `plan_restore`; what only needs the user's yes
/// is in `warnings`.
pub struct RestorePlan {
    /// What the user must agree to ("device has no LUKS header", "UUIDs differ", …).
    pub warnings: Vec<String>,
}

/// Parsed metadata.
pub struct Header {
    _todo: (),
}

impl Header {
    /// LUKS1 or LUKS2.
    pub fn version(&self) -> Version {
        todo!()
    }
    /// The UUID as text.
    pub fn uuid(&self) -> &str {
        todo!()
    }
    /// Keyslots in use, ascending.
    pub fn keyslots(&self) -> Vec<u32> {
        todo!()
    }
    /// Whether the LUKS2 persistent flag `allow-discards` is set.
    pub fn allows_discards(&self) -> bool {
        todo!()
    }
    /// Whether one LUKS2 copy was bad and the other was used.
    pub fn is_recovered(&self) -> bool {
        todo!()
    }
    /// The data segment on a device of `data_size` bytes. Errors: image
    /// shorter than the segment, unfinished reencryption, unknown
    /// requirements (by name), more than one segment.
    pub fn segment(&self, _data_size: u64) -> Result<Segment, Error> {
        todo!()
    }
    /// Everything that a dump shows; no secrets. `Display` prints it in the
    /// style of `luksDump`, `serde` makes JSON.
    pub fn dump(&self) -> Dump {
        todo!()
    }
}

/// A header for people and programs.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Dump {
    /// 1 or 2.
    pub version: u32,
}
impl std::fmt::Display for Dump {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        todo!()
    }
}
