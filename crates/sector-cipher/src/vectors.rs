//! Test vectors whose tweaks are no sector numbers, for the modes' own tests.
extern crate std;

mod testmgr;

pub(crate) use testmgr::kernel;

use serde_json::Value;
use std::vec::Vec;

/// Those of `tests/data/raw-tweaks.json` for a cipher.
pub(crate) fn vectors(cipher: &str) -> Vec<Value> {
    let file = include_str!("../tests/data/raw-tweaks.json");
    of_cipher(serde_json::from_str(file).unwrap(), cipher)
}

/// Those that the designers of HCTR2 and of Adiantum have published for a cipher.
pub(crate) fn designers(cipher: &str) -> Vec<Value> {
    let files = [
        include_str!("../tests/data/hctr2-designers.json"),
        include_str!("../tests/data/adiantum-designers.json"),
    ];
    let all = files.into_iter().flat_map(|file| {
        let file: Value = serde_json::from_str(file).unwrap();
        file["vectors"].as_array().unwrap().clone()
    });
    of_cipher(all.collect(), cipher)
}

fn of_cipher(mut vectors: Vec<Value>, cipher: &str) -> Vec<Value> {
    vectors.retain(|vector| vector["cipher"] == cipher);
    vectors
}

/// Those that others have published for a cipher and that are not in the clone, by the name it has in the file that the
/// environment variable `XTENT_PUBLISHED_VECTORS` names. `tests/data/README.md` says what the
/// file holds. The tests of these vectors have `published` in their names and are ignored
/// unless asked for:
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
    let Value::Array(vectors) = all["vectors"].take() else {
        panic!("{}: no list \"vectors\"", path.display());
    };
    of_cipher(vectors, cipher)
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
