#!/bin/sh
# Runs inside the guest, a kernel with CONFIG_PM_DEBUG: the driver's part of suspend and resume, with a mapping in use;
# a device that is dead stays so.
# shellcheck disable=SC1091
. /in/pci-lib.sh

[ -e /sys/power/pm_test ] || fail "a kernel that cannot try to sleep"
cipher=engine:ecb-aes-xtent-pci
[ "$LEVEL" -lt 2 ] || cipher=capi:xts-aes-xtent-pci
load priority=1 watchdog=2000
secret=$(key 64)
setup device xtent "$cipher-plain64" ram0 "$secret" 512
setup cpu crypt aes-xts-plain64 ram0 "$secret" 512
dd if=/dev/urandom of=/tmp/data bs=64k count=1 2>/dev/null
io() {
    counted=$(count requests)
    dd if=/tmp/data of=/dev/mapper/device bs=64k oflag=direct conv=notrunc 2>/dev/null || fail "write"
    dd if=/dev/mapper/device of=/tmp/read bs=64k count=1 iflag=direct 2>/dev/null || fail "read"
    dd if=/dev/mapper/cpu of=/tmp/cpu bs=64k count=1 iflag=direct 2>/dev/null || fail "read by the CPU"
    cmp /tmp/data /tmp/read || fail "wrong data"
    cmp /tmp/data /tmp/cpu || fail "wrong data on the disk"
    [ "$(count requests)" -gt "$counted" ] || fail "nothing for the device: $(counters)"
}
io
loads=$(count key_loads)
echo devices >/sys/power/pm_test
echo mem >/sys/power/state || fail "suspend"
[ "$(count state)" = up ] || fail "not up: $(counters)"
io
[ "$(count key_loads)" -gt "$loads" ] || fail "the device had its key still: $(counters)"

off_the_bus
tries=0
until [ "$(count state)" = dead ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "not out of service: $(counters)"
    dd if=/tmp/data of=/dev/mapper/device bs=64k oflag=direct conv=notrunc 2>/dev/null || true
done
requests=$(count requests)
echo mem >/sys/power/state || fail "suspend when it is dead"
[ "$(count state)" = dead ] || fail "it is back from the dead: $(counters)"
dd if=/dev/mapper/device of=/tmp/read bs=64k count=1 iflag=direct 2>/dev/null || fail "read without a device"
[ "$(count requests)" = "$requests" ] || fail "it is used when it is dead: $(counters)"

remove device
remove cpu
echo "slept: $(counters)"
unload
