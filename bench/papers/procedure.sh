# shellcheck shell=sh
# Inside the guest, for run.py: GreHack's test procedure. A container with ext4 and a file in it; then some times: open
# it, make the file's digest with nothing cached, compare, close it. The list: cipher, request_size or 0, bits of the key, times,
# KiB of the file, costs. Tells what the target took for each digest, in nanoseconds.
fail() {
    echo "FAILED: $*"
    dmesg | tail -20
    exit 1
}
read -r cipher cut bits times kib cost </in/list
insmod /in/dm-xtent.ko timing=1 || fail "dm-xtent"
[ ! -e /in/xtent_pci.ko ] || insmod /in/xtent_pci.ko || fail "xtent_pci"
rmmod brd 2>/dev/null
modprobe brd rd_nr=1 rd_size=8192 || fail "brd"
modprobe -q ext4
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
[ "$bits" = 128 ] || key=${key}f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff0f1e2d3c4b5a69788796a5b4c3d2e1f0
options="1 in_flight:1"
[ "$cut" = 0 ] || options="2 in_flight:1 request_size:$cut"
opened() {
    dmsetup create d --noudevrules --noudevsync --table "0 16384 xtent $cipher $key 0 /dev/ram0 0 $options" ||
        fail "table: $cipher $options"
    dmsetup mknodes d
}
closed() {
    dmsetup remove d --noudevrules --noudevsync || fail "close"
}
total() {
    dmsetup status d | sed 's/.* total //'
}
# Only reading is measured.
opened
mkfs.ext4 -q -O ^has_journal /dev/mapper/d || fail "mkfs"
mount -t ext4 /dev/mapper/d /mnt || fail "mount"
dd if=/dev/urandom of=/mnt/file bs=1024 count="$kib" 2>/dev/null || fail "write"
wanted=$(md5sum </mnt/file)
umount /mnt || fail "umount"
closed
echo "$cost" >/sys/module/dm_xtent/parameters/cost
while [ "$times" -gt 0 ]; do
    opened
    mount -t ext4 -o ro /dev/mapper/d /mnt || fail "mount"
    before=$(total)
    [ "$(md5sum </mnt/file)" = "$wanted" ] || fail "the file has changed"
    echo "DIGEST $(($(total) - before))"
    umount /mnt || fail "umount"
    closed
    times=$((times - 1))
done
