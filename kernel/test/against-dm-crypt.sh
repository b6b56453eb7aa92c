#!/bin/sh
# Runs inside the guest: what one of dm-xtent and dm-crypt writes, the other
# reads, and both leave the same bytes on the disk, for every cipher, IV mode,
# sector size and instruction set, with requests of many sizes and places. With
# CIPHERS, a regular expression, only with those ciphers, and with SECTORS only those sizes. PAGE is
# the kernel's page, in bytes.
fail() {
    echo "FAILED: $*"
    dmesg | tail -5
    exit 1
}

bytes=${BYTES:-4194304}
sectors=$((bytes / 512))
page=${PAGE:-4096}
key() { # key BYTES: hexadecimal, another one for each size
    dd if=/dev/urandom bs=1 count="$1" 2>/dev/null | hexdump -v -e '1/1 "%02x"'
}
setup() { # setup NAME TARGET DEVICE CIPHER KEY OPTIONS
    dmsetup create "$1" --noudevrules --noudevsync \
        --table "0 $sectors $2 $4 $5 $offset $3 0 $6" || fail "table: $2 $4 $6"
    dmsetup mknodes "$1"
}

# places SEED: where random requests go, and how long they are, in sectors: the same for the same
# seed. The first three have 1, 2 and 3 sectors at odd numbers, the others up to 800 KiB.
places() {
    awk -v seed="$1" -v units=$((bytes / sector)) -v most=$((819200 / sector)) 'BEGIN {
        srand(seed)
        for (i = 1; i <= 9; i++) {
            len = i <= 3 ? i : 1 + int(rand() * rand() * most)
            at = int(rand() * (units - len))
            if (i <= 3 && at % 2 == 0) at++
            print at, len
        }
    }' >/tmp/places
}
# random_writes DEVICE: single requests to these places, from the beginning of /tmp/data, so that
# a request that is lost shows.
random_writes() {
    while read -r at len; do
        block=$((len * sector))
        head -c $block /tmp/data >/tmp/part
        # Busybox forgets "direct" where a block is less than a page, but not in a short one.
        [ $block -ge "$page" ] || block=$page
        dd if=/tmp/part of="$1" bs="$block" count=1 oflag=direct,seek_bytes \
            seek=$((at * sector)) conv=notrunc 2>/dev/null || fail "dd to $1"
    done </tmp/places
}
# last_reads DEVICE WANTED: its last 1, 2 and 3 sectors by single requests, compared with a file.
last_reads() {
    for len in 1 2 3; do
        at=$((bytes - len * sector))
        # For the same reason: a page that ends with the device before it does.
        dd if="$1" of=/tmp/read bs=$((len * sector < page ? page : len * sector)) count=1 \
            iflag=direct,skip_bytes skip=$at 2>/dev/null || fail "dd from $1"
        tail -c $((len * sector)) "$2" >/tmp/part
        cmp /tmp/part /tmp/read || fail "$cipher $options: the last $len sectors read differently"
    done
}
# ran: so many requests of 1 sector, and of 2 to 3, as dm-xtent counted.
ran() {
    dmsetup status ours | sed 's/.* runs \([0-9]*\),\([0-9]*\),.*/\1 \2/'
}

dd if=/dev/urandom of=/tmp/data bs=64k count=$((bytes / 65536)) 2>/dev/null
ours=/dev/ram0
theirs=/dev/ram1
offset=0
tests=0
grep -E "${CIPHERS:-.}" >/tmp/ciphers <<'CIPHERS'
aes-xts-plain64 32
aes-xts-plain64 64
aes-xts-plain 64
aes-xts-plain64be 64
capi:xts(aes)-plain64 48
aes-cbc-essiv:sha256 32
aes-cbc-essiv:sha3-256 32
aes-cbc-plain64 16
xchacha12,aes-adiantum-plain64 32
aes-hctr2-plain64 32
capi:fast(aes)-plain64 16
capi:fast_horner(aes)-plain64 32
CIPHERS
while read -r cipher size; do
    case $cipher in
    *:sha3-256)
        modprobe -q sha3_generic || {
            echo "without $cipher, whose hash this kernel has no module for"
            continue
        }
        ;;
    esac
    for sector in ${SECTORS:-512 1024 2048 4096}; do
        for more in "" iv_large_sectors "no_write_workqueue submit_from_crypt_cpus"; do
            options=
            case $more in
            iv_large_sectors) [ "$sector" != 512 ] || continue ;;
            no_write*)
                [ "$cipher $size $sector" = "aes-xts-plain64 64 512" ] || continue
                options="2 $more"
                ;;
            esac
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
            places $tests
            before=$(ran)
            random_writes /dev/mapper/ours
            now=$(ran)
            if [ "${now% *}" -le "${before% *}" ] || [ "${now#* }" -lt $((${before#* } + 2)) ]; then
                fail "$cipher $options: requests of $now, before $before"
            fi
            random_writes /dev/mapper/theirs
            sync
            cmp $ours $theirs || fail "$cipher $options: ciphertext differs"
            # What is read comes from the disk, decrypted.
            echo 3 >/proc/sys/vm/drop_caches
            cmp /dev/mapper/ours /dev/mapper/theirs || fail "$cipher $options: reads differ"
            dd if=/dev/mapper/ours of=/tmp/read bs=64k iflag=direct 2>/dev/null || fail "direct read"
            cmp /tmp/read /dev/mapper/theirs || fail "$cipher $options: direct reads differ"
            cat /dev/mapper/theirs >/tmp/theirs
            before=$(ran)
            last_reads /dev/mapper/ours /tmp/theirs
            [ "$(ran)" = "$((${before% *} + 1)) $((${before#* } + 2))" ] || fail "$cipher $options: requests of $(ran), before $before"
            [ $tests != 1 ] || dmsetup status ours
            dmsetup remove ours --noudevrules --noudevsync || fail "remove"
            dmsetup remove theirs --noudevrules --noudevsync || fail "remove"
        done
    done
done </tmp/ciphers
[ $tests -gt 0 ] || fail "no cipher matches $CIPHERS"

# Numbers of IVs that start over, behind 32 bits or behind 2^64 units of 512 bytes, within a page.
while read -r cipher sector offset more; do
    options="1 sector_size:$sector"
    [ -z "$more" ] || options="2 sector_size:$sector $more"
    key=$(key 64)
    setup ours xtent $ours "$cipher" "$key" "$options"
    setup theirs crypt $theirs "$cipher" "$key" "$options"
    cat /tmp/data >/dev/mapper/theirs || fail "writing through dm-crypt"
    dd if=/tmp/data of=/dev/mapper/ours bs=64k oflag=direct 2>/dev/null || fail "writing through dm-xtent"
    sync
    cmp $ours $theirs || fail "$cipher $options: ciphertext from $offset on differs"
    dd if=/dev/mapper/ours of=/tmp/read bs=64k iflag=direct 2>/dev/null || fail "direct read"
    cmp /tmp/read /tmp/data || fail "$cipher $options: from $offset on, it reads differently"
    tests=$((tests + 1))
    dmsetup remove ours --noudevrules --noudevsync || fail "remove"
    dmsetup remove theirs --noudevrules --noudevsync || fail "remove"
done <<'OFFSETS'
aes-xts-plain 512 4294967293
aes-xts-plain 1024 8589934590 iv_large_sectors
aes-xts-plain64 512 18446744073709551613
aes-xts-plain64 1024 18446744073709551614 iv_large_sectors
aes-xts-plain64 1024 18446744073709551614
aes-xts-plain64 4096 18446744073709551592 iv_large_sectors
aes-xts-plain64be 1024 18446744073709551614 iv_large_sectors
OFFSETS
echo "$tests comparisons, all equal"
