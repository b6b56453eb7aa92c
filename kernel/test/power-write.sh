#!/bin/sh
# Runs inside the guest until that is killed: writes files to three file systems on
# the target at once, and prints the digest of each when fsync() has returned.
fail() {
    echo "FAILED: $*"
    dmesg | tail -5
    exit 1
}
# shellcheck disable=SC1091
. /in/power-open.sh
write() { # write FS
    i=0
    while :; do
        dd if=/dev/urandom of="/mnt/$1/$i" bs=4k count=$((i * 7 % 40 + 1)) conv=fsync 2>/dev/null || exit
        echo "synced $1 $i $(sha256sum <"/mnt/$1/$i" | cut -c1-64)"
        # And what nobody was promised.
        dd if=/dev/urandom of="/mnt/$1/noise" bs=64k count=8 2>/dev/null
        i=$((i + 1))
    done
}
for fs in ext4 xfs btrfs; do
    open $fs
    "mkfs.$fs" -q /dev/mapper/$fs >/dev/null 2>&1 || fail "mkfs.$fs"
    mount -t $fs /dev/mapper/$fs /mnt/$fs || fail "mount $fs"
    sync
done
for fs in ext4 xfs btrfs; do write $fs & done
wait
