#!/usr/bin/env bash
# Checks the modules' sources with sparse and with the kernel's checkpatch: all of them, as Debian's kernel
# for x86-64 builds them. User Mode Linux has no PCI, so that it leaves the co-processor's driver out.
#
# usage: lint.sh
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
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log
version=$(linux.uml --version)
tree=$(source_tree linux-source-6.1 "$version")

# Sources that stay outside the kernel ask for its version, and their constant stands where
# checkpatch wants none.
perl "$tree/scripts/checkpatch.pl" --no-tree --terse --no-summary \
    --ignore LINUX_VERSION_CODE,CONSTANT_COMPARISON -f "$sources"/*.[ch] "$sources"/pci/*.[ch] "$here"/*.c || die "checkpatch complains"

modules=$("$here/build.sh" x86-6.1)
kernel=$("$here/../../scripts/kernel.sh" x86-6.1)
step "running sparse" make -C "$kernel/build" CC=gcc W=1 C=2 CHECK=sparse CONFIG_DEBUG_INFO_BTF_MODULES= "M=$modules" \
    CONFIG_XTENT_PCI_INSTANT=y CONFIG_XTENT_BENCH=y modules
checked=$(grep -c '^  CHECK ' "$log") || die "sparse has seen no file"
# Not of the compiler's headers, whose intrinsics it does not know.
! grep -E "^$modules/[a-z0-9_/]*\.[ch]:[0-9:]* (warning|error):" "$log" || die "sparse complains"
for file in "$sources/pci"/*.c; do
    grep -q "^  CHECK .*/pci/$(basename "$file")" "$log" || die "sparse has not seen $file"
done
echo "$(find "$sources" "$sources/pci" "$here" -maxdepth 1 -name '*.[ch]' | wc -l) files, $checked of them compiled"
