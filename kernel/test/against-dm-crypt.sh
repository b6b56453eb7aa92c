#!/bin/sh
# Runs inside the guest: what one of dm-xtent and dm-crypt writes, the other
# reads, and both leave the same bytes on the disk, for every cipher, IV mode,
# sector size and instruction set, with requests of many sizes and places. With
# CIPHERS, a regular expression, only with those ciphers, and with SECTORS only those sizes.
fail() {
    echo "FAILED: $*"
    dmesg | tail -5
    exit 1
}

bytes=${BYTES:-4194304}
sectors=$((bytes / 512))
key() { # key BYTES: hexadecimal, another one for each size
    dd if=/dev/urandom bs=1 count="$1" 2>/dev/null | hexdump -v -e '1/1 "%02x"'
}
setup() { # setup NAME TARGET DEVICE CIPHER KEY OPTIONS
    dmsetup create "$1" --noudevrules --noudevsync \
        --table "0 $sectors $2 $4 $5 0 $3 0 $6" || fail "table: $2 $4 $6"
    dmsetup mknodes "$1"
}

# random_writes DEVICE SEED: single requests of random sizes at random places, the
# same ones for the same seed, from the file /tmp/data.
random_writes() {
    awk -v seed="$2" -v units=$((bytes / 4096)) 'BEGIN {
        srand(seed)
        for (i = 0; i < 8; i++) {
            len = 1 + int(rand() * rand() * 200)
            at = int(rand() * (units - len))
            print at, len
        }
    }' >/tmp/places
    while read -r at len; do
        dd if=/tmp/data of="$1" bs=$((len * 4096)) count=1 iflag=skip_bytes oflag=direct,seek_bytes \
            skip=$((at * 4096)) seek=$((at * 4096)) conv=notrunc 2>/dev/null || fail "dd to $1"
    done </tmp/places
}

dd if=/dev/urandom of=/tmp/data bs=64k count=$((bytes / 65536)) 2>/dev/null
ours=/dev/ram0
theirs=/dev/ram1
tests=0
grep -E "${CIPHERS:-.}" >/tmp/ciphers <<'CIPHERS'
aes-xts-plain64 32
aes-xts-plain64 64
aes-xts-plain 64
aes-xts-plain64be 64
capi:xts(aes)-plain64 48
aes-cbc-essiv:sha256 32
aes-cbc-plain64 16
xchacha12,aes-adiantum-plain64 32
aes-hctr2-plain64 32
capi:fast(aes)-plain64 16
capi:fast_horner(aes)-plain64 32
CIPHERS
while read -r cipher size; do
    for sector in ${SECTORS:-512 1024 2048 4096}; do
        for more in "" iv_large_sectors; do
            [ -z "$more" ] || [ "$sector" != 512 ] || continue
            options=
            if [ "$sector" != 512 ]; then
                options="1 sector_size:$sector"
                [ -z "$more" ] || options="2 sector_size:$sector $more"
            fi
            key=$(key "$size")
            setup ours xtent $ours "$cipher" "$key" "$options"
            setup theirs crypt $theirs "$cipher" "$key" "$options"
            cat /tmp/data >/dev/mapper/theirs || fail "writing through dm-crypt"
            cat /tmp/data >/dev/mapper/ours || fail "writing through dm-xtent"
            tests=$((tests + 1))
            random_writes /dev/mapper/ours $tests
            random_writes /dev/mapper/theirs $tests
            sync
            cmp $ours $theirs || fail "$cipher $options: ciphertext differs"
            # What is read comes from the disk, decrypted.
            echo 3 >/proc/sys/vm/drop_caches
            cmp /dev/mapper/ours /dev/mapper/theirs || fail "$cipher $options: reads differ"
            dd if=/dev/mapper/ours of=/tmp/read bs=64k iflag=direct 2>/dev/null || fail "direct read"
            cmp /tmp/read /dev/mapper/theirs || fail "$cipher $options: direct reads differ"
            [ $tests != 1 ] || dmsetup status ours
            dmsetup remove ours --noudevrules --noudevsync || fail "remove"
            dmsetup remove theirs --noudevrules --noudevsync || fail "remove"
        done
    done
done </tmp/ciphers
[ $tests -gt 0 ] || fail "no cipher matches $CIPHERS"
echo "$tests comparisons, all equal"
