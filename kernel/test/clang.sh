#!/usr/bin/env bash
# Builds all modules with clang, which warns of other things than gcc and has other frames, for User Mode
# Linux 6.1 on x86-64 without checkers, as uml-6.12-fast is configured.
#
# usage: clang.sh    Exits with 77 where there is no clang.
# shellcheck disable=SC2154  # of kernel-packages.sh
set -euo pipefail
export LC_ALL=C

die() {
    printf 'kernel: %s\n' "$*" >&2
    exit 125
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sources=$(dirname "$here")
# shellcheck disable=SC1091
. "$here/../../scripts/kernel-packages.sh"
for tool in clang ld.lld llvm-nm; do
    command -v $tool >/dev/null || { echo "NOT RUN: $tool is missing; run scripts/setup.sh kernel" && exit 77; }
done
work=$(mktemp -d "$built/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/log
tree=$(source_tree linux-source-6.1 "$(linux.uml --version)")
configs=("$here"/{uml-6.12,uml-fast}.config)
output=$cache/clang-$(basename "$tree")-$( (cat "${configs[@]}" && clang --version) | sha256sum | cut -c1-16)
make=(make LLVM=1 ARCH=um)
exec 7>"$cache/lock-clang"
flock 7
[ -e "$output/scripts/mod/modpost" ] || {
    rm -rf "$output"
    mkdir -p "$output"
    step "configuring" "${make[@]}" -C "$tree" "O=$output" tinyconfig
    cat "${configs[@]}" >>"$output/.config"
    step "configuring" "${make[@]}" -C "$tree" "O=$output" olddefconfig
    step "preparing" "${make[@]}" -C "$tree" "O=$output" modules_prepare
}
exec 7>&-

mkdir -p "$work/modules/pci"
cp "$sources"/*.[ch] "$here"/{planted,shifted}.c "$work/modules/"
cp "$sources"/pci/*.[ch] "$work/modules/pci/"
(cat "$sources/Kbuild" && echo "obj-m += planted.o shifted.o") >"$work/modules/Kbuild"
# No kernel was built whose symbols it could look up.
step "building with clang" "${make[@]}" -C "$output" W=1 KBUILD_MODPOST_WARN=1 CONFIG_XTENT_RUN_TEST=m CONFIG_XTENT_BENCH=y \
    CONFIG_XTENT_PCI_INSTANT=y "M=$work/modules" modules
# Not of the kernel's own headers.
! grep -E -A 6 "^$work/modules/[a-z0-9_/]*\.[ch]:[0-9:]* (warning|error):" "$log" || die "clang complains"
for module in dm-xtent xtent_fast xtent_pci xtent_run_test planted shifted; do
    readelf -p .comment "$work/modules/$module.ko" | grep -q clang || die "$module.ko was not built by clang"
done
echo "$(grep -c '^  CC \[M\]' "$log") files by $(clang --version | head -1)"
