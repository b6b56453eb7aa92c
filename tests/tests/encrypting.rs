//! A plain image served encrypted: backups without a second copy.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use xtent_tests::luks::KEY;
use xtent_tests::scratch::assert_same;
use xtent_tests::xtent::xtent;
use xtent_tests::{Cmd, Scratch, pattern};

/// A plain image, its key file, and the options of a cheap derivation.
fn image(scratch: &Scratch, bytes: usize) -> (std::path::PathBuf, std::path::PathBuf) {
    let (plain, key) = (scratch.join("plain"), scratch.join("key"));
    std::fs::write(&plain, pattern(bytes, 7)).unwrap();
    std::fs::write(&key, KEY).unwrap();
    (plain, key)
}

const CHEAP: [&str; 4] = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];

fn serve(header: &Path, key: &Path, plain: &Path, run: &str) -> Cmd {
    xtent()
        // Not the default socket, which goes by the name of the image alone.
        .args(["serve", "--encrypt", "--nbd"])
        .arg(format!("unix:{}.sock", header.display()))
        .args(["--run", run, "--header"])
        .arg(header)
        .arg("--key-file")
        .arg(key)
        .arg(plain)
}

#[test]
fn a_plain_image_is_backed_up_encrypted() {
    let scratch = Scratch::new();
    let (plain, key) = image(&scratch, 3 << 20);
    let before = std::fs::read(&plain).unwrap();
    for (number, options) in [
        &[][..],
        &["--sector-size", "512"],
        &["--cipher", "aes-hctr2-plain64", "--key-size", "256"],
        &["cryptsetup"],
    ]
    .into_iter()
    .enumerate()
    {
        let file = |name: &str| scratch.join(&format!("{name}{number}"));
        let (header, backup, back) = (file("header"), file("backup"), file("back"));
        let make = match options {
            ["cryptsetup"] => Cmd::peer("cryptsetup").args(["luksFormat", "--type", "luks2"]),
            options => xtent().arg("format").args(options),
        };
        make.args(["--batch-mode", "--header"])
            .arg(&header)
            .args(CHEAP)
            .arg("--key-file")
            .arg(&key)
            .arg(&plain)
            .ok();
        let copy = format!("nbdcopy \"$uri\" {}", backup.display());
        serve(&header, &key, &plain, &copy).ok();
        assert!(before == std::fs::read(&plain).unwrap(), "{options:?}");
        let encrypted = std::fs::read(&backup).unwrap();
        assert_eq!(encrypted.len(), before.len());
        let same = |a: &[u8], b: &[u8]| a.chunks(16).zip(b.chunks(16)).any(|(a, b)| a == b);
        assert!(!same(&encrypted, &before), "{options:?}");
        // The same bytes each time.
        serve(&header, &key, &plain, &copy).ok();
        assert!(encrypted == std::fs::read(&backup).unwrap());

        xtent()
            .args(["decrypt", "--header"])
            .arg(&header)
            .arg("--key-file")
            .arg(&key)
            .args([&backup, &back])
            .ok();
        assert_same(&std::fs::read(&back).unwrap(), &before, "decrypted");
    }
}

#[test]
fn what_would_be_no_backup_is_refused() {
    let scratch = Scratch::new();
    let (plain, key) = image(&scratch, (1 << 20) + 512);
    let header = scratch.join("header");
    let at = header.to_str().unwrap();
    let format = |options: &[&str], device: &Path| {
        let _ = std::fs::remove_file(&header);
        xtent()
            .args(["format", "--batch-mode"])
            .args(options)
            .args(CHEAP)
            .arg("--key-file")
            .arg(&key)
            .arg(device)
            .ok()
    };
    // Its end would be missing.
    let shorter = scratch.join("shorter");
    std::fs::write(&shorter, pattern(1 << 20, 8)).unwrap();
    format(&["--sector-size", "4096", "--header", at], &shorter);
    serve(&header, &key, &plain, "true")
        .fails(1)
        .says(&["--encrypt needs a header for all of", "--sector-size 512"]);
    // So would its start.
    format(
        &["--sector-size", "512", "--header", at, "--offset", "1024"],
        &plain,
    );
    serve(&header, &key, &plain, "true")
        .fails(1)
        .says(&["from byte 524288 on"]);
    // A volume is encrypted already.
    let volume = scratch.join("volume");
    format(&["--size", "1M"], &volume);
    format(&["--sector-size", "512", "--header", at], &volume);
    serve(&header, &key, &volume, "true")
        .fails(1)
        .says(&["it is encrypted already"]);
    // Nobody encrypts without a header, or writes.
    xtent()
        .args(["serve", "--encrypt"])
        .arg(&plain)
        .fails(1)
        .says(&["--header"]);
}
