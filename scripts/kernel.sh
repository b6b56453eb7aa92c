#!/usr/bin/env bash
# Gets a Linux kernel to run tests in, and prints the folder with it:
#
#   image      what to boot; for User Mode Linux a program of its own
#   lib/modules/VERSION
#   build      where modules for it are built (not for uml)
#   root       the programs for its guests, where they are not this machine's
#   version, arch
#
# usage: kernel.sh BED
#   uml        User Mode Linux 6.1, Debian's package
#   uml-6.12   User Mode Linux 6.12 with HCTR2, KASAN, lockdep and kmemleak, built
#              from Debian's linux-source-6.12: ten minutes of one CPU, the first time
#   uml-6.12-fast
#              the same without these checkers, for little memory, ublk devices and bench/kernel:
#              four minutes of one CPU
#   uml-7  uml-7-fast
#              the same two of linux-source-7.3 or newer of trixie-backports, with all self-tests of the crypto API
#   uml-7-smp  uml-7-smp-fast
#              these two again, but for lockdep, with CPUs that run at the same time, of which guest.sh gives two.
#              uml-7 and uml-7-smp, which can be preempted, have one fault of User Mode Linux mended, and those
#              with several CPUs another one
#   x86-6.1  x86-6.12  x86-7
#              Debian's kernels for x86-64, of bookworm, its security archive and sid,
#              for QEMU. x86-7 needs root: sid with its compiler goes into a folder
#   x86-rt     Debian's 6.12 with PREEMPT_RT: interrupts are threads that others can preempt
#   x86-6.12-threadirqs
#              x86-6.12, whose interrupts guest.sh makes threads
#   arm64  armhf  s390x
#              Debian's 6.1 for 64-bit and 32-bit ARM and for IBM Z, whose bytes are the other way
#              round, for QEMU
#   x86-7-kcsan
#              7.3 or newer for two CPUs in QEMU, with KCSAN, which finds races, built from Debian's source: ten
#              minutes of one CPU
#   x86-7-bochs
#              the same for one CPU and Bochs, which has AVX-512, without KCSAN
#   arm64-64k  6.12 for 64-bit ARM with pages of 64 KiB, built like uml-6.12-fast, for QEMU
#
#   source-6.1  source-6.12  source-7
#              no kernel but the folder with Debian's source of one, that of uml or the newer two
#   qemu       nor this: the folder with a qemu-system-x86_64 of Debian's backports that takes PCI
#              devices of other processes, for guest.sh --engine
#   bochs      nor this: the folder with a Bochs of Debian's trixie, for the guests of x86-7-bochs
#
# Packages are unpacked, not installed. Kernels are kept in ~/.cache/xtent/kernel, or in the
# folder that XTENT_KERNEL_CACHE names.
# shellcheck disable=SC2154  # of kernel-packages.sh
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C

die() {
    printf 'kernel: %s\n' "$*" >&2
    exit 125
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC1091
. "$here/kernel-packages.sh"
bed=${1:-}
# One at a time for each kernel.
exec 9>"$cache/lock-$bed"
flock 9
# shellcheck disable=SC2034  # used there
log=$cache/log-$bed
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# keep VERSION ARCH: $work/new becomes the bed's folder.
keep() {
    echo "$1" >"$work/new/version"
    echo "$2" >"$work/new/arch"
    mv "$work/new" "$folder"
}

# arrange VERSION ARCH: an unpacked kernel's files, where the bed wants them.
arrange() {
    local new=$work/new headers
    # Newer Debians have everything below usr, the kernel as well.
    [ -e "$new/lib/modules" ] || ln -s usr/lib "$new/lib"
    mv "$(find "$new/boot" "$new/lib/modules/$1" -name "vmlinuz*" 2>/dev/null | head -1)" "$new/image"
    headers=$(find "$new/usr/src" -maxdepth 1 -name "linux-headers-$1" 2>/dev/null || true)
    if [ -n "$headers" ]; then
        ln -s "usr/src/$(basename "$headers")" "$new/build"
        # Its makefile names the common headers by where they would be installed.
        sed -i "s|/usr/src/|$folder/usr/src/|" "$headers/Makefile"
    fi
    step "listing the modules' dependencies" depmod -b "$new" "$1"
    keep "$1" "$2"
}

# mend TREE FOLDER...: edits files of the kernel's source by ed, with the scripts that the folders have for them; all others that
# may be edited become as they were. Nobody else does so until this kernel is built. A file is replaced, not written in place,
# since other trees may be links to this one's files.
mend() {
    local tree=$1 file folder
    shift
    command -v ed >/dev/null || die "ed is missing: run scripts/setup.sh kernel"
    exec 8>"$cache/lock-mended"
    flock 8
    while read -r file; do
        file=$tree/$file
        [ -e "$file.orig" ] || cp "$file" "$file.orig"
        cp "$file.orig" "$work/mended"
        for folder in "$@"; do
            [ ! -e "$folder/${file#"$tree"/}.ed" ] || cat "$folder/${file#"$tree"/}.ed"
        done >"$work/script"
        { cat "$work/script" && printf 'w\nq\n'; } | ed -s "$work/mended" >/dev/null || die "what $* has for $file does not apply"
        cmp -s "$work/mended" "$file" || mv "$work/mended" "$file"
    done < <(cd "$here/../kernel/test" && find uml-7-* -name '*.ed' | sed 's,^[^/]*/,,; s,\.ed$,,' | sort -u)
}

case $bed in
uml)
    version=$(linux.uml --version) || die "linux.uml is missing (Debian package user-mode-linux)"
    folder=$cache/uml-$version
    [ -e "$folder/version" ] || {
        [ -e "/usr/lib/uml/modules/$version/modules.dep" ] || die "no modules for linux.uml; reinstall user-mode-linux"
        mkdir -p "$work/new/lib"
        ln -s "$(command -v linux.uml)" "$work/new/image"
        ln -s /usr/lib/uml/modules "$work/new/lib/modules"
        keep "$version" um
    }
    ;;
uml-6.12 | uml-6.12-fast | uml-7 | uml-7-fast | uml-7-smp | uml-7-smp-fast | arm64-64k | x86-7-kcsan | x86-7-bochs)
    configs=("$here/../kernel/test/uml-6.12.config")
    # The last word on an option counts.
    [[ "$bed" != uml-7* ]] || configs+=("$here/../kernel/test/uml-7.config")
    [[ "$bed" != *-smp* ]] || configs+=("$here/../kernel/test/uml-smp.config")
    [[ "$bed" != *-smp ]] || configs+=("$here/../kernel/test/uml-smp-checked.config")
    [[ "$bed" == uml* && "$bed" != *-fast ]] || configs+=("$here/../kernel/test/uml-fast.config")
    [[ "$bed" != x86* ]] || configs+=("$here/../kernel/test/x86-7.config")
    [[ "$bed" == uml* ]] || configs+=("$here/../kernel/test/$bed.config")
    # With CONFIG_PREEMPT a process lost what it wrote, and with several CPUs: kernel/README.md, "lost writes".
    mends=()
    [[ "$bed" != uml-7 && "$bed" != uml-7-smp* ]] || mends+=("$here/../kernel/test/uml-7-preempt")
    [[ "$bed" != uml-7-smp* ]] || mends+=("$here/../kernel/test/uml-7-smp")
    of_mends() {
        [ ${#mends[@]} = 0 ] || find "${mends[@]}" -name '*.ed' | LC_ALL=C sort | xargs cat
    }
    # Of the configuration and our mends only: a newer revision of the package is no reason to build again.
    folder=$cache/$bed-$({ cat "${configs[@]}" && of_mends; } | sha256sum | cut -c1-16)
    [ -e "$folder/version" ] || {
        case $bed in
        uml-7* | x86*) tree=$(newest_source) ;;
        *) tree=$(source_tree linux-source-6.12) ;;
        esac
        [[ "$bed" != uml-7* ]] || mend "$tree" "${mends[@]}"
        mkdir -p "$folder/build"
        build=(nice make -C "$tree" "O=$folder/build")
        case $bed in
        uml*) arch=um kernel=linux build+=(ARCH=um) ;;
        arm64*)
            arch=arm64 kernel=arch/arm64/boot/Image
            build+=(ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu-)
            # Programs for that machine.
            ln -sfn "$("$here/kernel.sh" arm64)/root" "$folder/root"
            ;;
        x86*) arch=x86_64 kernel=arch/x86/boot/bzImage ;;
        esac
        step "configuring" "${build[@]}" tinyconfig
        cat "${configs[@]}" >>"$folder/build/.config"
        step "configuring" "${build[@]}" olddefconfig
        # Of the first only if it is alone: what others turn off takes more with it. What is off and
        # depends on something that is off is not mentioned.
        grep -h '^CONFIG_' "${configs[@]:${#configs[@]} > 1}" | grep -vxFf "$folder/build/.config" >&2 &&
            die "the kernel's configuration refuses the above"
        step "building, which takes minutes" "${build[@]}" "-j$(nproc)" "$(basename "$kernel")" modules
        step "installing its modules" "${build[@]}" "INSTALL_MOD_PATH=$folder" modules_install
        cp "$folder/build/$kernel" "$folder/image"
        [ "$arch" != um ] || strip "$folder/image"
        find "$folder/build" -name '*.o' -not -path '*/scripts/*' -delete
        echo "$arch" >"$folder/arch"
        cat "$folder/build/include/config/kernel.release" >"$folder/version"
    }
    ;;
x86-6.12-threadirqs) folder=$("$here/kernel.sh" x86-6.12) ;;
x86-6.1 | x86-6.12 | x86-rt)
    meta=linux-image-amd64
    case $bed in
    x86-6.12) meta=linux-image-6.12-amd64 ;;
    x86-rt) meta=linux-image-6.12-rt-amd64 ;;
    esac
    version=$(newest_of "$meta")
    folder=$cache/$bed-$version
    [ -e "$folder/version" ] || {
        kbuild=$(apt-cache depends "linux-headers-$version" | awk '$2 ~ /^linux-kbuild-/ { print $2; exit }')
        common=$(apt-cache depends "linux-headers-$version" | awk '$2 ~ /^linux-headers-.*-common/ { print $2; exit }')
        step "downloading Linux $version" unpack "$work/new" apt-get -- \
            "linux-image-$version" "linux-headers-$version" "$common" "$kbuild"
        arrange "$version" x86_64
    }
    ;;
x86-7)
    sid=$(sid_root)
    version=$(chroot "$sid" apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
    version=${version#linux-image-}
    folder=$cache/$bed-$version
    [ -e "$folder/version" ] || {
        step "installing the headers of Linux $version" chroot "$sid" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "linux-headers-$version"
        # sid has the kernel, its modules and the list of what is built in in packages of their own.
        step "downloading Linux $version" unpack "$work/new" in_root "$sid" apt-get -- \
            "linux-binary-$version" "linux-modules-$version" "linux-base-$version"
        ln -s "$sid" "$work/new/sid"
        arrange "$version" x86_64
    }
    ;;
arm64 | armhf | s390x)
    meta=linux-image-$bed
    [ "$bed" != armhf ] || meta=linux-image-armmp-lpae
    foreign_apt "$bed"
    version=$(newest_of "$meta")
    folder=$cache/$bed-$version
    [ -e "$folder/version" ] || {
        common=linux-headers-${version%-"$bed"}
        common=${common%-armmp-lpae}-common
        step "downloading Linux $version" unpack "$work/new" apt-get -- \
            "linux-image-$version" "linux-headers-$version" "$common"
        step "downloading programs for $bed" unpack_all "$work/new/root" busybox-static cryptsetup-bin dmsetup
        # What runs while modules are built has to run here.
        native_apt
        step "downloading the build's tools" unpack "$work/new" apt-get -- linux-kbuild-6.1
        case $bed in
        armhf) arrange "$version" arm ;;
        *) arrange "$version" "$bed" ;;
        esac
    }
    ;;
source-6.1) folder=$(source_tree linux-source-6.1 "$(linux.uml --version)") ;;
source-6.12) folder=$(source_tree linux-source-6.12) ;;
source-7) folder=$(newest_source) ;;
qemu) folder=$(qemu_root) ;;
bochs) folder=$(bochs_root) ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2
    exit 2
    ;;
esac
echo "$folder"
