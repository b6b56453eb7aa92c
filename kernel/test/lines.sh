#!/bin/sh
# Runs inside the guest: random table lines and messages, to dm-xtent and to dm-crypt (lines.c). The same ones
# every time.
chmod +x /in/lines
dd if=/dev/urandom of=/dev/ram0 bs=64k 2>/dev/null
# Each that is refused is told of.
dmesg -n 1
cd /tmp || exit
# With several CPUs most steps of a mapping's life wait until each has been idle or scheduled.
lines=$((ROUNDS * 300))
[ "$(nproc)" = 1 ] || lines=200
/in/lines 1 $lines /dev/ram0
