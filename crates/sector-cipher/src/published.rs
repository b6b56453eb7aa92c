//! The published test vectors, which lie beside the workspace, or nowhere.
extern crate std;

use serde_json::Value;
use std::path::Path;
use std::vec::Vec;

/// Those of `ciphers`, or `None` and a line where the file is not there, which the end
/// of `make test` says as well.
pub(crate) fn vectors(ciphers: &[&str]) -> Option<Vec<Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors/published.json");
    let Ok(file) = std::fs::read_to_string(&path) else {
        std::println!("{} is not there", path.display());
        return None;
    };
    let mut all: Value = serde_json::from_str(&file).unwrap();
    let Value::Array(mut vectors) = all["vectors"].take() else {
        panic!("published.json has no vectors");
    };
    vectors.retain(|vector| ciphers.contains(&vector["cipher"].as_str().unwrap()));
    Some(vectors)
}

/// The bytes of a field.
pub(crate) fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}
