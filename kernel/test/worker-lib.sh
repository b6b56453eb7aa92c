# shellcheck shell=sh
# Runs inside the guest: a reader and writer that compares. Sourced; fail is the script's own.

# begin_worker NUMBER: what it writes.
begin_worker() {
    dd if=/dev/urandom of="/tmp/data-$1" bs=64k count=16 2>/dev/null
}

# work_once NUMBER KIB...: writes and reads a megabyte of its own of /dev/mapper/d, past the cache in requests of each of
# these sizes, and then through the cache, from which others write it back.
work_once() {
    number=$1
    shift
    for size in "$@"; do
        dd if="/tmp/data-$number" of=/dev/mapper/d bs="${size}k" seek=$((number * 1024 / size)) oflag=direct \
            conv=notrunc 2>/dev/null || fail "worker $number cannot write"
        dd if=/dev/mapper/d of="/tmp/read-$number" bs="${size}k" skip=$((number * 1024 / size)) count=$((1024 / size)) \
            iflag=direct 2>/dev/null || fail "worker $number cannot read"
        cmp "/tmp/data-$number" "/tmp/read-$number" || fail "worker $number reads something else, $size KiB at once"
    done
    dd if="/tmp/data-$number" of=/dev/mapper/d bs=16k seek=$((number * 64)) conv=notrunc,fsync 2>/dev/null ||
        fail "worker $number cannot write through the cache"
}
