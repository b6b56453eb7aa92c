#!/usr/bin/env bash
# Builds what the comparison loads into User Mode Linux, and prints the folder with it:
# dm-xtent.ko; aesni-intel.ko, the kernel's own AES driver for x86, from the source of
# Linux 6.12 or, for such a bed, 7; host_clock.ko; and the program io. All of it goes below target/kernel.
#
# usage: build.sh BED    uml, uml-6.12-fast, uml-7-fast or uml-7-smp-fast of scripts/kernel.sh
# shellcheck disable=SC2154  # of kernel-packages.sh
set -euo pipefail
export LC_ALL=C

die() {
    printf 'bench/kernel: %s\n' "$*" >&2
    exit 125
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..
bed=${1:-}
# shellcheck disable=SC1091
. "$root/scripts/kernel-packages.sh"
kernel=$("$root/scripts/kernel.sh" "$bed") || exit 125
xtent=$("$root/kernel/test/build.sh" "$bed") || exit 125
log=$built/log-bench-$bed
work=$(mktemp -d "$built/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
names=(aesni-intel_asm.S aesni-intel_glue.c aes-xts-avx-x86_64.S aes-gcm-aesni-x86_64.S)
make=(make ARCH=um CONFIG_DEBUG_INFO_BTF_MODULES=)
case $bed in
uml)
    tree=$(source_tree linux-source-6.12)
    make+=(-C "$cache/prepared-uml-$(cat "$kernel/version")" KBUILD_MODPOST_WARN=1)
    ;;
uml-6.12-fast | uml-7-fast | uml-7-smp-fast)
    # The very source that the kernel was built from.
    tree=$(realpath "$kernel/build/source")
    make+=(-C "$kernel/build")
    ;;
*) die "usage: build.sh uml|uml-6.12-fast|uml-7-fast|uml-7-smp-fast" ;;
esac
case $bed in
uml-7*) names+=(aes-gcm-vaes-avx2.S aes-gcm-vaes-avx512.S aes-ctr-avx-x86_64.S) ;;
*) names+=(aes-gcm-avx10-x86_64.S aes_ctrby8_avx-x86_64.S) ;;
esac
built=$built/bench-$(basename "$kernel")
mkdir -p "$built"
exec 9>"$built/lock"
flock 9

for name in "${names[@]}"; do
    [ -e "$tree/arch/x86/crypto/$name" ] || die "$tree has no arch/x86/crypto/$name"
    cmp -s "$tree/arch/x86/crypto/$name" "$built/$name" || cp "$tree/arch/x86/crypto/$name" "$built/"
done
# A part of the kernel or a module of its own on x86, and not to be had in this kernel: its part of ours
# says neither who wrote it nor under what licence once more.
case $bed in
uml-7*) helper=lib/crypto/gf128mul.c ;;
*) helper=crypto/simd.c ;;
esac
sed -E '/^MODULE_(LICENSE|DESCRIPTION)/d' "$tree/$helper" >"$built/new"
cmp -s "$built/new" "$built/helper.c" || mv "$built/new" "$built/helper.c"
cp -p "$here"/{Kbuild,on_uml.h,host_clock.c} "$root/kernel/host_clock.h" "$built/"
step "building the kernel's AES driver for User Mode Linux" \
    "${make[@]}" "M=$built" modules
if grep -E '^([^ ]*/)?(host_clock|on_uml)\.[ch]:[0-9:]* warning:|^WARNING: modpost' "$log" |
    if [ "$bed" = uml ]; then grep -v 'modpost:.*\(undefined!\|unresolved symbol\)'; else cat; fi >&2; then
    die "warnings; see above"
fi
cp -p "$xtent/dm-xtent.ko" "$built/"
cc -static -O1 -Wall -Wextra -Werror -o "$built/io" "$here/io.c" || die "cannot compile io; run scripts/setup.sh kernel"
echo "$built"
