#!/bin/sh
# Runs inside the guest, whose device has the fault SPOIL (xtent-engine-sim --spoil): fio writes, reads and verifies on
# two mappings at once. A read may fail; but nothing is read that was not written, nothing hangs, and the driver
# can be removed.
# shellcheck disable=SC1091
. /in/pci-lib.sh

# A device that fails its test is not taken, as long as it does: each try takes it from where it was.
insmod /in/xtent_pci.ko watchdog=1000 || fail "the driver"
refused=0
until [ -e "$(engine)/driver" ]; do
    refused=$((refused + 1))
    [ $refused -lt 20 ] || fail "it never passes its test"
    basename "$(engine)" 2>/dev/null >/sys/bus/pci/drivers/xtent_pci/bind || true
done
errors=0
tests=0
on_device >/tmp/ciphers
while read -r target cipher; do
    running=
    for disk in ram0 ram1; do
        setup "on-$disk" "$target" "$cipher" $disk "$(key 64)" 512
        tests=$((tests + 1))
        fio_on "on-$disk" 512 $tests --do_verify=1 --continue_on_error=read &
        running="$running $!"
    done
    for pid in $running; do
        # Also where a read failed.
        wait "$pid" || errors=$((errors + 1))
    done
    for disk in ram0 ram1; do
        ! grep "verify:\|verify failed\|Invalid or incomplete\|bad .*header" "/tmp/fio-on-$disk" ||
            fail "$target $cipher: $(cat "/tmp/fio-on-$disk"); $(counters)"
        grep -q "WRITE: bw" "/tmp/fio-on-$disk" || fail "$target $cipher: $(cat "/tmp/fio-on-$disk"); $(counters)"
        remove "on-$disk"
    done
done </tmp/ciphers
happened || fail "no $SPOIL: $(interrupts) interrupts, $(counters)"
echo "$SPOIL: $tests of fio's jobs, in $errors of which a read failed; $(counters)"
unload
