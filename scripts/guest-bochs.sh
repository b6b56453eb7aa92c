#!/usr/bin/env bash
# Runs Bochs for guest.sh: a PC with one CPU that has AVX-512 and VAES, which QEMU does not emulate. Its firmware
# boots from a CD made here. Interpreted instruction by instruction: a hundred times slower than the host.
#
# usage: [MEMORY=MEGABYTES] guest-bochs.sh WORK CONSOLE IMAGE INITRAMFS APPEND DISK...
#   WORK       a folder for what it needs
#   CONSOLE    what the guest says on its serial line is written there
#   DISK       up to three, whose sizes are made multiples of what IDE's cylinders have
set -euo pipefail

die() {
    printf 'guest-bochs: %s\n' "$*" >&2
    exit 125
}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ $# -ge 6 && $# -le 8 ]] || die "wanted: folder, console, kernel, initramfs, options and one to three disks"
work=$1 console=$2 image=$3 initramfs=$4 append=$5
shift 5
modules=/usr/lib/syslinux/modules/bios
for file in /usr/lib/ISOLINUX/isolinux.bin $modules/ldlinux.c32 /usr/bin/xorriso; do
    [ -e "$file" ] || die "$file is missing; run scripts/setup.sh kernel-all"
done
bochs=$("$here/kernel.sh" bochs) || exit 125

mkdir -p "$work/cd/isolinux"
cp /usr/lib/ISOLINUX/isolinux.bin $modules/ldlinux.c32 "$work/cd/isolinux/"
cp "$image" "$work/cd/image"
cp "$initramfs" "$work/cd/initrd"
cat >"$work/cd/isolinux/isolinux.cfg" <<CFG
default linux
label linux
kernel /image
append initrd=/initrd $append
CFG
xorriso -as mkisofs -quiet -o "$work/cd.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat \
    -no-emul-boot -boot-load-size 4 -boot-info-table "$work/cd" 2>"$work/xorriso" || { cat "$work/xorriso" >&2 && exit 125; }

# An instruction takes 2.5 ns of the guest's time, about as on a real CPU, so that what is measured there in
# time, such as how long AES takes, is about what it is on one.
cat >"$work/bochsrc" <<CONFIG
config_interface: textconfig
display_library: term
cpu: model=corei7_icelake_u, count=1, ips=400000000, reset_on_triple_fault=0
memory: guest=${MEMORY:-512}, host=${MEMORY:-512}
romimage: file=$bochs/usr/share/bochs/BIOS-bochs-latest, options=fastboot
vgaromimage: file=$bochs/usr/share/bochs/VGABIOS-lgpl-latest
pci: enabled=1, chipset=i440fx
clock: sync=none, time0=utc
floppya: type=none
boot: cdrom
log: $work/bochs.log
panic: action=fatal
com1: enabled=1, mode=file, dev=$console
speaker: enabled=0
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata1: enabled=1, ioaddr1=0x170, ioaddr2=0x370, irq=15
ata1-master: type=cdrom, path="$work/cd.iso", status=inserted
CONFIG
cylinder=$((16 * 63 * 512))
places=(ata0-master ata0-slave ata1-slave)
for disk in "$@"; do
    size=$(stat -c %s "$disk")
    truncate -s $(((size + cylinder - 1) / cylinder * cylinder)) "$disk"
    echo "${places[0]}: type=disk, mode=flat, path=\"$disk\"" >>"$work/bochsrc"
    places=("${places[@]:1}")
done
echo c >"$work/debugger"
"$bochs/bochs" -q -unlock -f "$work/bochsrc" -rc "$work/debugger" </dev/null >"$work/bochs.out" 2>&1 &
guest=$!
# Its screen is a terminal of its own, and it stands still when that is full: somebody has to read it.
tail --pid="$guest" -n +1 -f "$work/bochs.out" | sed -u -n 's/^Bochs connected to screen "\(.*\)"$/\1/p' | {
    read -r screen && exec cat "$screen" >/dev/null 2>&1
} &
status=0
wait "$guest" || status=$?
grep -E '^[0-9]+[pe]\[' "$work/bochs.log" | tail -5
exit $status
