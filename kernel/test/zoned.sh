#!/bin/sh
# Runs inside the guest: on a disk with zones, which takes writes only where the last one
# ended. What dm-xtent wrote, cached and directly, dm-crypt reads, and the other way round.
fail() {
    echo "FAILED: $*"
    dmesg | tail -5
    exit 1
}
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
short=$(echo $key | cut -c1-64)
chmod +x /in/zones
modprobe null_blk nr_devices=1 gb=1 zoned=1 zone_size=4 memory_backed=1 queue_mode=2 2>/dev/null || {
    echo "NOT RUN: this kernel has no null_blk with zones"
    exit 0
}
[ "$(cat /sys/block/nullb0/queue/zoned)" = host-managed ] || fail "null_blk has no zones"
sectors=131072
setup() { # setup TARGET CIPHER KEY SECTOR-SIZE
    dmsetup create "$1" --noudevrules --noudevsync \
        --table "0 $sectors $1 $2 $3 0 /dev/nullb0 0 1 sector_size:$4" || fail "table: $*"
    dmsetup mknodes "$1"
}
remove() {
    dmsetup remove "$1" --noudevrules --noudevsync || fail "remove $1"
}
dd if=/dev/urandom of=/tmp/data bs=1M count=16 2>/dev/null
tests=0
while read -r cipher its_key size; do
    for writer in xtent crypt; do
        for flag in direct dsync; do
            setup xtent "$cipher" "$its_key" "$size"
            /in/zones reset /dev/mapper/xtent || fail "zones cannot be reset through dm-xtent"
            ! /in/zones show /dev/mapper/xtent | grep -qv '^0$' || fail "zones are not empty"
            remove xtent
            setup "$writer" "$cipher" "$its_key" "$size"
            # Some kernels take no cached writes to such disks, whatever the target.
            if dd if=/tmp/data of="/dev/mapper/$writer" bs=1M oflag=$flag conv=notrunc 2>/dev/null; then
                written=$(/in/zones show "/dev/mapper/$writer" | head -4 | paste -sd ' ')
                [ "$written" = "8192 8192 8192 8192" ] || fail "zones by $writer: $written"
                remove "$writer"
                for reader in xtent crypt; do
                    setup "$reader" "$cipher" "$its_key" "$size"
                    echo 3 >/proc/sys/vm/drop_caches
                    dd if="/dev/mapper/$reader" bs=1M count=16 iflag=direct 2>/dev/null | cmp - /tmp/data ||
                        fail "$reader reads something else than $writer wrote, $cipher, $size, $flag"
                    remove "$reader"
                    tests=$((tests + 1))
                done
            else
                [ "$flag" != direct ] || fail "$writer cannot write to zones"
                remove "$writer"
            fi
        done
    done
done <<CIPHERS
aes-xts-plain64 $key 512
aes-xts-plain64 $key 4096
aes-cbc-essiv:sha256 $short 4096
CIPHERS
rmmod null_blk

# One write of 16 MiB, from huge pages where there are any: to a zone that has to be written in order, and
# to those that need not be, which some kernels map as a device without zones.
huge=0
# Of a CPU that has none the kernel tells no size.
size=$(sed -n 's/^Hugepagesize: *\([0-9]*\) kB/\1/p' /proc/meminfo)
if [ -n "$size" ]; then
    huge=$((16384 / size))
    echo $huge >/proc/sys/vm/nr_hugepages
    [ "$(cat /proc/sys/vm/nr_hugepages)" = $huge ] || fail "no huge pages"
fi
modprobe null_blk nr_devices=1 gb=1 zoned=1 zone_size=32 zone_nr_conv=4 memory_backed=1 queue_mode=2 || fail "no null_blk"
big() { # big TARGET: at $start
    dmsetup create big --noudevrules --noudevsync \
        --table "0 65536 $1 aes-xts-plain64 $key 0 /dev/nullb0 $start" || fail "table: $1 at $start"
    dmsetup mknodes big
}
for start in 0 262144; do
    big xtent
    [ $start = 0 ] || /in/zones reset /dev/mapper/big || fail "the zone cannot be reset"
    # Not through dm-crypt, of which some kernels' have that for a BUG, and others' take no such write.
    /in/zones write /dev/mapper/big /tmp/data || fail "16 MiB at once to $start"
    dmsetup remove big --noudevrules --noudevsync || fail "remove"
    for reader in xtent crypt; do
        big $reader
        dd if=/dev/mapper/big bs=1M count=16 iflag=direct 2>/dev/null | cmp - /tmp/data ||
            fail "$reader reads something else than was written at once to $start"
        dmsetup remove big --noudevrules --noudevsync || fail "remove"
        tests=$((tests + 1))
    done
done
rmmod null_blk
[ $huge = 0 ] || echo 0 >/proc/sys/vm/nr_hugepages
echo "$tests readings of zones, all equal; $huge huge pages"
