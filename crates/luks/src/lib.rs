//! LUKS1 and LUKS2 metadata: parse, validate, edit, write crash-safely. Never
//! on the data path: it hands the volume a key, a cipher name and a segment.
//!
//! Every operation reads the metadata afresh under cryptsetup's own lock, and
//! holds that lock only while metadata is read or written, never while a key
//! is derived.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use sector_cipher::Backend;
use xtent_secret::SecretBytes;
use xtent_store::{FileStore, Store};

pub mod af;
mod backup;
mod changes;
mod convert;
pub mod error;
mod header;
pub mod kdf;
pub mod lock;
mod luks1;
mod luks2;
mod null;
mod pin;
mod traces;
mod tries;
mod uuid;

pub use backup::RestorePlan;
pub use changes::{Changes, PERSISTENT_FLAGS, Token};
pub use convert::ConversionPlan;
pub use error::{Error, ErrorKind};
pub use header::{Dump, Header, KeyslotInfo, Priority};
pub use kdf::{Kdf, KdfChoice, KdfLimits};
pub use luks1::{Dump as Luks1Dump, Keyslot as Luks1KeyslotDump};
pub use luks2::{
    DigestDump, Dump as Luks2Dump, KdfDump, KeyslotDump, Luks2KeyslotDump, SegmentDump, TokenDump,
};
pub use pin::{Pin, PinScope};
pub use traces::{Trace, find_traces};

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

static BACKEND: OnceLock<Backend> = OnceLock::new();

/// Has this process encrypt keyslots with one implementation of the ciphers; the
/// first call counts. Without, the fastest that the CPU has is used.
pub fn force_backend(backend: Backend) {
    // A second call has nothing to say.
    let _ = BACKEND.set(backend);
}

fn backend() -> Option<Backend> {
    BACKEND.get().copied()
}

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
    /// What every header that is read has to be.
    pins: Arc<[Pin]>,
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
    /// Length in bytes.
    pub length: u64,
    /// Added to every sector number, in 512-byte units.
    pub iv_tweak: u64,
}

/// What `unlock` found.
pub struct Unlocked {
    /// The volume key; of an unbound keyslot, the key that is in it.
    pub key: SecretBytes,
    /// The keyslot that opened; `None` if the volume key itself was given.
    pub keyslot: Option<u32>,
    /// That keyslot's salt: every new key gets a new one.
    pub(crate) salt: Vec<u8>,
}

impl Unlocked {
    /// The keyslot, for what is about that one.
    pub(crate) fn of_keyslot(&self) -> Result<u32, Error> {
        self.keyslot.ok_or_else(|| {
            Error::options(
                "the volume was unlocked by its volume key, which says nothing of a keyslot",
            )
        })
    }
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
    /// LUKS2 only: bytes of each of the two copies of the metadata, of which 4096 are
    /// binary: 16, 32, 64 ... 4096 KiB. 16 KiB if absent.
    pub metadata_size: Option<u64>,
    /// LUKS2 only: bytes for key material, a multiple of 4096 up to 128 MiB; all that there
    /// is before the data, or up to 16 MiB of header, if absent.
    pub keyslots_size: Option<u64>,
}

impl FormatOptions {
    /// Bytes that a header of its own takes by default.
    ///
    /// # Errors
    /// If there is no header of that size.
    pub fn header_size(&self) -> Result<u64, Error> {
        match self.version {
            Version::Luks1 => Ok(LUKS1_DATA_OFFSET),
            Version::Luks2 => luks2::header_size(self),
        }
    }

    /// Where the data begins if nobody says; at a multiple of `alignment` bytes.
    ///
    /// # Errors
    /// If there is no header of that size.
    pub fn default_data_offset(&self, alignment: Option<u64>) -> Result<u64, Error> {
        match self.version {
            Version::Luks1 if self.detached => Ok(0),
            Version::Luks1 => LUKS1_DATA_OFFSET
                .checked_next_multiple_of(alignment.unwrap_or(1))
                .ok_or_else(|| Error::options("the data would start beyond the end of any device")),
            Version::Luks2 => luks2::default_data_offset(self, alignment),
        }
    }
}

/// Where LUKS1's data begin, with room for keys of any size: cryptsetup's default.
const LUKS1_DATA_OFFSET: u64 = 2 << 20;

/// How `change_key` may behave.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChangeOptions {
    /// LUKS1 with every slot in use: overwrite the slot in place, although a
    /// kill in between loses that key.
    pub allow_unsafe_in_place: bool,
}

impl Device {
    /// The metadata on `file`.
    pub fn new(file: Arc<FileStore>) -> Self {
        Self {
            store: file.clone(),
            lock: lock::Target::File(file),
            pins: Arc::default(),
        }
    }

    /// The metadata on a store that is no file or device of this machine. A lock file `name` in
    /// `directory`, which is made if need be, stands for cryptsetup's locks: it
    /// keeps those apart who use the same file.
    pub fn with_lock_file(store: Arc<dyn Store>, directory: &Path, name: &str, of: &Path) -> Self {
        Self {
            store,
            lock: lock::Target::LockFile {
                directory: directory.to_owned(),
                name: name.to_owned(),
                of: of.to_owned(),
            },
            pins: Arc::default(),
        }
    }

    /// The metadata on any store, without locks: for tests, and for who only reads a store that is its
    /// own alone.
    pub fn without_locks(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            lock: lock::Target::None,
            pins: Arc::default(),
        }
    }

    /// Has every operation fail ([`ErrorKind::Unexpected`]) on a header that is not what each
    /// of the pins says, each time that it is read: storage may answer with another header the
    /// second time. Those that do not read a header of the volume first are not covered: to
    /// format, convert and restore.
    #[must_use]
    pub fn expecting(mut self, pins: &[Pin]) -> Self {
        self.pins = pins.into();
        self
    }

    /// Parses and validates; recovers a LUKS2 header from its good copy in
    /// memory (written back by the next operation that writes, or by `repair`).
    ///
    /// # Errors
    /// [`ErrorKind::NotLuks`], [`ErrorKind::Corrupt`],
    /// [`ErrorKind::Unsupported`] by name, [`ErrorKind::TooShort`] if the
    /// device ends inside the header or its keyslots, [`ErrorKind::Refused`]
    /// if a copy is damaged and something else's signature is on the device.
    pub fn read(&self) -> Result<Header, Error> {
        match self.version()? {
            Version::Luks1 => luks1::read(self).map(Header::luks1),
            Version::Luks2 => luks2::read_shared(self).map(Header::luks2),
        }
    }

    /// Writes new metadata with one keyslot. The caller has made sure that
    /// whatever was on the device may go. A cut leaves what was there before,
    /// the new volume, or no volume.
    ///
    /// # Errors
    /// [`ErrorKind::Options`] for what contradicts itself or the format,
    /// [`ErrorKind::TooShort`] for a device that is too small.
    pub fn format(
        &self,
        options: &FormatOptions,
        passphrase: &SecretBytes,
    ) -> Result<Header, Error> {
        self.format_around(options, passphrase, None)
    }

    /// As [`Device::format`] around a volume key that exists already: data
    /// that is encrypted with it can be read again.
    ///
    /// # Errors
    /// As [`Device::format`]; [`ErrorKind::Options`] for a key that has not
    /// [`FormatOptions::key_length`], or has two equal halves under XTS.
    pub fn format_with_volume_key(
        &self,
        options: &FormatOptions,
        passphrase: &SecretBytes,
        key: &SecretBytes,
    ) -> Result<Header, Error> {
        self.format_around(options, passphrase, Some(key))
    }

    fn format_around(
        &self,
        options: &FormatOptions,
        passphrase: &SecretBytes,
        key: Option<&SecretBytes>,
    ) -> Result<Header, Error> {
        match options.version {
            Version::Luks1 => {
                luks1::format(self, options, passphrase, key)?;
                self.read()
            }
            Version::Luks2 => luks2::format(self, options, passphrase, key).map(Header::luks2),
        }
    }

    /// Finds the keyslot that `passphrase` opens and checks the volume key
    /// against the digest. With `keyslot`, tries that one only (even one of
    /// priority "ignore").
    ///
    /// # Errors
    /// [`ErrorKind::WrongPassphrase`]; [`ErrorKind::Keyslot`] if the one asked
    /// for is not in use or holds no volume key, or there is none at all;
    /// [`ErrorKind::OnlyNamed`] if those there are want to be named; for a keyslot that could not
    /// be tried [`ErrorKind::TooCostly`], [`ErrorKind::NoMemory`] or
    /// [`ErrorKind::Unsupported`].
    pub fn unlock(
        &self,
        passphrase: &SecretBytes,
        keyslot: Option<u32>,
        limits: &KdfLimits,
    ) -> Result<Unlocked, Error> {
        match self.version()? {
            Version::Luks1 => luks1::unlock(self, passphrase, keyslot, limits),
            Version::Luks2 => luks2::unlock(self, passphrase, keyslot, limits),
        }
    }

    /// As [`Device::unlock`] for keyslots that are unbound too: those whose key
    /// is not the volume's, but what its owner stored there. What comes of one
    /// of them does not open the volume.
    ///
    /// # Errors
    /// As [`Device::unlock`].
    pub fn unlock_any(
        &self,
        passphrase: &SecretBytes,
        keyslot: Option<u32>,
        limits: &KdfLimits,
    ) -> Result<Unlocked, Error> {
        match self.version()? {
            // LUKS1 knows no other keys.
            Version::Luks1 => luks1::unlock(self, passphrase, keyslot, limits),
            Version::Luks2 => luks2::unlock_any(self, passphrase, keyslot, limits),
        }
    }

    /// Makes sure that `key` is the volume key: with it a volume opens, and
    /// gets new keys, when no keyslot is left.
    ///
    /// # Errors
    /// [`ErrorKind::WrongPassphrase`] if it is not.
    pub fn unlock_with_volume_key(
        &self,
        key: SecretBytes,
        limits: &KdfLimits,
    ) -> Result<Unlocked, Error> {
        let is_right = match self.version()? {
            Version::Luks1 => luks1::is_volume_key(self, &key, limits)?,
            Version::Luks2 => luks2::is_volume_key(self, &key, limits)?,
        };
        if !is_right {
            return Err(Error::new(
                ErrorKind::WrongPassphrase,
                "this is not the key of the volume",
            ));
        }
        Ok(Unlocked {
            key,
            keyslot: None,
            salt: Vec::new(),
        })
    }

    /// Stores `key`, which is not the volume's, in `keyslot` or the first free
    /// one, where `passphrase` opens it; returns it. LUKS2 only.
    ///
    /// # Errors
    /// As [`Device::add_key`].
    pub fn add_unbound_key(
        &self,
        key: &SecretBytes,
        passphrase: &SecretBytes,
        keyslot: Option<u32>,
        kdf: &KdfChoice,
    ) -> Result<u32, Error> {
        self.luks2_only("keys that are not the volume's")?;
        luks2::add_unbound_key(self, key, passphrase, keyslot, kdf)
    }

    /// Adds a key to `keyslot` or the first free one; returns it.
    ///
    /// # Errors
    /// [`ErrorKind::Keyslot`] if the one asked for is in use,
    /// [`ErrorKind::Full`], [`ErrorKind::Changed`] if `unlocked` is not (or no
    /// longer) this volume's key.
    pub fn add_key(
        &self,
        unlocked: &Unlocked,
        new: &SecretBytes,
        keyslot: Option<u32>,
        kdf: &KdfChoice,
    ) -> Result<u32, Error> {
        match self.version()? {
            Version::Luks1 => luks1::add_key(self, unlocked, new, keyslot, kdf),
            Version::Luks2 => luks2::add_key(self, unlocked, new, keyslot, kdf),
        }
    }

    /// Replaces the key of the keyslot that `old` opens; returns the keyslot
    /// now in use (LUKS2: the same). At any instant the old or the new key opens.
    ///
    /// # Errors
    /// As [`Device::unlock`] and [`Device::add_key`]; [`ErrorKind::Full`] if
    /// there is no room for both keys at once.
    pub fn change_key(
        &self,
        old: &SecretBytes,
        keyslot: Option<u32>,
        new: &SecretBytes,
        kdf: &KdfChoice,
        options: ChangeOptions,
        limits: &KdfLimits,
    ) -> Result<u32, Error> {
        match self.version()? {
            Version::Luks1 => luks1::change_key(self, old, keyslot, new, kdf, options, limits),
            Version::Luks2 => luks2::change_key(self, old, keyslot, new, kdf, limits),
        }
    }

    /// Wipes a keyslot. Refuses the last one unless `even_last`.
    pub fn kill_slot(&self, keyslot: u32, even_last: bool) -> Result<(), Error> {
        match self.version()? {
            Version::Luks1 => luks1::kill_slot(self, keyslot, even_last),
            Version::Luks2 => luks2::kill_slot(self, keyslot, even_last),
        }
    }

    /// Wipes the keyslot that `unlocked` came from. Refuses the last one unless
    /// `even_last`.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if that keyslot holds another key by now;
    /// [`ErrorKind::Options`] if it came from none.
    pub fn remove_key(&self, unlocked: &Unlocked, even_last: bool) -> Result<(), Error> {
        match self.version()? {
            Version::Luks1 => luks1::remove_key(self, unlocked, even_last),
            Version::Luks2 => luks2::remove_key(self, unlocked, even_last),
        }
    }

    /// Wipes every keyslot: the data is gone for good.
    pub fn erase(&self) -> Result<(), Error> {
        match self.version()? {
            Version::Luks1 => luks1::erase(self),
            Version::Luks2 => luks2::erase(self),
        }
    }

    /// Stores a token, `json` as it is, as number `id` or the first free one;
    /// returns the number. With `replace`, one that has the number goes.
    ///
    /// # Errors
    /// [`ErrorKind::Options`] if it is no JSON object with "type" and
    /// "keyslots", or not what its type has to be, and on LUKS1;
    /// [`ErrorKind::Keyslot`] if it names one that is not in use;
    /// [`ErrorKind::Token`] if the number is in use; [`ErrorKind::Full`].
    pub fn import_token(&self, json: &str, id: Option<u32>, replace: bool) -> Result<u32, Error> {
        self.luks2_only("tokens")?;
        luks2::token::import(self, json, id, replace)
    }

    /// Stores a token of type `luks2-keyring`: the passphrase is the payload of
    /// the key `description` in the kernel's keyring. It is for `keyslots`, or
    /// for all that are in use. Returns its number.
    ///
    /// # Errors
    /// As [`Device::import_token`].
    pub fn add_keyring_token(
        &self,
        description: &str,
        keyslots: Option<&[u32]>,
        id: Option<u32>,
    ) -> Result<u32, Error> {
        self.luks2_only("tokens")?;
        luks2::token::add_keyring(self, description, keyslots, id)
    }

    /// Removes a token; the keyslots that it was for stay.
    ///
    /// # Errors
    /// [`ErrorKind::Token`] if there is none.
    pub fn remove_token(&self, id: u32) -> Result<(), Error> {
        self.luks2_only("tokens")?;
        luks2::token::remove(self, id)
    }

    /// Makes a token be for `keyslot` too, or for all that are in use.
    ///
    /// # Errors
    /// [`ErrorKind::Token`], [`ErrorKind::Keyslot`] if there is none.
    pub fn assign_token(&self, id: u32, keyslot: Option<u32>) -> Result<(), Error> {
        self.luks2_only("tokens")?;
        luks2::token::assign(self, id, keyslot)
    }

    /// Makes a token be for `keyslot` no longer.
    ///
    /// # Errors
    /// [`ErrorKind::Token`] if there is none, or it is not for that keyslot.
    pub fn unassign_token(&self, id: u32, keyslot: u32) -> Result<(), Error> {
        self.luks2_only("tokens")?;
        luks2::token::unassign(self, id, keyslot)
    }

    /// Changes UUID, labels, flags, a keyslot's priority: all of it or nothing,
    /// whenever it is cut.
    ///
    /// # Errors
    /// [`ErrorKind::Options`] for what is not valid, or not in LUKS1;
    /// [`ErrorKind::Keyslot`] if it is not in use.
    pub fn configure(&self, changes: &Changes) -> Result<(), Error> {
        match self.version()? {
            Version::Luks1 => luks1::configure(self, changes),
            Version::Luks2 => luks2::configure(self, changes),
        }
    }

    /// Makes the volume `length` bytes long, where the header fixes its size; it had so many
    /// before. `data_size` is that of the device with the data. Whenever it is cut, the header says
    /// the old size or the new one.
    ///
    /// # Errors
    /// [`ErrorKind::Options`] if the header fixes no size, as LUKS1 never does, if `length` is not
    /// of whole sectors, or smaller without `may_shrink`; [`ErrorKind::TooShort`] if the
    /// device has no room for it; [`ErrorKind::Unsupported`] for what [`Header::segment`] refuses,
    /// a volume that is being reencrypted among it.
    pub fn resize(&self, length: u64, data_size: u64, may_shrink: bool) -> Result<u64, Error> {
        match self.version()? {
            Version::Luks1 => Err(Error::options(
                "LUKS1 fixes no size in its header: the volume ends with its device",
            )),
            Version::Luks2 => luks2::resize(self, length, data_size, may_shrink),
        }
    }

    fn luks2_only(&self, what: &str) -> Result<(), Error> {
        match self.version()? {
            Version::Luks1 => Err(Error::options(format!(
                "LUKS1 has no {what}; they need LUKS2"
            ))),
            Version::Luks2 => Ok(()),
        }
    }

    /// Writes the bad or stale LUKS2 copy anew from the good one, even over
    /// something else's signature; mends what [`Header::damage`] tells of a LUKS1
    /// header, salts untouched, and a UUID that is no text by a random one.
    /// `Ok(false)`: nothing to do.
    pub fn repair(&self) -> Result<bool, Error> {
        match self.version()? {
            Version::Luks1 => luks1::repair(self),
            Version::Luks2 => luks2::repair(self),
        }
    }

    /// What [`Self::repair`] would destroy, by the name of its signature: something else that stands where a
    /// LUKS2 copy was.
    pub fn overwritten_by_repair(&self) -> Result<Option<&'static str>, Error> {
        match self.version()? {
            Version::Luks1 => Ok(None),
            Version::Luks2 => luks2::overwritten_by_repair(self),
        }
    }

    /// Fails if the header is not what was pinned.
    fn expect(&self, header: impl FnOnce() -> Header) -> Result<(), Error> {
        match self.pins.is_empty() {
            true => Ok(()),
            false => header().is_what(&self.pins),
        }
    }

    /// The version by the first bytes. Without a LUKS magic there it can only
    /// be LUKS2 with its primary header gone.
    fn version(&self) -> Result<Version, Error> {
        version_of(&*self.store)
    }
}

/// The key of a new volume.
enum VolumeKey<'a> {
    Given(&'a SecretBytes),
    Random(SecretBytes),
}

impl<'a> VolumeKey<'a> {
    /// The one given, or a random one. The two halves of an XTS key must differ
    /// (IEEE 1619); that those of a random one do not never happens unless the
    /// generator is broken. The options have been found to go together.
    fn of(options: &FormatOptions, given: Option<&'a SecretBytes>) -> Result<Self, Error> {
        if let Some(key) = given {
            check_volume_key(options, key)?;
            return Ok(Self::Given(key));
        }
        let key = SecretBytes::random(options.key_length)?;
        if has_equal_halves(&key) {
            return Err(Error::options(
                "the system's random number generator is broken: it gave the same bytes twice",
            ));
        }
        Ok(Self::Random(key))
    }
}

impl std::ops::Deref for VolumeKey<'_> {
    type Target = SecretBytes;
    fn deref(&self) -> &SecretBytes {
        match self {
            Self::Given(key) => key,
            Self::Random(key) => key,
        }
    }
}

fn check_volume_key(options: &FormatOptions, key: &SecretBytes) -> Result<(), Error> {
    if key.len() != options.key_length {
        return Err(Error::options(format!(
            "the volume key has {} bits, the options say {}",
            key.len() * 8,
            options.key_length * 8
        )));
    }
    if has_equal_halves(key) && options.encryption.contains("-xts-") {
        return Err(Error::options(
            "the two halves of the volume key are the same, which XTS does not allow (IEEE 1619)",
        ));
    }
    Ok(())
}

fn has_equal_halves(key: &SecretBytes) -> bool {
    let (one, other) = key.split_at(key.len() / 2);
    xtent_secret::equal(one, other)
}

fn version_of(store: &dyn Store) -> Result<Version, Error> {
    let mut start = [0; 8];
    if store.size() < start.len() as u64 {
        return Err(Error::new(
            ErrorKind::NotLuks,
            format!("no LUKS header: the device has only {} bytes", store.size()),
        ));
    }
    // A bad sector at the start is no reason not to use the other copy.
    if store.read_at(&mut start, 0).is_err() || start[..6] != *b"LUKS\xba\xbe" {
        return Ok(Version::Luks2);
    }
    match u16::from_be_bytes([start[6], start[7]]) {
        1 => Ok(Version::Luks1),
        2 => Ok(Version::Luks2),
        convert::UNDER_WAY => Err(convert::interrupted()),
        version => Err(Error::unsupported(format!(
            "the LUKS header has version {version}; known are 1 and 2"
        ))),
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").finish_non_exhaustive()
    }
}

/// The keyslot only, never the key.
impl fmt::Debug for Unlocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unlocked")
            .field("keyslot", &self.keyslot)
            .finish_non_exhaustive()
    }
}
