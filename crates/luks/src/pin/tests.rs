use std::sync::Arc;

use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use xtent_secret::SecretBytes;
use xtent_store::Store;
use xtent_store::testing::MemStore;

use super::*;
use crate::kdf::KdfKind;
use crate::{Device, FormatOptions, KdfChoice, KdfLimits, Version};

fn word(word: &str) -> SecretBytes {
    SecretBytes::copy_of(word.as_bytes()).unwrap()
}

fn fast() -> KdfChoice {
    KdfChoice {
        kind: Some(KdfKind::Pbkdf2),
        hash: None,
        target: std::time::Duration::from_millis(1),
        force_iterations: Some(1000),
        memory: None,
        parallel: None,
    }
}

fn volume(version: Version) -> (Arc<MemStore>, Device) {
    let store = Arc::new(MemStore::new(4 << 20));
    let device = Device::without_locks(store.clone());
    let options = FormatOptions {
        version,
        encryption: "aes-xts-plain64".into(),
        key_length: 32,
        sector_size: 512,
        kdf: fast(),
        hash: "sha256".into(),
        uuid: Some("6f1d2a0c-4b0e-4b57-9d3f-0d9f5b1c2e3a".into()),
        label: None,
        subsystem: None,
        data_offset: Some(2 << 20),
        detached: false,
        metadata_size: None,
        keyslots_size: None,
    };
    device.format(&options, &word("old")).unwrap();
    (store, device)
}

const LIMITS: KdfLimits = KdfLimits { longest: None };

fn pins(device: &Device) -> [Pin; 2] {
    let header = device.read().unwrap();
    PinScope::ALL.map(|scope| header.pin(scope).unwrap())
}

#[test]
fn the_text_says_what_it_is_and_comes_back() {
    for version in [Version::Luks1, Version::Luks2] {
        let (_, device) = volume(version);
        for pin in pins(&device) {
            let text = pin.to_string();
            assert!(text.starts_with(&format!("xtent1:{}:sha256:", pin.scope().name())));
            assert!(text.contains(",uuid=6f1d2a0c-4b0e-4b57-9d3f-0d9f5b1c2e3a"));
            assert_eq!(text.parse::<Pin>().unwrap(), pin);
            let short: Pin = pin.short().parse().unwrap();
            pin.check(&pin).unwrap();
            short.check(&pin).unwrap();
        }
    }
}

/// By the documentation alone.
#[test]
fn the_digests_are_those_of_the_specification() {
    let (store, device) = volume(Version::Luks1);
    let image = store.contents();
    let [of_volume, metadata] = pins(&device);
    let mut covered = b"xtent1:metadata\n".to_vec();
    covered.extend_from_slice(&image[..592]);
    assert_eq!(metadata.digest[..], Sha256::digest(&covered)[..]);
    let lines = format!(
        "xtent1:volume\nuuid=6f1d2a0c-4b0e-4b57-9d3f-0d9f5b1c2e3a\ncipher=aes-xts-plain64\n\
         sector=512\noffset=2097152\nsize=dynamic\ntweak=0\ndigest=pbkdf2:sha256:{}:{}:{}\n",
        u32::from_be_bytes(image[164..168].try_into().unwrap()),
        hex(&image[132..164]),
        hex(&image[112..132]),
    );
    assert_eq!(of_volume.digest[..], Sha256::digest(&lines)[..]);

    let (store, device) = volume(Version::Luks2);
    let image = store.contents();
    for start in [0, 0x4000] {
        let mut copy = image[start..start + 0x4000].to_vec();
        for zeroed in [0..6, 104..168, 256..264, 448..512] {
            copy[zeroed].fill(0);
        }
        let mut covered = b"xtent1:metadata\n".to_vec();
        covered.extend_from_slice(&copy);
        assert_eq!(pins(&device)[1].digest[..], Sha256::digest(&covered)[..]);
    }
}

#[test]
fn a_change_of_keys_breaks_the_pin_of_metadata_alone() {
    for version in [Version::Luks1, Version::Luks2] {
        let (_, device) = volume(version);
        let [of_volume, metadata] = pins(&device);
        let both = [of_volume.clone(), metadata];
        // All that there is to an addition reads the header as it was.
        let pinned = device.clone().expecting(&both);
        let unlocked = pinned.unlock(&word("old"), None, &LIMITS).unwrap();
        pinned
            .add_key(&unlocked, &word("new"), None, &fast())
            .unwrap();
        let error = pinned.unlock(&word("new"), None, &LIMITS).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unexpected);
        assert!(error.message.contains("(metadata)"), "{error}");
        if version == Version::Luks2 {
            assert!(
                error.message.contains("seqid: pinned 1, found 2"),
                "{error}"
            );
        }
        assert!(pinned.read().is_err());
        assert!(pinned.kill_slot(0, true).is_err());
        let pinned = device.clone().expecting(&[of_volume]);
        pinned.unlock(&word("new"), None, &LIMITS).unwrap();
        pinned.kill_slot(0, false).unwrap();
        pinned.read().unwrap();
    }
}

/// Storage that answers with another header once the first was found right.
#[test]
fn the_second_look_counts_too() {
    for version in [Version::Luks1, Version::Luks2] {
        let (store, device) = volume(version);
        let pinned = device.clone().expecting(&pins(&device)[..1]);
        pinned.read().unwrap();
        let (other, _) = volume(version);
        store.write_at(&other.contents(), 0).unwrap();
        let old = word("old");
        device.unlock(&old, None, &LIMITS).unwrap();
        let key = SecretBytes::zeroed(32).unwrap();
        for result in [
            pinned.unlock(&old, None, &LIMITS),
            pinned.unlock_any(&old, Some(0), &LIMITS),
            pinned.unlock_with_volume_key(key, &LIMITS),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unexpected, "{error}");
            assert!(error.message.contains("the volume key's digest differs"));
        }
        assert!(pinned.repair().is_err());
    }
}

#[test]
fn a_pin_that_contradicts_itself_fails() {
    let (_, device) = volume(Version::Luks2);
    let pin = pins(&device)[0]
        .to_string()
        .replace("sector=512", "sector=4096");
    let pinned = device.clone().expecting(&[pin.parse().unwrap()]);
    let error = pinned.read().unwrap_err();
    assert!(
        error.message.ends_with("sector: pinned 4096, found 512"),
        "{error}"
    );
}

#[test]
fn what_is_no_pin_is_refused() {
    let digest = "0".repeat(64);
    let good = format!("xtent1:volume:sha256:{digest}");
    good.parse::<Pin>().unwrap();
    for bad in [
        String::new(),
        "xtent1".into(),
        format!("xtent2:volume:sha256:{digest}"),
        format!("xtent1:header:sha256:{digest}"),
        format!("xtent1:volume:sha512:{digest}"),
        format!("xtent1:volume:sha256:{digest}0"),
        format!("xtent1:volume:sha256:{}", "A".repeat(64)),
        format!("{good}:"),
        format!("{good},"),
        format!("{good},uuid"),
        format!("{good},uuid="),
        format!("{good},uuid=a b"),
        format!("{good},seqid=1"),
        format!("{good},uuid=1,uuid=1"),
        format!("{good},uuid={}", "1".repeat(1000)),
        format!("{good}\n"),
    ] {
        let error = bad.parse::<Pin>().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Options, "{bad}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_pin_or_none(text in ".{0,200}", tail in "[a-z0-9=,:]{0,60}") {
        let _ = text.parse::<Pin>();
        let text = format!("xtent1:metadata:sha256:{},{tail}", "ab".repeat(32));
        if let Ok(pin) = text.parse::<Pin>() {
            prop_assert_eq!(pin.to_string(), text);
        }
    }
}
