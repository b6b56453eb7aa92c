#!/bin/sh
# Runs inside the guest: fio writes through one of dm-xtent and dm-crypt, several requests of
# random sizes and places at a time, and verifies what the other reads from the same disk.
fail() {
    echo "FAILED: $*"
    dmesg | tail -5
    exit 1
}

sectors=$(cat /sys/class/block/ram0/size)
# of_fio DEVICE OPTIONS...: the same requests for the same seed. Its output if it fails.
of_fio() {
    device=$1
    shift
    # With the libraries that came with it.
    # shellcheck disable=SC2211  # the loader's name is the architecture's
    /in/ld-linux*.so* --library-path /in /in/fio --name=verify --filename="$device" --size=$((sectors * 512)) \
        --rw=randwrite --bssplit="$sector/30:$((sector * 3))/30:20k/20:128k/15:512k/5" --direct=1 \
        --ioengine=libaio --iodepth=16 --thread --randseed=$tests --verify=crc32c --verify_fatal=1 \
        "$@" >/tmp/fio 2>&1 || {
        cat /tmp/fio
        fail "$cipher, sectors of $sector: $*, $device"
    }
}
setup() { # setup NAME TARGET CIPHER: both on the same disk
    options="1 sector_size:$sector"
    [ "$sector" != 512 ] || options=
    dmsetup create "$1" --noudevrules --noudevsync --table "0 $sectors $2 $3 $key 0 /dev/ram0 0 $options" ||
        fail "table: $2 $3"
    dmsetup mknodes "$1"
}

insmod /in/xtent_run_test.ko || fail "the test driver"
tests=0
requests=0
while read -r cipher stock size; do
    key=$(dd if=/dev/urandom bs=1 count="$size" 2>/dev/null | hexdump -v -e '1/1 "%02x"')
    for sector in 512 4096; do
        setup ours xtent "$cipher"
        setup theirs crypt "$stock"
        for way in "ours theirs" "theirs ours"; do
            tests=$((tests + 1))
            of_fio "/dev/mapper/${way% *}" --do_verify=0
            of_fio "/dev/mapper/${way#* }" --verify_only
        done
        # That a wrong byte is found.
        if [ $tests = 2 ]; then
            dd if=/dev/urandom of=/dev/ram0 bs=16 seek=4321 count=1 conv=notrunc,fsync 2>/dev/null
            ! (of_fio /dev/mapper/ours --verify_only) >/dev/null || fail "fio did not find a wrong block"
            grep -q "verify failed\|bad .*header" /tmp/fio || fail "fio did not fail for a wrong block: $(cat /tmp/fio)"
        fi
        status=$(dmsetup status ours)
        requests=$((requests + $(echo "$status" | sed 's/.* reads \([0-9]*\) writes \([0-9]*\) .*/\1 + \2/')))
        dmsetup remove ours --noudevrules --noudevsync || fail remove
        dmsetup remove theirs --noudevrules --noudevsync || fail remove
    done
done <<'CIPHERS'
aes-xts-plain64 aes-xts-plain64 64
engine:ecb-xtent-test-plain64 aes-xts-plain64 64
capi:xts-xtent-test-plain64 aes-xts-plain64 32
aes-cbc-essiv:sha256 aes-cbc-essiv:sha256 32
xchacha12,aes-adiantum-plain64 xchacha12,aes-adiantum-plain64 32
CIPHERS
rmmod xtent_run_test || fail "the test driver is still in use"
echo "$tests verifications by fio, $requests requests"
