#!/bin/sh
# Runs inside the guest: XTS over an asynchronous ECB engine, cryptd(ecb(aes-generic)),
# against the kernel's own dm-crypt, both directions: IV modes, sector sizes, how
# a run is cut, full queues, how many requests a bio takes, refused tables.
fail() {
    echo "FAILED: $*"
    dmesg | tail -5
    exit 1
}

bytes=4194304
sectors=$((bytes / 512))
ours=/dev/ram0
theirs=/dev/ram1
engine='engine:cryptd(ecb(aes-generic))'
key() { # key BYTES: hexadecimal
    dd if=/dev/urandom bs=1 count="$1" 2>/dev/null | hexdump -v -e '1/1 "%02x"'
}
setup() { # setup NAME TARGET DEVICE CIPHER KEY IV-OFFSET OPTIONS...
    name=$1
    line="$2 $4 $5 $6 $3 0"
    shift 6
    [ $# = 0 ] || line="$line $# $*"
    dmsetup create "$name" --noudevrules --noudevsync --table "0 $sectors $line" || fail "table: $line"
    dmsetup mknodes "$name"
}
remove() {
    dmsetup remove "$1" --noudevrules --noudevsync || fail "remove $1"
}
field() { # field NAME: of the status
    dmsetup status ours | sed "s/.* $1 \([0-9]*\).*/\1/"
}

# random_writes DEVICE SEED UNIT: single requests of random sizes at random places
# in units of that many bytes, the same ones for the same seed.
random_writes() {
    awk -v seed="$2" -v unit="$3" -v units=$((bytes / $3)) 'BEGIN {
        srand(seed)
        for (i = 0; i < 8; i++) {
            len = 1 + int(rand() * rand() * units / 3)
            at = int(rand() * (units - len))
            print at, len
        }
    }' >/tmp/places
    while read -r at len; do
        dd if=/tmp/data of="$1" bs=$((len * $3)) count=1 iflag=skip_bytes oflag=direct,seek_bytes \
            skip=$((at * $3)) seek=$((at * $3)) conv=notrunc 2>/dev/null || fail "dd to $1"
    done </tmp/places
}

# compare ENGINE IV-MODE KEY-BYTES IV-OFFSET SECTOR LARGE|- OPTIONS...: OPTIONS for ours alone.
tests=0
compare() {
    of=$1 iv=$2 offset=$4 sector=$5
    key=$(key "$3")
    common="sector_size:$sector"
    [ "$6" = - ] || common="$common iv_large_sectors"
    shift 6
    # shellcheck disable=SC2086  # a list of options
    setup theirs crypt $theirs "aes-xts-$iv" "$key" "$offset" $common
    # shellcheck disable=SC2086
    setup ours xtent $ours "$of-$iv" "$key" "$offset" $common "$@"
    what="$of-$iv $common $*"
    tests=$((tests + 1))
    cat /tmp/data >/dev/mapper/theirs || fail "writing through dm-crypt"
    cat /tmp/data >/dev/mapper/ours || fail "$what: writing"
    random_writes /dev/mapper/ours $tests "$sector"
    random_writes /dev/mapper/theirs $tests "$sector"
    sync
    cmp $ours $theirs || fail "$what: ciphertext differs"
    echo 3 >/proc/sys/vm/drop_caches
    cmp /dev/mapper/ours /dev/mapper/theirs || fail "$what: reads differ"
    for size in 64k "$sector" 3M; do
        dd if=/dev/mapper/ours of=/tmp/read bs=$size count=1000 iflag=direct 2>/dev/null || fail "$what: direct read"
        cmp -n "$(stat -c %s /tmp/read)" /tmp/read /dev/mapper/theirs || fail "$what: direct reads differ"
    done
    # What dm-crypt wrote, ours reads: the last step, since this spoils the equality.
    dd if=/dev/urandom of=/tmp/other bs=64k count=4 2>/dev/null
    dd if=/tmp/other of=/dev/mapper/theirs bs=256k oflag=direct conv=notrunc 2>/dev/null
    echo 3 >/proc/sys/vm/drop_caches
    dd if=$theirs of=$ours bs=64k conv=fsync 2>/dev/null
    echo 3 >/proc/sys/vm/drop_caches
    cmp /dev/mapper/ours /dev/mapper/theirs || fail "$what: what dm-crypt wrote reads differently"
    if [ "$busy" = yes ]; then
        [ "$(field busy)" -gt 0 ] || fail "$what: no queue was full: $(dmsetup status ours)"
    fi
    [ $tests != 1 ] || dmsetup status ours
    remove ours
    remove theirs
}

insmod /in/cryptd.ko || fail "cryptd"
dd if=/dev/urandom of=/tmp/data bs=1M count=4 2>/dev/null

busy=no
for cut in "" request_size:512 request_size:4096 request_size:32768; do
    compare "$engine" plain64 64 0 512 - $cut
    [ "$cut" = request_size:512 ] || compare "$engine" plain64 32 0 4096 - $cut
    [ "$cut" = request_size:512 ] || compare "$engine" plain64 64 0 4096 large $cut in_flight:1
done
compare "$engine" plain 64 0 512 - in_flight:2
# Across the end of 32 bits.
compare "$engine" plain 64 4294963200 512 - in_flight:64
compare "$engine" plain 48 4294963200 4096 large
compare "$engine" plain64be 64 4294963200 512 -
compare "$engine" plain64be 32 0 4096 -
compare "$engine" null 64 0 1024 - request_size:2048
compare "$engine" plain64 64 0 2048 large same_cpu_crypt
# Drivers that complete at once.
compare "engine:ecb(aes-generic)" plain64 64 0 512 -
compare "engine:ecb(aes-generic)" plain64be 64 0 4096 - request_size:4096

# --- requests to the engine: two a run, whatever its length
requests() { # requests WANTED OPTIONS...
    wanted=$1
    shift
    setup ours xtent $ours "$engine-plain64" "$(key 64)" 0 "$@"
    dd if=/tmp/data of=/dev/mapper/ours bs=256k count=1 oflag=direct 2>/dev/null || fail write
    written=$(field requests)
    dd if=/dev/mapper/ours of=/dev/null bs=256k count=1 iflag=direct 2>/dev/null || fail read
    got="$written $(($(field requests) - written))"
    [ "$got" = "$wanted $wanted" ] || fail "256 KiB, $*: wanted $wanted requests each way, got $got"
    remove ours
}
requests 2
requests 2 sector_size:4096
requests 128 request_size:4096
requests 1024 request_size:512

# --- several bios at once
setup ours xtent $ours "$engine-plain64" "$(key 64)" 0 request_size:4096 in_flight:3
pids=
for i in 0 1 2 3 4 5 6 7; do
    (for turn in 1 2 3 4; do
        dd if=/tmp/data of=/dev/mapper/ours bs=512k count=1 seek=$i skip=$i oflag=direct conv=notrunc 2>/dev/null || exit 1
        dd if=/dev/mapper/ours of=/tmp/read$i bs=512k count=1 skip=$i iflag=direct 2>/dev/null || exit 1
        [ "$(dd if=/tmp/data bs=512k count=1 skip=$i 2>/dev/null | sha256sum)" = "$(sha256sum </tmp/read$i)" ] || exit 1
    done) &
    pids="$pids $!"
done
for pid in $pids; do
    wait "$pid" || fail "bios at once"
done

# --- another key, by message; without one nothing goes
dmsetup suspend ours --noudevsync
dmsetup message ours 0 key wipe || fail wipe
! dmsetup resume ours --noudevsync 2>/dev/null || fail "resumed without a key"
dmsetup message ours 0 key set "$(key 64)" || fail "key set"
dmsetup resume ours --noudevsync || fail resume
! dd if=/dev/mapper/ours bs=512k count=1 2>/dev/null | cmp -s -n 524288 - /tmp/data || fail "the same data under another key"
remove ours

# --- a queue of one request: the engine's backlog
rmmod cryptd || fail "cryptd is still in use"
insmod /in/cryptd.ko cryptd_max_cpu_qlen=1 || fail "cryptd"
busy=yes
compare "$engine" plain64 64 0 512 - request_size:512
compare "$engine" plain64 64 0 4096 - request_size:4096 in_flight:64
echo "$tests comparisons, all equal"

# --- refused tables
refused=0
refuse() { # refuse CIPHER KEY OPTIONS...
    line="$1 $2 0 $ours 0"
    shift 2
    [ $# = 0 ] || line="$line $# $*"
    ! dmsetup create bad --noudevrules --noudevsync --table "0 $sectors xtent $line" 2>/dev/null || fail "taken: $line"
    refused=$((refused + 1))
}
key=$(key 64)
refuse "engine:-plain64" "$key"
refuse "$engine" "$key"
refuse "engine:nothing(aes)-plain64" "$key"
refuse "engine:cryptd(nothing(aes))-plain64" "$key"
refuse "engine:xts(aes)-plain64" "$key"
refuse "engine:cbc(aes)-plain64" "$key"
refuse "$engine-essiv:sha256" "$key"
refuse "$engine-magic" "$key"
refuse "$engine-plain64" "$(key 63)"
refuse "$engine-plain64" "$(key 40)"
refuse "$engine-plain64" -
refuse "$engine-plain64" "$key" request_size:256
refuse "$engine-plain64" "$key" request_size:1536
refuse "$engine-plain64" "$key" request_size:2097152
refuse "$engine-plain64" "$key" request_size:x
refuse "$engine-plain64" "$key" request_size:512 sector_size:4096
refuse "$engine-plain64" "$key" in_flight:0
refuse "$engine-plain64" "$key" in_flight:65
refuse "aes-xts-plain64" "$key" request_size:4096
refuse "capi:cryptd(xts(ecb(aes-generic)))-plain64" "$key" request_size:4096
echo "refused $refused tables"
setup ours xtent $ours "$engine-plain64" "$key" 0 request_size:4096 in_flight:2
dmsetup table ours | grep -q "$engine-plain64 - 0 1:0 0 2 request_size:4096 in_flight:2" || fail "$(dmsetup table ours)"
remove ours

rmmod dm_xtent || fail "the module is still in use"
rmmod cryptd || fail "the engine is still in use"
! dmesg | grep -E "WARNING|BUG|Oops|leak|lost" || fail "the kernel complains"
echo "$tests comparisons over an engine, all equal; $refused tables refused"
