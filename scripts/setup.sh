#!/usr/bin/env bash
# Installs what Xtent's demo, tests and benchmarks need on Debian 12, and says
# what is still missing. Quick when everything is there.
#
# usage: setup.sh build|demo|test|uml612|bench|static|static-test|aarch64|rtl|rtl-report|engine|engine-kernel|kernel|kernel-all|kernel-series|deb|deb-test|boot|container|fido2|ceph
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C

# tool:package, or file:package. Packages are installed without what they only
# recommend, so a C library's headers are named beside the compiler.
# For cargo: libclang writes the bindings to the headers of the device mapper.
build="cc:gcc /usr/include/stdlib.h:libc6-dev pkg-config:pkgconf /usr/include/libdevmapper.h:libdevmapper-dev
    libclang:libclang1-14 libclang:libclang-common-14-dev /usr/bin/python3:python3"
demo="$build linux.uml:user-mode-linux cryptsetup:cryptsetup-bin dmsetup:dmsetup cpio:cpio
    busybox:busybox-static mke2fs:e2fsprogs nbdcopy:libnbd-bin depmod:kmod readelf:binutils"
bench="$build cryptsetup:cryptsetup-bin fio:fio nbdkit:nbdkit qemu-nbd:qemu-utils qemu-img:qemu-utils nbdinfo:libnbd-bin
    /usr/bin/python3:python3 make:make perl:perl openssl:openssl"
test="$demo $bench nbdsh:python3-libnbd zstd:zstd xz:xz-utils bzip2:bzip2 fusermount3:fuse3 fdisk:fdisk fuse2fs:fuse2fs mkfs.btrfs:btrfs-progs jq:jq losetup:mount c++:g++
    udevadm:udev shellcheck:shellcheck file:file valgrind:valgrind make:make
    swtpm:swtpm swtpm_ioctl:swtpm-tools tpm2_pcrextend:tpm2-tools libtss2-tcti-swtpm0:libtss2-tcti-swtpm0
    systemd-cryptenroll:systemd clevis-luks-bind:clevis-luks clevis-decrypt-tpm2:clevis-tpm2
    /usr/libexec/tangd:tang-common keyctl:keyutils"
uml612="$test flex:flex bison:bison bc:bc xz:xz-utils dpkg-deb:dpkg"
static="$build file:file readelf:binutils"
static_test="$static cryptsetup:cryptsetup-bin nbdcopy:libnbd-bin"
aarch64="debootstrap:debootstrap"
kernel="$demo fio:fio sparse:sparse perl:perl ed:ed /usr/bin/python3:python3 flex:flex bison:bison bc:bc xz:xz-utils dpkg-deb:dpkg make:make /usr/lib/x86_64-linux-gnu/libelf.so.1:libelf1 qemu-system-x86_64:qemu-system-x86 qemu-storage-daemon:qemu-system-common mkfs.xfs:xfsprogs clang:clang ld.lld:lld llvm-nm:llvm"
# What objtool is built with, which is a part of the build of a kernel for x86-64.
gelf="/usr/include/gelf.h:libelf-dev"
bochs="/usr/lib/ISOLINUX/isolinux.bin:isolinux /usr/lib/syslinux/modules/bios/ldlinux.c32:syslinux-common xorriso:xorriso"
kernel_all="$kernel $gelf mkfs.btrfs:btrfs-progs nbdkit:nbdkit debootstrap:debootstrap
    qemu-system-aarch64:qemu-system-arm aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu
    /usr/aarch64-linux-gnu/include/stdlib.h:libc6-dev-arm64-cross
    arm-linux-gnueabihf-gcc:gcc-arm-linux-gnueabihf /usr/arm-linux-gnueabihf/include/stdlib.h:libc6-dev-armhf-cross
    qemu-system-s390x:qemu-system-misc s390x-linux-gnu-gcc:gcc-s390x-linux-gnu
    /usr/s390x-linux-gnu/include/stdlib.h:libc6-dev-s390x-cross
    $bochs"
rtl="verilator:verilator c++:g++ make:make /usr/bin/python3:python3 perl:perl
    python3:python3-venv python3:libpython3.11 riscv64-unknown-elf-gcc:gcc-riscv64-unknown-elf"
rtl_report="$rtl dpkg-deb:dpkg unshare:util-linux prlimit:util-linux"
engine="$demo verilator:verilator c++:g++ make:make perl:perl"
# For sid's kernel in a folder the last; QEMU comes from scripts/kernel.sh.
engine_kernel="$kernel $engine debootstrap:debootstrap"
kernel_series="$kernel $engine $bochs git:git $gelf"

deb="$build dh:debhelper dh_dkms:dh-dkms dpkg-buildpackage:dpkg-dev make:make"
deb_test="$deb debootstrap:debootstrap lintian:lintian"
boot="$deb debootstrap:debootstrap qemu-system-x86_64:qemu-system-x86 swtpm:swtpm swtpm_setup:swtpm-tools cryptsetup:cryptsetup-bin
    mke2fs:e2fsprogs /usr/bin/python3:python3 cpio:cpio"
container="debootstrap:debootstrap buildah:buildah cryptsetup:cryptsetup-bin nbdcopy:libnbd-bin"
fido2="$demo nbdsh:python3-libnbd losetup:mount qemu-system-x86_64:qemu-system-x86 dpkg-deb:dpkg
    systemd-cryptenroll:systemd libfido2:libfido2-1 python3-fido2:python3-fido2"
ceph="$test ceph-mon:ceph-mon ceph-osd:ceph-osd ceph:ceph-common rbd:ceph-common librbd1:librbd1
    qemu-block-extra:qemu-block-extra python3-rbd:python3-rbd"

case ${1:-} in
build) wanted=$build ;;
demo) wanted=$demo ;;
test) wanted=$test ;;
uml612) wanted=$uml612 ;;
bench) wanted=$bench ;;
static) wanted=$static ;;
static-test) wanted=$static_test ;;
aarch64) wanted=$aarch64 ;;
rtl) wanted=$rtl ;;
rtl-report) wanted=$rtl_report ;;
engine) wanted=$engine ;;
engine-kernel) wanted=$engine_kernel ;;
kernel) wanted=$kernel ;;
kernel-all) wanted=$kernel_all ;;
kernel-series) wanted=$kernel_series ;;
deb) wanted=$deb ;;
deb-test) wanted=$deb_test ;;
boot) wanted=$boot ;;
fido2) wanted=$fido2 ;;
container) wanted=$container ;;
ceph) wanted=$ceph ;;
*)
    echo "usage: setup.sh build|demo|test|uml612|bench|static|static-test|aarch64|rtl|rtl-report|engine|engine-kernel|kernel|kernel-all|kernel-series|deb|deb-test|boot|container|fido2|ceph" >&2
    exit 2
    ;;
esac

# Of any version, with the headers that belong to the compiler.
has_libclang() {
    # Not grep -q, which may be gone before the list has ended.
    ldconfig -p | grep 'libclang[-.0-9]*so' >/dev/null &&
        { compgen -G '/usr/lib/llvm-*/lib/clang/*/include/stddef.h' || compgen -G '/usr/lib*/clang/*/include/stddef.h'; } >/dev/null
}

packages=()
for entry in $wanted; do
    tool=${entry%%:*}
    package=${entry#*:}
    if [[ " busybox-static python3-libnbd perl python3-venv libpython3.11 libtss2-tcti-swtpm0 libfido2-1 python3-fido2 librbd1 qemu-block-extra python3-rbd " == *" $package "* ]]; then
        # A dynamic busybox, an nbdsh without its module, a perl or python3 with
        # only the base modules, or without its library, will not do; a library
        # that programs load by name has a folder by architecture.
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
            packages+=("$package")
    elif [ "$tool" = libclang ]; then
        has_libclang || packages+=("$package")
    elif [[ $tool == /* && -e $tool ]]; then
        continue
    elif ! command -v "$tool" >/dev/null; then
        packages+=("$package")
    fi
done

if [ ${#packages[@]} -gt 0 ]; then
    mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
    sudo=()
    if [ "$(id -u)" -ne 0 ]; then
        sudo=(sudo)
        if ! command -v sudo >/dev/null; then
            echo "setup: these packages are missing; have root run:" >&2
            echo "  apt-get install --no-install-recommends ${packages[*]}" >&2
            exit 1
        fi
    fi
    if ! command -v apt-get >/dev/null; then
        echo "setup: not a Debian system; install what these Debian packages contain: ${packages[*]}" >&2
        exit 1
    fi
    echo "setup: installing ${packages[*]}"
    install=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends
        "${packages[@]}")
    # A fresh machine has no package lists, an old one has stale ones.
    if ! "${install[@]}" >/dev/null 2>&1; then
        "${sudo[@]}" apt-get update -qq
        "${install[@]}" >/dev/null
    fi
fi

missing=()
command -v cargo >/dev/null || missing+=("cargo: install Rust 1.89 or newer, see https://rustup.rs")
if [ "$1" = test ]; then
    [ -e /dev/fuse ] || missing+=("/dev/fuse: the mount tests cannot run here")
    # Debian's udev opens it to all; containers and small virtual machines have none.
    if [ -e /dev/fuse ] && [ "$(stat -c %a /dev/fuse)" != 666 ]; then
        chmod 666 /dev/fuse 2>/dev/null || missing+=("/dev/fuse: not open to ordinary users (chmod 666)")
    fi
    [ "$(id -u)" -eq 0 ] || missing+=("root: tests that mount a file system through a loop device cannot run")
    [ -e /dev/loop-control ] || missing+=("/dev/loop-control: the loop device tests cannot run here")
fi
for line in ${missing[@]+"${missing[@]}"}; do
    echo "setup: missing $line" >&2
done
if [[ $1 = rtl || $1 = rtl-report ]]; then
    # The hardware cores' tools that Debian does not have, or not new enough.
    wanted=$(dirname "${BASH_SOURCE[0]}")/../rtl/requirements.txt
    venv=${CARGO_TARGET_DIR:-$(dirname "${BASH_SOURCE[0]}")/../target}/rtl/venv
    if ! cmp -s "$wanted" "$venv/requirements.txt"; then
        echo "setup: installing $(grep -c == "$wanted") packages from PyPI into $venv"
        rm -rf "$venv"
        /usr/bin/python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement "$wanted"
        "$venv/bin/pip" check --disable-pip-version-check
        cp "$wanted" "$venv/"
    fi
    [ "$1" = rtl ] || "$(dirname "${BASH_SOURCE[0]}")/nextpnr.sh" "$(dirname "$venv")/nextpnr"
fi
command -v cargo >/dev/null
