# shellcheck shell=sh disable=SC2086,SC2154
# Runs inside the guest; compare.py puts modules.sh and the numbers in front:
#   rounds  megabytes (a point)  requests  medium (ram or disk)  span (MiB of it that are
#   used)  sweep, files (yes or no)  file_sizes  records (KiB)  digest (MiB of the file)
# Prints lines for compare.py: FACT, AES, POINT, DIGEST, FILE.
chmod +x /in/sha256sum
if [ $medium = ram ]; then
    rmmod brd 2>/dev/null
    modprobe brd rd_nr=1 rd_size=$((span * 1024)) || exit
    device=/dev/ram0
else
    device=/d/disk
fi
device=$(readlink -f $device)
sectors=$((span * 2048))
names="raw stock-512 stock-512-noqueue xtent-512 stock-4096 stock-4096-noqueue xtent-4096"
open() {
    stock="crypt capi:$driver-plain64" queues="no_read_workqueue no_write_workqueue"
    case $1 in
    raw) return ;;
    stock-512) target=$stock options= ;;
    stock-512-noqueue) target=$stock options="2 $queues" ;;
    xtent-512) target="xtent aes-xts-plain64" options= ;;
    stock-4096) target=$stock options="1 sector_size:4096" ;;
    stock-4096-noqueue) target=$stock options="3 sector_size:4096 $queues" ;;
    xtent-4096) target="xtent aes-xts-plain64" options="1 sector_size:4096" ;;
    esac
    dmsetup create $1 --noudevrules --noudevsync --table "0 $sectors $target $key 0 $device 0 $options" ||
        die "cannot open $1"
    dmsetup mknodes $1
}
close() {
    [ $1 = raw ] || dmsetup remove $1 --noudevrules --noudevsync || die "cannot close $1"
}
path() {
    [ $1 = raw ] && echo $device || echo /dev/mapper/$1
}
for name in $names; do open $name; done
echo "FACT kernel $(uname -r)"
echo "FACT stock $driver"
echo "FACT xtent $(dmsetup status xtent-512 | cut -d' ' -f4)"

# All decrypt what all others encrypt: else somebody's figure is for something else.
dd if=/in/io of=/tmp/plain bs=256k count=1 conv=sync 2>/dev/null
for size in 512 4096; do
    for writer in stock-$size xtent-$size; do
        dd if=/tmp/plain of=/dev/mapper/$writer bs=256k oflag=direct 2>/dev/null || exit
        for reader in stock-$size stock-$size-noqueue xtent-$size; do
            dd if=/dev/mapper/$reader bs=256k count=1 iflag=direct 2>/dev/null | cmp - /tmp/plain || exit
        done
    done
done

# measure KIND WHAT REQUEST ARGUMENTS...: one line, of the round and the name at hand
measure() {
    kind=$1 what=$2 request=$3
    shift 3
    got=$(/in/io "$@") || die "$kind of $name failed"
    echo "$kind $round $name $what $request $got"
}

# Once unmeasured: memory and code that is touched for the first time.
round=0
for name in $names; do
    for direction in write read; do
        /in/io $direction "$(path $name)" 1048576 $((span << 20)) $((span << 20)) >/dev/null || exit
    done
done
# A file system wants the device to itself.
[ $files = no ] || for name in $names; do close $name; done
while [ $round -lt $rounds ]; do
    round=$((round + 1))
    echo "AES $(cat /sys/module/host_clock/parameters/aes)"
    if [ $sweep = yes ]; then
        for request in $requests; do
            for direction in read write; do
                for name in $names; do
                    measure POINT $direction $request \
                        $direction "$(path $name)" $request $((span << 20)) $((megabytes << 20))
                done
            done
        done
    fi
    for name in $names; do
        [ $files = yes ] || break
        open $name
        # A RAM disk would forget its memory for what is discarded.
        mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$(path $name)" ||
            die "cannot make a file system on $name"
        mount -t ext4 "$(path $name)" /mnt || die "cannot mount $name"
        /in/io write /mnt/file 1048576 $((digest << 20)) $((digest << 20)) >/dev/null || exit
        echo 3 >/proc/sys/vm/drop_caches
        measure DIGEST sha256 $((digest << 20)) run /in/sha256sum /mnt/file
        rm /mnt/file
        for size in $file_sizes; do
            for record in $records; do
                # Of the order of IOzone: the file does not exist, and then does.
                for pattern in write rewrite read randread randwrite; do
                    measure FILE $pattern $((size << 20)):$((record << 10)) \
                        $pattern /mnt/file $((record << 10)) $((size << 20)) $((size << 20))
                done
                rm /mnt/file
            done
        done
        umount /mnt || exit
        close $name
    done
    # Nobody is always the first.
    names="${names#* } ${names%% *}"
done
