//! The C example, compiled against the static and the shared library, and run; the header,
//! as C++; and the README's programs, compiled against an installed library and run.
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

use std::path::{Path, PathBuf};
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

/// Builds the libraries, and tells where they are: beside this test's own directory `deps`.
/// Cargo makes them only when asked, since no Rust program can be linked to them.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    // What Cargo says of the package of these tests: build scripts would be run anew for it, here
    // and in the next call of Cargo, and what depends on them compiled.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        let about = ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"];
        if about.iter().any(|prefix| name.starts_with(prefix)) {
            build.env_remove(&variable);
        }
    }
    build
        // With the whole workspace and a test, for which the ciphers have the features that they
        // have here: else they would be compiled again.
        .args(["build", "--quiet", "--workspace", "--lib", "--test", "c"])
        .arg("--target-dir")
        .arg(profile.parent().unwrap())
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        build.arg("--release");
    }
    run(&mut build);
    profile.to_path_buf()
}

/// Installs the library below `root`, for `/usr`.
fn install(root: &Path) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    run(Command::new(here.join("install.sh"))
        .arg(built())
        .env("DESTDIR", root)
        .env("PREFIX", "/usr")
        .env_remove("LIBDIR"));
    root.join("usr/lib")
}

/// What pkg-config says of the library below `root`.
fn pkg_config(root: &Path, arguments: &[&str]) -> Vec<String> {
    let said = run(Command::new("pkg-config")
        .args(arguments)
        .arg("sector_cipher")
        .env("PKG_CONFIG_LIBDIR", root.join("usr/lib/pkgconfig"))
        .env("PKG_CONFIG_SYSROOT_DIR", root)
        .env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1")
        .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1"));
    said.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_programs_of_the_readme_work_with_an_installed_library() {
    let root = tempfile::tempdir().unwrap();
    let lib = install(root.path());
    assert_eq!(
        pkg_config(root.path(), &["--modversion"]),
        [env!("CARGO_PKG_VERSION")]
    );
    let cflags = pkg_config(root.path(), &["--cflags"]);
    let shared = pkg_config(root.path(), &["--libs"]);
    // The static library, which takes the shared one's place where that is not.
    let mut alone = pkg_config(root.path(), &["--libs", "--static"]);
    for argument in &mut alone {
        if argument == "-lsector_cipher" {
            *argument = "-l:libsector_cipher.a".to_owned();
        }
    }

    let readme = include_str!("../README.md");
    let programs: Vec<&str> = readme
        .split("```c\n")
        .skip(1)
        .map(|rest| rest.split_once("```").unwrap().0)
        .collect();
    assert_eq!(programs.len(), 2);
    for (i, text) in programs.into_iter().enumerate() {
        let source = root.path().join(format!("readme{i}.c"));
        std::fs::write(&source, text).unwrap();
        for (kind, libs) in [("shared", &shared), ("static", &alone)] {
            let program = root.path().join(format!("readme{i}-{kind}"));
            run(Command::new("cc")
                .args(["-Wall", "-Wextra", "-Werror"])
                .args(&cflags)
                .arg(&source)
                .arg("-o")
                .arg(&program)
                .args(libs));
            let mut command = Command::new(&program);
            if kind == "shared" {
                command.env("LD_LIBRARY_PATH", &lib);
            } else {
                command.env_remove("LD_LIBRARY_PATH");
            }
            let said = run(&mut command);
            assert!(said.starts_with("encrypted "), "{said}");
        }
    }

    // Programs ask for the library by the name that goes with its interface.
    let header = run(Command::new("readelf")
        .arg("-d")
        .arg(root.path().join("readme0-shared")));
    assert!(header.contains("[libsector_cipher.so.0]"), "{header}");
    let library = run(Command::new("readelf")
        .arg("-d")
        .arg(lib.join("libsector_cipher.so")));
    assert!(
        library.contains("Library soname: [libsector_cipher.so.0]"),
        "{library}"
    );
    let mut found: Vec<_> = lib
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    let full = concat!("libsector_cipher.so.", env!("CARGO_PKG_VERSION"));
    let names = [
        "libsector_cipher.a",
        "libsector_cipher.so",
        "libsector_cipher.so.0",
        full,
    ];
    assert_eq!(found, [&names[..], &["pkgconfig"]].concat());
}

#[test]
fn the_c_example() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = tempfile::tempdir().unwrap();
    let profile = &install(root.path());

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
