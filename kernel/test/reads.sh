#!/bin/sh
# Runs inside a guest with one CPU to whose clock each instruction takes a nanosecond: how many instructions a single
# read of 4 KiB takes, from null_blk, where it was made and by a timer's hard interrupt 10 us later. dm-xtent's take
# no more than dm-crypt's without queues.
fail() {
    # Where the output is a figure, this is not a part of it.
    { echo "FAILED: $*" && dmesg | tail -5; } >&2
    exit 1
}

key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
chmod +x /in/reads
insmod /in/dm-xtent.ko || fail "no dm-xtent"
modprobe null_blk nr_devices=0 || fail "no null_blk"
mount -t configfs none /sys/kernel/config || fail "no configfs"

# of WHO OPTION...: instructions of a read through dm-crypt or dm-xtent on $disk, with sectors of $sector.
of() {
    target=$1
    shift
    # shellcheck disable=SC2086  # words
    set -- sector_size:$sector $large "$@"
    dmsetup create reads --noudevrules --noudevsync --table "0 16384 $target aes-xts-plain64 $key 0 $disk 0 $# $*" ||
        fail "table: $target $*"
    dmsetup mknodes reads
    /in/reads /dev/mapper/reads || fail "$target $*"
    dmsetup remove reads --noudevrules --noudevsync || fail remove
}

# shellcheck source=kernel/test/log.sh
. /in/log.sh
report=
while read -r mode where; do
    disk=/dev/nullb$mode
    folder=/sys/kernel/config/nullb/nullb$mode
    mkdir "$folder" || fail "no null_blk"
    for setting in size=8 memory_backed=1 queue_mode=2 submit_queues=1 irqmode="$mode" completion_nsec=10000 power=1; do
        echo "${setting#*=}" >"$folder/${setting%%=*}" || fail "null_blk, $setting"
    done
    dd if=/dev/zero of="$disk" bs=1M count=8 oflag=direct 2>/dev/null || fail "cannot write $disk"
    raw=$(/in/reads "$disk") || fail "$disk"
    echo "$where: the device $raw"
    for sector in 512 4096; do
        large=
        [ $sector = 512 ] || large=iv_large_sectors
        queues=$(of crypt) && theirs=$(of crypt no_read_workqueue no_write_workqueue) || exit
        ours=$(of xtent) && at_once=$(of xtent no_read_workqueue) || exit
        echo "$where, sectors of $sector: dm-crypt $queues, no queues $theirs, dm-xtent $ours, no_read_workqueue $at_once"
        # That it was read through something at all.
        if [ "$theirs" -le "$raw" ] || [ "$at_once" -le "$raw" ]; then fail "less than the device's?"; fi
        for one in "$ours" "$at_once"; do
            [ "$one" -le "$theirs" ] || fail "$where, sectors of $sector: $one instructions, dm-crypt $theirs"
        done
        report="$report${report:+; }$where, $sector: $ours of $theirs"
    done
done <<'MODES'
0 here
2 interrupt
MODES
rmmod dm_xtent || fail "the module is still in use"
log_is_clean || exit
echo "$report"
