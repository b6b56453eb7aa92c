#!/bin/sh
# Runs inside the guest, for MINUTES, in rounds with other ciphers, sizes of sectors and instruction
# sets: readers and writers that compare what they read (worker.c), while the tables, options and
# keys of what they use change. Four devices, and memory that does not suffice:
#   quick   XTS on a RAM disk, which completes requests where they were made
#   late    any cipher on null_blk, which completes them in timers, milliseconds later
#   faulty  on a disk that fails, wholly or in part, or is late, by turns
#   files   a file system with a tree of files that is written and checked, over and over
#   swap    that of a process that dirties more memory than there is
# At the end of a round faults are over, and everything is compared, through dm-crypt, too.
# shellcheck disable=SC1091,SC2154
. /in/log.sh
fail() {
    echo "FAILED: $*"
    touch /tmp/failed
    # What there was of memory, if it was that.
    dmesg | grep -q oom-kill && dmesg | grep -A 45 "invoked oom-killer" | tail -46
    dmesg | tail -5
    exit 1
}
quietly() { # quietly COMMAND...: its output if it fails
    "$@" >"/tmp/output-${1##*/}" 2>&1 || fail "$*: $(cat "/tmp/output-${1##*/}")"
}

key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
short=$(echo $key | cut -c1-64)
part=8388608 # of a device, for a writer
sectors=$((part * 2 / 512))
# One a table, with what every table has.
options="- same_cpu_crypt no_read_workqueue no_write_workqueue write_workqueue high_priority submit_from_crypt_cpus
    no_read_workqueue,no_write_workqueue,high_priority same_cpu_crypt,write_workqueue,no_read_workqueue
    in_flight:1 in_flight:64,write_workqueue"

# nth NUMBER WORD...: one of them, from the first again after the last.
nth() {
    shift $(($1 % ($# - 1) + 1))
    echo "$1"
}
# describe NAME DISK START CIPHER STOCK KEY SECTOR: the table of a device, and that of dm-crypt
# with the same bytes, where there is one.
describe() {
    eval "disk_$1=$2 start_$1=$3 cipher_$1='$4' stock_$1='$5' key_$1=$6 unit_$1=$7"
}
table() { # table NAME TARGET OPTIONS...: its line
    eval "disk=\$disk_$1 start=\$start_$1 cipher=\$cipher_$1 stock=\$stock_$1 its_key=\$key_$1 unit=\$unit_$1"
    target=$2
    shift 2
    [ "$target" = xtent ] || cipher=$stock
    set -- allow_discards "sector_size:$unit" "$@"
    [ $((round % 2)) = 0 ] || set -- iv_large_sectors "$@"
    echo "0 $sectors $target $cipher $its_key 0 $disk $start $# $*"
}
create() { # create NAME TABLE
    dmsetup create "$1" --noudevrules --noudevsync --table "$2" || fail "table of $1: $2"
    dmsetup mknodes "$1"
}
remove() {
    dmsetup remove "$1" --noudevrules --noudevsync || fail "remove $1"
}
# The pages that are in memory are not written before a disk that fails is suspended: that might fail.
lockfs_of() {
    case $1 in below | faulty) echo --nolockfs ;; esac
}
# locked WORD NAME OPTIONS...: what suspends a device. While a file system is being unmounted, Linux 6.12 refuses
# that of its device (fs_bdev_freeze() finds no file system that is active).
locked() {
    tries=0
    # shellcheck disable=SC2046  # one or none
    until dmsetup "$@" --noudevsync $(lockfs_of "$2") 2>/tmp/locked-"$2"; do
        tries=$((tries + 1))
        if [ "$2" != files ] || [ $tries = 1000 ] || ! grep -q "Invalid argument" /tmp/locked-files; then
            cat /tmp/locked-"$2" >&2
            fail "$1 $2"
        fi
    done
}
pause() { # pause NAME OPTIONS...
    locked suspend "$@"
}
resume() {
    locked resume "$1"
}
# While a device is resumed that somebody tries to mount, which is busy then, Linux 6.12's thaw finds a file system that was
# not mounted and leaves the device frozen for good (fs_bdev_thaw()). So changes of "files" and mounts take turns; who
# mounts comes first, since changes follow each other at once.
take_turn() { # take_turn mount | change
    [ "$1" != mount ] || touch /tmp/mounting
    until [ -e /tmp/failed ] || { { [ "$1" = mount ] || [ ! -e /tmp/mounting ]; } && mkdir /tmp/turn 2>/dev/null; }; do
        usleep 10000
    done
}
end_turn() { # end_turn mount | change
    [ "$1" != mount ] || rm /tmp/mounting
    rmdir /tmp/turn
}
is_over() {
    [ -e /tmp/done ] || [ -e /tmp/failed ]
}

# change NAME: its tables and keys, until the round is over.
change() {
    changes=0 tables=0 suspensions=0 keys=0
    while ! is_over; do
        [ "$1" != files ] || take_turn change
        case $((changes % 4)) in
        0 | 2)
            # shellcheck disable=SC2046,SC2086  # words
            set -- "$1" $(nth $((changes / 2 + round)) $options | tr ',' ' ')
            [ "$2" != - ] || set -- "$1"
            dmsetup load "$1" --table "$(name=$1 && shift && table "$name" xtent "$@")" || fail "load of $1: $*"
            tables=$((tables + 1))
            ;;
        1)
            pause "$1" "$(nth $((changes / 4)) --nolockfs --noflush --noudevrules)"
            suspensions=$((suspensions + 1))
            ;;
        3)
            pause "$1"
            dmsetup message "$1" 0 key wipe || fail "wipe of the key of $1"
            [ $((changes / 4 % 4)) != 0 ] || ! dmsetup resume "$1" --noudevsync 2>/dev/null ||
                fail "$1 resumed without a key"
            eval "its_key=\$key_$1"
            [ $((changes / 4 % 2)) = 0 ] || its_key=:$((${#its_key} / 2)):logon:xtent:${#its_key}
            dmsetup message "$1" 0 key set "$its_key" || fail "return of the key of $1"
            keys=$((keys + 1))
            ;;
        esac
        resume "$1"
        [ "$1" != files ] || end_turn change
        changes=$((changes + 1))
        echo "$tables $suspensions $keys 0 0 0" >"/tmp/counts/$round-$1"
    done
}

# Below "faulty": half of the time a good disk.
spoil() {
    changes=0
    half=$((sectors / 2))
    while ! is_over; do
        good="0 $sectors linear /dev/ram1 0"
        case $((changes % 12)) in
        1 | 9) now="0 $sectors error" ;;
        3) now="0 $sectors flakey /dev/ram1 0 0 1" ;;
        5) now="0 $sectors flakey /dev/ram1 0 0 1 1 error_writes" ;;
        7) now="0 $half linear /dev/ram1 0
$half $half error" ;;
        11) now="0 $sectors delay /dev/ram1 0 10" ;;
        *) now=$good ;;
        esac
        dmsetup load below --table "$now" || fail "load of the disk below: $now"
        resume below
        changes=$((changes + 1))
        echo "0 0 0 $changes 0 0" >"/tmp/counts/$round-below"
        # For as long as a few requests take.
        dd if=/dev/mapper/faulty of=/dev/null bs=64k count=64 iflag=direct 2>/dev/null
    done
    dmsetup load below --table "0 $sectors linear /dev/ram1 0" || fail "load of the good disk below"
    resume below
}

# A tree of files on ext4: copied, read again from the disk, checked, unmounted, checked.
keep_files() {
    trees=0
    while ! is_over; do
        [ ! -d /mnt/old ] || rm -r /mnt/old
        [ ! -d /mnt/new ] || mv /mnt/new /mnt/old
        cp -a /tmp/tree /mnt/new || fail "cp to the file system"
        [ $((trees % 3)) != 0 ] || sync
        echo 3 >/proc/sys/vm/drop_caches
        for tree in /mnt/old /mnt/new; do
            [ ! -d $tree ] || (cd $tree && quietly sha256sum -c /tmp/sums) || fail "$tree is not what was written"
        done
        if [ $((trees % 4)) = 3 ]; then
            quietly fstrim /mnt
            umount /mnt || fail umount
            quietly fsck.ext4 -fn /dev/mapper/files
            take_turn mount
            mount -t ext4 -o discard /dev/mapper/files /mnt 2>/tmp/mount || fail "mount again: $(cat /tmp/mount)"
            end_turn mount
        fi
        trees=$((trees + 1))
        echo "0 0 0 0 $trees 0" >"/tmp/counts/$round-trees"
    done
}

swapped_out() { # in sectors of 4096 bytes
    dmsetup status swap | sed 's/.* write_sectors \([0-9]*\) .*/\1/'
}
count_swap() {
    echo "0 0 0 0 0 $(($(swapped_out) / 256))" >"/tmp/counts/$round-swap"
}
free_memory() { # in MB
    awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo
}
# Dirties most of what there is of memory, and then more and more until something is swapped out.
need_memory() {
    more=0
    while ! is_over; do
        free=$(free_memory)
        quietly /in/dirty $((free * 7 / 8 + more)) 1
        [ "$(swapped_out)" -gt 0 ] || more=$((more + 8))
    done
}

# totals: what was counted so far.
totals() {
    # shellcheck disable=SC2046  # words
    set -- $(/in/worker sum /tmp/maps/*) $(cat /tmp/counts/* | awk '{ for (i = 1; i <= 6; i++) sum[i] += $i }
        END { print sum[1] + 0, sum[2] + 0, sum[3] + 0, sum[4] + 0, sum[5] + 0, sum[6] + 0 }')
    written=$1 compared=$2 trims=$3 errors=$4 tables=$5 suspensions=$6 keys=$7 faults=$8 trees=$9
    shift 9
    swapped=$1
    echo "$written MiB written, $compared compared, $trims trims, $tables tables, $suspensions suspensions, $keys keys taken" \
        "and set, $faults changes of the disk below, $errors requests failed so, $trees trees of files, $swapped MiB swapped out"
}
# all_done: whether each of these has happened at all, so that it proves something.
all_done() {
    count_swap
    totals >/dev/null
    for count in $written $compared $trims $errors $tables $suspensions $keys $faults $trees $swapped; do
        [ "$count" -gt 0 ] || return 1
    done
}
seconds() {
    cut -d. -f1 /proc/uptime
}

# check_all: every sector that is known, through dm-xtent and dm-crypt.
check_all() {
    echo 3 >/proc/sys/vm/drop_caches
    for name in $workers_on; do
        for number in 0 1; do
            quietly /in/worker check "/dev/mapper/$name" "/tmp/maps/$round-$name-$number"
        done
        remove "$name"
        eval "stock=\$stock_$name"
        if [ -n "$stock" ]; then
            create theirs "$(table "$name" crypt)"
            for number in 0 1; do
                quietly /in/worker check /dev/mapper/theirs "/tmp/maps/$round-$name-$number"
            done
            remove theirs
        fi
    done
}

# prove_check: a byte that is wrong on the disk is found.
prove_check() {
    create quick "$(table quick xtent)"
    /in/worker write /dev/mapper/quick /tmp/proof 0 $part 512 1 &
    until [ -e /tmp/proof ]; do usleep 10000; done
    until /in/worker known /tmp/proof >/dev/null || is_over; do usleep 10000; done
    touch /tmp/done
    wait $! || exit 1
    quietly /in/worker check /dev/mapper/quick /tmp/proof
    place=$(/in/worker known /tmp/proof) || fail "nothing is known that could be wrong"
    dd if=/dev/urandom of=/dev/ram0 bs=16 seek=$((place / 16 + 7)) count=1 conv=notrunc,fsync 2>/dev/null
    (! /in/worker check /dev/mapper/quick /tmp/proof >/tmp/output) || fail "a wrong byte was not found"
    grep -q "other data" /tmp/output || fail "the check failed for something else: $(cat /tmp/output)"
    remove quick
    rm -f /tmp/failed /tmp/done
}

# --- what every round has
# Not to the console what was made to fail.
dmesg -n 1
chmod +x /in/worker /in/addkey /in/dirty
modprobe brd rd_nr=2 rd_size=$((sectors / 2)) || fail brd
for module in dm-flakey dm-delay; do modprobe $module || fail "no $module"; done
# 16 requests at a time, each after 2 ms.
modprobe null_blk nr_devices=1 gb=1 memory_backed=1 discard=1 irqmode=2 completion_nsec=2000000 hw_queue_depth=16 queue_mode=2 ||
    fail "no null_blk"
insmod /in/xtent_fast.ko || fail "xtent_fast.ko"
for k in $key $short; do /in/addkey logon "xtent:${#k}" "$k" || fail addkey; done
# See swap.sh.
case $(readlink /d/scratch) in *ubd*) echo 8192 >/proc/sys/vm/min_free_kbytes ;; esac
# What processes have goes rather than what is cached of files.
echo 200 >/proc/sys/vm/swappiness
# Caches are written back soon, by the kernel's threads.
echo 20 >/proc/sys/vm/dirty_writeback_centisecs
echo 50 >/proc/sys/vm/dirty_expire_centisecs
mkdir -p /tmp/maps /tmp/counts /tmp/tree
cp -a /sbin /in/*.sh /tmp/tree/ 2>/dev/null
(cd /tmp/tree && find . -type f -exec sha256sum {} +) >/tmp/sums
workers_on="quick late faulty"
trusted="aes-xts-plain64|aes-xts-plain64|$key aes-cbc-essiv:sha256|aes-cbc-essiv:sha256|$short engine:ecb(aes)-plain64|aes-xts-plain64|$key
    xchacha12,aes-adiantum-plain64|xchacha12,aes-adiantum-plain64|$short aes-xts-plain64be|aes-xts-plain64be|$key
    aes-hctr2-plain64|aes-hctr2-plain64|$short capi:fast(aes)-plain64|capi:fast(aes)-plain64|$short"
# Debian's kernels do not have it, those built from source do.
if dmsetup create probe --noudevrules --noudevsync --table "0 8 crypt aes-hctr2-plain64 $short 0 /dev/ram0 0" 2>/dev/null; then
    dmsetup remove probe --noudevrules --noudevsync || fail "remove probe"
else
    case $(uname -r) in *-amd64) ;; *) fail "this kernel has no HCTR2" ;; esac
    echo "NOT RUN: HCTR2, which this kernel has not"
    trusted=$(echo "$trusted" | sed 's/aes-hctr2[^ ]*//')
fi
# The test driver fails at times, so only where requests may.
spoiled="aes-xts-plain64|aes-xts-plain64|$key engine:ecb-xtent-test-plain64|aes-xts-plain64|$key
    aes-cbc-essiv:sha256|aes-cbc-essiv:sha256|$short capi:xts-xtent-test-plain64|aes-xts-plain64|$short"

# of_device NAME DISK START LIST NUMBER SECTOR: describes it with a cipher of the list.
of_device() {
    # shellcheck disable=SC2086  # words
    cipher=$(nth "$5" $4)
    stock=${cipher#*|}
    describe "$1" "$2" "$3" "${cipher%%|*}" "${stock%%|*}" "${stock#*|}" "$6"
}

# one_round: all of it at once for $each seconds, the first time longer if need be.
one_round() {
    isa=$(nth $round auto vaes256 aesni none vaes512 aesni_avx)
    insmod /in/dm-xtent.ko isa="$isa" 2>/dev/null || insmod /in/dm-xtent.ko || fail "dm-xtent.ko"
    insmod /in/xtent_run_test.ko sync_every=3 || fail "xtent_run_test.ko"
    dmesg | sed -n 's/.*XTS on \([^,]*\).*/\1/p' | tail -1 >>/tmp/isas
    of_device quick /dev/ram0 0 "aes-xts-plain64|aes-xts-plain64|$key aes-xts-plain|aes-xts-plain|$key" $round "$(nth $round 512 4096 1024 2048)"
    of_device late /dev/nullb0 0 "$trusted" $round "$(nth $round 4096 512 512 4096)"
    of_device faulty /dev/mapper/below 0 "$spoiled" $round "$(nth $round 512 4096 4096)"
    of_device files /d/scratch 0 "$trusted" $((round + 3)) "$(nth $round 4096 512)"
    echo "round $round: XTS on $(tail -1 /tmp/isas); late: $cipher_late, sectors of $unit_late;" \
        "faulty: $cipher_faulty, $unit_faulty; files: $cipher_files, $unit_files; $(free_memory) MB free"
    [ $round != 0 ] || prove_check
    create below "0 $sectors linear /dev/ram1 0"
    for name in $workers_on; do create "$name" "$(table "$name" xtent)"; done
    sectors_of_one=$sectors
    sectors=196608
    create files "$(table files xtent)"
    # Room for all that processes have.
    create swap "0 $((sectors * 3)) xtent aes-xts-plain64 $key 0 /d/scratch $sectors 1 sector_size:4096"
    quietly mkfs.ext4 -q -b 4096 /dev/mapper/files
    mount -t ext4 -o discard /dev/mapper/files /mnt || fail mount
    quietly mkswap /dev/mapper/swap
    swapon /dev/mapper/swap || fail swapon
    running=
    change files &
    running="$running $!"
    keep_files &
    running="$running $!"
    need_memory &
    running="$running $!"
    sectors=$sectors_of_one
    for name in $workers_on; do
        eval "unit=\$unit_$name"
        mode=
        [ "$name" != faulty ] || mode=faulty
        for number in 0 1; do
            map=/tmp/maps/$round-$name-$number
            # shellcheck disable=SC2086  # one or none
            /in/worker write "/dev/mapper/$name" "$map" $((part * number)) $part "$unit" $((round * 2 + number)) $mode &
            running="$running $!"
            until [ -s "$map" ]; do usleep 10000; done
            /in/worker read "/dev/mapper/$name" "$map" &
            running="$running $!"
        done
        change "$name" &
        running="$running $!"
    done
    echo 97 >/sys/module/xtent_run_test/parameters/fail_every
    spoil &
    running="$running $!"
    from=$(seconds)
    until { [ $(($(seconds) - from)) -ge $each ] && all_done; } || is_over; do
        sleep 1
        minute=$(((each * round + $(seconds) - from) / 60))
        [ $minute -le $told ] || {
            told=$minute
            count_swap
            echo "minute $told of $MINUTES: $(totals)"
        }
    done
    touch /tmp/done
    for one in $running; do wait "$one" || touch /tmp/failed; done
    [ ! -e /tmp/failed ] || exit 1
    echo 0 >/sys/module/xtent_run_test/parameters/fail_every
    umount /mnt || fail umount
    quietly fsck.ext4 -fn /dev/mapper/files
    count_swap
    swapoff /dev/mapper/swap || fail swapoff
    remove swap
    remove files
    check_all
    remove below
    rm /tmp/done
    rmmod xtent_run_test || fail "the test driver is still in use"
    rmmod dm_xtent || fail "the module is still in use"
    # Before its memory is full.
    dmesg -c >>/tmp/dmesg
    ! grep -q -E "${complaints:?}" /tmp/dmesg || log_is_clean || exit 1
}

rounds=10
[ "${MINUTES:?}" -ge $rounds ] || rounds=$MINUTES
each=$((MINUTES * 60 / rounds))
round=0
told=0
while [ $round -lt "$rounds" ]; do
    one_round
    round=$((round + 1))
done
rmmod xtent_fast || fail "xtent_fast.ko is still in use"
log_is_clean || exit 1
echo "$MINUTES minutes, $(nproc) CPUs, $round rounds, XTS on $(sort -u /tmp/isas | paste -sd ,): $(totals)"
