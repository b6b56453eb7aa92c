#!/bin/sh
# Runs inside the guest: several readers and writers, each a process of fio's, on disks that complete
# their requests elsewhere than where they were made: null_blk in soft interrupts and by timers, which
# are hard interrupts, and an NVMe disk where the guest has one. What dm-crypt wrote is read through
# dm-xtent while others write there; what they wrote dm-crypt then reads. With BYTES for each of the four.
fail() {
    echo "FAILED: $*"
    dmesg | tail -5
    exit 1
}

key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
short=$(echo $key | cut -c1-64)
# So many MiB for each reader and writer.
each=$((${BYTES:-8388608} / 1048576))
sectors=$((each * 4 * 2048))
# The timers of a kernel with PREEMPT_RT are threads, but for those that ask.
realtime=
! grep -q PREEMPT_RT /proc/version || realtime=1

# of_fio DEVICE PLACE OPTIONS...: requests of 4 KiB to 1 MiB on one of the four parts of the device, the
# same for the same place and test.
of_fio() {
    device=$1
    place=$2
    shift 2
    # With the libraries that came with it.
    # shellcheck disable=SC2211  # the loader's name is the architecture's
    /in/ld-linux*.so* --library-path /in /in/fio --name=interrupts --filename="/dev/mapper/$device" \
        --offset="$((place * each))m" --size="${each}m" --rw=randwrite \
        --bssplit="4k/50:16k/25:64k/15:256k/8:1m/2" --direct=1 --ioengine=libaio --iodepth=16 --thread \
        --randseed=$((tests * 4 + place + 1)) --verify=crc32c --verify_fatal=1 "$@" >"/tmp/fio-$place" 2>&1 || {
        cat "/tmp/fio-$place"
        fail "$what: $*, $device, part $place"
    }
}
# together COMMAND...: all of them at once.
together() {
    running=
    for command in "$@"; do
        # shellcheck disable=SC2086  # words
        of_fio $command &
        running="$running $!"
    done
    for one in $running; do wait "$one" || exit 1; done
}
setup() { # setup NAME TARGET
    dmsetup create "$1" --noudevrules --noudevsync --table "0 $sectors $2 $cipher $of_key 0 $disk 0 $options" ||
        fail "table: $2 $cipher $options"
    dmsetup mknodes "$1"
}
# counted FILE NAME: what all CPUs have counted under that name in /proc/FILE.
counted() {
    awk -v name="$2" '$1 == name ":" { for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) sum += $i } END { print sum + 0 }' "/proc/$1"
}

# null_disk IRQMODE QUEUES: makes $disk.
null_disk() {
    folder=/sys/kernel/config/nullb/nullb0
    mkdir $folder || fail "no null_blk"
    for setting in size=$((each * 4)) memory_backed=1 queue_mode=2 blocksize=512 irqmode="$1" submit_queues="$2" poll_queues=0 \
        completion_nsec=20000 power=1; do
        echo "${setting#*=}" >"$folder/${setting%%=*}" || fail "null_blk, $setting"
    done
    disk=/dev/nullb0
    [ -e $disk ] || fail "no $disk"
}

report=
tests=0
# on_disk NAME: every cipher with and without queues.
on_disk() {
    queued=
    while read -r cipher of_key sector; do
        for more in "" "no_read_workqueue no_write_workqueue"; do
            what="$1, $cipher, sectors of $sector${more:+, $more}"
            # shellcheck disable=SC2086  # words
            set -- "$1" $more
            options="$(($#)) sector_size:$sector $more"
            setup ours xtent
            setup theirs crypt
            soft=$(counted softirqs BLOCK)
            together "theirs 0 --do_verify=0" "theirs 1 --do_verify=0"
            # The last one through the page cache, which the kernel's threads write back.
            together "ours 0 --verify_only" "ours 1 --verify_only" "ours 2 --verify_backlog=8" \
                "ours 3 --direct=0 --end_fsync=1 --do_verify=0"
            together "theirs 2 --verify_only" "theirs 3 --verify_only" "ours 0 --do_verify=0" "ours 1 --verify_backlog=4"
            together "theirs 0 --verify_only" "theirs 1 --verify_only"
            # That a wrong byte is found.
            if [ $tests = 0 ]; then
                dd if=/dev/urandom of=$disk bs=16 seek=4321 count=1 conv=notrunc,fsync 2>/dev/null
                ! (of_fio ours 0 --verify_only) >/dev/null || fail "fio did not find a wrong block"
                grep -q "verify failed\|bad .*header" /tmp/fio-0 || fail "fio did not fail for a wrong block: $(cat /tmp/fio-0)"
            fi
            soft=$(($(counted softirqs BLOCK) - soft))
            status=$(dmsetup status ours)
            now=$(echo "$status" | sed 's/.* queued \([0-9]*\) .*/\1/')
            deferred=$(echo "$status" | sed 's/.* deferred \([0-9]*\).*/\1/')
            reads=$(echo "$status" | sed 's/.* reads \([0-9]*\) .*/\1/')
            case "$1, $status, $more" in
            *" xtent vaes"* | *" xtent aesni"*) ;;
            *) [ "$now" -ge "$reads" ] || fail "$what: the crypto API in an interrupt? $status" ;;
            esac
            # That the disk is what it should be. With one CPU the block layer needs no soft interrupt.
            case $1 in
            soft*) [ "$(nproc)" = 1 ] || [ $((soft * 10)) -ge "$reads" ] || fail "$what: $reads reads, but $soft soft interrupts" ;;
            timer*)
                [ -n "$realtime" ] || [ $((now + deferred)) -ge "$reads" ] ||
                    fail "$what: read in a hard interrupt? $status"
                ;;
            esac
            queued="$queued${queued:+, }$now+$deferred"
            tests=$((tests + 1))
            dmsetup remove ours --noudevrules --noudevsync || fail remove
            dmsetup remove theirs --noudevrules --noudevsync || fail remove
        done
    done <<CIPHERS
aes-xts-plain64 $key 512
aes-xts-plain64 $key 4096
aes-cbc-essiv:sha256 $short 512
CIPHERS
    echo "$1: queued and deferred $queued"
    report="$report; $1 queued and deferred $queued"
}

if ! modprobe null_blk nr_devices=0; then
    echo "NOT RUN: this kernel has no null_blk"
    exit
fi
[ -d /sys/kernel/config/nullb ] || mount -t configfs none /sys/kernel/config || fail "no configfs"
while read -r name irqmode queues; do
    null_disk "$irqmode" "$queues"
    on_disk "$name"
    rmdir /sys/kernel/config/nullb/nullb0 || fail "null_blk stays"
done <<'DISKS'
soft-interrupts 1 1
timers 2 2
DISKS
rmmod null_blk || fail "null_blk is still in use"

if [ -e /d/nvme ]; then
    disk=/d/nvme
    for threads in 0 1; do
        rmmod nvme || fail "nvme is still in use"
        modprobe nvme use_threaded_interrupts=$threads || fail "no nvme"
        until [ -e /dev/nvme0n1 ]; do usleep 10000; done
        on_disk "nvme$([ $threads = 0 ] || echo -threads)"
    done
fi
rmmod dm_xtent || fail "the module is still in use"
echo "$tests tables, $(nproc) CPUs$report"
