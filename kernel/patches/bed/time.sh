# shellcheck shell=sh disable=SC2086,SC2154
# Runs inside the guest: CPU time of dm-crypt on a RAM disk, one after another in turns: as it is with its best
# driver, asked for by name so that the library is not used, and by the library. kernel-series.sh puts
# rounds, megabytes (a point) and span (MiB of the disk) in front. Prints POINT round name request
# direction nanoseconds bytes.
die() {
    dmesg | tail -5
    echo "FAILED: $*"
    exit 1
}
chmod +x /in/io
insmod /in/aesni-intel.ko || die "no aesni-intel"
insmod /in/host_clock.ko || die "no host_clock"
[ ! -e /in/dm-xtent.ko ] || insmod /in/dm-xtent.ko || die "no dm-xtent"
for driver in xts-aes-vaes-avx512 xts-aes-vaes-avx2 xts-aes-aesni-avx xts-aes-aesni; do
    ! grep -q "^driver *: $driver\$" /proc/crypto || break
done
echo "FACT driver $driver"
rmmod brd 2>/dev/null
modprobe brd rd_nr=1 rd_size=$((span * 1024)) || die "no RAM disk"
sectors=$((span * 2048))
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
names="raw"
open() { # open NAME TARGET CIPHER OPTIONS
    dmsetup create $1 --noudevrules --noudevsync --table "0 $sectors $2 $3 $key 0 /dev/ram0 0 $4" || die "cannot open $1"
    dmsetup mknodes $1
    names="$names $1"
}
for size in 512 4096; do
    options="1 sector_size:$size"
    queues="3 sector_size:$size no_read_workqueue no_write_workqueue"
    [ $size != 512 ] || { options="" queues="2 no_read_workqueue no_write_workqueue"; }
    open before-$size crypt capi:$driver-plain64 "$options"
    open series-$size crypt aes-xts-plain64 "$options"
    open before-$size-noqueue crypt capi:$driver-plain64 "$queues"
    open series-$size-noqueue crypt aes-xts-plain64 "$queues"
    [ ! -e /in/dm-xtent.ko ] || open xtent-$size xtent aes-xts-plain64 "$options"
    # All read what one has written: else a figure is for something else.
    dd if=/in/io of=/dev/mapper/before-$size bs=256k count=1 conv=sync oflag=direct 2>/dev/null
    for name in $names; do
        case $name in *-$size*) dd if=/dev/mapper/$name bs=256k count=1 iflag=direct 2>/dev/null | sha256sum ;; esac
    done | sort -u >/tmp/sums
    [ "$(wc -l </tmp/sums)" = 1 ] || die "they do not read the same"
done
path() {
    [ $1 = raw ] && echo /dev/ram0 || echo /dev/mapper/$1
}
round=-1
while [ $round -lt $rounds ]; do
    round=$((round + 1))
    for request in 4096 16384 131072 1048576; do
        for direction in read write; do
            for name in $names; do
                # The first round is for memory and code that is touched for the first time.
                got=$(/in/io $direction "$(path $name)" $request $((span << 20)) $((megabytes << 20))) || die "$name"
                [ $round = 0 ] || echo "POINT $round $name $request $direction ${got%% *} $((megabytes << 20))"
            done
        done
    done
    # Nobody is always the first.
    names="${names#* } ${names%% *}"
done
