# shellcheck shell=sh
# Inside the guest, for pays.py: with the instruction set that /in/isa names, measures each point of /in/list, a
# line for dm-xtent's parameter `bench`, with a co-processor that completes at once; then what dm-xtent takes beside its requests.
fail() {
    echo "FAILED: $*"
    dmesg | tail -20
    exit 1
}
isa=$(cat /in/isa)
if ! insmod /in/dm-xtent.ko isa="$isa" 2>/dev/null; then
    dmesg | grep -q "this CPU has no $isa" || fail "dm-xtent"
    echo "MISSING $isa"
    exit 0
fi
insmod /in/xtent_pci.ko || fail "xtent_pci"
device=$(echo /sys/bus/pci/drivers/xtent_pci/0*)
[ -e "$device/instant/on" ] || fail "no co-processor, or a driver without CONFIG_XTENT_PCI_INSTANT=y"
# The kernel's tests of its algorithms want a device that enciphers.
while awk 'BEGIN { RS = "" } /xtent-pci/ && !/selftest *: passed/ { found = 1 } END { exit !found }' /proc/crypto; do
    usleep 100000
done
echo 1 >"$device/instant/on" || fail "instant"
counts() {
    cat "$device/xtent/requests" "$device/instant/writes" "$device/instant/reads"
}
# What software did for the driver would be taken for the driver's own.
fallbacks=$(cat "$device/xtent/fallbacks")
bench=/sys/module/dm_xtent/parameters/bench
# All of them, then all again: what disturbs one for a while does not disturb it each time.
for turn in 1 2 3 4; do
    while read -r point; do
        # shellcheck disable=SC2046  # words
        set -- $(counts)
        echo "$point" >$bench || fail "$point, turn $turn"
        # shellcheck disable=SC2046  # words
        set -- "$@" $(counts)
        echo "POINT $point $(cat $bench) $(($4 - $1)) $(($5 - $2)) $(($6 - $3))"
    done </in/list
done

echo 1 >/sys/module/dm_xtent/parameters/timing
rmmod brd 2>/dev/null
modprobe brd rd_nr=1 rd_size=16384 || fail "brd"
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff0f1e2d3c4b5a69788796a5b4c3d2e1f0
for bytes in 4096 65536 262144; do
    dmsetup create d --noudevrules --noudevsync --table "0 32768 xtent capi:xts-aes-xtent-pci-plain64 $key 0 /dev/ram0 0" ||
        fail "table"
    dmsetup mknodes d
    for round in $(seq 21); do
        dd bs=$bytes count=16 if=/dev/zero of=/dev/mapper/d oflag=direct 2>/dev/null || fail "dd"
        echo "TARGET $bytes $round $(dmsetup status d)"
    done
    dmsetup remove d --noudevrules --noudevsync
done
[ "$(cat "$device/instant/on")" = 1 ] || fail "the device was reset"
[ "$(cat "$device/xtent/fallbacks")" = "$fallbacks" ] || fail "software did requests of the driver"
