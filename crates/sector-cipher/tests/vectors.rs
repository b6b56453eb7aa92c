//! Known answers: the committed vectors of runs of sectors. Those with other tweaks and
//! lengths are in `src/hazmat`, with them what others have published.
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

mod common;

use common::{cipher, unhex};
use sector_cipher::Backend;
use serde_json::Value;

fn text<'a>(vector: &'a Value, field: &str) -> &'a str {
    vector[field].as_str().unwrap()
}

/// Runs the vectors of a committed file: `per_name` for each cipher in it.
fn committed(file: &str, names: &[&str], per_name: usize) {
    let vectors: Vec<Value> = serde_json::from_str(file).unwrap();
    assert_eq!(vectors.len(), names.len() * per_name);
    for vector in &vectors {
        let name = text(vector, "cipher");
        assert!(names.contains(&name), "{name}");
        let (plain, encrypted) = (unhex(text(vector, "pt")), unhex(text(vector, "ct")));
        let bytes = usize::try_from(vector["sector_size"].as_u64().unwrap()).unwrap();
        let sector = vector["sector"].as_u64().unwrap();
        assert!(
            sector.is_multiple_of((bytes / 512) as u64),
            "not a sector of dm-crypt: {sector}"
        );
        for &backend in Backend::available() {
            let what = format!("{name} {backend}: sector {sector} of {bytes} bytes");
            let cipher = cipher(name, bytes, &unhex(text(vector, "key")), backend);
            let mut data = plain.clone();
            cipher.encrypt(sector, &mut data);
            assert!(data == encrypted, "{what}");
            cipher.decrypt(sector, &mut data);
            assert!(data == plain, "{what}");
        }
    }
}

#[test]
fn xts_vectors() {
    let file = include_str!("data/xts-reference.json");
    committed(file, &["aes-xts-plain64"], 26);
}

#[test]
fn fast_vectors() {
    let file = include_str!("data/fast-reference.json");
    let names = ["capi:fast(aes)-plain64", "capi:fast_horner(aes)-plain64"];
    committed(file, &names, 26);
}

#[test]
fn hctr2_vectors() {
    let file = include_str!("data/hctr2-reference.json");
    committed(file, &["aes-hctr2-plain64"], 26);
}

#[test]
fn xcb_vectors() {
    let file = include_str!("data/xcb-reference.json");
    committed(file, &["capi:xcb(aes)-plain64"], 26);
}

#[test]
fn eme2_vectors() {
    let file = include_str!("data/eme2-reference.json");
    committed(file, &["capi:eme2(aes)-plain64"], 26);
}

/// Nobody has published vectors for AEZ10: these come from a reference of ours.
#[test]
fn aez10_vectors() {
    let file = include_str!("data/aez10-reference.json");
    committed(file, &["capi:aez10(aes)-plain64"], 26);
}

#[test]
fn adiantum_vectors() {
    let file = include_str!("data/adiantum-reference.json");
    let names = [
        "xchacha12,aes-adiantum-plain64",
        "xchacha20,aes-adiantum-plain64",
    ];
    committed(file, &names, 13);
}

/// The first example of FIPS 197's key length 128 would say nothing about
/// disks; this is the all-zero first vector of IEEE 1619-2007, annex B, whose
/// two blocks stand at the start of any sector of zeros.
#[test]
fn ieee_1619_first_vector() {
    let expected = unhex("917cf69ebd68b2ec9b9fe9a3eadda692cd43d2f59598ed858c02c2652fbf922e");
    for &backend in Backend::available() {
        let mut data = [0; 512];
        cipher("aes-xts-plain64", 512, &[0; 32], backend).encrypt(0, &mut data);
        assert_eq!(data[..32], expected, "{backend}");
    }
}
