//! Test vectors whose tweaks are no sector numbers, for the modes' own tests.
extern crate std;

use serde_json::Value;
use std::vec::Vec;

/// Those of `tests/data/raw-tweaks.json` for a cipher.
pub(crate) fn vectors(cipher: &str) -> Vec<Value> {
    let file = include_str!("../tests/data/raw-tweaks.json");
    let mut vectors: Vec<Value> = serde_json::from_str(file).unwrap();
    vectors.retain(|vector| vector["cipher"] == cipher);
    vectors
}

/// The bytes of a field.
pub(crate) fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}
