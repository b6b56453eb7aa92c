#!/bin/sh
# Runs inside the guest: fio writes through dm-crypt and dm-xtent on the co-processor, several requests of random sizes
# and places at a time, and verifies what dm-crypt on the CPU reads from the same disk; and the other way round.
# shellcheck disable=SC1091,SC2153  # of the runner
. /in/pci-lib.sh

load
tests=0
on_device >/tmp/ciphers
for sector in 512 4096; do
    while read -r target cipher; do
        secret=$(key 64)
        what="$target $cipher, sectors of $sector"
        setup device "$target" "$cipher" ram0 "$secret" $sector
        setup cpu crypt aes-xts-plain64 ram0 "$secret" $sector
        bytes=$(count bytes)
        for way in "device cpu" "cpu device"; do
            tests=$((tests + 1))
            fio_on "${way% *}" $sector $tests --do_verify=0 || fail "$what, $way, writing: $(cat "/tmp/fio-${way% *}")"
            fio_on "${way#* }" $sector $tests --verify_only || fail "$what, $way, reading: $(cat "/tmp/fio-${way#* }")"
        done
        # Each byte there and back, tweaks not counted. An engine of level 2 takes no longer units, and software does them.
        [ "$LEVEL $sector ${cipher%%:*}" = "2 4096 capi" ] || [ $(($(count bytes) - bytes)) -ge $((2 * BYTES)) ] ||
            fail "$what: only $(($(count bytes) - bytes)) bytes went to the device"
        remove device
        remove cpu
    done </tmp/ciphers
done
came=$(interrupts)
[ "$came" -gt 0 ] || fail "no interrupt came"
[ "$(count state) $(count failed) $(count resets) $(count lost_interrupts)" = "up 0 0 0" ] ||
    fail "$(grep . "$(engine)"/xtent/*)"
result="$tests verifications by fio, $(count requests) requests, $came interrupts, $(count fallbacks) in software"
unload
echo "$result"
