#!/bin/sh
# Runs inside the guest: XTS over an asynchronous ECB engine, cryptd over AES in C, or,
# where the kernel leaves cryptd out, as some of Debian's do, that of xtent_run_test.ko,
# against the kernel's own dm-crypt, both directions: IV modes, sector sizes, how
# a run is cut, full queues, how many requests a bio takes, refused tables.
# shellcheck disable=SC1091,SC2154,SC2034  # of the library
. /in/engine-lib.sh

# unload MODULE: and those that use it, such as the CPU's own ciphers do cryptd.
unload() {
    # shellcheck disable=SC2013  # names, several on a line
    for user in $(awk -v name="$1" '$1 == name { gsub(",", " ", $4); print $4 }' /proc/modules); do
        [ "$user" = - ] || unload "$user"
    done
    ! grep -q "^$1 " /proc/modules || rmmod "$1" || fail "$1 is still in use"
}

# load_engine [QUEUE]: with a queue of that many requests.
if modprobe -q cryptd; then
    engine="engine:cryptd(ecb($generic))"
    load_engine() {
        modprobe cryptd ${1:+cryptd_max_cpu_qlen=$1} || fail "cryptd"
    }
    unload_engine() {
        unload cryptd
    }
else
    engine=engine:ecb-xtent-test
    load_engine() {
        insmod /in/xtent_run_test.ko ${1:+queue=$1} || fail "the test driver"
    }
    unload_engine() {
        rmmod xtent_run_test || fail "the test driver is still in use"
    }
fi

load_engine
for cut in "" request_size:512 request_size:4096 request_size:32768; do
    compare "$engine" plain64 64 0 512 - $cut
    [ "$cut" = request_size:512 ] || compare "$engine" plain64 32 0 4096 - $cut
    [ "$cut" = request_size:512 ] || compare "$engine" plain64 64 0 4096 large $cut in_flight:1
done
compare "$engine" plain 64 0 512 - in_flight:2
# Across the end of 32 bits.
compare "$engine" plain 64 4294965248 512 - in_flight:64
compare "$engine" plain 48 4294965248 4096 large
compare "$engine" plain64be 64 4294965248 512 -
compare "$engine" plain64be 32 0 4096 -
compare "$engine" null 64 0 1024 - request_size:2048
compare "$engine" plain64 64 0 2048 large same_cpu_crypt
# Drivers that complete at once.
compare "engine:ecb($generic)" plain64 64 0 512 -
compare "engine:ecb($generic)" plain64be 64 0 4096 - request_size:4096

# --- requests to the engine: two a run, whatever its length
requests 2 "$engine-plain64"
requests 2 "$engine-plain64" sector_size:4096
requests 128 "$engine-plain64" request_size:4096
requests 1024 "$engine-plain64" request_size:512

# --- where the time goes: rows that sum to their total, in whole nanoseconds
echo 1 >/sys/module/dm_xtent/parameters/timing
setup ours xtent "$ours" "$engine-plain64" "$(key 64)" 0 request_size:4096
for way in "if=/tmp/data of=/dev/mapper/ours oflag=direct conv=notrunc" "if=/dev/mapper/ours of=/tmp/read iflag=direct"; do
    # shellcheck disable=SC2086  # a list of operands
    dd $way bs=256k count=4 2>/dev/null || fail "dd $way"
    dmsetup status ours | awk '{
        for (i = 1; i <= NF && $i != "ns"; i++);
        for (i++; i < NF && $i != "total"; i += 2) { if ($(i + 1) == 0) bad = $i; sum += $(i + 1); rows++ }
        off = $(i + 1) - sum
        exit rows != 6 || bad != "" || off < 0 || off > rows
    }' || fail "the rows are not the total: $(dmsetup status ours)"
done
remove ours
echo 0 >/sys/module/dm_xtent/parameters/timing
setup ours xtent "$ours" "$engine-plain64" "$(key 64)" 0
dd if=/dev/mapper/ours of=/tmp/read bs=256k count=1 iflag=direct 2>/dev/null || fail read
! dmsetup status ours | grep -q " ns " || fail "times without timing: $(dmsetup status ours)"
remove ours

# --- several bios at once
setup ours xtent "$ours" "$engine-plain64" "$(key 64)" 0 request_size:4096 in_flight:3
at_once

# --- another key, by message; without one nothing goes
dmsetup suspend ours --noudevsync
dmsetup message ours 0 key wipe || fail wipe
! dmsetup resume ours --noudevsync 2>/dev/null || fail "resumed without a key"
dmsetup message ours 0 key set "$(key 64)" || fail "key set"
dmsetup resume ours --noudevsync || fail resume
! dd if=/dev/mapper/ours bs=512k count=1 2>/dev/null | cmp -s -n 524288 - /tmp/data || fail "the same data under another key"
remove ours

# --- sectors across pages
for cipher in "$engine" "capi:xts(ecb($generic))" aes-xts; do
    k=$(key 64)
    setup ours xtent "$ours" "$cipher-plain64" "$k" 0 sector_size:4096
    dd if=/tmp/data of=/dev/mapper/ours bs=32k count=1 oflag=direct 2>/dev/null || fail write
    insmod /in/shifted.ko device=/dev/mapper/ours || fail "$cipher: memory that begins within a page"
    rmmod shifted
    remove ours
    setup theirs crypt "$ours" aes-xts-plain64 "$k" 0 sector_size:4096
    dd if=/dev/mapper/theirs of=/tmp/read bs=16k count=2 iflag=direct 2>/dev/null || fail read
    head -c 16384 /tmp/data >/tmp/wanted
    head -c 16384 /tmp/data >>/tmp/wanted
    cmp /tmp/wanted /tmp/read || fail "$cipher: sectors across pages"
    remove theirs
done

# --- a queue of one request: the engine's backlog
unload_engine
load_engine 1
busy=yes
compare "$engine" plain64 64 0 512 - request_size:512
compare "$engine" plain64 64 0 4096 - request_size:4096 in_flight:64
echo "$tests comparisons, all equal"

# --- refused tables
key=$(key 64)
refuse "engine:-plain64" "$key"
refuse "$engine" "$key"
refuse "engine:nothing(aes)-plain64" "$key"
refuse "engine:cryptd(nothing(aes))-plain64" "$key"
refuse "engine:xts(aes)-plain64" "$key"
refuse "engine:cbc(aes)-plain64" "$key"
refuse "$engine-essiv:sha256" "$key"
refuse "$engine-magic" "$key"
refuse "$engine-plain64" "$(key 63)"
refuse "$engine-plain64" "$(key 40)"
refuse "$engine-plain64" -
refuse "$engine-plain64" "$key" request_size:256
refuse "$engine-plain64" "$key" request_size:1536
refuse "$engine-plain64" "$key" request_size:2097152
refuse "$engine-plain64" "$key" request_size:x
refuse "$engine-plain64" "$key" request_size:512 sector_size:4096
refuse "$engine-plain64" "$key" in_flight:0
refuse "$engine-plain64" "$key" in_flight:65
refuse "aes-xts-plain64" "$key" request_size:4096
refuse "capi:cryptd(xts(ecb($generic)))-plain64" "$key" request_size:4096
echo "refused $refused tables"
setup ours xtent "$ours" "$engine-plain64" "$key" 0 request_size:4096 in_flight:2
dmsetup table ours | grep -q "$engine-plain64 - 0 1:0 0 2 request_size:4096 in_flight:2" || fail "$(dmsetup table ours)"
remove ours

unload_engine
rmmod dm_xtent || fail "the module is still in use"
echo "$tests comparisons over $engine, all equal; $refused tables refused"
