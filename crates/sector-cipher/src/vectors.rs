//! Test vectors whose tweaks are no sector numbers, for the modes' own tests.
extern crate std;

mod testmgr;

pub(crate) use testmgr::kernel;

use serde_json::Value;
use std::vec::Vec;

/// Those of `tests/data/raw-tweaks.json` for a cipher.
pub(crate) fn vectors(cipher: &str) -> Vec<Value> {
    let file = include_str!("../tests/data/raw-tweaks.json");
    let mut vectors: Vec<Value> = serde_json::from_str(file).unwrap();
    vectors.retain(|vector| vector["cipher"] == cipher);
    vectors
}

/// Those that others have published for a cipher, by the name it has in the file that the
/// environment variable `XTENT_PUBLISHED_VECTORS` names. `tests/data/README.md` says what the
/// file holds. The tests of these vectors have `published` in their names and are ignored
/// unless asked for, as the vectors are not in the clone:
///
/// ```text
/// XTENT_PUBLISHED_VECTORS=/FOLDER/FILE cargo test -p sector-cipher -- --ignored published
/// ```
///
/// # Panics
/// If the variable is not set, or names no such file.
pub(crate) fn published(cipher: &str) -> Vec<Value> {
    let Some(path) = std::env::var_os("XTENT_PUBLISHED_VECTORS") else {
        panic!("XTENT_PUBLISHED_VECTORS names no file of published vectors");
    };
    let file = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("XTENT_PUBLISHED_VECTORS={}: {error}", path.display()));
    let mut all: Value = serde_json::from_str(&file).unwrap();
    let Value::Array(mut vectors) = all["vectors"].take() else {
        panic!("{}: no list \"vectors\"", path.display());
    };
    vectors.retain(|vector| vector["cipher"] == cipher);
    vectors
}

/// The bytes of a field.
pub(crate) fn unhex(text: &Value) -> Vec<u8> {
    bytes(text.as_str().unwrap())
}

/// The bytes of hexadecimal digits.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}
