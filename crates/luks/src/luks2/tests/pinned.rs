//! Pins against forged metadata with right checksums, and the null cipher.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use xtent_store::Store;
use xtent_store::testing::MemStore;

use super::{
    AREAS, COPY, LIMITS, changed, fast, key, read, sealed, text, volume, with_seqid, word,
};
use crate::{Device, ErrorKind, Pin, PinScope};

fn pin(image: &[u8], scope: PinScope) -> Pin {
    read(image).unwrap().pin(scope).unwrap()
}

/// What opening says of `image` where `pinned` is expected.
fn complaint(image: &[u8], pinned: &Pin) -> String {
    let error = read(image)
        .and_then(|header| header.is_what(std::slice::from_ref(pinned)))
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unexpected, "{error}");
    error.message
}

#[test]
fn every_field_of_the_segment_is_covered_and_named() {
    let image = volume();
    let pinned = pin(&image, PinScope::Volume);
    let metadata = pin(&image, PinScope::Metadata);
    let offset = super::DATA;
    for (from, to, said) in [
        (
            "\"encryption\":\"aes-xts-plain64\",\"sector_size\":512",
            "\"encryption\":\"cipher_null-ecb\",\"sector_size\":512",
            "cipher: pinned aes-xts-plain64, found cipher_null-ecb",
        ),
        (
            "\"sector_size\":512",
            "\"sector_size\":4096",
            "sector: pinned 512, found 4096",
        ),
        (
            "\"iv_tweak\":\"0\"",
            "\"iv_tweak\":\"8\"",
            "tweak: pinned 0, found 8",
        ),
        (
            "\"size\":\"dynamic\"",
            "\"size\":\"4096\"",
            "size: pinned dynamic, found 4096",
        ),
        (
            &format!("\"offset\":\"{offset}\",\"size\":\"dynamic\""),
            &format!("\"offset\":\"{}\",\"size\":\"dynamic\"", offset + 4096),
            "offset: pinned",
        ),
        (
            "\"iterations\":1000,\"salt\"",
            "\"iterations\":1001,\"salt\"",
            "digest differs",
        ),
    ] {
        let before = text(&image);
        let at = before
            .rfind(from)
            .unwrap_or_else(|| panic!("{from} in {before}"));
        let after = format!("{}{to}{}", &before[..at], &before[at + from.len()..]);
        let forged = sealed(&image, &after);
        assert!(
            complaint(&forged, &pinned).contains(said),
            "{}",
            complaint(&forged, &pinned)
        );
        complaint(&forged, &metadata);
    }
}

/// One copy is as good as the other.
#[test]
fn a_recovered_header_has_the_same_pins() {
    let image = volume();
    for start in [0, COPY] {
        let mut damaged = image.clone();
        damaged[start..start + 512].fill(0);
        assert!(read(&damaged).unwrap().is_recovered());
        for scope in [PinScope::Volume, PinScope::Metadata] {
            assert_eq!(pin(&damaged, scope), pin(&image, scope));
        }
        // A forged copy is found out where it is the only one.
        let forged = sealed(
            &image,
            &text(&image).replace("\"iv_tweak\":\"0\"", "\"iv_tweak\":\"8\""),
        );
        let mut only = forged.clone();
        only[start..start + 512].fill(0);
        complaint(&only, &pin(&image, PinScope::Volume));
    }
}

#[test]
fn an_older_header_is_another_as_metadata_only() {
    let old = volume();
    let new = changed(old.clone(), |device| {
        let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
        device
            .add_key(&unlocked, &word("new"), None, &fast())
            .unwrap();
        device.kill_slot(0, false).unwrap();
    });
    assert_eq!(pin(&old, PinScope::Volume), pin(&new, PinScope::Volume));
    let said = complaint(&old, &pin(&new, PinScope::Metadata));
    assert!(said.contains("seqid: pinned 3, found 1"), "{said}");
    // The same count does not hide it.
    let said = complaint(&with_seqid(&old, 3), &pin(&new, PinScope::Metadata));
    assert!(said.contains("the keyslots"), "{said}");
}

/// Keyslots that give out a key of the forger's, whatever the passphrase is.
#[test]
fn a_null_cipher_is_refused_by_name() {
    let image = volume();
    let area = "\"encryption\":\"aes-xts-plain64\",\"key_size\":64";
    let before = text(&image);
    assert!(before.contains(area), "{before}");
    for null in ["cipher_null-ecb", "capi:ecb(cipher_null)-plain"] {
        let mut forged = sealed(
            &image,
            &before.replace(area, &format!("\"encryption\":\"{null}\",\"key_size\":64")),
        );
        forged[AREAS..AREAS + 4096].fill(0);
        let error = key(&forged, "anything").unwrap_err();
        assert!(
            error.message.starts_with("keyslot 0: the key in it") && error.message.contains(null),
            "{error}"
        );
        let error = read(&forged).unwrap().segment(1 << 30).unwrap_err();
        assert!(
            error.message.starts_with("the key in keyslot 0 would"),
            "{error}"
        );
        let of_data = before.replace(
            "\"encryption\":\"aes-xts-plain64\",\"sector_size\"",
            &format!("\"encryption\":\"{null}\",\"sector_size\""),
        );
        let error = read(&sealed(&image, &of_data))
            .unwrap()
            .segment(1 << 30)
            .unwrap_err();
        assert!(error.message.starts_with("the data would"), "{error}");
    }
}

/// Storage that answers by another header after so many reads.
struct Fickle {
    first: MemStore,
    second: MemStore,
    reads: AtomicU64,
    honest: u64,
}

impl Store for Fickle {
    fn size(&self) -> u64 {
        self.first.size()
    }
    fn is_read_only(&self) -> bool {
        true
    }
    fn limits(&self) -> xtent_store::Limits {
        self.first.limits()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), xtent_store::Error> {
        let is_honest = self.reads.fetch_add(1, Ordering::SeqCst) < self.honest;
        let answer = if is_honest { &self.first } else { &self.second };
        answer.read_at(buf, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), xtent_store::Error> {
        self.first.write_at(data, offset)
    }
    fn flush(&self) -> Result<(), xtent_store::Error> {
        Ok(())
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), xtent_store::Error> {
        self.first.discard(offset, len)
    }
}

#[test]
fn a_backup_is_of_the_pinned_header_or_none() {
    let (pinned, other) = (volume(), volume());
    let pins = [pin(&pinned, PinScope::Metadata)];
    let folder = tempfile::tempdir().unwrap();
    let mut met = [0; 2];
    for honest in 0..40 {
        let device = Device::without_locks(Arc::new(Fickle {
            first: MemStore::from(pinned.clone()),
            second: MemStore::from(other.clone()),
            reads: AtomicU64::new(0),
            honest,
        }))
        .expecting(&pins);
        let to = folder.path().join(honest.to_string());
        match device.backup(&to) {
            Ok(()) => {
                let saved = std::fs::read(&to).unwrap();
                assert_eq!(saved, pinned[..saved.len()], "after {honest} reads");
                met[1] += 1;
            }
            Err(_) => {
                assert!(!to.exists(), "after {honest} reads");
                met[0] += 1;
            }
        }
    }
    assert!(met[0] > 2 && met[1] > 2, "{met:?}");
}
