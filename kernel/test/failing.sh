#!/bin/sh
# Runs inside the guest: errors of the disk below reach whoever waits, for reads and
# writes, many at once; nothing is left of the requests, and the data as it was.
fail() {
    echo "FAILED: $*"
    dmesg | tail -5
    exit 1
}

key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
sectors=$(cat /sys/block/ram0/size)
modprobe dm-flakey || fail "no dm-flakey"
dd if=/dev/urandom of=/tmp/data bs=1M count=4 2>/dev/null

below() { # below TABLE: what the target's disk is from now on
    dmsetup load below --table "0 $sectors $1" || fail "load $1"
    dmsetup resume below --noudevsync || fail "resume $1"
}
read_all() {
    dd if=/dev/mapper/d of=/tmp/read bs=64k count=64 iflag=direct 2>/dev/null
}
same() { # same WHEN
    read_all || fail "$1: cannot read"
    cmp /tmp/data /tmp/read || fail "$1: other data"
}
write_all() { # write_all KIBIBYTES: direct requests of this size, until the first error
    dd if=/tmp/data of=/dev/mapper/d bs="$1k" oflag=direct conv=notrunc 2>/dev/null
}
# at_once COMMAND...: four of it together; none may succeed.
at_once() {
    jobs=
    for _ in 1 2 3 4; do
        (! "$@") &
        jobs="$jobs $!"
    done
    for job in $jobs; do wait "$job" || fail "$* met no error"; done
}
free_kib() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
    awk '$1 == "MemFree:" { print $2 }' /proc/meminfo
}

dmsetup create below --noudevrules --noudevsync --table "0 $sectors linear /dev/ram0 0" || fail below
dmsetup mknodes below
errors=0
for cipher in "aes-xts-plain64 $key" "aes-cbc-essiv:sha256 $(echo $key | cut -c1-64)"; do
    below "linear /dev/ram0 0"
    dmsetup create d --noudevrules --noudevsync --table "0 $sectors xtent $cipher 0 /dev/mapper/below 0" || fail create
    dmsetup mknodes d
    write_all 64 || fail "a good disk, write"
    same "a good disk"

    # Never up: without features every request fails.
    for table in "flakey /dev/ram0 0 0 1" "flakey /dev/ram0 0 0 1 1 error_writes" error; do
        below "$table"
        for size in 4 64 1024; do
            at_once write_all $size
            errors=$((errors + 4))
        done
        case $table in
        *error_writes) same "while writes fail" ;;
        *) at_once read_all ;;
        esac
    done

    # 128 requests of a megabyte: if any of it were lost, so would be more than there is noise.
    before=$(free_kib)
    for _ in $(seq 32); do
        at_once write_all 1024
        errors=$((errors + 4))
    done
    after=$(free_kib)
    [ $((before - after)) -lt 16384 ] || fail "$((before - after)) KiB are gone after 128 failed writes of 1 MiB"

    below "linear /dev/ram0 0"
    same "after the errors"
    write_all 1024 || fail "a good disk again, write"
    dmsetup remove d --noudevrules --noudevsync || fail "remove"
done
dmsetup remove below --noudevrules --noudevsync || fail "remove below"
rmmod dm_xtent || fail "the module is still in use"
echo "$errors writes failed and were told of, nothing lost"
