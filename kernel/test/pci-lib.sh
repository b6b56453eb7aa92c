# shellcheck shell=sh disable=SC2317
# What the tests of the co-processor's driver share, inside the guest: the device, mappings on its ciphers, fio. Sourced.
fail() {
    echo "FAILED: $*"
    dmesg | tail -20
    exit 1
}

# The co-processor's folder in sysfs, found by its vendor.
engine() {
    grep -l 0x1d1d /sys/bus/pci/devices/*/vendor 2>/dev/null | sed 's,/vendor$,,'
}

# load OPTIONS...: the driver, which has to take the device.
load() {
    [ -n "$(engine)" ] || fail "no co-processor on the bus"
    insmod /in/xtent_pci.ko "$@" || fail "the driver"
    [ -e "$(engine)/driver" ] || fail "the driver did not take the device"
}
unload() {
    rmmod xtent_pci || fail "the driver is still in use"
}

# count NAME: of the driver's counters, or its state; counters: all of them.
count() {
    cat "$(engine)/xtent/$1"
}
counters() {
    for counter in "$(engine)"/xtent/*; do
        printf '%s %s, ' "${counter##*/}" "$(cat "$counter")"
    done
}

# field_of DRIVER FIELD: what /proc/crypto says of an algorithm.
field_of() {
    awk -v driver="$1" -v field="$2" 'BEGIN { RS = ""; FS = "\n" }
        $0 ~ "driver *: " driver "\n" && $0 !~ "type *: larval" {
            for (i = 1; i <= NF; i++) if ($i ~ "^" field " *:") { sub(".*: ", "", $i); print $i }
        }' /proc/crypto
}

# tested: waits for the kernel's tests of the driver's algorithms, which are another thread's, and have to pass.
tested() {
    algorithms=ecb-aes-xtent-pci
    [ "$LEVEL" -lt 2 ] || algorithms="$algorithms xts-aes-xtent-pci"
    for name in $algorithms; do
        tries=0
        until [ "$(field_of "$name" selftest)" = passed ]; do
            tries=$((tries + 1))
            [ $tries -lt 3000 ] || fail "$name: $(field_of "$name" selftest)"
            usleep 100000
        done
    done
    ! dmesg | grep "alg: .*\(xtent\|fail\)" || fail "the kernel's test"
}

# off_the_bus: the device's bus mastering is taken from it: whatever it does there is an error.
off_the_bus() {
    printf '\002\000' | dd of="$(engine)/config" bs=1 seek=4 conv=notrunc 2>/dev/null || fail "bus mastering"
}

# happened: whether the fault SPOIL of xtent-engine-sim shows in what the driver has counted.
happened() {
    case $SPOIL in
    # One that is late is so by more than the watchdog waits.
    lost-interrupt | late-interrupt) [ "$(count lost_interrupts)" -gt 0 ] ;;
    double-interrupt)
        requests=$(count requests)
        came=$(interrupts)
        one_by_one 12
        [ $(($(interrupts) - came)) -gt $(($(count requests) - requests)) ]
        ;;
    # With others behind it the next one is written over it.
    double-completion)
        one_by_one 310
        [ "$(count state)" = dead ]
        ;;
    read-error | write-error) [ "$(count failed)" -gt 0 ] ;;
    lost-completion | hang) [ "$(count resets)" -gt 0 ] ;;
    *) [ "$(count state)" = dead ] ;;
    esac
}
# one_by_one COUNT: so many requests of a sector, of which none is under way with another.
one_by_one() {
    setup one xtent "$(on_device | sed -n '$ s/[^ ]* //p')" ram0 "$(key 64)" 512
    for sector in $(seq "$1"); do
        dd if=/dev/mapper/one of=/tmp/sector bs=512 count=1 skip="$sector" iflag=direct 2>/dev/null || fail "a read"
    done
    remove one
}

interrupts() { # how many the device has raised
    awk '/xtent_pci/ { for (i = 2; $i ~ /^[0-9]+$/; i++) n += $i } END { print n + 0 }' /proc/interrupts
}

key() { # key BYTES: hexadecimal
    dd if=/dev/urandom bs=1 count="$1" 2>/dev/null | hexdump -v -e '1/1 "%02x"'
}

# on_device: targets and ciphers that go to a device of this LEVEL. At level 2 it takes units of 512 bytes.
on_device() {
    echo "xtent engine:ecb-aes-xtent-pci-plain64"
    [ "$LEVEL" -lt 2 ] || echo "xtent capi:xts-aes-xtent-pci-plain64
crypt capi:xts-aes-xtent-pci-plain64"
}

# setup NAME TARGET CIPHER DISK KEY SECTOR
setup() {
    dmsetup create "$1" --noudevrules --noudevsync \
        --table "0 $(cat "/sys/class/block/$4/size") $2 $3 $5 0 /dev/$4 0 1 sector_size:$6" || fail "table: $2 $3"
    dmsetup mknodes "$1"
}
remove() {
    dmsetup remove "$1" --noudevrules --noudevsync || fail "remove $1"
}

# fio_on NAME SECTOR SEED OPTIONS...: requests of random sizes at random places of a mapping, all of it, the same for
# the same seed. Its report is in /tmp/fio-NAME; fails as fio does.
fio_on() {
    name=$1 sector=$2 seed=$3
    shift 3
    # With the libraries that came with it.
    # shellcheck disable=SC2211  # the loader's name is the architecture's
    /in/ld-linux*.so* --library-path /in /in/fio --name="$name" --filename="/dev/mapper/$name" \
        --size="$(($(cat /sys/class/block/ram0/size) * 512))" \
        --rw=randwrite --bssplit="$sector/20:$((sector * 3))/30:20k/20:128k/15:512k/15" --direct=1 \
        --ioengine=libaio --iodepth=16 --thread --randseed="$seed" --verify=crc32c --verify_fatal=1 \
        "$@" >"/tmp/fio-$name" 2>&1
}
