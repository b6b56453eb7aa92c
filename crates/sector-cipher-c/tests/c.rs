//! The C example, compiled against the static and the shared library, and run; and
//! the header, as C++.
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

use std::path::Path;
use std::process::Command;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_c_example() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The libraries are made beside this test's own directory `deps`; Cargo
    // makes them only when asked, since no Rust program can be linked to them.
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build
        // With another package, for which the ciphers' own dependencies have the features that
        // they have here: else the ciphers would be compiled again.
        .args(["build", "--quiet", "--lib", "--package", "sector-cipher-c"])
        .args(["--package", "xtent-luks"])
        .arg("--target-dir")
        .arg(profile.parent().unwrap())
        .current_dir(here);
    if profile.ends_with("release") {
        build.arg("--release");
    }
    run(&mut build);

    let dir = tempfile::tempdir().unwrap();
    for shared in [false, true] {
        let program = dir.path().join(if shared { "shared" } else { "static" });
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(here)
            .arg(here.join("examples/encrypt.c"))
            .arg("-o")
            .arg(&program);
        if shared {
            cc.arg("-L").arg(profile).arg("-lsector_cipher");
        } else {
            cc.arg(profile.join("libsector_cipher.a")).args([
                "-lpthread",
                "-ldl",
                "-lm",
                "-lgcc_s",
            ]);
        }
        run(&mut cc);
        for backend in [None, Some("portable")] {
            let said = run(Command::new(&program)
                .args(backend)
                .env("LD_LIBRARY_PATH", profile));
            assert!(said.contains("all is well"), "{said}");
            assert!(said.contains(backend.unwrap_or("back-end")), "{said}");
        }
    }

    // The example is no C++; the header is for both.
    let (source, program) = (dir.path().join("main.cc"), dir.path().join("c++"));
    let main = r#"#include "sector_cipher.h"
        int main() { return sector_cipher_error_text(SECTOR_CIPHER_RESULT_NULL) == nullptr; }"#;
    std::fs::write(&source, main).unwrap();
    run(Command::new("c++")
        .args([
            "-std=c++11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-I",
        ])
        .arg(here)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(profile)
        .arg("-lsector_cipher"));
    run(Command::new(&program).env("LD_LIBRARY_PATH", profile));
}
