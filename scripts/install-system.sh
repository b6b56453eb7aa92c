#!/usr/bin/env bash
# Installs what packaging/ has, below $DESTDIR. For `make install-system`.
#
# usage: install-system.sh PREFIX SYSTEMDDIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../packaging"
prefix=$1
systemd=$2
bin=$prefix/bin
libexec=$prefix/libexec
root=${DESTDIR:-}

# fill MODE FILE INTO: with the places filled in.
fill() {
    mkdir -p "$(dirname "$root$3")"
    sed -e "s|@bindir@|$bin|g" -e "s|@libexecdir@|$libexec|g" -e "s|@systemddir@|$systemd|g" "$2" >"$root$3"
    chmod "$1" "$root$3"
}

for program in ask-systemd ask-console; do
    fill 755 "$program" "$libexec/xtent/$program"
done
for unit in systemd/*; do
    fill 644 "$unit" "$systemd/system/${unit##*/}"
done
mkdir -p "$root$systemd/system-generators"
ln -sfn "$bin/xtent" "$root$systemd/system-generators/xtent-generator"
fill 755 initramfs-tools/hook "$prefix/share/initramfs-tools/hooks/xtent"
for stage in local-top local-block; do
    fill 755 initramfs-tools/script "$prefix/share/initramfs-tools/scripts/$stage/xtent"
done
for file in dracut/90xtent/*; do
    fill 755 "$file" "$prefix/lib/dracut/modules.d/90xtent/${file##*/}"
done
mkdir -p "$root/etc/xtent/serve" "$root/etc/xtent/gateway"
