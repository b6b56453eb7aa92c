//! `xtent bench`, on a volume.
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

mod common;

use common::Bed;
use sector_cipher::{Backend, PortsSource};
use serde_json::Value;

/// Every figure below `value` that is a speed or a cost.
fn figures(value: &Value, found: &mut Vec<f64>) {
    match value {
        Value::Array(values) => values.iter().for_each(|v| figures(v, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                if name.ends_with("_mb_s") {
                    found.push(value.as_f64().unwrap());
                }
                figures(value, found);
            }
        }
        _ => {}
    }
}

#[test]
fn bench_of_one_cipher() {
    let bed = Bed::new();
    let said = bed.run("bench --json --cipher aes-xts-plain64 --size 1M --threads 2");
    let all = said.ok().json();
    // Two key lengths and two sector sizes.
    let ciphers = all["ciphers"].as_array().unwrap();
    assert_eq!(ciphers.len(), 4);
    for row in ciphers {
        assert_eq!(row["cipher"], "aes-xts-plain64");
        assert_eq!(row["threads"], 2);
        let sectors = (1 << 20) / row["sector_size"].as_u64().unwrap();
        assert_eq!(row["runs"][1]["sectors"], sectors);
    }
    assert_eq!(all["key_derivations"], serde_json::json!([]));
    let backend: Backend = ciphers[0]["backend"].as_str().unwrap().parse().unwrap();
    match backend.ports() {
        None => assert!(all["ports"].is_null()),
        Some(ports) => {
            let said = bed.run("bench --cipher aes-xts-plain64").ok();
            assert_eq!(
                all["ports"]["long_integers"],
                serde_json::json!(ports.long_integers)
            );
            let mut line = "\nChosen for this CPU: ".to_owned();
            // What is timed, each process times for itself.
            if matches!(ports.source, PortsSource::Table { .. }) {
                assert_eq!(all["ports"]["shifts"], serde_json::json!(ports.shifts));
                assert_eq!(all["ports"]["three_products"], ports.three_products);
                line += &format!("{ports}\n");
            }
            assert_eq!(all["ports"]["source"], ports.source.to_string());
            assert!(said.out.contains(&line), "{said:?}");
        }
    }
    let mut speeds = Vec::new();
    figures(&all, &mut speeds);
    assert_eq!(speeds.len(), 16);
    assert!(speeds.iter().all(|&speed| speed > 0.0), "{speeds:?}");

    bed.run("bench --cipher rot-13-plain")
        .failed(1, &["unknown cipher rot-13-plain"]);
    for (option, range) in [
        ("--size 1000", "multiples of 4096"),
        ("--size 0", "multiples of 4096"),
        ("--threads 0", "1 to 1024"),
    ] {
        bed.run(&format!("bench {option}")).failed(1, &[range]);
    }
}

#[test]
fn bench_as_json() {
    let bed = Bed::with_luks2();
    let before = std::fs::read(bed.path("disk.img")).unwrap();
    let said = bed.run("bench --json --no-kdf --cpu portable --key-file key disk.img");
    let all = said.ok().json();
    let ciphers = all["ciphers"].as_array().unwrap();
    for name in [
        "aes-xts-plain64",
        "aes-hctr2-plain64",
        "capi:xcb(aes)-plain64",
    ] {
        for size in [512, 4096] {
            let row = ciphers
                .iter()
                .find(|row| row["cipher"] == name && row["sector_size"] == size)
                .unwrap();
            assert_eq!(row["backend"], "portable");
            assert!(all["ports"].is_null());
            assert_eq!(row["broken"], name.contains("xcb"));
            assert_eq!(row["runs"][0]["sectors"], 1);
            assert_eq!(row["runs"][1]["sectors"], 64);
        }
    }
    assert_eq!(all["key_derivations"], serde_json::json!([]));
    let reads = all["reads"].as_array().unwrap();
    let patterns: Vec<_> = reads
        .iter()
        .map(|row| (row["pattern"].as_str().unwrap(), &row["bytes_per_read"]))
        .collect();
    assert_eq!(
        patterns,
        [
            ("sequential", &(1 << 20).into()),
            ("sequential", &(64 << 10).into()),
            ("random", &4096.into()),
        ]
    );
    let mut speeds = Vec::new();
    figures(&all, &mut speeds);
    assert_eq!(speeds.len(), 4 * ciphers.len() + 2 * reads.len());
    assert!(speeds.iter().all(|&speed| speed > 0.0), "{speeds:?}");
    assert!(std::fs::read(bed.path("disk.img")).unwrap() == before);
}
