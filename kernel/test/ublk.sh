#!/usr/bin/env bash
# Builds the driver of ublk devices for Debian's User Mode Linux, whose kernel is without it, from
# Debian's source of that kernel, and prints the module's path below target/kernel.
#
# usage: ublk.sh
# shellcheck disable=SC2154  # of kernel-packages.sh
set -euo pipefail
export LC_ALL=C

die() {
    printf 'kernel: %s\n' "$*" >&2
    exit 125
}

[ $# -eq 0 ] || die "no arguments wanted"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC1091
. "$here/../../scripts/kernel-packages.sh"
# It prepares the kernel's tree for modules.
"$here/build.sh" uml >/dev/null || exit 125
kernel=$("$here/../../scripts/kernel.sh" uml) || exit 125
version=$(cat "$kernel/version")
exec 9>"$built/lock-ublk"
flock 9
# shellcheck disable=SC2034  # used there
log=$built/log-ublk
folder=$built/ublk-$version
work=$(mktemp -d "$built/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
[ -e "$folder/ublk_drv.ko" ] || {
    tree=$(source_tree linux-source-6.1 "$version")
    mkdir "$work/new"
    cp "$tree/drivers/block/ublk_drv.c" "$work/new/"
    echo "obj-m += ublk_drv.o" >"$work/new/Kbuild"
    # The binary does not tell its symbols: what is missing shows when it is loaded.
    step "building the driver of ublk devices" make -C "$cache/prepared-uml-$version" ARCH=um \
        KBUILD_MODPOST_WARN=1 CONFIG_DEBUG_INFO_BTF_MODULES= "M=$work/new" modules
    rm -rf "$folder"
    mv "$work/new" "$folder"
}
echo "$folder/ublk_drv.ko"
