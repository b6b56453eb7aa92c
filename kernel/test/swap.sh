#!/bin/sh
# Runs inside a guest with little memory: swap lies on the target, and a process
# writes more memory than there is, so that the target has to encrypt pages while
# there is none to be had. It goes on, and what comes back is right.
fail() {
    echo "FAILED: $*"
    dmesg | tail -20
    exit 1
}
# What the target has written, in sectors of 4096 bytes: not every kernel counts swapped pages.
swapped_out() {
    dmsetup status d | sed 's/.* write_sectors \([0-9]*\) .*/\1/'
}

key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
memory=$(awk '$1 == "MemTotal:" { print int($2 / 1024) }' /proc/meminfo)
sectors=$(cat "/sys/class/block/$(basename "$(readlink /d/scratch)")/size")
report=
# User Mode Linux's disk takes memory for each request as interrupts do, and has no reserve of its own: with
# what there is by default (1.3 MB in 160) it may get none any more, and tries again for ever.
case $(readlink /d/scratch) in
*ubd*) echo 4096 >/proc/sys/vm/min_free_kbytes || fail "min_free_kbytes" ;;
esac
for cipher in "aes-xts-plain64 $key" "aes-cbc-essiv:sha256 $(echo $key | cut -c1-64)"; do
    dmsetup create d --noudevrules --noudevsync --table "0 $sectors xtent $cipher 0 /d/scratch 0 1 sector_size:4096" ||
        fail "table: ${cipher%% *}"
    dmsetup mknodes d
    mkswap /dev/mapper/d >/dev/null || fail mkswap
    swapon /dev/mapper/d || fail swapon
    before=$(swapped_out)
    /in/dirty $((memory * 3 / 2)) "${PASSES:-2}" || fail "memory through swap on ${cipher%% *}"
    out=$(($(swapped_out) - before))
    [ $((out / 256)) -ge $((memory / 2)) ] || fail "only $out sectors were swapped out: this proves nothing"
    swapoff /dev/mapper/d || fail swapoff
    dmsetup status d
    dmsetup remove d --noudevrules --noudevsync || fail remove
    report="$report, $((out / 256)) MB by ${cipher%% *}"
done
echo "$memory MB of memory$report"
