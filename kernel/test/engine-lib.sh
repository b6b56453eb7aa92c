# shellcheck shell=sh disable=SC2034
# What engine.sh and engine-run.sh share, inside the guest: dm-xtent and dm-crypt
# with the same key, and the same requests to both.
fail() {
    echo "FAILED: $*"
    dmesg | tail -5
    exit 1
}

bytes=2097152
sectors=$((bytes / 512))
ours=/dev/ram0
theirs=/dev/ram1
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

dd if=/dev/urandom of=/tmp/data bs=1M count=2 2>/dev/null
busy=no # or yes: a queue must have been full

# compare CIPHER IV-MODE KEY-BYTES IV-OFFSET SECTOR LARGE|- OPTIONS...: OPTIONS for ours alone.
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
        dd if=/dev/mapper/ours of=/tmp/read bs="$size" count=1000 iflag=direct 2>/dev/null || fail "$what: direct read"
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

# requests WANTED CIPHER OPTIONS...: how many, each way, 256 KiB take.
requests() {
    wanted=$1
    cipher=$2
    shift 2
    setup ours xtent $ours "$cipher" "$(key 64)" 0 "$@"
    dd if=/tmp/data of=/dev/mapper/ours bs=256k count=1 oflag=direct 2>/dev/null || fail write
    written=$(field requests)
    dd if=/dev/mapper/ours of=/dev/null bs=256k count=1 iflag=direct 2>/dev/null || fail read
    got="$written $(($(field requests) - written))"
    [ "$got" = "$wanted $wanted" ] || fail "256 KiB, $cipher $*: wanted $wanted requests each way, got $got"
    remove ours
}

# at_once: writes and reads of eight processes.
at_once() {
    pids=
    for i in 0 1 2 3 4 5 6 7; do
        (for _ in 1 2 3 4; do
            dd if=/tmp/data of=/dev/mapper/ours bs=256k count=1 seek=$i skip=$i oflag=direct conv=notrunc 2>/dev/null || exit 1
            dd if=/dev/mapper/ours of=/tmp/read$i bs=256k count=1 skip=$i iflag=direct 2>/dev/null || exit 1
            [ "$(dd if=/tmp/data bs=256k count=1 skip=$i 2>/dev/null | sha256sum)" = "$(sha256sum </tmp/read$i)" ] || exit 1
        done) &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait "$pid" || fail "bios at once"
    done
}

# refuse CIPHER KEY OPTIONS...: no such table.
refused=0
refuse() {
    line="$1 $2 0 $ours 0"
    shift 2
    [ $# = 0 ] || line="$line $# $*"
    ! dmsetup create bad --noudevrules --noudevsync --table "0 $sectors xtent $line" 2>/dev/null || fail "taken: $line"
    refused=$((refused + 1))
}

# What this kernel calls AES in C, as /proc/crypto has it when a mapping has loaded it.
generic=
for name in aes-generic aes-lib; do
    ! dmsetup create bad --noudevrules --noudevsync \
        --table "0 $sectors xtent engine:ecb($name)-plain64 $(key 64) 0 $ours 0" 2>/dev/null || remove bad
    ! awk -v name=$name '$1 == "name" { aes = $3 == "aes" } $1 == "driver" { driver = $3 }
        $1 == "type" && $3 == "cipher" && aes && driver == name { found = 1 } END { exit !found }' /proc/crypto ||
        generic=$name
done
[ -n "$generic" ] || fail "no driver of AES in C: $(grep ^driver /proc/crypto)"

# The test driver: as a cipher that takes runs, and as an engine.
runs=capi:xts-xtent-test
engine=engine:ecb-xtent-test
set_parameter() {
    echo "$2" >"/sys/module/xtent_run_test/parameters/$1" || fail "$1"
}
