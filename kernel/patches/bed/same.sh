#!/bin/sh
# Runs inside the guest: the dm-crypt of the series reads what the one before wrote, and the other way
# round, and both leave the same bytes on the disk; it takes the library where it should and nowhere
# else; keys and LUKS. before.ko and after.ko are the two. With CIPHERS, a regular expression, and SECTORS
# only those.
fail() {
    echo "FAILED: $*"
    dmesg | tail -20
    exit 1
}

chmod +x /in/requests
bytes=2097152
sectors=$((bytes / 512))
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
other=$(echo $key | tr 0123456789 1234567890)
# plain has 32 bits of it and plain64 64: both start over within the device, at a number that all sector sizes divide.
offset=18446744073709549568

# x86 has it, and User Mode Linux by a module.
grep -q '^driver *: xts-aes-aesni$' /proc/crypto || insmod /in/aesni-intel.ko || fail "no aesni-intel"
# Of the series: a driver that takes several sectors in a request, here with a queue that is often full.
segments=
if [ -e /in/seg-test.ko ]; then
    insmod /in/seg-test.ko queue_len=2 || fail "no seg-test"
    # The kernel tests it beside, if there is another CPU: what that sends is not to be counted below.
    while sed -n '/^driver *: xts-aes-seg-test$/,/^$/p' /proc/crypto | grep -q '^selftest *: unknown$'; do :; done
    segments="capi:xts-aes-seg-test-plain64 128 0"
fi
rmmod dm-crypt 2>/dev/null
use() { # use before|after
    rmmod dm-crypt 2>/dev/null
    insmod "/in/$1.ko" dyndbg=+p || fail "no dm-crypt: $1"
}
# open DEVICE CIPHER KEY OPTIONS: /dev/mapper/d
open() {
    dmsetup create d --noudevrules --noudevsync --table "0 $sectors crypt $2 $3 $offset $1 0 $4" || fail "table: $2 $4"
    dmsetup mknodes d
}
close() {
    dmsetup remove d --noudevrules --noudevsync || fail "remove"
}
library() { # how often the library was chosen
    dmesg | grep -c 'using the AES-XTS library instead'
}

# Every configuration, with the hexadecimal digits of its key and whether it is one for the library.
configurations() {
    for cipher in "aes-xts-plain64 128 1" "aes-xts-plain 128 1" "aes-xts-plain64be 128 1" "aes-xts-plain64 64 1" \
        "capi:xts(aes)-plain64 96 1" "aes-xts-essiv:sha256 128 0" "aes-xts-null 128 0" "aes-xts-benbi 128 0" \
        "aes-cbc-plain64 64 0" "aes:2-xts-plain64 128 0" "capi:xts-aes-aesni-plain64 128 0" ${segments:+"$segments"}; do
        for sector in ${SECTORS:-512 1024 2048 4096}; do
            echo "$cipher $sector"
            [ "$sector" = 512 ] || echo "$cipher $sector iv_large_sectors"
        done
        # Where a driver completes in interrupts, dm-crypt submits writes there with no_write_workqueue, which may
        # sleep: with the series and without.
        case $cipher in
        *seg-test*) echo "$cipher 512 no_read_workqueue" ;;
        *) echo "$cipher 512 no_read_workqueue no_write_workqueue" ;;
        esac
        echo "$cipher 4096 same_cpu_crypt submit_from_crypt_cpus"
    done
}
configurations | grep -E "${CIPHERS:-.}" >/tmp/configurations
count=$(wc -l </tmp/configurations)
modprobe brd rd_nr=2 rd_size=$((bytes * count / 1024)) || fail "no RAM disks"

# all MODULE WHAT DISK: that, for every configuration, on its own part of the disk.
all() {
    use "$1"
    seed=0
    while read -r cipher digits expected sector options; do
        n=0
        [ "$sector" = 512 ] || { options="sector_size:$sector${options:+ $options}"; }
        for _ in $options; do n=$((n + 1)); done
        before=$(library)
        dmsetup create d --noudevrules --noudevsync --table "0 $sectors crypt $cipher $(echo $key | cut -c "1-$digits") $offset $3 $((seed * sectors)) $n $options" ||
            fail "table: $cipher $options"
        dmsetup mknodes d
        [ "$1" = before ] || [ $((before + expected)) = "$(library)" ] || fail "$cipher $options: library used: $(library), before $before"
        /in/requests "$2" /dev/mapper/d $seed "$sector" $bytes >/tmp/said 2>&1 || fail "$1, $2: $cipher $options: $(cat /tmp/said)"
        requests=$((requests + $(cut -d' ' -f1 /tmp/said)))
        close
        seed=$((seed + 1))
    done </tmp/configurations
}
requests=0
# sent: sectors and requests that the driver of the series has got, since it was asked last.
sent() {
    now="$(cat /sys/module/seg_test/parameters/units) $(cat /sys/module/seg_test/parameters/requests)"
    sectors_sent=$((${now% *} - ${last% *})) requests_sent=$((${now#* } - ${last#* }))
    last=$now
}
last="0 0"
# What the kernel's own test of the driver has sent.
[ -z "$segments" ] || sent
all before write /dev/ram0
[ -z "$segments" ] || {
    sent
    [ $sectors_sent = $requests_sent ] || fail "the one before sends $sectors_sent sectors in $requests_sent requests"
}
all after verify /dev/ram0
[ -z "$segments" ] || {
    sent
    [ $sectors_sent -gt $((2 * requests_sent)) ] || fail "only $sectors_sent sectors in $requests_sent requests"
    echo "$sectors_sent sectors in $requests_sent requests to a driver that takes several"
}
all after write /dev/ram1
all before verify /dev/ram1
cmp /dev/ram0 /dev/ram1 || fail "the disks differ"
echo "$count configurations, $requests requests, all equal; $(library) times by the library"

# Keys.
use after
open /dev/ram0 aes-xts-plain64 $key ""
dd if=/dev/urandom of=/tmp/plain bs=64k count=16 2>/dev/null
dd if=/tmp/plain of=/dev/mapper/d bs=64k oflag=direct 2>/dev/null || fail "write"
same() { # same: the device is what was written
    dd if=/dev/mapper/d bs=64k count=16 iflag=direct 2>/dev/null | cmp -s - /tmp/plain
}
same || fail "read"
! dmsetup message d 0 key wipe 2>/dev/null || fail "a key was wiped that is in use"
dmsetup suspend d --noudevsync || fail "suspend"
dmsetup message d 0 key wipe || fail "wipe"
dmsetup table --showkeys d | grep -q " 0\{128\} " || fail "a key is left: $(dmsetup table --showkeys d)"
! dmsetup resume d --noudevsync 2>/dev/null || fail "resumed without a key"
dmsetup message d 0 key set "$other" || fail "set"
dmsetup resume d --noudevsync || fail "resume"
! same || fail "another key reads the same"
dmsetup suspend d --noudevsync || fail "suspend"
dmsetup message d 0 key set $key || fail "set"
dmsetup resume d --noudevsync || fail "resume"
same || fail "the first key does not read it any more"
! dmsetup message d 0 key set abcd 2>/dev/null || fail "a key of another size"
close
! dmsetup create d --noudevrules --noudevsync --table "0 $sectors crypt aes-xts-plain64 ${key}00 0 /dev/ram0 0" 2>/dev/null || fail "65 bytes of key"
! dmsetup create d --noudevrules --noudevsync --table "0 $sectors crypt aes-xts-plain64 - 0 /dev/ram0 0" 2>/dev/null || fail "no key"
echo "keys set, wiped, refused"

# LUKS, and a file system on it.
echo secret >/tmp/pass
before=$(library)
cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --sector-size 4096 /dev/ram0 /tmp/pass || fail "luksFormat"
cryptsetup open --disable-external-tokens --key-file /tmp/pass /dev/ram0 d || fail "open"
[ "$(library)" -gt "$before" ] || fail "LUKS without the library"
mkfs.ext4 -q /dev/mapper/d || fail "mkfs.ext4"
mount -t ext4 /dev/mapper/d /mnt || fail "mount"
cp /tmp/plain /mnt/file || fail "cp"
umount /mnt || fail "umount"
cryptsetup close d || fail "close"
use before
cryptsetup open --disable-external-tokens --key-file /tmp/pass /dev/ram0 d || fail "open, before"
mount -t ext4 /dev/mapper/d /mnt || fail "mount, before"
cmp /tmp/plain /mnt/file || fail "the one before reads something else"
umount /mnt
cryptsetup close d
! dmesg | grep -A 25 -E 'BUG|WARNING|Oops|KASAN|possible recursive|suspicious' || fail "the log has a report"
echo "LUKS2 with ext4 read by both"
