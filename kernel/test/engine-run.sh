#!/bin/sh
# Runs inside the guest: a driver that has declared that it takes runs, and an
# engine, both of xtent_run_test.ko, against the kernel's own dm-crypt: completed at
# once, later, from a full queue; and that nobody else gets runs.
# shellcheck disable=SC1091,SC2154,SC2034  # of the library
. /in/engine-lib.sh

insmod /in/xtent_run_test.ko || fail "the test driver"

# --- the same bytes as dm-crypt's
for every in 0 1 3; do
    set_parameter sync_every $every
    compare "$runs" plain64 64 0 512 -
    compare "$engine" plain64 64 0 512 -
done
set_parameter sync_every 0
compare "$runs" plain64 32 0 4096 large
compare "$runs" plain64 64 0 2048 large request_size:8192 in_flight:2
compare "$runs" plain64 64 0 512 - request_size:4096
# Across the end of 32 bits: plain starts over at 0, plain64 goes on.
compare "$runs" plain 64 4294965248 512 -
compare "$runs" plain64 64 4294965248 512 -
compare "$runs" plain 64 34359736320 4096 large
# Across the end of 64: plain64 starts over, too, wherever its number is then.
compare "$runs" plain64 64 18446744073709549568 512 -
compare "$runs" plain64 64 18446744073709549568 4096 large
# IVs that do not count up by 1: one request a sector.
compare "$runs" plain64 64 0 4096 -
compare "$runs" plain64be 64 0 512 -
compare "$runs" null 64 0 512 -

# --- requests: one a run for who declared it, one a sector for all others
requests 1 "$runs-plain64"
requests 1 "$runs-plain"
requests 1 "$runs-plain64" sector_size:4096 iv_large_sectors
requests 64 "$runs-plain64" request_size:4096
requests 512 "$runs-plain64" request_size:512
requests 64 "$runs-plain64" sector_size:4096
requests 512 "$runs-plain64be"
requests 512 "$runs-null"
requests 512 "capi:xts(ecb($generic))-plain64"
set_parameter refuse_runs 1
requests 512 "$runs-plain64"
compare "$runs" plain64 64 0 512 -
refuse "$runs-plain64" "$(key 64)" request_size:4096
set_parameter refuse_runs 0
refuse "$runs-plain64be" "$(key 64)" request_size:4096
refuse "$runs-plain64" "$(key 64)" request_size:4096 sector_size:4096
refuse "$runs-plain64" "$(key 64)" 3 sector_size:4096 iv_large_sectors request_size:512
refuse "capi:xts(ecb($generic))-plain64" "$(key 64)" request_size:4096

# --- a queue of one request
reload_driver() {
    rmmod xtent_run_test || fail "the test driver is still in use"
    insmod /in/xtent_run_test.ko "$@" || fail "the test driver, $*"
}
reload_driver queue=1
busy=yes
compare "$runs" plain64 64 0 512 - request_size:512
set_parameter sync_every 2
compare "$runs" plain64 64 0 512 - request_size:512 in_flight:64
set_parameter sync_every 0
compare "$engine" plain64 64 0 512 - request_size:512
compare "$engine" plain64 64 0 4096 - request_size:4096
busy=no
for cipher in "$runs" "$engine"; do
    setup ours xtent "$ours" "$cipher-plain64" "$(key 64)" 0 request_size:4096 in_flight:8
    at_once
    remove ours
done

# --- alignment, the most that the crypto API allows
reload_driver alignmask=63
compare "$runs" plain64 64 0 512 -
compare "$runs" plain64 64 0 512 - request_size:512
compare "$engine" plain64 64 0 512 - request_size:512
compare "$engine" plain64 64 0 512 -
[ "$(cat /sys/module/xtent_run_test/parameters/misaligned)" = 0 ] || fail "memory not aligned"

rmmod xtent_run_test || fail "the test driver is still in use"
rmmod dm_xtent || fail "the module is still in use"
echo "$tests comparisons, $refused tables refused: all good"
