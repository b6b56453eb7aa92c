#!/bin/sh
# Runs inside the guest, which has the simulated co-processor: dm-crypt of the series sends its driver, xtent_pci,
# several sectors in a request, the one before the series one in each, and both leave the bytes that the CPU does.
# before.ko and after.ko are the two.
# shellcheck disable=SC1091,SC2034  # of the library, and for it
. /in/pci-lib.sh
LEVEL=3
chmod +x /in/requests
# A simulated request takes a millisecond.
bytes=131072
sectors=$((bytes / 512))
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
# plain64 starts over within the device.
offset=18446744073709551488
modprobe brd rd_nr=2 rd_size=1024 || fail "no RAM disks"
insmod /in/dm-xtent.ko || fail "no dm-xtent"
# Behind software, which the CPU is to take.
load priority=1
# With requests of several data units.
tested
fallbacks=$(count fallbacks)

use() { # use before|after
    rmmod dm-crypt 2>/dev/null
    insmod "/in/$1.ko" || fail "no dm-crypt: $1"
}
# on CIPHER DISK WHAT: by that cipher, on the whole disk: write or verify
on() {
    dmsetup create d --noudevrules --noudevsync --table "0 $sectors crypt $1 $key $offset $2 0 $options" || fail "table: $1 $options"
    dmsetup mknodes d
    requests=$(count requests) done_bytes=$(count bytes)
    /in/requests "$3" /dev/mapper/d 7 "$sector" $bytes >/tmp/said 2>&1 || fail "$3 by $1, $options: $(cat /tmp/said)"
    requests=$(($(count requests) - requests)) units=$((($(count bytes) - done_bytes) / sector))
    dmsetup remove d --noudevrules --noudevsync || fail remove
}
device=capi:xts-aes-xtent-pci-plain64
cpu=aes-xts-plain64
for options in "0" "2 sector_size:4096 iv_large_sectors"; do
    sector=512
    [ "$options" = 0 ] || sector=4096
    use before
    on $device /dev/ram0 write
    [ "$requests" -gt 0 ] || fail "before: nothing for the device"
    [ "$requests" = "$units" ] || fail "before: $units sectors in $requests requests"
    said="$units sectors of $sector bytes in $requests requests before"
    on $cpu /dev/ram1 write
    [ "$requests" = 0 ] || fail "the CPU's went to the device"
    cmp /dev/ram0 /dev/ram1 || fail "the disks differ"
    use after
    on $device /dev/ram0 verify
    on $device /dev/ram0 write
    [ "$requests" -gt 0 ] || fail "after: nothing for the device"
    [ "$units" -gt $((requests * 2)) ] || fail "after: $units sectors in $requests requests"
    cmp /dev/ram0 /dev/ram1 || fail "the disks differ, after"
    echo "$said, $units in $requests with the series"
    use before
    on $cpu /dev/ram0 verify
done
[ "$(count resets)$(count failed)$(count lost_interrupts)" = 000 ] || fail "counters: $(count resets) $(count failed) $(count lost_interrupts)"
# That the device did all of it: what it cannot do is software's.
[ "$(count fallbacks)" = "$fallbacks" ] || fail "$(($(count fallbacks) - fallbacks)) requests went to software"
echo "xtent_pci: the same bytes as the CPU's, both ways"
