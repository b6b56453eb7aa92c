#!/bin/sh
# Runs inside a guest that was booted with fips=1: XTS is left to the crypto API, with its rules for keys.
fail() {
    echo "FAILED: $*"
    dmesg | tail -5
    exit 1
}
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
half=$(echo $key | cut -c1-64)
[ "$(cat /proc/sys/crypto/fips_enabled)" = 1 ] || fail "no FIPS mode"
modprobe brd rd_nr=1 rd_size=4096
insmod /in/dm-xtent.ko || fail insmod
dmesg | grep -q 'FIPS mode: this module' || fail "FIPS mode was not seen"
create() { # create KEY [CIPHER]
    dmsetup create d --noudevrules --noudevsync --table "0 8192 xtent ${2:-aes-xts-plain64} $1 0 /dev/ram0 0" 2>/dev/null
}
create $key || fail "no XTS at all"
driver=$(dmsetup status d | cut -d' ' -f4)
case $driver in
xts*) ;;
*) fail "XTS on $driver" ;;
esac
dmsetup remove d --noudevrules --noudevsync || fail remove
! create "$half$half" || fail "a key with equal halves was taken"
! create "$key" "engine:ecb(aes)-plain64" || fail "masks of this module's were taken"
! insmod /in/xtent_fast.ko 2>/dev/null || fail "FAST was taken"
echo "XTS on $driver; engines and FAST refused; a key with equal halves refused"
