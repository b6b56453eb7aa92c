#!/bin/sh
# Runs inside the guest: one of two CPUs goes and comes back all the time, while readers and writers compare what
# they read, on null_blk, which completes in a timer's hard interrupt of the CPU that submitted. What a CPU has put off
# (deferred, queued) when it goes has to be done by the other one.
fail() {
    echo "FAILED: $*"
    touch /tmp/failed
    dmesg | tail -5
    exit 1
}

key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
short=$(echo $key | cut -c1-64)
online=/sys/devices/system/cpu/cpu1/online
disk=/dev/nullb0
folder=/sys/kernel/config/nullb/nullb0

# shellcheck source=kernel/test/worker-lib.sh
. /in/worker-lib.sh
# worker NUMBER: until the CPU has been away often enough.
worker() {
    begin_worker "$1"
    while [ ! -e /tmp/done ] && [ ! -e /tmp/failed ]; do
        work_once "$1" 4 16 256
        turns=$((${turns:-0} + 1))
    done
    echo "$turns" >"/tmp/turns-$1"
}

[ "$(nproc)" = 2 ] || fail "$(nproc) CPUs, wanted 2"
[ -e $online ] || fail "no CPU can go"
modprobe null_blk nr_devices=0 || fail "no null_blk"
mount -t configfs none /sys/kernel/config || fail "no configfs"
mkdir $folder || fail "no null_blk"
for setting in size=8 memory_backed=1 queue_mode=2 submit_queues=2 irqmode=2 completion_nsec=10000 power=1; do
    echo "${setting#*=}" >"$folder/${setting%%=*}" || fail "null_blk, $setting"
done
report=
while read -r cipher of_key options; do
    # shellcheck disable=SC2086  # words
    set -- $options
    dmsetup create d --noudevrules --noudevsync --table "0 16384 xtent $cipher $of_key 0 $disk 0 $# $*" || fail table
    dmsetup mknodes d
    rm -f /tmp/done
    running=
    for i in 0 1 2 3; do
        worker $i &
        running="$running $!"
    done
    times=0
    while [ $times -lt "${TIMES:-60}" ] && [ ! -e /tmp/failed ]; do
        echo 0 >$online || fail "CPU 1 does not go"
        echo 1 >$online || fail "CPU 1 does not come back"
        times=$((times + 1))
    done
    touch /tmp/done
    # shellcheck disable=SC2086  # a list of numbers
    wait $running
    [ ! -e /tmp/failed ] || exit 1
    status=$(dmsetup status d)
    turns=0
    for i in 0 1 2 3; do turns=$((turns + $(cat /tmp/turns-$i))); done
    report="$report${report:+; }$cipher${options:+ $options}: away $times times in $turns turns, $(echo "$status" | sed 's/.*\(queued [0-9]*\).*\(deferred [0-9]*\).*/\1, \2/')"
    dmsetup remove d --noudevrules --noudevsync || fail remove
done <<TABLES
aes-xts-plain64 $key
aes-xts-plain64 $key no_read_workqueue no_write_workqueue
aes-cbc-essiv:sha256 $short
TABLES
echo "$report"
