#!/usr/bin/env bash
# Builds the statically linked command and shows that it is.
#
# usage: static.sh TARGET_TRIPLE
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
triple=$1

if ! ls "$(rustc --print sysroot)/lib/rustlib/$triple/lib/"libstd-*.rlib >/dev/null 2>&1; then
    if ! command -v rustup >/dev/null; then
        echo "static: Rust's standard library for $triple is missing and there is no rustup to add it" >&2
        exit 1
    fi
    rustup target add "$triple"
fi
# The bindings to the device mapper are made from this machine's headers, which say the
# same of the kernel's interface as those of the target's library would.
headers=/usr/include/$(gcc -print-multiarch)
export PKG_CONFIG_ALLOW_CROSS=1 BINDGEN_EXTRA_CLANG_ARGS="-idirafter $headers"
cargo build --release --package xtent --target "$triple"
binary=${CARGO_TARGET_DIR:-target}/$triple/release/xtent
kind=$(file --brief "$binary")
case $kind in
*"statically linked"* | *"static-pie linked"*) ;;
*)
    echo "static: $binary is not static: $kind" >&2
    exit 1
    ;;
esac
if ldd "$binary" 2>/dev/null | grep -q '=>'; then
    echo "static: $binary wants shared libraries" >&2
    exit 1
fi
"$binary" --version
printf '%s: %s bytes, %s\n' "$binary" "$(stat -c %s "$binary")" "${kind%%,*}, static"
