# shellcheck shell=sh
# Inside the guest, for run.py: makes each mapping of the list, and tells its counters before and after
# one transfer. A line of the list: a name, the cipher, request_size or 0, bytes of a sector, encryption or
# decryption, bytes of a transfer, transfers, bits of the key, and the costs.
fail() {
    echo "FAILED: $*"
    dmesg | tail -20
    exit 1
}
insmod /in/dm-xtent.ko timing=1 || fail "dm-xtent"
if [ -e /in/xtent_pci.ko ]; then
    insmod /in/xtent_pci.ko || fail "xtent_pci"
    # It is probed at once; what it says is for whoever reads a failure.
    grep -q xtent-pci /proc/crypto || fail "the driver has found no engine"
    # The kernel's tests of its algorithms are other threads' requests to the engine.
    while awk 'BEGIN { RS = "" } /xtent-pci/ && !/selftest *: passed/ { found = 1 } END { exit !found }' /proc/crypto; do
        usleep 100000
    done
fi
rmmod brd 2>/dev/null
modprobe brd rd_nr=1 rd_size=65536 || fail "brd"
hex=000102030405060708090a0b0c0d0e0f
while read -r name cipher cut sector direction bytes count bits cost; do
    key=${hex}101112131415161718191a1b1c1d1e1f
    [ "$bits" = 128 ] || key=$key${hex}f01112131415161718191a1b1c1d1e1f
    options="in_flight:1 sector_size:$sector"
    [ "$cut" = 0 ] || options="$options request_size:$cut"
    # shellcheck disable=SC2086  # words
    set -- $options
    dmsetup create d --noudevrules --noudevsync --table "0 131072 xtent $cipher $key 0 /dev/ram0 0 $# $options" ||
        fail "table: $cipher $options"
    dmsetup mknodes d
    if [ "$direction" = encryption ]; then
        set -- if=/dev/zero of=/dev/mapper/d oflag=direct
    else
        set -- if=/dev/mapper/d of=/dev/null iflag=direct
    fi
    # Once before, for what is allocated on first use.
    echo "$cost" >/sys/module/dm_xtent/parameters/cost
    dd bs=4096 count=1 "$@" 2>/dev/null || fail "$name: dd"
    echo "BEFORE $name $direction $(dmsetup status d)"
    dd bs="$bytes" count="$count" "$@" 2>/dev/null || fail "$name: dd"
    echo "AFTER $name $direction $(dmsetup status d)"
    dmsetup remove d --noudevrules --noudevsync
done </in/list
