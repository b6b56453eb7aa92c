#!/usr/bin/env bash
# Builds the initramfs of a kernel's guests and prints its path: busybox,
# cryptsetup, dmsetup with their libraries, and the kernel's modules that the tests
# use. Cached under target/kernel by the content of its parts. Needs no privileges.
#
# usage: guest-initramfs.sh FOLDER    (as kernel.sh prints it)
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C

die() {
    printf 'guest-initramfs: %s\n' "$*" >&2
    exit 125
}

[ $# -eq 1 ] || die "wanted: the folder of a kernel"
[ -e "$1/version" ] || die "$1 is no folder of a kernel"
kernel=$1
version=$(cat "$kernel/version")
modules=$(realpath "$kernel/lib/modules/$version")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$(realpath -m "${CARGO_TARGET_DIR:-$here/../target}")/kernel
for tool in cpio depmod readelf; do
    command -v $tool >/dev/null || die "$tool is missing; run scripts/setup.sh"
done

# Programs come from this machine, or from the folder with another machine's.
programs=
[ ! -d "$kernel/root" ] || programs=$kernel/root
find_program() {
    local folder
    for folder in /usr/sbin /sbin /usr/bin /bin; do
        [ ! -e "$programs$folder/$1" ] || { printf '%s\n' "$programs$folder/$1" && return; }
    done
}
find_library() {
    local folder
    for folder in "$programs"/lib/*-linux-gnu* "$programs"/usr/lib/*-linux-gnu* "$programs"/lib "$programs"/lib64; do
        [ ! -e "$folder/$1" ] || { printf '%s\n' "$folder/$1" && return; }
    done
    die "no library $1 in $programs/lib or $programs/usr/lib"
}
# libraries_of FILE: what it needs, with the loader, as ldd says it of this machine's own.
libraries_of() {
    readelf -dl "$1" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p; s/.*program interpreter: .*\/([^/]*)\]/\1/p'
}

busybox=$(find_program busybox)
[ -n "$busybox" ] || die "busybox is missing (Debian package busybox-static)"
[ -z "$(libraries_of "$busybox")" ] || die "$busybox is not static; install the package busybox-static"
# The first two are needed; tests that want another say so themselves.
files=()
for name in cryptsetup dmsetup mkfs.ext4 fsck.ext4 mkfs.xfs xfs_repair mkfs.btrfs btrfs; do
    file=$(find_program $name)
    if [ -n "$file" ]; then
        files+=("$file")
    elif [ $name = cryptsetup ] || [ $name = dmsetup ]; then
        die "$name is missing; run scripts/setup.sh"
    fi
done
# libgcc_s is wanted by pthread_exit, and so by Argon2's threads, at run time.
declare -A seen=()
waiting=("${files[@]}" "$(find_library libgcc_s.so.1)")
while [ ${#waiting[@]} -gt 0 ]; do
    file=${waiting[0]}
    waiting=("${waiting[@]:1}")
    [ -z "${seen[$file]:-}" ] || continue
    seen[$file]=1
    for name in $(libraries_of "$file"); do waiting+=("$(find_library "$name")"); done
done
mapfile -t libraries < <(printf '%s\n' "${!seen[@]}" | grep -vxFf <(printf '%s\n' "${files[@]}") | sort)

key=$(sha256sum "${BASH_SOURCE[0]}" "$busybox" "${files[@]}" "${libraries[@]}" \
    "$modules/modules.dep" "$kernel/version" | sha256sum | cut -c1-16)
image=$cache/initramfs-$key.cpio.gz
if [ -e "$image" ]; then
    echo "$image"
    exit 0
fi

mkdir -p "$cache"
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,sbin,dev,proc,sys,run/cryptsetup,tmp,etc,in,out,d,mnt,lib/modules}

cp "$busybox" "$root/bin/busybox"
# Another machine's busybox cannot be asked for its list; this one's is as good.
"$(PATH=/usr/sbin:/usr/bin:/sbin:/bin command -v busybox)" --list | while read -r applet; do
    [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done
ln -s ../bin/busybox "$root/sbin/modprobe"
for file in "${files[@]}"; do
    cp -L "$file" "$root/sbin/"
done
for file in "${libraries[@]}"; do
    inside=${file#"$programs"}
    mkdir -p "$root$(dirname "$inside")"
    cp -L "$file" "$root$inside"
done
# The loader, where programs ask for it.
interpreter=$(readelf -l "${files[0]}" | sed -nE 's/.*program interpreter: (.*)\]/\1/p')
[ -e "$root$interpreter" ] || {
    mkdir -p "$root$(dirname "$interpreter")"
    cp -L "$(find_library "$(basename "$interpreter")")" "$root$interpreter"
}

# Modules with what they depend on, each once. A kernel may have one built in, or
# under another name, or not at all: then the test that wants it fails.
wanted="cbc ecb xts ctr essiv chacha_generic chacha nhpoly1305 adiantum hctr2 aesni-intel aes_ce_blk aes_arm_bs
    sha256_generic sha3_generic algif_skcipher encrypted-keys dm-mod dm-crypt dm-flakey dm-delay loop brd cryptd
     virtio_blk virtio_pci virtio_mmio 9p 9pnet_virtio hid-generic uhid ext4 xfs btrfs overlay fuse crc32c_generic libcrc32c crc32c-intel ublk_drv
     null_blk nvme scsi_debug sd_mod dm-inlinecrypt"
awk -v wanted="$wanted" '
    { path = $1; sub(/:$/, "", path); name = path; sub(/.*\//, "", name); sub(/\.ko.*$/, "", name)
      gsub(/_/, "-", name); where[name] = path; needs[path] = ""
      for (i = NF; i > 1; i--) needs[path] = needs[path] " " $i }
    function out(path) { if (!(path in done)) { done[path] = 1; print path } }
    END { n = split(wanted, w, " ")
          for (i = 1; i <= n; i++) {
              gsub(/_/, "-", w[i])
              if (!(w[i] in where)) continue
              m = split(needs[where[w[i]]], d, " ")
              for (j = 1; j <= m; j++) out(d[j])
              out(where[w[i]]) } }
' "$modules/modules.dep" >"$work/list"
inside=$root/lib/modules/$version
mkdir -p "$inside"
cp "$modules/modules.builtin" "$inside/"
for file in modules.order modules.builtin.modinfo; do
    [ ! -e "$modules/$file" ] || cp "$modules/$file" "$inside/"
done
while read -r path; do
    mkdir -p "$inside/$(dirname "$path")"
    cp "$modules/$path" "$inside/$path"
done <"$work/list"
find "$inside" -name '*.ko.xz' -exec unxz {} +
depmod -b "$root" "$version"

cat >"$root/init" <<'INIT'
#!/bin/sh
# Disk a holds the job and its files as a tar, disk b takes the results, the
# others get their names from in/disks, in/served and in/nvme.
export PATH=/sbin:/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mkdir -p /run/cryptsetup
# The kernel's own helpers start without what uml-exec.c sets, so nothing is loaded on demand.
[ -z "$GLIBC_TUNABLES" ] || echo >/proc/sys/kernel/modprobe
# The ciphers before dm-crypt; what is built in or unknown is no fault.
for module in virtio_pci virtio_mmio virtio_blk cbc ecb xts ctr essiv aesni-intel aes_ce_blk aes_arm_bs \
    sha256_generic crc32c_generic chacha_generic chacha nhpoly1305 adiantum hctr2 algif_skcipher encrypted-keys dm-crypt loop; do
    modprobe $module 2>/dev/null
done
# guest.sh --host
modprobe 9pnet_virtio 2>/dev/null
if grep -qs host /sys/bus/virtio/drivers/9pnet_virtio/*/mount_tag; then
    modprobe 9p
    mkdir /host
    mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 host /host || echo "BED: no /host"
fi
disk=/dev/ubd
[ -e ${disk}a ] || disk=/dev/vd
if [ -d /sys/bus/ccw ]; then
    # IBM Z's channels find their disks in any order; their addresses are in QEMU's.
    mkdir /run/disks
    letters=abcdefghijklmnop
    for block in /sys/bus/ccw/devices/*/virtio*/block/vd*; do
        ln -s "/dev/${block##*/}" "/run/disks/vd$(echo "$letters" | cut -c1)"
        letters=$(echo "$letters" | cut -c2-)
    done
    disk=/run/disks/vd
fi
if [ -e /dev/sda ] && [ ! -e ${disk}a ]; then
    # IDE disks are looked for side by side; their places are in the names of their folders.
    mkdir /run/disks
    letters=abcdefghijklmnop
    for block in $(for block in /sys/block/sd*; do readlink -f "$block"; done | sort); do
        ln -s "/dev/${block##*/}" "/run/disks/sd$(echo "$letters" | cut -c1)"
        letters=$(echo "$letters" | cut -c2-)
    done
    disk=/run/disks/sd
fi
tar -xf ${disk}a -C /in || echo "BED: cannot read the job"
letters=cdefghijklmnop
while read -r name; do
    ln -s "$(readlink -f "$disk$(echo "$letters" | cut -c1)")" "/d/$name"
    letters=$(echo "$letters" | cut -c2-)
done </in/disks
# Those that another process serves come after them, or are the only ones of their kind.
[ $disk != /dev/ubd ] || letters=abcdefghijklmnop
while read -r name; do
    ln -s "/dev/vd$(echo "$letters" | cut -c1)" "/d/$name"
    letters=$(echo "$letters" | cut -c2-)
done </in/served
if read -r name </in/nvme; then
    modprobe nvme
    # The driver looks for its disks in a thread of its own.
    until [ -e /dev/nvme0n1 ]; do usleep 10000; done
    ln -s /dev/nvme0n1 "/d/$name"
fi
# On a line of its own, after what firmware may have printed.
echo
echo "BED: start"
cd /out || exit 1
sh /in/job
echo $? >/out/status
cd /
echo "BED: end"
sync
tar -cf ${disk}b -C /out . && sync && echo "BED: saved"
# A serial line may be as slow as a real one, and what it has not sent yet is lost: stty waits for that.
[ $disk != /run/disks/sd ] || stty echo </dev/console
poweroff -f
INIT
chmod +x "$root/init"

(cd "$root" && find . | sort | cpio --quiet -o -H newc -R 0:0) | gzip -1 >"$work/image"
mv "$work/image" "$image"
echo "$image"
