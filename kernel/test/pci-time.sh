#!/bin/sh
# Runs inside the guest, whose time is simulated: a run takes the device between half and twice the time that its
# cipher needs for so many blocks, since the device may be ahead of the guest; a request for each sector takes longer.
# shellcheck disable=SC1091
. /in/pci-lib.sh

load
bytes=262144
dd if=/dev/urandom of=/tmp/data bs=$bytes count=1 2>/dev/null
echo 1 >/sys/module/dm_xtent/parameters/timing || fail "timing"
secret=$(key 64)
# took OPTIONS...: how long a write of $bytes was with the device, in nanoseconds.
took() {
    dmsetup create timed --noudevrules --noudevsync \
        --table "0 $((bytes / 512)) xtent capi:xts-aes-xtent-pci-plain64 $secret 0 /dev/ram0 0 $# $*" || fail "table: $*"
    dmsetup mknodes timed
    dd if=/tmp/data of=/dev/mapper/timed bs=$bytes count=1 oflag=direct 2>/dev/null || fail write
    dmsetup status timed >/tmp/status
    sed 's/.* engine \([0-9]*\).*/\1/' /tmp/status
    remove timed
}
run=$(took in_flight:1)
sectors=$(took request_size:512 in_flight:1)
# A block a cycle, of 10 ns.
least=$((bytes * 10 / 16))
[ $((2 * run)) -ge $least ] || fail "$run ns for a run, whose cipher takes $least"
[ "$run" -lt $((2 * least)) ] || fail "$run ns for a run, whose cipher takes $least"
[ "$sectors" -gt $((2 * run)) ] || fail "$sectors ns for requests of a sector each, $run for a run"
unload
echo "256 KiB, of $least ns for the cipher, took $run ns in a run, $sectors in requests of 512 bytes"
