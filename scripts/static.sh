#!/usr/bin/env bash
# Builds the statically linked command and shows that it is: with musl, and where Rust's
# standard library for that can neither be found nor added by rustup, with glibc.
#
# usage: static.sh [musl|glibc]
#   PROFILE=dev   without optimisation, for a try
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
profile=${PROFILE:-release}
machine=$(rustc -vV | sed -n 's/^host: \([^-]*\)-.*/\1/p')

die() {
    printf 'static: %s\n' "$*" >&2
    exit 1
}
has_std() { # has_std TRIPLE: Rust's standard library for it
    compgen -G "$(rustc --print sysroot)/lib/rustlib/$1/lib/libstd-*.rlib" >/dev/null
}
has_musl() {
    has_std "$machine-unknown-linux-musl" ||
        { command -v rustup >/dev/null && rustup target add "$machine-unknown-linux-musl"; }
}

libc=${1:-}
case $libc in
    '')
        libc=musl
        if ! has_musl; then
            libc=glibc
            echo "static: Rust's standard library for $machine-unknown-linux-musl is not there, and rustup cannot add it:" >&2
            echo "static: linking glibc instead (docs/install.md, \"Static binary\", says what differs)" >&2
        fi
        ;;
    musl) has_musl || die "Rust's standard library for $machine-unknown-linux-musl is not there, and rustup cannot add it; static.sh glibc does without" ;;
    glibc) ;;
    *) die "usage: static.sh [musl|glibc]" ;;
esac

# The bindings to the device mapper are made from this machine's headers; nothing is linked
# to its library, so neither C library has to have that.
case $libc in
    musl)
        triple=$machine-unknown-linux-musl
        # The headers say the same of the kernel's interface as those of musl would. Those of
        # the compiler itself are gcc's: for another target libclang may not find its own.
        BINDGEN_EXTRA_CLANG_ARGS="-idirafter $(gcc -print-file-name=include) -idirafter /usr/include/$(gcc -print-multiarch)"
        # ring's C calls nothing of a C library: without musl-gcc the compiler of this machine does,
        # if it puts in nothing of glibc's either.
        for_musl=${triple//-/_}
        cc=CC_$for_musl cflags=CFLAGS_$for_musl
        export PKG_CONFIG_ALLOW_CROSS=1 BINDGEN_EXTRA_CLANG_ARGS
        export "$cc=${!cc:-gcc}" "$cflags=${!cflags:--U_FORTIFY_SOURCE -fno-stack-protector}"
        ;;
    glibc)
        triple=$machine-unknown-linux-gnu
        [ "$(gcc -print-file-name=libc.a)" != libc.a ] || die "there is no libc.a: install Debian's libc6-dev"
        # Not added to those that cargo would find elsewhere, and with --target not for what runs
        # while building, which cannot be static.
        export RUSTFLAGS="${RUSTFLAGS-} -C target-feature=+crt-static"
        ;;
esac
# Ceph's library is opened at run time, which nothing static can do.
cargo build --profile "$profile" --package xtent --no-default-features --features device-mapper --target "$triple"
binary=${CARGO_TARGET_DIR:-target}/$triple/${profile/%dev/debug}/xtent

kind=$(file --brief "$binary")
case $kind in
    *"statically linked"* | *"static-pie linked"*) ;;
    *) die "$binary is not static: $kind" ;;
esac
# Neither a loader nor a library, whatever `file` makes of it.
if readelf --wide --program-headers --dynamic "$binary" | grep -E 'INTERP|\(NEEDED\)'; then
    die "$binary wants what is above"
fi
"$binary" --version
printf '%s: %s bytes, %s, %s, static\n' "$binary" "$(stat -c %s "$binary")" "${kind%%,*}" "$libc"
