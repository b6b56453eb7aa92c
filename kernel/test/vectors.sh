#!/bin/sh
# Runs inside the guest, whose CPU has AVX-512: programs that keep values in all of its registers find them as they
# were while dm-xtent uses the same registers, in other programs, in threads of the kernel and in soft interrupts; and
# what it writes is what dm-crypt reads.
fail() {
    echo "FAILED: $*"
    dmesg | tail -5
    exit 1
}
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
setup() { # setup NAME TARGET OPTIONS...
    name=$1 target=$2
    shift 2
    dmsetup create "$name" --noudevrules --noudevsync \
        --table "0 2048 $target aes-xts-plain64 $key 0 $disk 0 $# $*" || fail "table: $target $*"
    dmsetup mknodes "$name"
}
counter() { # counter NAME: of the target
    dmsetup status ours | sed "s/.* $1 \([0-9]*\).*/\1/"
}
# keep: two programs look after registers from now on.
keep() {
    rm -f /tmp/stop
    keepers=
    for i in 1 2; do
        /in/registers /tmp/stop >"/tmp/registers-$i" 2>&1 &
        keepers="$keepers $!"
    done
}
# kept: that they have found all as it was.
kept() {
    touch /tmp/stop
    status=0
    for one in $keepers; do wait "$one" || status=1; done
    cat /tmp/registers-*
    return $status
}

# By itself dm-xtent leaves 512 bits out on this CPU, an Ice Lake, whose clock they lower.
isa=$(cat /sys/module/dm_xtent/parameters/isa)
[ "$isa" != auto ] || isa=vaes256
grep -q '^flags.* avx512bw.* vaes' /proc/cpuinfo || fail "this CPU has no AVX-512 with VAES"
chmod +x /in/registers
dd if=/dev/urandom of=/tmp/data bs=1M count=1 2>/dev/null

# --- that the programs find what a soft interrupt does to their registers
keep
insmod /in/planted.ko what=registers || fail "planted.ko what=registers"
rmmod planted
! kept || fail "nobody saw that an interrupt had changed registers"
grep -q "zmm17 changed" /tmp/registers-* || fail "zmm17 was not seen to change"

# --- dm-xtent, on a disk whose requests end in a timer's interrupt
disk=/dev/nullb0
modprobe null_blk nr_devices=1 gb=1 memory_backed=1 irqmode=2 completion_nsec=20000 queue_mode=2 || fail "no null_blk"
looks=0 deferred=0 queued=0 tables=0
for sector in 512 4096; do
    for more in "" no_read_workqueue; do
        # shellcheck disable=SC2086  # one option or none
        setup ours xtent "sector_size:$sector" $more
        setup theirs crypt "sector_size:$sector"
        dmsetup status ours | grep -q " xtent $isa " || fail "not $isa: $(dmsetup status ours)"
        keep
        for size in 4 64 256; do
            # Half of it through the page cache, which threads of the kernel write back.
            dd if=/tmp/data of=/dev/mapper/ours bs=${size}k count=$((512 / size)) oflag=direct conv=notrunc 2>/dev/null ||
                fail "write of $size KiB"
            dd if=/tmp/data of=/dev/mapper/ours bs=${size}k count=$((512 / size)) skip=$((512 / size)) \
                seek=$((512 / size)) conv=notrunc,fsync 2>/dev/null || fail "write of $size KiB through the page cache"
            dd if=/dev/mapper/ours of=/tmp/read bs=${size}k iflag=direct 2>/dev/null || fail "read of $size KiB"
            cmp /tmp/data /tmp/read || fail "$sector $more: other bytes in reads of $size KiB"
        done
        kept || fail "sectors of $sector, $more: registers changed"
        looks=$((looks + $(awk '$1 == "looked" { sum += $2 } END { print sum + 0 }' /tmp/registers-*)))
        echo 3 >/proc/sys/vm/drop_caches
        cmp /dev/mapper/theirs /tmp/data || fail "$sector $more: dm-crypt reads other bytes"
        deferred=$((deferred + $(counter deferred))) queued=$((queued + $(counter queued))) tables=$((tables + 1))
        # The other way round.
        dd if=/tmp/data of=/dev/mapper/theirs bs=128k seek=1 count=5 conv=notrunc,fsync 2>/dev/null || fail "write through dm-crypt"
        dd if=/dev/mapper/theirs bs=1M iflag=direct 2>/dev/null >/tmp/theirs || fail "read through dm-crypt"
        keep
        dd if=/dev/mapper/ours of=/tmp/read bs=4k iflag=direct 2>/dev/null || fail "read"
        kept || fail "sectors of $sector, $more: registers changed"
        cmp /tmp/theirs /tmp/read || fail "$sector $more: other bytes than dm-crypt's"
        dmsetup remove ours --noudevrules --noudevsync || fail remove
        dmsetup remove theirs --noudevrules --noudevsync || fail remove
    done
done
rmmod null_blk || fail "null_blk is still in use"
[ "$deferred" -gt 0 ] || fail "nothing was decrypted in a soft interrupt"
[ "$queued" -gt 0 ] || fail "nothing was encrypted or decrypted by a thread of the kernel"
echo "$isa: $tables tables, $deferred reads in soft interrupts, $queued requests by threads, looked at registers $looks times, all as they were"
