#!/bin/sh
# Runs inside the guest, whose time is simulated, with a register's read of 1000 ns: requests, one at a time, take the
# device's cycles and what the driver does at their ends, by the guest's clock, within 2 %.
# shellcheck disable=SC1091
. /in/pci-lib.sh

load
# Their requests are the device's, too.
tested
dd if=/dev/urandom of=/tmp/data bs=1M count=1 2>/dev/null
secret=$(key 64)
# now: the guest's clock in nanoseconds, which has steps of 256. Not dm-xtent's `timing`, which is the CPU's counter and
# so the host's time, unless built for simulated time.
now() {
    sed -n 's/^now at \([0-9]*\) nsecs/\1/p' /proc/timer_list
}
# writes COUNT BYTES
writes() {
    dd if=/tmp/data of=/dev/mapper/timed bs="$2" count="$1" oflag=direct 2>/dev/null || fail write
}
# took BYTES OPTIONS...: nanoseconds for a write of so many bytes.
took() {
    bytes=$1
    shift
    dmsetup create timed --noudevrules --noudevsync \
        --table "0 2048 xtent capi:xts-aes-xtent-pci-plain64 $secret 0 /dev/ram0 0 $# $*" || fail "table: $*"
    dmsetup mknodes timed
    # The first one has the key loaded.
    writes 1 "$bytes"
    before=$(now)
    writes 1 "$bytes"
    between=$(now)
    writes 4 "$bytes"
    after=$(now)
    remove timed
    # What opening, closing and the clock itself take is in both.
    echo $(((after - between - (between - before)) / 3))
}
# within WHAT TOOK CYCLES READS: of 10 ns, and of 1000.
within() {
    least=$(($3 * 10 + $4 * 1000))
    [ $(($2 >= least && $2 <= least + least / 50)) = 1 ] || fail "$1 took $2 ns; $3 cycles and $4 reads are $least"
}
# Cycles by rtl/engine/README.md, "How fast"; a block's AES-256 has four more than AES-128. A read is that of the interrupt's acknowledgement.
run=$(took 262144 sector_size:4096 iv_large_sectors in_flight:1)
within "a run of 256 KiB" "$run" $((433 + 63 * 257 + 4)) 1
requests=$(took 32768 request_size:512 in_flight:1)
within "64 requests of 512 bytes" "$requests" $((64 * (212 + 4))) 64
unload
echo "a run of 256 KiB took $run ns, 64 requests of 512 bytes $requests"
