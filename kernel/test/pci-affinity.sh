#!/bin/sh
# Runs inside the guest, which has two CPUs: the device's interrupts move from one to the other, for which
# the kernel masks their vectors, while fio writes and verifies on two mappings at once.
# shellcheck disable=SC1091
. /in/pci-lib.sh

[ "$(nproc)" = 2 ] || fail "$(nproc) CPUs"
load
of_device=$(awk '/xtent_pci/ { sub(":", "", $1); print $1 }' /proc/interrupts)
[ -n "$of_device" ] || fail "no interrupts"
running=
for disk in ram0 ram1; do
    setup "on-$disk" xtent capi:xts-aes-xtent-pci-plain64 $disk "$(key 64)" 512
    fio_on "on-$disk" 512 7 --do_verify=1 &
    running="$running $!"
done
moves=0
# shellcheck disable=SC2086  # a list of numbers
while kill -0 $running 2>/dev/null; do
    for irq in $of_device; do
        echo $((1 + moves % 2)) >"/proc/irq/$irq/smp_affinity" || fail "interrupt $irq stays where it is"
    done
    moves=$((moves + 1))
done
for pid in $running; do
    wait "$pid" || fail "fio: $(cat /tmp/fio-*)"
done
remove on-ram0
remove on-ram1
# On each CPU some.
on_each=$(awk '/xtent_pci$/ { a += $2; b += $3 } END { print a, b }' /proc/interrupts)
case " $on_each " in *" 0 "*) fail "interrupts on one CPU only: $on_each" ;; esac
# One that got lost on its way the driver's watchdog has found, which is to be rare.
[ "$(count state) $(count failed) $(count resets)" = "up 0 0" ] || fail "$(counters)"
[ $((10 * $(count lost_interrupts))) -le "$(interrupts)" ] || fail "of $(interrupts) interrupts: $(counters)"
echo "$moves moves, interrupts on each CPU: $on_each, lost: $(count lost_interrupts)"
unload
