//! Tests on stores in memory: small volumes, damaged and interrupted.

mod damage;
mod hostile;
mod openers;
mod pinned;
mod power;
mod rules;

use std::sync::Arc;
use std::time::Duration;

use xtent_secret::SecretBytes;
use xtent_store::Store;
use xtent_store::testing::MemStore;

use super::binary::{Binary, Which};
use crate::kdf::KdfKind;
use crate::{Device, Error, FormatOptions, KdfChoice, KdfLimits, Version};

pub(super) const LIMITS: KdfLimits = KdfLimits {
    longest: Some(Duration::from_secs(5)),
};

/// Bytes of one copy.
pub(super) const COPY: usize = 0x4000;
/// First byte of the keyslots area.
pub(super) const AREAS: usize = 2 * COPY;
/// Bytes of an area for a key of 32 bytes.
pub(super) const AREA: usize = 131_072;
/// Room for three keyslots.
pub(super) const DATA: usize = AREAS + 3 * AREA;
/// Bytes of the whole device.
pub(super) const SIZE: usize = DATA + 8192;

pub(super) fn word(word: &str) -> SecretBytes {
    SecretBytes::copy_of(word.as_bytes()).unwrap()
}

pub(super) fn fast() -> KdfChoice {
    KdfChoice {
        kind: Some(KdfKind::Pbkdf2),
        hash: None,
        target: Duration::from_millis(1),
        force_iterations: Some(1000),
        memory: None,
        parallel: None,
    }
}

pub(super) fn options() -> FormatOptions {
    FormatOptions {
        version: Version::Luks2,
        encryption: "aes-xts-plain64".into(),
        key_length: 32,
        sector_size: 512,
        kdf: fast(),
        hash: "sha256".into(),
        uuid: None,
        label: Some("label".into()),
        subsystem: None,
        data_offset: Some(DATA as u64),
        detached: false,
        metadata_size: None,
        keyslots_size: None,
    }
}

pub(super) fn on(store: &Arc<impl Store + 'static>) -> Device {
    Device::without_locks(store.clone())
}

/// A volume whose first keyslot opens with "old".
pub(super) fn volume() -> Vec<u8> {
    let store = Arc::new(MemStore::new(SIZE));
    on(&store).format(&options(), &word("old")).unwrap();
    store.contents()
}

/// `image` after `change`.
pub(super) fn changed(image: Vec<u8>, change: impl FnOnce(&Device)) -> Vec<u8> {
    let store = Arc::new(MemStore::from(image));
    change(&on(&store));
    store.contents()
}

/// The volume key, if `passphrase` opens the image. Reading must not write.
pub(super) fn key(image: &[u8], passphrase: &str) -> Result<Vec<u8>, Error> {
    let store = Arc::new(MemStore::from(image.to_vec()));
    let unlocked = on(&store).unlock(&word(passphrase), None, &LIMITS);
    assert_eq!(store.writes(), 0, "reading wrote");
    unlocked.map(|unlocked| unlocked.key.to_vec())
}

pub(super) fn read(image: &[u8]) -> Result<crate::Header, Error> {
    let store = Arc::new(MemStore::from(image.to_vec()));
    let header = on(&store).read();
    assert_eq!(store.writes(), 0, "reading wrote");
    header
}

/// The JSON text of the primary copy.
pub(super) fn text(image: &[u8]) -> String {
    super::document::text_in(&image[4096..COPY])
        .unwrap()
        .to_owned()
}

/// `image` with `text` in both copies, whatever it is, and good checksums.
pub(super) fn sealed(image: &[u8], text: &str) -> Vec<u8> {
    let binary = Binary::parse(image, Which::Primary, 0).unwrap();
    let mut image = image.to_vec();
    for (which, start) in [(Which::Primary, 0), (Which::Secondary, COPY)] {
        let copy = binary.encode(which, text).unwrap();
        image[start..start + COPY].copy_from_slice(&copy);
    }
    image
}

/// `image` with this sequence number in both copies.
pub(super) fn with_seqid(image: &[u8], seqid: u64) -> Vec<u8> {
    let binary = Binary {
        seqid,
        ..Binary::parse(image, Which::Primary, 0).unwrap()
    };
    let text = text(image);
    let mut image = image.to_vec();
    for (which, start) in [(Which::Primary, 0), (Which::Secondary, COPY)] {
        let copy = binary.encode(which, &text).unwrap();
        image[start..start + COPY].copy_from_slice(&copy);
    }
    image
}

/// Every operation on `image` fails, and none writes.
pub(super) fn assert_refused(image: &[u8], what: &str) {
    let store = Arc::new(MemStore::from(image.to_vec()));
    let device = on(&store);
    let unlocked = crate::Unlocked {
        key: SecretBytes::zeroed(32).unwrap(),
        keyslot: Some(0),
        salt: Vec::new(),
    };
    let folder = tempfile::tempdir().unwrap();
    let results = [
        device.read().map(drop),
        device.unlock(&word("old"), None, &LIMITS).map(drop),
        device.unlock(&word("old"), Some(0), &LIMITS).map(drop),
        device
            .add_key(&unlocked, &word("new"), None, &fast())
            .map(drop),
        device
            .change_key(
                &word("old"),
                None,
                &word("new"),
                &fast(),
                crate::ChangeOptions::default(),
                &LIMITS,
            )
            .map(drop),
        device.kill_slot(0, true),
        device.erase(),
        device.repair().map(drop),
        device.backup(&folder.path().join("backup")),
    ];
    for (number, result) in results.into_iter().enumerate() {
        assert!(result.is_err(), "operation {number} on {what}");
    }
    assert_eq!(store.writes(), 0, "{what}");
}
