#!/bin/sh
# Runs inside the guest: table lines that must be refused, keys by message and
# from the keyring, suspend and resume, reload, errors of the disk, LUKS volumes
# of cryptsetup, and that nothing is left behind.
fail() {
    echo "FAILED: $*"
    dmesg | tail -5
    exit 1
}
equal() { # equal WHAT WANTED GOT
    [ "$2" = "$3" ] || fail "$1: wanted $2, got $3"
}

disk=/dev/ram0
sectors=$(cat /sys/block/ram0/size)
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
other=$(echo $key | tr 0123456789 1234567890)
create() { # create NAME TABLE
    dmsetup create "$1" --noudevrules --noudevsync --table "$2" 2>/dev/null && dmsetup mknodes "$1"
}
remove() {
    dmsetup remove "$1" --noudevrules --noudevsync || fail "remove $1"
}
refused=0
refuse() { # refuse TABLE: and no key in the log
    dmesg -c >>/tmp/dmesg
    ! create bad "0 $sectors xtent $*" || fail "taken: $*"
    refused=$((refused + 1))
    ! dmesg | grep -q 0b0c0d0e || fail "the key is in the log after: $*"
}
digest() {
    echo 3 >/proc/sys/vm/drop_caches
    sha256sum <"$1" | cut -c1-16
}

# --- refused tables
refuse
refuse "aes-xts-plain64 $key 0"
refuse "aes-xts-plain64 ${key}0 0 $disk 0"
refuse "aes-xts-plain64 ${key}00 0 $disk 0"
refuse "aes-xts-plain64 xx${key#00} 0 $disk 0"
refuse "aes-xts-plain64 - 0 $disk 0"
refuse "aes-xts-plain64 :64:logon:nobody:has:it 0 $disk 0"
refuse "aes-xts-plain64 :64:logon: 0 $disk 0"
refuse "aes-xts-plain64 :64:magic:x 0 $disk 0"
refuse "aes-xts-plain64 :9999999:logon:x 0 $disk 0"
refuse "aes-xts-plain64 $key x $disk 0"
refuse "aes-xts-plain64 $key 0 /dev/nothing 0"
refuse "aes-xts-plain64 $key 0 $disk -1"
refuse "aes-xts-plain64 $key 0 $disk 8"
refuse "aes-xts-plain64 $key 0 $disk 0 1"
refuse "aes-xts-plain64 $key 0 $disk 0 1 magic"
refuse "aes-xts-plain64 $key 0 $disk 0 1 allow_discards more"
refuse "aes-xts-plain64 $key 0 $disk 0 1 sector_size:8192"
refuse "aes-xts-plain64 $key 0 $disk 0 1 sector_size:513"
refuse "aes-xts-plain64 $key 3 $disk 0 1 sector_size:4096"
refuse "aes-xts-magic $key 0 $disk 0"
refuse "aes-xts $key 0 $disk 0"
refuse "aes $key 0 $disk 0"
refuse "aes-xts-plain64:x $key 0 $disk 0"
refuse "aes-cbc-essiv $(echo $key | cut -c1-32) 0 $disk 0"
refuse "capi:-plain64 $key 0 $disk 0"
refuse "capi:nothing(aes)-plain64 $key 0 $disk 0"
refuse "$(head -c 400 /dev/zero | tr '\0' a)-xts-plain64 $key 0 $disk 0"
echo "refused $refused tables"

# --- what the table says; the key is never shown
create d "0 $sectors xtent aes-xts-plain64 $key 8 $disk 0 3 allow_discards sector_size:4096 iv_large_sectors" || fail create
equal table "0 $sectors xtent aes-xts-plain64 - 8 1:0 0 3 allow_discards sector_size:4096 iv_large_sectors" \
    "$(dmsetup table --showkeys d)"
equal "logical block size" 4096 "$(cat "/sys/block/$(basename "$(readlink -f /dev/mapper/d)")/queue/logical_block_size" 2>/dev/null || cat /sys/block/dm-0/queue/logical_block_size)"
remove d

# --- discards: only if allowed, on a disk that takes them
discards() { # discards OPTIONS: whether the device says that it takes any
    create d "0 8192 xtent aes-xts-plain64 $key 0 /d/scratch 0 $*" || fail "discards $*"
    most=$(cat "/sys/block/$(basename "$(readlink -f /dev/mapper/d)")/queue/discard_max_bytes" 2>/dev/null ||
        cat /sys/block/dm-0/queue/discard_max_bytes) || fail "no discard_max_bytes"
    [ "$most" -gt 0 ]
}
! discards || fail "discards without allow_discards: $most bytes"
! blkdiscard -o 65536 -l 65536 /dev/mapper/d 2>/dev/null || fail "discarded without allow_discards"
remove d
discards 1 allow_discards || fail "no discards with allow_discards"
blkdiscard -o 65536 -l 65536 /dev/mapper/d || fail blkdiscard
remove d

# --- counters
dd if=/dev/urandom of=/tmp/data bs=1M count=2 2>/dev/null
create d "0 $sectors xtent aes-xts-plain64 $key 0 $disk 0" || fail create
dd if=/tmp/data of=/dev/mapper/d bs=4k count=16 oflag=direct conv=notrunc 2>/dev/null || fail write
dd if=/dev/mapper/d of=/tmp/read bs=4k count=1 skip=$((sectors * 512 - 1536)) iflag=direct,skip_bytes 2>/dev/null || fail read
dd if=/dev/mapper/d of=/tmp/read bs=20k count=5 iflag=direct 2>/dev/null || fail read
counted=$(dmsetup status d | sed 's/.* \(reads .*\) queued .* \(runs [0-9,]*\) .*/\1 \2/')
equal counters "reads 6 writes 16 read_sectors 203 write_sectors 128 runs 0,1,0,16,0,5,0,0,0,0,0,0" "$counted"
remove d

# --- key messages, suspend, resume
table="0 $sectors xtent aes-xts-plain64 $key 0 $disk 0"
create d "$table" || fail create
dd if=/tmp/data of=/dev/mapper/d bs=1M oflag=direct 2>/dev/null || fail write
before=$(digest /dev/mapper/d)
! dmsetup message d 0 key wipe 2>/dev/null || fail "key wiped while in use"
dmsetup suspend d --noudevsync || fail suspend
! dmsetup message d 0 key magic 2>/dev/null || fail "message taken"
! dmsetup message d 0 key set "${key}00" 2>/dev/null || fail "longer key taken"
dmsetup message d 0 key wipe || fail wipe
! dmsetup resume d --noudevsync 2>/dev/null || fail "resumed without a key"
dmsetup message d 0 key set "$other" || fail "set another"
dmsetup resume d --noudevsync || fail resume
[ "$(digest /dev/mapper/d)" != "$before" ] || fail "the same data under another key"
dmsetup suspend d --noudevsync
dmsetup message d 0 key set $key || fail "set"
dmsetup resume d --noudevsync
equal "data after the key's return" "$before" "$(digest /dev/mapper/d)"
! dmesg | grep -q 0b0c0d0e || fail "the key is in the log"
remove d

# --- a target that cannot resume keeps the others suspended: they take messages still
half=$((sectors / 2))
create d "0 $half xtent aes-xts-plain64 $key 0 $disk 0
$half $((sectors - half)) xtent aes-xts-plain64 $key $half $disk $half" || fail "two targets"
dmsetup suspend d --noudevsync || fail "suspend of two targets"
dmsetup message d $half key wipe || fail "wipe of the second"
! dmsetup resume d --noudevsync 2>/dev/null || fail "resumed with half a key"
dmsetup message d 0 key wipe || fail "wipe of the first, on a device still suspended"
dmsetup message d 0 key set $key || fail "set of the first"
dmsetup message d $half key set $key || fail "set of the second"
dmsetup resume d --noudevsync || fail "resume of two targets"
! dmsetup message d 0 key wipe 2>/dev/null || fail "key wiped after the resume"
equal "data of two targets" "$before" "$(digest /dev/mapper/d)"
remove d
create d "$table" || fail create

# --- reload with other options, in use
(while [ ! -e /tmp/stop ]; do dd if=/dev/mapper/d of=/dev/null bs=64k iflag=direct 2>/dev/null || touch /tmp/failed; done) &
for i in 1 2 3 4 5; do
    dmsetup load d --table "$table $((i % 2)) $( [ $((i % 2)) = 0 ] || echo allow_discards)" || fail "load $i"
    dmsetup resume d --noudevsync || fail "resume $i"
done
touch /tmp/stop
wait
[ ! -e /tmp/failed ] || fail "a read failed during a reload"
equal "data after reloads" "$before" "$(digest /dev/mapper/d)"
dmsetup status d
remove d

# --- a key of the keyring
/in/addkey logon xtent:test $key || fail addkey
create d "0 $sectors xtent aes-xts-plain64 :64:logon:xtent:test 0 $disk 0" || fail "keyring"
equal table "0 $sectors xtent aes-xts-plain64 :64:logon:xtent:test 0 1:0 0" "$(dmsetup table --showkeys d)"
equal "data under the key of the keyring" "$before" "$(digest /dev/mapper/d)"
remove d
refuse "aes-xts-plain64 :32:logon:xtent:test 0 $disk 0"
/in/addkey user xtent:test2 $key || fail "addkey user"
create d "0 $sectors xtent aes-xts-plain64 :64:user:xtent:test2 0 $disk 0" || fail "user key"
equal "data under a user key" "$before" "$(digest /dev/mapper/d)"
remove d

# --- the disk's errors reach the caller, and leave nothing behind
create faulty "0 $half linear $disk 0
$half $((sectors - half)) error" || fail "faulty disk"
create d "0 $sectors xtent aes-xts-plain64 $key 0 /dev/mapper/faulty 0" || fail create
dd if=/tmp/data of=/dev/mapper/d bs=64k count=16 oflag=direct 2>/dev/null || fail "good half, write"
! dd if=/tmp/data of=/dev/mapper/d bs=64k count=1 seek=$((half / 128 + 1)) oflag=direct 2>/dev/null || fail "bad half, write"
! dd if=/dev/mapper/d of=/dev/null bs=64k count=1 skip=$((half / 128 + 1)) iflag=direct 2>/dev/null || fail "bad half, read"
! dd if=/dev/mapper/d of=/tmp/read bs=1M count=2 skip=$((half / 2048 - 1)) iflag=direct 2>/dev/null || fail "across the edge"
remove d
remove faulty

# --- LUKS volumes of cryptsetup
printf secret >/tmp/pass
for type in luks1 luks2; do
    for size in 512 4096; do
        [ $type = luks2 ] || [ $size = 512 ] || continue
        set -- -q --type $type --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file /tmp/pass
        [ $type = luks1 ] || set -- "$@" --sector-size $size
        cryptsetup luksFormat "$@" /dev/ram1 || fail "luksFormat $type"
        cryptsetup open --disable-keyring --key-file /tmp/pass /dev/ram1 theirs || fail "open $type"
        theirs=$(dmsetup table --showkeys theirs)
        dd if=/tmp/data of=/dev/mapper/theirs bs=1M count=1 oflag=direct 2>/dev/null || fail "write $type"
        want=$(digest /dev/mapper/theirs)
        cryptsetup close theirs
        create ours "$(echo "$theirs" | sed 's/ crypt / xtent /')" || fail "table of $type"
        equal "$type with sectors of $size" "$want" "$(digest /dev/mapper/ours)"
        dd if=/tmp/data of=/dev/mapper/ours bs=64k seek=8 count=4 conv=notrunc oflag=direct 2>/dev/null || fail "write $type"
        want=$(digest /dev/mapper/ours)
        remove ours
        cryptsetup open --key-file /tmp/pass /dev/ram1 theirs || fail "open $type again"
        equal "$type, written by us" "$want" "$(digest /dev/mapper/theirs)"
        cryptsetup close theirs
    done
done

rmmod dm_xtent || fail "the module is still in use"
echo "control: all good"
