//! Volumes for tests, and their plaintext by a way that is not the volume's.

use std::sync::Arc;

use sector_cipher::{Cipher, SectorCount, SectorSize};
use xtent_secret::SecretBytes;
use xtent_store::testing::LaterStore;
use xtent_store::{AlignedBuffer, Buffer, Memory, Store, block_on};
use xtent_volume::testing::LaterEngine;
use xtent_volume::{Config, DiscardPolicy, Error, Holes, Threshold, Volume};

pub(crate) const XTS: &str = "aes-xts-plain64";
pub(crate) const CBC: &str = "aes-cbc-essiv:sha256";

/// Where the volumes of tests begin: not a multiple of large sectors, as in LUKS1.
pub(crate) const OFFSET: u64 = 3 * 512;

pub(crate) fn key(cipher: &str) -> Vec<u8> {
    let len = if cipher == XTS { 64 } else { 32 };
    (0..len).map(|i: u8| 3 * i + 1).collect()
}

pub(crate) fn config(cipher: &str, sector: u32, length: u64) -> Config {
    Config {
        cipher: cipher.parse().unwrap(),
        sector_size: SectorSize::new(sector).unwrap(),
        sector_count: SectorCount::Units512,
        offset: OFFSET,
        length,
        iv_offset: 8,
        read_only: false,
        discard: DiscardPolicy::Never,
        holes: Holes::Noise,
        backend: None,
    }
}

pub(crate) fn open(store: Arc<dyn Store>, config: &Config) -> Volume {
    let key = SecretBytes::copy_of(&key(&config.cipher.to_string())).unwrap();
    Volume::open(store, &key, config).unwrap()
}

/// How requests are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// On lent memory.
    Now,
    /// On owned memory, over a store that completes later.
    Later,
    /// On owned memory, over a store that does not, by an engine that has to do it all.
    Engine,
}

pub(crate) const DRIVERS: [Driver; 3] = [Driver::Now, Driver::Later, Driver::Engine];

/// A volume whose calls are carried out by one of the drivers.
pub(crate) struct Driven {
    pub(crate) volume: Volume,
    pub(crate) driver: Driver,
    pub(crate) memory: Arc<Memory>,
}

/// An engine with the volume's key.
pub(crate) fn engine(config: &Config, seed: u64) -> Arc<LaterEngine> {
    let key = key(&config.cipher.to_string());
    LaterEngine::new(config, &key, seed)
}

/// Opens it over the store, or over one that completes its operations later.
pub(crate) fn driven<S: Store + 'static>(
    store: &Arc<S>,
    config: &Config,
    driver: Driver,
) -> Driven {
    let store: Arc<dyn Store> = match driver {
        Driver::Now | Driver::Engine => Arc::clone(store) as _,
        Driver::Later => Arc::new(LaterStore::new(Arc::clone(store), 7)),
    };
    let volume = open(store, config);
    let volume = match driver {
        Driver::Engine => volume
            .with_engine(engine(config, 11), Threshold::Bytes(0))
            .unwrap(),
        Driver::Now | Driver::Later => volume,
    };
    Driven {
        volume,
        driver,
        memory: Memory::new(4 << 20),
    }
}

impl Driven {
    /// Memory for a range, with noise around the place of `data`.
    fn owned(&self, data: &[u8], offset: u64) -> Buffer {
        let hull = self.volume.hull(offset, data.len());
        let mut buffer = Buffer::from(AlignedBuffer::zeroed(hull.len).unwrap());
        buffer.fill(0xA7);
        buffer[hull.skip..hull.skip + data.len()].copy_from_slice(data);
        buffer
    }

    pub(crate) fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        if self.driver == Driver::Now {
            return self.volume.read_at(buf, offset);
        }
        let memory = self.owned(buf, offset);
        let skip = self.volume.hull(offset, buf.len()).skip;
        let read = block_on(self.volume.read_async(memory, offset, buf.len()))?;
        buf.copy_from_slice(&read[skip..skip + buf.len()]);
        Ok(())
    }

    pub(crate) fn write_at(&self, data: &[u8], offset: u64, fua: bool) -> Result<(), Error> {
        match self.driver {
            Driver::Now => self.volume.write_at(data, offset, fua),
            Driver::Later | Driver::Engine => block_on(self.write_async(data, offset, fua)),
        }
    }

    pub(crate) async fn write_async(
        &self,
        data: &[u8],
        offset: u64,
        fua: bool,
    ) -> Result<(), Error> {
        let memory = self.owned(data, offset);
        self.volume
            .write_async(memory, offset, data.len(), fua)
            .await
    }

    pub(crate) fn write_at_in_place(
        &self,
        data: &mut [u8],
        offset: u64,
        fua: bool,
    ) -> Result<(), Error> {
        match self.driver {
            Driver::Now => self.volume.write_at_in_place(data, offset, fua),
            Driver::Later | Driver::Engine => self.write_at(data, offset, fua),
        }
    }

    /// Neither a store that completes later nor an engine takes anything at once.
    pub(crate) fn try_read_at(&self, buf: &mut [u8], offset: u64) -> Result<bool, Error> {
        let is_read = self.volume.try_read_at(buf, offset)?;
        if self.driver != Driver::Now && !buf.is_empty() {
            assert!(!is_read);
            self.read_at(buf, offset)?;
            return Ok(true);
        }
        Ok(is_read)
    }

    pub(crate) fn try_write_at_in_place(
        &self,
        data: &mut [u8],
        offset: u64,
    ) -> Result<bool, Error> {
        let is_written = self.volume.try_write_at_in_place(data, offset)?;
        if self.driver != Driver::Now && !data.is_empty() {
            assert!(!is_written);
            self.write_at(data, offset, false)?;
            return Ok(true);
        }
        Ok(is_written)
    }

    pub(crate) fn write_zeroes(&self, offset: u64, len: u64, fua: bool) -> Result<(), Error> {
        match self.driver {
            Driver::Now => self.volume.write_zeroes(offset, len, fua),
            Driver::Later | Driver::Engine => {
                block_on(
                    self.volume
                        .write_zeroes_async(&self.memory, offset, len, fua),
                )
            }
        }
    }

    pub(crate) fn discard(&self, offset: u64, len: u64, fua: bool) -> Result<(), Error> {
        match self.driver {
            Driver::Now => self.volume.discard(offset, len, fua),
            Driver::Later | Driver::Engine => {
                block_on(self.volume.discard_async(&self.memory, offset, len, fua))
            }
        }
    }

    pub(crate) fn flush(&self) -> Result<(), Error> {
        match self.driver {
            Driver::Now => self.volume.flush(),
            Driver::Later | Driver::Engine => block_on(self.volume.flush_async()),
        }
    }
}

pub(crate) fn store_len(length: u64) -> usize {
    usize::try_from(OFFSET + length).unwrap()
}

/// Decrypts a store's image sector by sector with the cipher crate alone.
pub(crate) fn plaintext(image: &[u8], config: &Config) -> Vec<u8> {
    crypt(image, config, Cipher::decrypt)
}

/// A store's image with this plaintext.
pub(crate) fn image(plaintext: &[u8], config: &Config) -> Vec<u8> {
    let mut image = vec![0; usize::try_from(config.offset).unwrap()];
    image.extend_from_slice(plaintext);
    let body = crypt(&image, config, Cipher::encrypt);
    image.truncate(usize::try_from(config.offset).unwrap());
    image.extend(body);
    image
}

/// The cipher alone.
fn cipher(config: &Config) -> Cipher {
    Cipher::new(
        config.cipher,
        config.sector_size,
        config.sector_count,
        &key(&config.cipher.to_string()),
        Some(sector_cipher::Backend::Portable),
    )
    .unwrap()
}

fn crypt(image: &[u8], config: &Config, crypt: fn(&Cipher, u64, &mut [u8])) -> Vec<u8> {
    let cipher = cipher(config);
    let offset = usize::try_from(config.offset).unwrap();
    let mut body = image[offset..][..usize::try_from(config.length).unwrap()].to_vec();
    let sector = config.sector_size.bytes();
    for (index, data) in body.chunks_mut(sector).enumerate() {
        let first = config.iv_offset + (index * (sector / 512)) as u64;
        crypt(&cipher, first, data);
    }
    body
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
