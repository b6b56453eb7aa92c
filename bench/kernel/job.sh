# shellcheck shell=sh disable=SC2086,SC2154
# Runs inside the guest; compare.py puts the numbers, modules.sh and mappings.sh in front:
#   names  rounds  megabytes (a point)  requests  medium (ram or disk)  span (MiB of it that are
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
open_all
all_agree

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
