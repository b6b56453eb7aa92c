#!/bin/sh
# Runs inside the guest: the device goes away and comes back while mappings are in use, is kept off the bus until
# it is out of service, and is put to use again. Nothing hangs, and no wrong byte is read or written.
# shellcheck disable=SC1091
. /in/pci-lib.sh

if [ "$LEVEL" -ge 2 ]; then
    users="xtent:capi:xts-aes-xtent-pci crypt:capi:xts-aes-xtent-pci"
else
    users="xtent:engine:ecb-aes-xtent-pci"
fi
device=$(basename "$(engine)")
driver=/sys/bus/pci/drivers/xtent_pci
dd if=/dev/urandom of=/tmp/data bs=64k count=8 2>/dev/null
load priority=1 watchdog=2000
tested

secret=$(key 64)
set_up() { # set_up TARGET:CIPHER
    setup device "${1%%:*}" "${1#*:}-plain64" ram0 "$secret" 512
    setup cpu crypt aes-xts-plain64 ram0 "$secret" 512
}
# io ROUNDS: writes what it then finds, by the CPU as well.
io() {
    for round in $(seq "$1"); do
        at=$((round % 8))
        dd if=/tmp/data of=/dev/mapper/device bs=64k count=1 seek=$at skip=$at oflag=direct conv=notrunc 2>/dev/null || return 1
        dd if=/dev/mapper/device of=/tmp/read bs=64k count=1 skip=$at iflag=direct 2>/dev/null || return 1
        dd if=/dev/mapper/cpu of=/tmp/cpu bs=64k count=1 skip=$at iflag=direct 2>/dev/null || return 1
        dd if=/tmp/data of=/tmp/wanted bs=64k count=1 skip=$at 2>/dev/null
        cmp /tmp/wanted /tmp/read && cmp /tmp/wanted /tmp/cpu || return 1
    done
}

for user in $users; do
    set_up "$user"
    io 2 || fail "$user: with the device"
    # --- unbound in the middle of it, bound again: no request fails
    rm -f /tmp/stop
    (until [ -e /tmp/stop ]; do io 1 || exit; done) &
    writer=$!
    for _ in 1 2 3; do
        before=$(count requests)
        tries=0
        until [ "$(count requests)" -gt "$before" ]; do
            tries=$((tries + 1))
            [ $tries -lt 10000 ] || fail "$user: nothing for the device before it goes"
        done
        echo "$device" >$driver/unbind || fail "unbind"
        kill -0 $writer || fail "$user: when the device had gone"
        echo "$device" >$driver/bind || fail "bind"
    done
    touch /tmp/stop
    wait $writer || fail "$user: while the device came and went"
    echo "$device" >$driver/unbind || fail "unbind"
    io 2 || fail "$user: without a device"
    ! rmmod xtent_pci 2>/dev/null || fail "the module went with transforms in use"
    echo "$device" >$driver/bind || fail "bind"
    before=$(count requests)
    io 2 || fail "$user: with the device again"
    [ "$(count requests)" -gt "$before" ] || fail "$user: the device is not used again"

    # --- kept off the bus: it faults, resets do not help, and software goes on
    off_the_bus
    tries=0
    until [ "$(cat "$(engine)/xtent/state")" = dead ]; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || fail "$user: not out of service: $(counters)"
        # A request in place may fail with it.
        io 1 >/dev/null || true
    done
    io 2 || fail "$user: when the device is dead"
    echo "$device" >$driver/unbind || fail "unbind"
    echo "$device" >$driver/bind || fail "bind"
    before=$(count requests)
    io 2 || fail "$user: after that"
    [ "$(count requests)" -gt "$before" ] || fail "$user: the device is not used again"
    remove device
    remove cpu
done
unload

# --- where failures are to be seen: the dead device's requests are errors
load priority=1 watchdog=2000 on_failure=error
tested
set_up "${users%% *}"
off_the_bus
tries=0
until [ "$(cat "$(engine)/xtent/state")" = dead ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "not out of service: $(counters)"
    ! io 1 >/dev/null || fail "a failure that nobody saw"
done
! io 1 >/dev/null || fail "a dead device that nobody saw"
remove device
remove cpu
echo "removed, off the bus and back, $(echo "$users" | wc -w) users"
unload
