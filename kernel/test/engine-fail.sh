#!/bin/sh
# Runs inside the guest: a cipher that takes runs, and an engine, both of
# xtent_run_test.ko, that fail and refuse: requests, when given or when they complete,
# and keys.
# shellcheck disable=SC1091,SC2154,SC2034  # of the library
. /in/engine-lib.sh

insmod /in/xtent_run_test.ko || fail "the test driver"

# --- failures: the caller is told, nothing of a failed write reaches the disk, and
# --- the next request works
digest() {
    echo 3 >/proc/sys/vm/drop_caches
    sha256sum <"$ours"
}
failures=0
for cipher in "$runs" "$engine"; do
    for options in "" request_size:512 "request_size:4096 in_flight:1"; do
        # shellcheck disable=SC2086  # a list of options
        setup ours xtent "$ours" "$cipher-plain64" "$(key 64)" 0 $options
        dd if=/tmp/data of=/dev/mapper/ours bs=256k oflag=direct 2>/dev/null || fail "write"
        before=$(digest)
        for how in fail_every refuse_every; do
            for every in 1 2 5; do
                # A run is one or two requests only, of which each fifth may be another's.
                [ $every != 5 ] || [ -n "$options" ] || continue
                for sync in 0 1 3; do
                    what="$cipher $options, $how=$every, sync_every=$sync"
                    set_parameter sync_every $sync
                    set_parameter $how $every
                    dd if=/dev/urandom of=/dev/mapper/ours bs=512k count=1 oflag=direct conv=notrunc 2>/dev/null && once=ok || once=failed
                    dd if=/dev/mapper/ours of=/dev/null bs=512k count=1 iflag=direct 2>/dev/null && again=ok || again=failed
                    set_parameter $how 0
                    # Each second one: either the write or the read.
                    if [ $every = 2 ] && [ "$cipher" = "$runs" ] && [ -z "$options" ]; then
                        [ "$once" != "$again" ] || fail "$what: write $once, read $again"
                    else
                        [ "$once $again" = "failed failed" ] || fail "$what: write $once, read $again"
                    fi
                    if [ "$once" = failed ]; then
                        [ "$(digest)" = "$before" ] || fail "$what: some of it was written"
                    fi
                    dd if=/tmp/data of=/dev/mapper/ours bs=512k count=1 oflag=direct conv=notrunc 2>/dev/null || fail "$what: and after"
                    [ "$(digest)" = "$before" ] || fail "$what: and after, other data"
                    failures=$((failures + 1))
                done
            done
        done
        set_parameter sync_every 0
        cmp -n "$bytes" /tmp/data /dev/mapper/ours || fail "$cipher: read after failures"
        remove ours
    done
done
# Several callers, whose requests fail and complete in turn; none hangs.
set_parameter fail_every 7
for cipher in "$runs" "$engine"; do
    setup ours xtent "$ours" "$cipher-plain64" "$(key 64)" 0 request_size:4096 in_flight:8
    pids=
    for i in 0 1 2 3 4 5 6 7; do
        dd if=/tmp/data of=/dev/mapper/ours bs=64k count=4 seek=$((i * 4)) oflag=direct conv=notrunc 2>/dev/null &
        pids="$pids $!"
    done
    for pid in $pids; do
        ! wait "$pid" || fail "$cipher: nothing failed"
    done
    remove ours
done
set_parameter fail_every 0

# --- a disk with zones, whose writes are encrypted where they are mapped
on_zones="not on zones"
chmod +x /in/zones
if modprobe null_blk nr_devices=1 gb=1 zoned=1 zone_size=4 memory_backed=1 queue_mode=2 2>/dev/null; then
    sectors=8192 # of the first zone
    for cipher in "$runs" "$engine"; do
        setup ours xtent /dev/nullb0 "$cipher-plain64" "$(key 64)" 0
        /in/zones reset /dev/mapper/ours || fail "zones cannot be reset"
        set_parameter fail_every 1
        for _ in 1 2 3; do
            ! dd if=/tmp/data of=/dev/mapper/ours bs=256k count=1 oflag=direct conv=notrunc 2>/dev/null || fail "$cipher: written to a zone"
            failures=$((failures + 1))
        done
        set_parameter fail_every 0
        ! /in/zones show /dev/mapper/ours | grep -qv '^0$' || fail "$cipher: a zone has some of a failed write"
        dd if=/tmp/data of=/dev/mapper/ours bs=256k count=8 oflag=direct conv=notrunc 2>/dev/null || fail "$cipher: write to a zone after failures"
        cmp -n "$bytes" /tmp/data /dev/mapper/ours || fail "$cipher: other data in a zone"
        remove ours
    done
    rmmod null_blk || fail "null_blk is still in use"
    sectors=$((bytes / 512)) on_zones="on zones too"
fi

# --- keys that the driver refuses
set_parameter refuse_keys 1
refuse "$runs-plain64" "$(key 64)"
refuse "$engine-plain64" "$(key 64)"
set_parameter refuse_keys 0
for cipher in "$runs" "$engine"; do
    k=$(key 64)
    setup ours xtent "$ours" "$cipher-plain64" "$k" 0
    dmsetup suspend ours --noudevsync
    set_parameter refuse_keys 1
    ! dmsetup message ours 0 key set "$(key 64)" 2>/dev/null || fail "$cipher: key taken"
    set_parameter refuse_keys 0
    ! dmsetup resume ours --noudevsync 2>/dev/null || fail "$cipher: resumed with half a key"
    dmsetup message ours 0 key set "$k" || fail "$cipher: key"
    dmsetup resume ours --noudevsync || fail "$cipher: resume"
    remove ours
done

rmmod xtent_run_test || fail "the test driver is still in use"
rmmod dm_xtent || fail "the module is still in use"
echo "$failures failures ($on_zones), $refused tables refused: all good"
