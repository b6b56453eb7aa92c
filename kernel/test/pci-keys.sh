#!/bin/sh
# Runs inside the guest, whose device has two key slots: more keys than slots, all in use at once. Each mapping reads
# what it wrote, and keys are loaded again and again.
# shellcheck disable=SC1091
. /in/pci-lib.sh

load priority=1
dd if=/dev/urandom of=/tmp/data bs=16k count=16 2>/dev/null

# one NUMBER: reads what it writes, three times, from a mapping.
one() {
    for _ in 1 2 3; do
        dd if=/tmp/data of="/dev/mapper/several$1" bs=16k count=1 skip="$1" oflag=direct conv=notrunc 2>/dev/null || return 1
        dd if="/dev/mapper/several$1" of="/tmp/several$1" bs=16k count=1 iflag=direct 2>/dev/null || return 1
        dd if=/tmp/data bs=16k count=1 skip="$1" 2>/dev/null | cmp - "/tmp/several$1" || return 1
    done
}
several() { # several TARGET CIPHER COUNT
    pids=
    for i in $(seq "$3"); do
        dmsetup create "several$i" --noudevrules --noudevsync \
            --table "0 32 $1 $2-plain64 $(key 64) 0 /dev/ram0 $((32 * (i - 1)))" || fail "table $i: $2"
        dmsetup mknodes "several$i"
    done
    for i in $(seq "$3"); do
        one "$i" &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait "$pid" || fail "$3 mappings at once, $1 $2"
    done
    for i in $(seq "$3"); do remove "several$i"; done
}

loads=$(count key_loads)
# An engine has two keys.
several xtent engine:ecb-aes-xtent-pci 7
several xtent capi:xts-aes-xtent-pci 15
several crypt capi:xts-aes-xtent-pci 15
keys=$((2 * 7 + 15 + 15))
loads=$(($(count key_loads) - loads))
result="$keys keys were loaded $loads times"
[ $loads -gt $keys ] || fail "$result"
[ "$(count state) $(count resets) $(count failed)" = "up 0 0" ] || fail "$(counters)"
unload
echo "$result"
