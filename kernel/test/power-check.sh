#!/bin/sh
# Runs inside the guest after a power-off: the file systems mount, their checkers
# find them sound, and every file that was promised is there. Goes through all of it
# before it fails.
fail() {
    echo "FAILED: $*"
    touch /tmp/failed
}
# shellcheck disable=SC1091
. /in/power-open.sh
for fs in ext4 xfs btrfs; do
    open $fs
    mount -t $fs /dev/mapper/$fs /mnt/$fs || fail "$fs does not mount"
done
while read -r _ fs file digest; do
    [ "$digest" = "$(sha256sum <"/mnt/$fs/$file" 2>/dev/null | cut -c1-64)" ] || fail "$fs: file $file, which was synced"
done </in/promised
for fs in ext4 xfs btrfs; do umount /mnt/$fs || fail "umount $fs"; done
fsck.ext4 -fn /dev/mapper/ext4 >/tmp/fsck 2>&1 || fail "ext4 is unsound: $(tail -3 /tmp/fsck)"
xfs_repair -n /dev/mapper/xfs >/tmp/fsck 2>&1 || fail "xfs is unsound: $(tail -3 /tmp/fsck)"
btrfs check /dev/mapper/btrfs >/tmp/fsck 2>&1 || fail "btrfs is unsound: $(tail -3 /tmp/fsck)"
[ ! -e /tmp/failed ] || exit 1
echo "$(wc -l </in/promised) synced files are there, ext4, xfs and btrfs are sound"
