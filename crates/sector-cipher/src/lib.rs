//! Disk sector ciphers over *runs*: any number of consecutive sectors in one
//! call, so that the back-end can fill the CPU's AES pipelines across sector
//! boundaries. The bytes are those of dm-crypt, sector by sector.
#![no_std]

/// A cipher, mode and IV generator by dm-crypt's name, such as
/// `aes-xts-plain64`. Parse one with [`core::str::FromStr`]; `Display` gives
/// dm-crypt's name back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CipherSpec {
    /// Block cipher and mode.
    pub mode: Mode,
    /// How a sector number becomes an IV or tweak.
    pub iv: IvMode,
}

/// Block cipher and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// XTS-AES (IEEE 1619): `aes-xts-…`. Keys of 32 (AES-128) or 64 bytes (AES-256).
    AesXts,
    /// AES in CBC mode: `aes-cbc-…`. Keys of 16, 24 or 32 bytes. For old containers.
    AesCbc,
}

/// How the sector number becomes the 16-byte IV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IvMode {
    /// 32-bit little endian, wraps at 2^32: `plain`.
    Plain,
    /// 64-bit little endian: `plain64`.
    Plain64,
    /// 64-bit big endian in the last eight bytes: `plain64be`.
    Plain64Be,
    /// `plain64` encrypted under SHA-256 of the key: `essiv:sha256` (CBC only).
    EssivSha256,
}

/// A name that this crate does not know, or a combination it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownCipher;

impl core::str::FromStr for CipherSpec {
    type Err = UnknownCipher;
    fn from_str(_name: &str) -> Result<Self, UnknownCipher> {
        todo!()
    }
}
impl core::fmt::Display for CipherSpec {
    fn fmt(&self, _f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        todo!()
    }
}
impl core::fmt::Display for UnknownCipher {
    fn fmt(&self, _f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        todo!()
    }
}
impl core::error::Error for UnknownCipher {}

impl CipherSpec {
    /// The key lengths in bytes that this cipher takes, ascending.
    pub fn key_lengths(&self) -> &'static [usize] {
        todo!()
    }
}

/// Bytes in a sector: 512, 1024, 2048 or 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SectorSize(u16);

impl SectorSize {
    /// The sector size of `bytes`, if it is one of the four.
    pub const fn new(bytes: u32) -> Option<Self> {
        match bytes {
            512 | 1024 | 2048 | 4096 => Some(Self(bytes as u16)),
            _ => None,
        }
    }
    /// Bytes.
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }
}

/// What a sector number counts where sectors are larger than 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SectorCount {
    /// 512-byte units: the n-th 4096-byte sector has IV 8n (dm-crypt, LUKS2).
    #[default]
    Units512,
    /// Whole sectors: IV n (dm-crypt's `iv_large_sectors`).
    Large,
}

/// An implementation of the ciphers for one kind of CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// Constant-time Rust for any CPU, on RustCrypto's `aes`.
    Portable,
    /// x86-64 AES-NI with AVX.
    AesNi,
}

impl Backend {
    /// The back-ends this CPU has, slowest first; never empty.
    pub fn available() -> &'static [Backend] {
        todo!()
    }
    /// The fastest one this CPU has.
    pub fn best() -> Backend {
        todo!()
    }
}

/// A key that the cipher cannot take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongKeyLength {
    /// Bytes given.
    pub given: usize,
    /// Bytes the cipher takes.
    pub takes: &'static [usize],
}

/// One of several runs handed over together.
pub struct Segment<'a> {
    /// Sector number of the first sector, in 512-byte units (whatever the
    /// sector size and [`SectorCount`]).
    pub first: u64,
    /// Whole sectors, in place.
    pub data: &'a mut [u8],
}

/// A keyed cipher with a sector size. Cannot fail once made: lengths that are
/// not whole sectors, or a first sector that is not a multiple of the sector
/// size, are programming errors and panic at the boundary.
///
/// `first` counts 512-byte units everywhere, whatever the sector size and
/// [`SectorCount`] say about the IV.
///
/// The key schedule is inside, without indirection, and wiped on drop: put the
/// value where keys may live before it gets its key with [`Cipher::rekey`].
pub struct Cipher {
    _todo: (),
}

impl Cipher {
    /// A cipher by name, on the fastest back-end or the one given. Panics if
    /// the CPU lacks the back-end.
    pub fn new(
        _spec: CipherSpec,
        _sector_size: SectorSize,
        _count: SectorCount,
        _key: &[u8],
        _backend: Option<Backend>,
    ) -> Result<Self, WrongKeyLength> {
        todo!()
    }
    /// Replaces the key, in place: same length or another that the cipher takes.
    pub fn rekey(&mut self, _key: &[u8]) -> Result<(), WrongKeyLength> {
        todo!()
    }
    /// The name it was made with.
    pub fn spec(&self) -> CipherSpec {
        todo!()
    }
    /// Its sector size.
    pub fn sector_size(&self) -> SectorSize {
        todo!()
    }
    /// The back-end in use.
    pub fn backend(&self) -> Backend {
        todo!()
    }
    /// Encrypts a run in place.
    pub fn encrypt(&self, _first: u64, _data: &mut [u8]) {
        todo!()
    }
    /// Decrypts a run in place.
    pub fn decrypt(&self, _first: u64, _data: &mut [u8]) {
        todo!()
    }
    /// Encrypts a run from `source` to `dest`, of equal length; reads each byte of `source` once.
    pub fn encrypt_to(&self, _first: u64, _source: &[u8], _dest: &mut [u8]) {
        todo!()
    }
    /// Decrypts a run from `source` to `dest`, of equal length; reads each byte of `source` once.
    pub fn decrypt_to(&self, _first: u64, _source: &[u8], _dest: &mut [u8]) {
        todo!()
    }
    /// Encrypts several runs together, in place: scattered single sectors fill
    /// the pipelines as one long run does.
    pub fn encrypt_segments(&self, _segments: &mut [Segment<'_>]) {
        todo!()
    }
    /// Decrypts several runs together, in place.
    pub fn decrypt_segments(&self, _segments: &mut [Segment<'_>]) {
        todo!()
    }
}
