#!/bin/sh
# Runs inside the guest: the kernel's own tests of the driver's algorithms (all of them where the kernel has
# CONFIG_CRYPTO_SELFTESTS_FULL), what they say of it, and that neither was done by software alone.
# shellcheck disable=SC1091,SC2154  # of the library
. /in/pci-lib.sh

load "$@"
[ "$(field_of ecb-aes-xtent-pci async)" = yes ] || fail "no ecb(aes): $(cat /proc/crypto)"
tested
[ "$(count requests)" -gt 10 ] || fail "$(count requests) requests went to the device"
[ "$(count resets)$(count failed)$(count lost_interrupts)" = 000 ] || fail "counters: $(counters)"
echo "$algorithms passed; $(counters)"
unload
