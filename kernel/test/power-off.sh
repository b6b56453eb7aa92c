#!/usr/bin/env bash
# Power-offs: ext4, xfs and btrfs on dm-xtent in QEMU, on disks whose cache forgets
# what was not flushed. The guest and the disks are killed at an instant; what fsync()
# had promised has to be there after the next start. With disks that ignore flushes
# it must not be, or the test would prove nothing.
#
# usage: power-off.sh BED MODULES
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
guest=$here/../../scripts/guest.sh
bed=$1
modules=$2
work=$(mktemp -d)
servers=()
stop() {
    if [ ${#servers[@]} -gt 0 ]; then
        kill -KILL "${servers[@]}" 2>/dev/null || true
        wait "${servers[@]}" 2>/dev/null || true
    fi
    servers=()
}
trap 'stop; rm -rf "$work"' EXIT
die() {
    echo "power-off: $*" >&2
    exit 1
}

# start CACHE: three disks, empty, each with a cache that dies with its server. It obeys
# flushes (writeback) or not (unsafe); QEMU has such a mode too, but flushes NBD even so.
start() {
    local fs
    for fs in ext4 xfs btrfs; do
        rm -f "$work/$fs" "$work/$fs.sock"
        truncate -s 384M "$work/$fs"
        nbdkit --foreground --exit-with-parent -U "$work/$fs.sock" -P "$work/$fs.pid" --filter=cache \
            file "$work/$fs" cache="$1" &
        servers+=($!)
    done
    for fs in ext4 xfs btrfs; do
        until [ -s "$work/$fs.pid" ]; do
            kill -0 "${servers[@]}" || die "nbdkit does not start"
        done
        rm "$work/$fs.pid"
    done
}
files=(--file "dm-xtent.ko=$modules/dm-xtent.ko" --file "power-open.sh=$here/power-open.sh")

# cut_power LINES CACHE: writes, until so many files have been promised.
cut_power() {
    local disks=() fs
    start "$2"
    for fs in ext4 xfs btrfs; do disks+=(--disk "$fs=nbd+unix:///?socket=$work/$fs.sock"); done
    "$guest" --on "$bed" "${files[@]}" "${disks[@]}" --cut "synced=$1" --timeout 1500 \
        "$here/power-write.sh" >"$work/log" || die "the guest did not get that far"
    stop
    # The last line may be half of one.
    grep -a -E '^synced [a-z0-9]+ [0-9]+ [0-9a-f]{64}$' "$work/log" >"$work/promised"
}

check() {
    local disks=() fs
    for fs in ext4 xfs btrfs; do disks+=(--disk "$fs=$work/$fs"); done
    "$guest" --on "$bed" "${files[@]}" --file "promised=$work/promised" "${disks[@]}" --timeout 1500 \
        "$here/power-check.sh" >"$work/checked" 2>&1
}

for lines in 30 57; do
    cut_power $lines writeback
    check || { cat "$work/checked" && die "after $lines files"; }
    echo "after $lines files: $(tail -1 "$work/checked")"
done
cut_power 30 unsafe
! check || die "with flushes ignored all is there as well: this test proves nothing"
grep -q "^FAILED" "$work/checked" || { cat "$work/checked" && die "the check did not run"; }
echo "with flushes ignored: $(grep -c "^FAILED" "$work/checked") faults found"
