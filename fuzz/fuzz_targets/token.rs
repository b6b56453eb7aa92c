//! A LUKS2 token on its way through `xtent` and a helper: whatever its JSON says, the
//! request is one line, comes out of it as it went in, and names no program by a path; no
//! key material is in it; and what the helper hands on has the form that it must have.
//! Then the other way round: any bytes as a request, as a token, and as what a helper says.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use xtent_fuzz::put_right;
use xtent_luks::{Device, Token};
use xtent_store::testing::MemStore;
use xtent_token::{Outcome, Request, Said, VERSION, clevis_jwe, helper_for, key_description};

/// Bytes of one copy of the header.
const COPY: usize = 0x4000;
/// Both copies, an area of key material, a little data.
const SIZE: usize = 2 * COPY + 0x1_0000 + 4096;
/// What the material and the data consist of.
const MATERIAL: u8 = 0xa7;

/// A header with one keyslot and the tokens `…`.
const TEMPLATE: &str = concat!(
    r#"{"keyslots":{"0":{"type":"luks2","key_size":16,"#,
    r#""af":{"type":"luks1","stripes":4000,"hash":"sha256"},"#,
    r#""area":{"type":"raw","offset":"32768","size":"65536","encryption":"aes-xts-plain64","key_size":64},"#,
    r#""kdf":{"type":"pbkdf2","hash":"sha256","iterations":1000,"salt":"SRR/F4/ARGyWJZaNlQV/WxxGZV9WnspX22J1Idi/Xto="}}},"#,
    r#""tokens":{"0":…},"#,
    r#""segments":{"0":{"type":"crypt","offset":"98304","size":"dynamic","iv_tweak":"0","#,
    r#""encryption":"aes-cbc-essiv:sha256","sector_size":512}},"#,
    r#""digests":{"0":{"type":"pbkdf2","keyslots":["0"],"segments":["0"],"hash":"sha256","iterations":1000,"#,
    r#""salt":"UGBjd1SlwO83pcIwcn9q3Qo1tohCmfyxzsYDt/0uvnA=","digest":"4WboLzS0mU/A44R5NygYsNjyrPfDb16WbL/eHdIvcQw="}},"#,
    r#""config":{"json_size":"12288","keyslots_size":"65536"}}"#
);

/// Ways of a token that begin well.
const WHOLE: [(&str, &str); 4] = [
    ("", ""),
    (r#"{"keyslots":["0"],"type":""#, "}"),
    (
        r#"{"keyslots":["0"],"type":"luks2-keyring","key_description":""#,
        r#""}"#,
    ),
    (
        r#"{"keyslots":["0"],"type":"clevis","jwe":{"ciphertext":"c","iv":"i","tag":"t","protected":""#,
        r#""}}"#,
    ),
];

fuzz_target!(|data: &[u8]| {
    let Some((mode, data)) = data.split_first() else {
        return;
    };
    match mode % 8 {
        which @ 0..=3 => {
            let Ok(text) = std::str::from_utf8(data) else {
                return;
            };
            let (before, after) = WHOLE[usize::from(which)];
            volume(&format!("{before}{text}{after}"));
        }
        4 | 5 => {
            if let Ok(request) = serde_json::from_slice::<Request>(data) {
                there_and_back(&request);
            }
        }
        6 => {
            if let Ok(text) = std::str::from_utf8(data) {
                helper(text);
            }
        }
        _ => said(data),
    }
});

/// A volume with this token is opened.
fn volume(token: &str) {
    let text = TEMPLATE.replace('…', token);
    if text.len() > COPY - 4096 {
        return;
    }
    let mut image = vec![MATERIAL; SIZE];
    for (magic, start) in [(b"LUKS\xba\xbe", 0), (b"SKUL\xba\xbe", COPY)] {
        let copy = &mut image[start..start + COPY];
        copy.fill(0);
        copy[..6].copy_from_slice(magic);
        copy[7] = 2;
        copy[8..16].copy_from_slice(&(COPY as u64).to_be_bytes());
        copy[23] = 1;
        copy[72..78].copy_from_slice(b"sha256");
        copy[168..204].copy_from_slice(b"22b51bd9-f269-4cc7-94f2-dd5abdc517e9");
        copy[256..264].copy_from_slice(&(start as u64).to_be_bytes());
        copy[4096..4096 + text.len()].copy_from_slice(text.as_bytes());
        put_right(copy);
    }
    let store = Arc::new(MemStore::from(image));
    let device = Device::without_locks(store.clone());
    let Ok(header) = device.read() else { return };
    let metadata = header.without_key_material();
    let metadata = metadata.expect("it was read").expect("it is LUKS2");
    let material = [MATERIAL; 64];
    assert!(!metadata.windows(64).any(|some| some == material));
    // The helper's library reads it as a volume, with holes for keyslots.
    let mut copy = metadata.clone();
    copy.resize(SIZE, 0);
    let copy = Arc::new(MemStore::from(copy));
    let again = Device::without_locks(copy).read().expect("a header");
    assert_eq!(
        again.tokens().expect("tokens"),
        header.tokens().expect("tokens")
    );

    for Token {
        id,
        kind,
        json,
        keyslots,
        ..
    } in header
        .openers(None, None)
        .expect("of a header that was read")
    {
        assert!(keyslots.iter().all(|keyslot| *keyslot == 0));
        if let Some(name) = helper_for(&kind) {
            assert!(!name.contains(['/', '\0']) && name.starts_with("xtent-token-"));
        }
        let request = Request {
            version: VERSION,
            token: id,
            kind,
            json: serde_json::from_str(&json).expect("a token's text is JSON"),
            header: Request::encode(&metadata),
            tpm2_device: None,
            pin: false,
            verbose: false,
        };
        there_and_back(&request);
        let read: Request = serde_json::from_slice(&line(&request)).expect("its own line");
        assert_eq!(read.header_bytes().as_ref(), Some(&metadata));
        helper(read.json.get());
    }
    assert_eq!(store.writes(), 0);
}

/// A request's line, without its end.
fn line(request: &Request) -> Vec<u8> {
    let mut line = request.to_line().expect("all of it can be written");
    assert_eq!(line.pop(), Some(b'\n'));
    assert!(!line.contains(&b'\n'), "two lines");
    line
}

fn there_and_back(request: &Request) {
    let read: Request = serde_json::from_slice(&line(request)).expect("its own line");
    assert_eq!(
        (read.version, read.token, read.pin, read.verbose),
        (request.version, request.token, request.pin, request.verbose)
    );
    assert_eq!(read.kind, request.kind);
    // In one line.
    let json = request.json.get().replace('\n', " ");
    assert_eq!(read.json.get(), json);
    assert_eq!(read.tpm2_device, request.tpm2_device);
    assert_eq!(read.header_bytes(), request.header_bytes());
}

/// What the helper makes of a token.
fn helper(json: &str) {
    if let Ok(jwe) = clevis_jwe(json) {
        let parts: Vec<&str> = jwe.split('.').collect();
        assert_eq!(parts.len(), 5, "{jwe:?}");
        let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        assert!(parts.iter().all(|part| part.bytes().all(is_base64)));
    }
    if let Ok(description) = key_description(json) {
        std::ffi::CString::new(description).expect("what the kernel takes");
    }
}

/// What a helper says comes out as lines that a person can read, however it is cut up.
fn said(data: &[u8]) {
    let lines = |at_once: usize| {
        let mut lines = Vec::new();
        let mut said = Said::default();
        let mut say = |line: &str| lines.push(line.to_owned());
        for piece in data.chunks(at_once) {
            said.hear(piece, &mut say);
        }
        said.end_line(&mut say);
        lines
    };
    let whole = lines(4096);
    assert!(whole.len() <= 200);
    for line in &whole {
        assert!(!line.is_empty() && !line.contains('\n') && line.chars().count() <= 1024);
    }
    assert_eq!(whole, lines(1));
    // An exit code is as wide as that.
    let code = i32::from(data.first().copied().unwrap_or_default());
    let outcome = Outcome::of_code(code);
    assert!(outcome as i32 == code || outcome == Outcome::Failed);
}
