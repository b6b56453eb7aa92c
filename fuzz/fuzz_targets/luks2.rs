//! Hostile LUKS2 headers: everything that reads must end in a value or an
//! error and write nothing, and whatever reading lets through must still be a
//! header after it was edited.
//!
//! An input that starts with a magic is a header, whose checksums are put right
//! (or no input would get past them). Of any other one, the first byte chooses
//! how the rest is used: as the bytes of a device; as the JSON text of a header;
//! or as edits of a valid text.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use xtent_fuzz::{edited, put_right};
use xtent_luks::{Device, KdfLimits};
use xtent_secret::SecretBytes;
use xtent_store::Store;
use xtent_store::testing::MemStore;

/// Bytes of one copy of the header.
const COPY: usize = 0x4000;
/// Both copies, room for two small keyslots, a little data.
const SIZE: usize = 2 * COPY + 2 * 0x1_0000 + 8192;

const TEMPLATE: &str = concat!(
    r#"{"keyslots":{"0":{"type":"luks2","key_size":16,"priority":2,"#,
    r#""af":{"type":"luks1","stripes":4000,"hash":"sha256"},"#,
    r#""area":{"type":"raw","offset":"32768","size":"65536","encryption":"aes-xts-plain64","key_size":64},"#,
    r#""kdf":{"type":"pbkdf2","hash":"sha256","iterations":1000,"salt":"SRR/F4/ARGyWJZaNlQV/WxxGZV9WnspX22J1Idi/Xto="}},"#,
    r#""1":{"type":"luks2","key_size":16,"#,
    r#""af":{"type":"luks1","stripes":4000,"hash":"sha256"},"#,
    r#""area":{"type":"raw","offset":"98304","size":"65536","encryption":"aes-xts-plain64","key_size":64},"#,
    r#""kdf":{"type":"argon2id","time":4,"memory":32,"cpus":1,"salt":"fpK8tdH35xDK83PPNjLBKOQpjvFKwePBU0n0zDVq2o4="}}},"#,
    r#""tokens":{"0":{"type":"t","keyslots":["0","1"]}},"#,
    r#""segments":{"0":{"type":"crypt","offset":"163840","size":"dynamic","iv_tweak":"0","#,
    r#""encryption":"aes-cbc-essiv:sha256","sector_size":512}},"#,
    r#""digests":{"0":{"type":"pbkdf2","keyslots":["0","1"],"segments":["0"],"hash":"sha256","iterations":1000,"#,
    r#""salt":"UGBjd1SlwO83pcIwcn9q3Qo1tohCmfyxzsYDt/0uvnA=","digest":"4WboLzS0mU/A44R5NygYsNjyrPfDb16WbL/eHdIvcQw="}},"#,
    r#""config":{"json_size":"12288","keyslots_size":"131072","flags":["allow-discards"]}}"#
);

fuzz_target!(|data: &[u8]| {
    if data.starts_with(b"LUKS\xba\xbe\0\x02") {
        let mut image = data.to_vec();
        image.resize(SIZE, 0);
        for start in [0, COPY] {
            put_right(&mut image[start..start + COPY]);
        }
        check(image);
        return;
    }
    let Some((mode, data)) = data.split_first() else {
        return;
    };
    match mode % 3 {
        0 => raw(data),
        1 => sealed(data),
        _ => sealed(&edited(TEMPLATE.as_bytes(), data)),
    }
});

/// The input is the device.
fn raw(data: &[u8]) {
    let mut image = data.to_vec();
    if let Some(start) = image.get_mut(..16) {
        start.copy_from_slice(b"LUKS\xba\xbe\0\x02\0\0\0\0\0\0\x40\0");
        image.resize(SIZE, 0);
    }
    check(image);
}

/// The input is the JSON area.
fn sealed(text: &[u8]) {
    let text = &text[..text.len().min(COPY - 4096)];
    let mut image = vec![0; SIZE];
    for (magic, start) in [(b"LUKS\xba\xbe", 0), (b"SKUL\xba\xbe", COPY)] {
        let copy = &mut image[start..start + COPY];
        copy[..6].copy_from_slice(magic);
        copy[7] = 2;
        copy[8..16].copy_from_slice(&(COPY as u64).to_be_bytes());
        copy[23] = 1;
        copy[72..78].copy_from_slice(b"sha256");
        copy[168..204].copy_from_slice(b"22b51bd9-f269-4cc7-94f2-dd5abdc517e9");
        copy[256..264].copy_from_slice(&(start as u64).to_be_bytes());
        copy[4096..4096 + text.len()].copy_from_slice(text);
        put_right(copy);
    }
    check(image);
}

fn check(image: Vec<u8>) {
    let store = Arc::new(MemStore::from(image));
    let device = Device::without_locks(store.clone());
    let header = device.read();
    if let Ok(header) = &header {
        let _ = header.segment(store.size());
        let _ = header.dump().to_string();
        let _ = header.keyslot_info();
        let _ = header.key_length();
        for token in header.tokens().expect("a header that was read") {
            assert!(token.json.starts_with('{'));
        }
    }
    // Nothing that takes long: most inputs should never get to a derivation.
    let limits = KdfLimits {
        longest: Some(Duration::from_millis(5)),
    };
    if let Ok(passphrase) = SecretBytes::copy_of(b"passphrase") {
        let _ = device.unlock(&passphrase, None, &limits);
    }
    assert_eq!(store.writes(), 0, "reading has written");
    let Ok(header) = header else {
        return;
    };
    let mut left = header.keyslots().len();
    for keyslot in header.keyslots() {
        if device.kill_slot(keyslot, true).is_err() {
            break;
        }
        left -= 1;
        let now = device.read().expect("an edited header must be valid");
        assert_eq!(now.keyslots().len(), left);
        assert!(!now.is_recovered());
    }
}
