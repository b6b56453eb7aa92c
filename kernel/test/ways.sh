#!/bin/sh
# Runs inside the guest: who encrypts and decrypts, by the options, as the counters tell; and
# that the bytes are the same whichever way they went.
fail() {
    echo "FAILED: $*"
    dmesg | tail -5
    exit 1
}
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
short=$(echo $key | cut -c1-64)
create() { # create DISK CIPHER OPTIONS...
    disk=$1 cipher=$2
    shift 2
    case $cipher in
    aes-xts*) its_key=$key ;;
    *) its_key=$short ;;
    esac
    dmsetup create d --noudevrules --noudevsync \
        --table "0 $sectors xtent $cipher $its_key 0 $disk 0${*:+ $# $*}" || fail "table: $*"
    dmsetup mknodes d
}
remove() {
    dmsetup remove d --noudevrules --noudevsync || fail remove
}
counter() { # counter NAME: of the target
    dmsetup status d | sed "s/.* $1 \([0-9]*\).*/\1/"
}
equal() { # equal WHAT WANTED GOT
    [ "$2" = "$3" ] || fail "$1: wanted $2, got $3: $(dmsetup status d)"
}
write() { # write FLAGS...: 4 MiB in requests of 1 MiB
    dd if=/tmp/data of=/dev/mapper/d bs=1M "$@" conv=notrunc 2>/dev/null || fail "write $*"
}
by_a_thread() { # as write, and a thread of the kernel gives the requests to the target
    modprobe dm-delay || fail "no dm-delay"
    dmsetup create thread --noudevrules --noudevsync \
        --table "0 8192 delay /dev/mapper/d 0 0 /dev/mapper/d 0 1" || fail dm-delay
    dmsetup mknodes thread
    dd if=/tmp/data of=/dev/mapper/thread bs=1M oflag=direct conv=notrunc 2>/dev/null || fail "write by a thread"
    dmsetup remove thread --noudevrules --noudevsync || fail "remove thread"
}
same() { # same WHAT: what is there when read by dm-xtent's default ways
    create "$disk" "$cipher"
    echo 3 >/proc/sys/vm/drop_caches
    dd if=/dev/mapper/d bs=1M count=4 2>/dev/null | cmp - /tmp/data || fail "$1: other bytes"
    remove
}

dd if=/dev/urandom of=/tmp/data bs=1M count=4 2>/dev/null
disk=/dev/ram0 sectors=$(cat /sys/block/ram0/size)
# Who has XTS: this module, which tells the log of it, or a driver of the crypto API.
create /dev/ram0 aes-xts-plain64
xts="XTS on $(dmsetup status d | cut -d' ' -f4)"
remove
own=
case $xts in
*" vaes"* | *" aesni"*)
    own=1
    xts=$(dmesg | grep -o "$xts.*" | tail -1)
    ;;
esac

# --- the table has the options again, and refuses what excludes itself
create /dev/ram0 aes-xts-plain64 high_priority no_read_workqueue write_workqueue
equal table "0 $sectors xtent aes-xts-plain64 - 0 1:0 0 3 high_priority no_read_workqueue write_workqueue" \
    "$(dmsetup table d)"
remove
! dmsetup create d --noudevrules --noudevsync 2>/dev/null \
    --table "0 $sectors xtent aes-xts-plain64 $key 0 /dev/ram0 0 2 write_workqueue no_write_workqueue" ||
    fail "write_workqueue and no_write_workqueue were taken"

# --- writes
if [ -n "$own" ]; then
    create /dev/ram0 aes-xts-plain64
    write oflag=direct
    equal "a writer's own, queued" 0 "$(counter queued)"
    remove
    same "by the writer"
    create /dev/ram0 aes-xts-plain64
    by_a_thread
    if [ "$(nproc)" -gt 1 ]; then
        equal "a thread's, queued" "$(counter writes)" "$(counter queued)"
    else
        equal "a thread's on one CPU, queued" 0 "$(counter queued)"
    fi
    remove
    same "by a thread of the kernel"
    create /dev/ram0 aes-xts-plain64 no_write_workqueue
    by_a_thread
    equal "a thread's with no_write_workqueue, queued" 0 "$(counter queued)"
    remove
    same "with no_write_workqueue"
    create /dev/ram0 aes-xts-plain64 write_workqueue high_priority
    write oflag=direct
    [ "$(nproc)" = 1 ] || equal "with write_workqueue, queued" "$(counter writes)" "$(counter queued)"
    remove
    same "with write_workqueue"
fi
create /dev/ram0 aes-cbc-essiv:sha256
write oflag=direct
equal "CBC, queued" "$(counter writes)" "$(counter queued)"
remove
create /dev/ram0 aes-cbc-essiv:sha256 no_write_workqueue
write oflag=direct
equal "CBC with no_write_workqueue, queued" 0 "$(counter queued)"
remove
same "CBC by the writer"

# --- reads that complete in hard interrupts
report="no null_blk in this kernel: interrupts NOT RUN"
if modprobe null_blk nr_devices=1 gb=1 memory_backed=1 irqmode=2 completion_nsec=10000 queue_mode=2 2>/dev/null; then
    report="$(nproc) CPUs, deferred:"
    sectors=65536
    for options in "" no_read_workqueue "no_read_workqueue high_priority"; do
        # shellcheck disable=SC2086  # one option each
        create /dev/nullb0 aes-xts-plain64 $options
        write oflag=direct
        queued=$(counter queued)
        dd if=/dev/mapper/d of=/tmp/read bs=4k count=1024 iflag=direct 2>/dev/null || fail "read with $options"
        cmp /tmp/read /tmp/data || fail "other bytes with: $options"
        case $own$options in
        1no_read*) equal "small reads in interrupts, with $options, queued" "$queued" "$(counter queued)" ;;
        esac
        report="$report $(counter deferred)"
        dd if=/dev/mapper/d of=/tmp/read bs=1M count=4 iflag=direct 2>/dev/null || fail "read with $options"
        cmp /tmp/read /tmp/data || fail "other bytes in long reads with: $options"
        remove
    done
    rmmod null_blk
fi
# --- atomic writes, of which the disk gets as many as there were: by the writer and by the queue
chmod +x /in/atomic
limit() { # limit DEVICE NAME: of its atomic writes, in bytes
    cat "/sys/block/$1/queue/atomic_write_$2_bytes"
}
atomic="atomic writes NOT RUN: no disk that has them, or a kernel whose targets do not"
if modprobe sd_mod 2>/dev/null &&
    modprobe scsi_debug atomic_wr=1 dev_size_mb=16 opt_xferlen_exp=0 delay=0 2>/dev/null; then
    # The kernel looks for disks in its own time.
    disk=
    for _ in $(seq 100); do
        disk=$(find /sys/block -name 'sd*' | head -1)
        [ -z "$disk" ] || [ ! -e "/dev/${disk##*/}" ] || break
        usleep 100000
    done
    [ -n "$disk" ] || fail "scsi_debug has no disk"
    disk=/dev/${disk##*/} sectors=32768
    for options in no_write_workqueue write_workqueue sector_size:4096; do
        create "$disk" aes-xts-plain64 "$options"
        name=dm-$(dmsetup info -c --noheadings -o minor d)
        if [ ! -e "/sys/block/$name/queue/atomic_write_max_bytes" ] || [ "$(limit "$name" max)" = 0 ]; then
            remove
            break
        fi
        [ "$(limit "$name" max)" -le $((256 * $(getconf PAGESIZE 2>/dev/null || echo 4096))) ] || fail "atomic writes of $(limit "$name" max) bytes"
        for bytes in 4096 "$(limit "$name" unit_max)"; do
            before=$(awk '{ print $5 }' "/sys/block/${disk##*/}/stat")
            /in/atomic /dev/mapper/d /tmp/data "$bytes" || fail "an atomic write of $bytes bytes with $options"
            equal "writes of the disk for an atomic one of $bytes bytes with $options" 1 \
                "$(($(awk '{ print $5 }' "/sys/block/${disk##*/}/stat") - before))"
        done
        dd if=/dev/mapper/d bs="$bytes" count=1 iflag=direct 2>/dev/null | cmp -n "$bytes" - /tmp/data || fail "an atomic write with $options: other bytes"
        remove
        dmsetup create c --noudevrules --noudevsync \
            --table "0 $sectors crypt aes-xts-plain64 $key 0 $disk 0 $(case $options in sector*) echo "1 $options" ;; *) echo 0 ;; esac)" || fail "dm-crypt"
        dmsetup mknodes c
        dd if=/dev/mapper/c bs="$bytes" count=1 iflag=direct 2>/dev/null | cmp -n "$bytes" - /tmp/data || fail "an atomic write with $options: other bytes for dm-crypt"
        dmsetup remove c --noudevrules --noudevsync || fail "remove c"
        atomic="atomic writes of up to $bytes bytes"
    done
    rmmod scsi_debug
fi
echo "$xts; $report; $atomic"
