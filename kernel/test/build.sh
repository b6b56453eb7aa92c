#!/usr/bin/env bash
# Builds the modules for a kernel and prints the folder that holds them, below
# target/kernel.
#
# usage: build.sh BED    a kernel of scripts/kernel.sh: uml, uml-6.12, uml-6.12-fast, uml-7, uml-7-fast,
#                        uml-7-smp, uml-7-smp-fast, x86-6.1, x86-6.12, x86-6.12-threadirqs, x86-rt,
#                        x86-7, x86-7-kcsan, x86-7-bochs, arm64, arm64-64k, armhf or s390x
# shellcheck disable=SC2154  # of kernel-packages.sh
set -euo pipefail
export LC_ALL=C

die() {
    printf 'kernel: %s\n' "$*" >&2
    exit 125
}

sources=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck disable=SC1091
. "$sources/../scripts/kernel-packages.sh"
bed=${1:-}
case $bed in
uml | uml-6.12 | uml-6.12-fast | uml-7 | uml-7-fast | uml-7-smp | uml-7-smp-fast) ;;
x86-6.1 | x86-6.12 | x86-6.12-threadirqs | x86-rt | x86-7 | x86-7-kcsan | x86-7-bochs | arm64 | arm64-64k | armhf | s390x) ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2
    exit 2
    ;;
esac
kernel=$("$sources/../scripts/kernel.sh" "$bed") || exit 125
version=$(cat "$kernel/version")
exec 9>"$built/lock-modules-$bed"
flock 9
log=$built/log-modules-$bed
modules=$built/modules-$bed
work=$(mktemp -d "$built/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

make=(make W=1 CONFIG_DEBUG_INFO_BTF_MODULES=)
case $bed in
uml)
    # A module's version magic holds the very version.
    tree=$(source_tree linux-source-6.1 "$version")
    output=$cache/prepared-uml-$version
    # For every tree.
    exec 7>"$cache/lock-prepared"
    flock 7
    if [ ! -e "$output/scripts/mod/modpost" ]; then
        mkdir -p "$output"
        "$kernel/image" --showconfig >"$output/.config"
        step "configuring" make -C "$tree" ARCH=um "O=$output" olddefconfig
        step "preparing" make -C "$tree" ARCH=um "O=$output" modules_prepare
    fi
    exec 7>&-
    # The binary does not tell its symbols: what is missing shows when it is loaded.
    make+=(-C "$output" ARCH=um KBUILD_MODPOST_WARN=1)
    ;;
uml-6.12-fast | uml-7-fast | uml-7-smp-fast) make+=(-C "$kernel/build" ARCH=um) ;;
# KASAN and KCSAN make frames larger.
uml-6.12 | uml-7 | uml-7-smp) make+=(-C "$kernel/build" ARCH=um KCFLAGS=-Wframe-larger-than=4096) ;;
x86-6.1 | x86-6.12 | x86-6.12-threadirqs | x86-rt | x86-7-bochs) make+=(-C "$kernel/build" CC=gcc) ;;
x86-7-kcsan) make+=(-C "$kernel/build" CC=gcc KCFLAGS=-Wframe-larger-than=4096) ;;
arm64 | arm64-64k) make+=(-C "$kernel/build" ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- CC=aarch64-linux-gnu-gcc) ;;
s390x) make+=(-C "$kernel/build" ARCH=s390 CROSS_COMPILE=s390x-linux-gnu- CC=s390x-linux-gnu-gcc) ;;
armhf) make+=(-C "$kernel/build" ARCH=arm CROSS_COMPILE=arm-linux-gnueabihf- CC=arm-linux-gnueabihf-gcc) ;;
esac

mkdir -p "$modules"
# With their times, so that only what has changed is compiled again.
mkdir -p "$modules/pci"
cp -p "$sources"/*.[ch] "$sources"/test/{planted,shifted}.c "$modules/"
cp -p "$sources"/pci/*.[ch] "$modules/pci/"
(cat "$sources/Kbuild" && echo "obj-m += planted.o shifted.o") >"$modules/Kbuild"
for file in "$modules"/*.[ch] "$modules"/pci/*.[ch]; do
    case $file in *.mod.c | */planted.c | */shifted.c) continue ;; esac
    [ -e "$sources/${file#"$modules/"}" ] || rm "$file"
done
# Another kernel of the same bed.
[ "$(cat "$modules/kernel" 2>/dev/null)" = "$kernel" ] || {
    rm -f "$modules"/{,pci/}*.o "$modules"/{,pci/}.*.cmd
    echo "$kernel" >"$modules/kernel"
}
case $bed in
x86-7)
    # Where its own compiler is; objtool wants /proc.
    sid=$(readlink "$kernel/sid")
    mkdir -p "$sid/modules"
    # shellcheck disable=SC2016  # expanded inside
    step "building the modules for $bed" unshare --mount sh -c '
        mount -t proc proc "$1/proc" && mount --bind "$2" "$1/modules" && sid=$1 && shift 2 && exec chroot "$sid" "$@"' \
        sh "$sid" "$modules" "${make[@]}" -C "/usr/src/linux-headers-$version" M=/modules modules
    ;;
*) step "building the modules for $bed" "${make[@]}" "M=$modules" modules ;;
esac
# Of our files; a kernel's makefiles warn of compilers that differ.
if grep -E '^([^ ]*/)?[a-z0-9_]+\.[ch]:[0-9:]* warning:|objtool:.*warning|^WARNING: modpost' "$log" |
    if [ "$bed" = uml ]; then grep -v 'modpost:.*\(undefined!\|unresolved symbol\)'; else cat; fi >&2; then
    # Else the next build would compile nothing and find none.
    rm -f "$modules"/{,pci/}*.o "$modules"/{,pci/}.*.cmd
    die "warnings; see above"
fi
echo "$modules"
