# shellcheck shell=sh disable=SC2086,SC2154
# Runs inside the guest; compare.py puts the numbers, modules.sh and mappings.sh in front:
#   names  rounds  span (MiB)  work (latency or writeback)  count (requests)  megabytes  requests (bytes)
# Prints lines for compare.py: FACT, AES, LATENCY, BUFFERED, DEPTH, COUNTS, NOTE.
cpus=$(grep -c ^processor /proc/cpuinfo)
modprobe configfs && modprobe null_blk nr_devices=0 && mount -t configfs none /sys/kernel/config || exit

# null_disk IRQMODE: makes $device, in memory. With one queue for several CPUs, mode 1 is a soft interrupt.
null_disk() {
    folder=/sys/kernel/config/nullb/nullb$1
    mkdir $folder || die "no null_blk"
    for setting in size=$span memory_backed=1 irqmode=$1 queue_mode=2 submit_queues=1 completion_nsec=10000; do
        echo ${setting#*=} >$folder/${setting%%=*} || die "null_blk takes no $setting"
    done
    echo 1 >$folder/power || die "null_blk does not start"
    device=/dev/nullb$1
    numbers=$(cat /sys/block/nullb$1/dev)
    [ -b $device ] || mknod $device b ${numbers%:*} ${numbers#*:} || die "no $device"
    # Memory that is there.
    /in/io write $device 1048576 $((span << 20)) $((span << 20)) >/dev/null || exit
}
close_all() {
    for name in $names; do close $name; done
}
# What dm-xtent did with the requests of the name at hand, since that was opened.
counts() {
    case $name in xtent-*) echo "COUNTS $1 $name $(dmsetup status $name | cut -d' ' -f5-)" ;; esac
}

latency() {
    for mode in 0 1 2; do
        if [ $mode = 1 ] && [ $cpus = 1 ]; then
            echo "NOTE irqmode=1 NOT RUN: with one CPU a request completes where the request was made, as irqmode=0 does"
            continue
        fi
        null_disk $mode
        open_all
        all_agree
        round=0
        for name in $names; do
            /in/io latency "$(path $name)" 4096 $((span << 20)) $((4096 * 512)) >/dev/null || exit
        done
        while [ $round -lt $rounds ]; do
            round=$((round + 1))
            for name in $names; do
                measure LATENCY irqmode=$mode 4096 latency "$(path $name)" 4096 $((span << 20)) $((4096 * count))
            done
            names="${names#* } ${names%% *}"
        done
        for name in $names; do counts irqmode=$mode; done
        close_all
    done
}

writeback() {
    modprobe brd rd_nr=1 rd_size=$((span * 1024)) || exit
    device=$(readlink -f /dev/ram0)
    open_all
    all_agree
    round=0
    for name in $names; do
        /in/io write "$(path $name)" 1048576 $((span << 20)) $((span << 20)) >/dev/null || exit
    done
    while [ $round -lt $rounds ]; do
        round=$((round + 1))
        echo "AES $(cat /sys/module/host_clock/parameters/aes)"
        for request in $requests; do
            for name in $names; do
                measure DEPTH 8 $request write "$(path $name)" $request $((span << 20)) $((megabytes << 20)) 8
            done
        done
        names="${names#* } ${names%% *}"
    done
    close_all
    round=0
    while [ $round -lt $rounds ]; do
        round=$((round + 1))
        for name in $names; do
            open $name
            mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$(path $name)" >/dev/null 2>&1 ||
                die "cannot make a file system on $name"
            mount -t ext4 "$(path $name)" /mnt || die "cannot mount $name"
            # Half of it: a file system has things of its own. Once unmeasured: the file's pages are there then.
            /in/io bufwrite /mnt/file 1048576 $((span << 19)) $((span << 19)) >/dev/null || exit
            measure BUFFERED ext4 $((span << 19)) bufwrite /mnt/file 1048576 $((span << 19)) $((span << 19))
            counts ext4
            umount /mnt || exit
            close $name
        done
        names="${names#* } ${names%% *}"
    done
}
$work
