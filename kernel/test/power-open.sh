# shellcheck shell=sh
# Runs inside the guest: opens the targets of the tests of power-offs. Sourced.
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
insmod /in/dm-xtent.ko || fail "dm-xtent.ko"
for module in ext4 xfs btrfs; do modprobe $module || fail "$module.ko"; done
open() { # open NAME: /d/NAME becomes /dev/mapper/NAME
    dmsetup create "$1" --noudevrules --noudevsync --table "0 786432 xtent aes-xts-plain64 $key 0 /d/$1 0" ||
        fail "table: $1"
    dmsetup mknodes "$1"
    mkdir -p "/mnt/$1"
}
