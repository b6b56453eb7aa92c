//! Kernels have nothing of `core` that is compiled apart from them: see `src/here.rs`.
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if !path.ends_with("simd/vector_tests.rs") {
            found.push(path);
        }
    }
}

#[test]
fn kernels_use_loops_that_become_a_part_of_them() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for folder in ["simd", "arch", "run", "shared", "portable"] {
        sources(&src.join(folder), &mut found);
    }
    assert!(found.len() > 40, "{}", found.len());
    let mut wrong = Vec::new();
    for path in found {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for (i, line) in code.lines().enumerate() {
            let apart = [".zip(", "array::from_fn(", "].map(", "each_ref().map("];
            if apart.iter().any(|call| line.contains(call)) {
                wrong.push(format!("{}:{}: {}", path.display(), i + 1, line.trim()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "use crate::here instead:\n{}",
        wrong.join("\n")
    );
}
