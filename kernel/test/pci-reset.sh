#!/bin/sh
# Runs inside the guest, whose device hangs again and again (xtent-engine-sim --spoil) and does something in between:
# after so many resets within a minute it is out of service, and all is software's.
# shellcheck disable=SC1091
. /in/pci-lib.sh

load watchdog=200
tested
setup device crypt capi:xts-aes-xtent-pci-plain64 ram0 "$(key 64)" 512
dd if=/dev/urandom of=/tmp/data bs=16k count=1 2>/dev/null
tries=0
until [ "$(count state)" = dead ]; do
    tries=$((tries + 1))
    [ $tries -lt 500 ] || fail "it is reset for ever: $(counters)"
    dd if=/tmp/data of=/dev/mapper/device bs=16k oflag=direct conv=notrunc 2>/dev/null || fail "write: $(counters)"
done
[ "$(count resets)" = 17 ] || fail "$(counters)"
requests=$(count requests)
dd if=/dev/mapper/device of=/tmp/read bs=16k count=1 iflag=direct 2>/dev/null || fail "read: $(counters)"
cmp /tmp/data /tmp/read || fail "wrong data"
[ "$(count requests)" = "$requests" ] || fail "it is used when it is dead: $(counters)"
remove device
echo "after $tries writes: $(counters)"
unload
