#!/usr/bin/env bash
# Builds a User Mode Linux kernel 6.12 and prints its path: dm-crypt with the
# ciphers that Debian's own User Mode Linux (6.1) lacks, HCTR2 above all, every
# part built in. The source is Debian's package linux-source-6.12. Cached
# under target/uml; the first time it takes ten minutes of one CPU, 150 MB of
# download and 2 GB of disk for a while.
#
# usage: uml612.sh
set -euo pipefail
export LC_ALL=C

die() {
    printf 'uml612: %s\n' "$*" >&2
    exit 125
}

package=linux-source-6.12
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$(realpath -m "${CARGO_TARGET_DIR:-$here/../target}/uml")
# Of this script only: a newer revision of the package is no reason to build again.
kernel=$cache/linux-6.12-$(sha256sum "${BASH_SOURCE[0]}" | cut -c1-16)
if [ -x "$kernel" ]; then
    echo "$kernel"
    exit 0
fi
for tool in flex bison bc xz gcc make dpkg-deb; do
    command -v "$tool" >/dev/null || die "$tool is missing; run scripts/setup.sh uml612"
done

mkdir -p "$cache"
# One build at a time.
exec 9>"$cache/build-6.12.lock"
flock 9
if [ -x "$kernel" ]; then
    echo "$kernel"
    exit 0
fi
work=$(mktemp -d "$cache/build-6.12.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/log
step() { # step WHAT COMMAND...
    printf 'uml612: %s\n' "$1" >&2
    shift
    "$@" >>"$log" 2>&1 || {
        tail -40 "$log" >&2
        die "that failed; the end of the log is above"
    }
}
cd "$work"

apt-cache show "$package" >/dev/null 2>&1 ||
    die "apt does not know $package (bookworm-security or bookworm-backports have it); apt-get update may help"
step "downloading $package" apt-get download "$package"
step "unpacking the package" dpkg-deb -x "$package"_*.deb unpacked
# Without the drivers that no such kernel has: half of the files.
step "unpacking the source" tar -xf "unpacked/usr/src/$package.tar.xz" --wildcards \
    --exclude='*/drivers/gpu/*.[ch]' --exclude='*/drivers/net/*.[ch]' --exclude='*/drivers/media/*.[ch]' \
    --exclude='*/sound/*.[ch]' --exclude='*/tools/testing/*' --exclude='*/boot/dts/*' \
    --exclude='*/tools/perf/*'
rm -rf unpacked ./*.deb
output=$work/output
mkdir "$output"
build=(make -C "$work/$package" ARCH=um "O=$output")

step "configuring" "${build[@]}" tinyconfig
cat >>"$output/.config" <<'CONFIG'
CONFIG_64BIT=y
CONFIG_CC_OPTIMIZE_FOR_PERFORMANCE=y
CONFIG_PRINTK=y
CONFIG_TTY=y
CONFIG_BUG=y
CONFIG_MULTIUSER=y
CONFIG_BINFMT_ELF=y
CONFIG_BINFMT_SCRIPT=y
CONFIG_PROC_FS=y
CONFIG_SYSFS=y
CONFIG_DEVTMPFS=y
CONFIG_TMPFS=y
CONFIG_SHMEM=y
CONFIG_FUTEX=y
CONFIG_POSIX_TIMERS=y
CONFIG_EPOLL=y
CONFIG_EVENTFD=y
CONFIG_SIGNALFD=y
CONFIG_TIMERFD=y
CONFIG_AIO=y
CONFIG_ADVISE_SYSCALLS=y
CONFIG_MEMBARRIER=y
CONFIG_SYSVIPC=y
CONFIG_FILE_LOCKING=y
CONFIG_KEYS=y
CONFIG_NULL_CHAN=y
CONFIG_FD_CHAN=y
CONFIG_SSL=y
CONFIG_STDERR_CONSOLE=y
CONFIG_CON_ZERO_CHAN="fd:0,fd:1"
CONFIG_BLK_DEV_INITRD=y
CONFIG_RD_GZIP=y
CONFIG_BLOCK=y
CONFIG_BLK_DEV=y
CONFIG_BLK_DEV_UBD=y
CONFIG_BLK_DEV_LOOP=y
CONFIG_MD=y
CONFIG_BLK_DEV_DM=y
CONFIG_DM_CRYPT=y
CONFIG_CRYPTO=y
CONFIG_CRYPTO_AES=y
CONFIG_CRYPTO_XTS=y
CONFIG_CRYPTO_CBC=y
CONFIG_CRYPTO_ECB=y
CONFIG_CRYPTO_ESSIV=y
CONFIG_CRYPTO_SHA256=y
CONFIG_CRYPTO_ADIANTUM=y
CONFIG_CRYPTO_HCTR2=y
CONFIG_HZ_100=y
CONFIG
step "configuring" "${build[@]}" olddefconfig
for option in BLK_DEV_UBD DM_CRYPT CRYPTO_HCTR2 CRYPTO_ADIANTUM DEVTMPFS; do
    grep -q "^CONFIG_$option=y" "$output/.config" || die "the kernel's configuration refuses $option"
done
step "building, which takes minutes" nice "${build[@]}" "-j$(nproc)" linux
strip -o "$work/linux" "$output/linux"
mv "$work/linux" "$kernel"
echo "$kernel"
