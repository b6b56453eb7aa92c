#!/usr/bin/env bash
# Runs sector-cipher's tests for 64-bit ARM under emulation: the portable
# back-end and armv8, which need each other's results. Those of constant time
# run on a whole emulated machine, as Debian's emulator of single programs takes
# no plug-ins.
#
# A newer Debian with a cross compiler and QEMU goes into a folder of its own,
# once (3 GB, two minutes); Debian 12's Rust is too old, and a Rust of
# one's own may lack the standard library for ARM. The crates are fetched by
# the cargo outside, the build inside needs no network.
#
# usage: test-aarch64.sh [options for cargo test]
#   AARCH64_ROOT=DIR   where that Debian is, or shall be (default: in target)
#   AARCH64_FULL=1     every length in the conformance suite, not a choice of them
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
    printf 'test-aarch64: %s\n' "$*" >&2
    exit 1
}
step() {
    printf 'test-aarch64: %s (after %s s)\n' "$*" "$SECONDS"
}

[ "$(id -u)" -eq 0 ] || die "needs root, to make a Debian system in a folder and to chroot there"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
root=$(realpath -m "${AARCH64_ROOT:-$target/aarch64}")
triple=aarch64-unknown-linux-gnu
mkdir -p "$target"
log=$target/aarch64.log
# shellcheck source=scripts/lib/debian.sh
. scripts/lib/debian.sh

# The kernel is the last thing that is put there.
if [ ! -e "$root/vmlinuz" ]; then
    command -v debootstrap >/dev/null || die "debootstrap is missing: run scripts/setup.sh aarch64"
    rm -rf "$root"
    step "Debian forky from $(mirror) into $root"
    # forky's own script is unknown to Debian 12; that of sid is the same.
    quietly debootstrap --variant=minbase forky "$root" "$(mirror)" sid
    # A mirror that stands still has lists whose time is over.
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/99-valid"
    step "compiler, C library and emulator"
    quietly chroot "$root" dpkg --add-architecture arm64
    quietly chroot "$root" apt-get update
    quietly chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        rustc cargo gcc-aarch64-linux-gnu libc6-dev-arm64-cross libstd-rust-dev:arm64 \
        qemu-user qemu-system-arm cpio
    rm -rf "$root"/var/cache/apt/archives/*.deb
    # Of the kernel nothing but itself.
    kernel=$(chroot "$root" apt-cache depends linux-image-cloud-arm64:arm64 |
        awk '/Depends: linux-image-/ { print $2; exit }')
    [ -n "$kernel" ] || die "no package of a kernel in $root"
    mkdir "$root/kernel"
    quietly chroot "$root" env --chdir=/kernel apt-get download -o APT::Sandbox::User=root \
        "linux-binary-${kernel#linux-image-}"
    quietly chroot "$root" sh -c 'dpkg-deb -x /kernel/*.deb /kernel && mv /kernel/usr/lib/modules/*/vmlinuz /'
fi

step "sources and crates"
sources=$root/xtent
mkdir -p "$sources/.cargo"
# With their times, so that only what has changed is compiled again.
rm -rf "$sources/crates" "$sources/tests"
cp -a Cargo.toml Cargo.lock clippy.toml crates tests "$sources/"
if ! cmp -s Cargo.lock "$sources/vendored"; then
    rm -rf "$sources/vendor" "$sources/vendored"
    cargo vendor --locked --quiet --versioned-dirs "$sources/vendor" >/dev/null
    cp Cargo.lock "$sources/vendored"
fi
cat >"$sources/.cargo/config.toml" <<CONFIG
[source.crates-io]
replace-with = "vendored"
[source.vendored]
directory = "vendor"
[build]
target = "$triple"
[target.$triple]
linker = "aarch64-linux-gnu-gcc"
runner = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
CONFIG

step "tests, under $(chroot "$root" qemu-aarch64 --version | head -1)"
quick=(SECTOR_CIPHER_TESTS=quick)
[ -z "${AARCH64_FULL:-}" ] || quick=()
# in_root COMMAND...: in that Debian, where the sources are.
in_root() {
    chroot "$root" env -i --chdir=/xtent HOME=/root PATH=/usr/bin:/bin "${quick[@]}" \
        CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 "$@"
}
# Not the tests that run their own program again, which the kernel cannot
# start here, and not the documentation's, which were run on this machine.
in_root cargo test --offline --locked --package sector-cipher \
    --lib --test conformance --test inlined --test vectors --test independent --test guard_pages "$@" \
    -- --skip the_fence_is_there

step "traces, under $(chroot "$root" qemu-system-aarch64 --version | head -1)"
in_root gcc -O2 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden -o trace_plugin.so \
    crates/sector-cipher/tests/constant_time/trace_plugin.c
# The test is the only program there, and its end the machine's. Its one thread
# gets the same memory at each step: pages stay as they were mapped.
cat >"$sources/trace" <<'RUNNER'
#!/bin/sh
set -eu
cd /xtent
rm -rf initramfs
mkdir -p initramfs/lib
cp "$1" initramfs/test
shift
cp /usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1 /usr/aarch64-linux-gnu/lib/libc.so.6 \
    /usr/aarch64-linux-gnu/lib/libgcc_s.so.1 initramfs/lib/
(cd initramfs && find . | cpio --quiet -o -H newc) >initramfs.cpio
timeout 1800 qemu-system-aarch64 -M virt -cpu cortex-a72 -m 512M -accel tcg \
    -nodefaults -display none -serial stdio -no-reboot -plugin ./trace_plugin.so \
    -kernel /vmlinuz -initrd initramfs.cpio </dev/null >console -append "console=ttyAMA0 quiet \
    panic=-1 transparent_hugepage=never rdinit=/test LD_LIBRARY_PATH=/lib -- $*" || true
tr -d '\r' <console | sed '/^test result/q'
grep -q '^test result: ok' console
RUNNER
chmod +x "$sources/trace"
in_root CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=/xtent/trace \
    cargo test --offline --locked --package sector-cipher --test constant_time \
    -- --include-ignored --test-threads=1 --nocapture

step "passed"
