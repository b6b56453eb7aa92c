#!/bin/sh
# Runs inside the guest: random table lines and messages, to dm-xtent and to dm-crypt (lines.c). The same ones
# every time.
chmod +x /in/lines
dd if=/dev/urandom of=/dev/ram0 bs=64k 2>/dev/null
# Each that is refused is told of.
dmesg -n 1
cd /tmp || exit
/in/lines 1 $((ROUNDS * 300)) /dev/ram0
