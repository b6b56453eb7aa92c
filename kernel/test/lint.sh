#!/usr/bin/env bash
# Checks the modules' sources with sparse and with the kernel's checkpatch.
#
# usage: lint.sh MODULES    the folder that build.sh prints for uml
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

step "running sparse" make -C "$cache/prepared-uml-$version" ARCH=um KBUILD_MODPOST_WARN=1 W=1 C=2 CHECK=sparse "M=$1" modules
checked=$(grep -c '^  CHECK ' "$log") || die "sparse has seen no file"
# Not of the compiler's headers, whose intrinsics it does not know.
! grep -E "^$1/[a-z0-9_]*\.[ch]:[0-9:]* (warning|error):" "$log" || die "sparse complains"
echo "$(find "$sources" "$sources/pci" "$here" -maxdepth 1 -name '*.[ch]' | wc -l) files, $checked of them compiled"
