#!/bin/sh
# Runs inside the guest: the same bytes as the kernel's own dm-crypt, both ways: dm-xtent and dm-crypt on the
# co-processor, with runs, single sectors and as an engine; what it cannot do; full rings. The guest has
# engine-lib.sh beside.
# shellcheck disable=SC1091,SC2154,SC2034  # of the libraries
. /in/pci-lib.sh
. /in/engine-lib.sh
# data BYTES: what is written, and how long mappings are. Less than on the CPU: a simulated request takes a
# millisecond.
data() {
    bytes=$1
    sectors=$((bytes / 512))
    dd if=/dev/urandom of=/tmp/data bs="$bytes" count=1 2>/dev/null
}
data 65536

# Behind software, which dm-crypt is to compare with.
load priority=1 "$@"
engine=engine:ecb-aes-xtent-pci
xts=capi:xts-aes-xtent-pci

# used WHAT COMMAND...: it has the device do something.
used() {
    counter=$1
    counted=$(count "$counter")
    shift
    "$@"
    [ "$(count "$counter")" -gt "$counted" ] || fail "nothing for the device: $*; $(counters)"
}

# Bytes of two keys as the device has them, and as it may not: those may be software's.
key_bytes=$((KEY_BITS / 4))
other_bytes=$((96 - key_bytes))
compare "$engine" plain64 $other_bytes 0 512 -
used requests compare "$engine" plain64 $key_bytes 0 512 -
used requests compare "$engine" plain64 $key_bytes 0 4096 - request_size:4096 in_flight:64
if [ "$LEVEL" -ge 2 ]; then
    compare "$xts" plain64 $other_bytes 0 512 -
    used requests compare "$xts" plain64 $key_bytes 0 512 -
    # Too long for one unit at level 2: software's.
    compare "$xts" plain64 $key_bytes 0 4096 -
    compare "$xts" plain64be $key_bytes 0 512 -
fi
if [ "$LEVEL" -ge 3 ]; then
    for sector in 512 1024 2048 4096; do
        used runs compare "$xts" plain64 $key_bytes 0 $sector large
    done
    used runs compare "$xts" plain64 $key_bytes 0 512 - request_size:512 in_flight:64
    used runs compare "$xts" plain $key_bytes 4294965248 512 -
    data 262144
    requests 1 "$xts-plain64"
    requests 64 "$xts-plain64" request_size:4096
    data 65536
fi

# --- rings of one request
unload
data 65536
# Comparisons are of whole disks.
dd if="$theirs" of="$ours" bs=64k conv=fsync 2>/dev/null
load priority=1 ring_entries=1 "$@"
used requests compare "$engine" plain64 $key_bytes 0 512 - request_size:512
[ "$LEVEL" -lt 3 ] || used runs compare "$xts" plain64 $key_bytes 0 512 - request_size:512 in_flight:64

[ "$(count resets)$(count failed)$(count lost_interrupts)" = 000 ] || fail "counters: $(counters)"
echo "$tests comparisons: $(counters)"
unload
