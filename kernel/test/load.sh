#!/bin/sh
# Runs inside the guest: several readers and writers at once, each of which compares
# what it reads, on a RAM disk, which completes requests where they were made, and on
# one whose requests end in interrupts, while the device is suspended, resumed and
# gets other tables: XTS, a cipher of the crypto API, and an engine. With CPUS it wants so many.
fail() {
    echo "FAILED: $*"
    touch /tmp/failed
    dmesg | tail -5
    exit 1
}

key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
# shellcheck source=kernel/test/worker-lib.sh
. /in/worker-lib.sh
workers=4
rounds=${ROUNDS:-6}

# worker NUMBER: for some rounds.
worker() {
    begin_worker "$1"
    round=0
    while [ $round -lt "$rounds" ]; do
        work_once "$1" 4 64 1024
        round=$((round + 1))
    done
}

# read_together: four readers of 256 blocks each, of what the workers wrote.
read_together() {
    running=
    for i in 0 1 2 3; do
        dd if=/dev/mapper/d of="/tmp/read-$i" bs=4k count=256 skip=$((i * 256)) iflag=direct 2>/dev/null &
        running="$running $!"
    done
    # shellcheck disable=SC2086  # a list of numbers
    wait $running
}

# wanted WHAT VALUE...: fails unless the status has these values after that word.
wanted() {
    dmsetup status d | grep -q " $* " || fail "wanted $*: $(dmsetup status d)"
}

[ "$(nproc)" = "${CPUS:-$(nproc)}" ] || fail "$(nproc) CPUs, wanted $CPUS"
short=$(echo $key | cut -c1-64)
report=
merged=0
while read -r cipher of_key disk; do
    # Counters start again with every table, so what shows is the last's.
    table="0 32768 xtent $cipher $of_key 0 $disk 0"
    dmsetup create d --noudevrules --noudevsync --table "$table" || fail "table on $disk"
    dmsetup mknodes d
    rm -f /tmp/done
    (
        changes=0
        while [ ! -e /tmp/done ] && [ ! -e /tmp/failed ]; do
            case $((changes % 3)) in
            0) dmsetup load d --table "$table 1 same_cpu_crypt" || fail "load" ;;
            1) dmsetup load d --table "$table 1 no_read_workqueue" || fail "load" ;;
            2) dmsetup suspend d --noudevsync || fail "suspend" ;;
            esac
            dmsetup resume d --noudevsync || fail "resume"
            changes=$((changes + 1))
        done
        echo $changes >/tmp/changes
    ) &
    others=$!
    running=
    i=0
    while [ $i -lt $workers ]; do
        worker $i &
        running="$running $!"
        i=$((i + 1))
    done
    # shellcheck disable=SC2086  # a list of numbers
    wait $running
    touch /tmp/done
    wait $others
    [ ! -e /tmp/failed ] || exit 1
    # One table to the end, for its counters.
    dmsetup load d --table "$table" || fail "the last table"
    dmsetup resume d --noudevsync || fail "the last table"
    read_together
    for i in 0 1 2 3; do cmp "/tmp/data-$i" "/tmp/read-$i" || fail "worker $i's data after all"; done
    dmsetup status d
    # 1024 reads of 8 sectors each.
    wanted reads 1024 writes 0 read_sectors 8192 write_sectors 0 queued
    wanted runs 0,0,0,1024,0,0,0,0,0,0,0,0 requests
    case "$(dmsetup status d) $disk" in
    *" xtent vaes"*ram0 | *" xtent aesni"*ram0)
        # Where the writer or reader is: nothing waits, and nothing is together.
        wanted queued 0 merged 0 runs
        ;;
    *" xtent vaes"* | *" xtent aesni"*)
        # On the one CPU of User Mode Linux a few of the readers' requests end together, but not in every turn.
        turns=1
        while its_merged=$(dmsetup status d | sed 's/.* merged \([0-9]*\).*/\1/') &&
            [ "$its_merged$(nproc)" = 01 ] && [ $turns -lt 50 ]; do
            read_together
            turns=$((turns + 1))
        done
        merged=$((merged + its_merged))
        [ "$merged" -gt 0 ] || [ "$(nproc)" != 1 ] || fail "no reads together"
        ;;
    *) wanted queued 1024 merged 0 runs ;;
    esac
    report="$report, $(cat /tmp/changes) tables and suspensions with $cipher on $(basename "$disk")"
    dmsetup remove d --noudevrules --noudevsync || fail remove
done <<DISKS
aes-xts-plain64 $key /dev/ram0
aes-xts-plain64 $key /d/scratch
aes-cbc-essiv:sha256 $short /dev/ram0
aes-cbc-essiv:sha256 $short /d/scratch
engine:ecb(aes)-plain64 $key /dev/ram0
engine:ecb(aes)-plain64 $key /d/scratch
DISKS
echo "$(nproc) CPUs, $workers workers$report, $merged reads merged in ${turns:-no} turns"
