#!/bin/sh
# Runs inside the guest, whose device has the fault SPOIL (xtent-engine-sim --spoil): writes and reads through dm-xtent
# and dm-crypt, compared with what dm-crypt makes of the same disk by the CPU. Where the device only tells too little or
# too much, no request fails; where it fails, a read may, and is tried again. No wrong byte is read or written. The
# kernel's own tests are over by then: the fault is to be rare enough for them to pass (every 150th completion).
# shellcheck disable=SC1091
. /in/pci-lib.sh

case $SPOIL in
lost-interrupt | late-interrupt | double-interrupt) may_fail=no ;;
*) may_fail=yes ;;
esac
if [ "$LEVEL" -ge 2 ]; then
    users="xtent:capi:xts-aes-xtent-pci crypt:capi:xts-aes-xtent-pci"
else
    users="xtent:engine:ecb-aes-xtent-pci"
fi
dd if=/dev/urandom of=/tmp/data bs=64k count=8 2>/dev/null
# A device that fails its test is not taken, as long as it does: each try takes it from where it was.
insmod /in/xtent_pci.ko priority=1 watchdog=1000 || fail "the driver"
driver=/sys/bus/pci/drivers/xtent_pci
device=$(basename "$(engine)")
refused=0
until [ -e "$(engine)/driver" ]; do
    refused=$((refused + 1))
    [ $refused -lt 20 ] || fail "it never passes its test"
    echo "$device" 2>/dev/null >$driver/bind || true
done

tested

failed=0
# read_back MAPPING ROUND FILE: tried again where that is right.
read_back() {
    tries=0
    until dd if="/dev/mapper/$1" of="$3" bs=16k count=1 skip="$2" iflag=direct 2>/dev/null; do
        [ "$may_fail:$1" = yes:device ] || fail "$user: a read of $1 failed; $(counters)"
        failed=$((failed + 1))
        tries=$((tries + 1))
        [ $tries -lt 50 ] || fail "$user: reads always fail; $(counters)"
    done
}
for user in $users; do
    secret=$(key 64)
    setup device "${user%%:*}" "${user#*:}-plain64" ram0 "$secret" 512
    setup cpu crypt aes-xts-plain64 ram0 "$secret" 512
    for round in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        dd if=/tmp/data of=/tmp/wanted bs=16k count=1 skip=$round 2>/dev/null
        dd if=/tmp/wanted of=/dev/mapper/device bs=16k seek=$round oflag=direct conv=notrunc 2>/dev/null ||
            fail "$user: a write failed; $(counters)"
        read_back device $round /tmp/read
        read_back cpu $round /tmp/cpu
        cmp /tmp/wanted /tmp/read || fail "$user: wrong data; $(counters)"
        cmp /tmp/wanted /tmp/cpu || fail "$user: wrong data on the disk; $(counters)"
    done
    remove device
    remove cpu
done
happened || fail "no $SPOIL: $(interrupts) interrupts, $(counters)"
echo "$SPOIL: refused $refused times, $failed reads failed; $(counters)"
unload
