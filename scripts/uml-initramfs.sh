#!/usr/bin/env bash
# Builds the initramfs of the User Mode Linux bed and prints its path:
# busybox, cryptsetup, dmsetup with their libraries, and the kernel's dm-crypt
# with the ciphers it needs. Cached under target/uml by the content of its
# parts. Needs no privileges.
#
# usage: uml-initramfs.sh [--no-modules]    (for a kernel that has all of it)
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C

die() {
    printf 'uml-initramfs: %s\n' "$*" >&2
    exit 125
}

need() { # need TOOL PACKAGE
    command -v "$1" || die "$1 is missing (Debian package $2); run scripts/setup.sh"
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${CARGO_TARGET_DIR:-$here/../target}/uml

busybox=$(need busybox busybox-static)
cryptsetup=$(need cryptsetup cryptsetup-bin)
dmsetup=$(need dmsetup dmsetup)
need cpio cpio >/dev/null

modules=
kernel=()
if [ "${1:-}" != --no-modules ]; then
    uml=$(need linux.uml user-mode-linux)
    version=$("$uml" --version)
    modules=/usr/lib/uml/modules/$version
    [ -e "$modules/modules.dep" ] || die "no modules for $uml ($version) in $modules; reinstall user-mode-linux"
    kernel=("$uml" "$modules/modules.dep")
fi
if ldd "$busybox" >/dev/null 2>&1; then
    die "$busybox is not static; install the package busybox-static"
fi

# In the order in which they are loaded: the ciphers before dm-crypt, since
# there is nobody to load them on demand.
wanted="cbc ecb xts essiv chacha_generic nhpoly1305 adiantum algif_skcipher encrypted-keys dm-mod dm-crypt loop brd"

# libgcc_s is wanted by pthread_exit, and so by Argon2's threads, at run time.
libgcc=$(ldconfig -p | awk '/libgcc_s\.so\.1/ && !found { found = $NF } END { print found }')
libraries=$( (ldd "$cryptsetup" "$dmsetup" && echo "$libgcc") | grep -o '/[^ )]*' | grep -v ':$' | sort -u)
# shellcheck disable=SC2086  # a list of paths without spaces
key=$(sha256sum "${BASH_SOURCE[0]}" "$busybox" "$cryptsetup" "$dmsetup" $libraries \
    ${kernel[@]+"${kernel[@]}"} | sha256sum | cut -c1-16)
image=$cache/initramfs-$key.cpio.gz
if [ -e "$image" ]; then
    echo "$image"
    exit 0
fi

mkdir -p "$cache"
work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,sbin,dev,proc,sys,run/cryptsetup,tmp,etc,in,out,d,mnt}

cp "$busybox" "$root/bin/busybox"
"$busybox" --list | while read -r applet; do
    [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done
ln -s ../bin/busybox "$root/sbin/modprobe"
for file in "$cryptsetup" "$dmsetup"; do
    cp -L "$file" "$root/sbin/"
done
for file in $libraries; do
    mkdir -p "$root$(dirname "$file")"
    cp -L "$file" "$root$file"
done

# Modules with what they depend on, each once and after its dependencies.
mkdir -p "$root/modules"
: >"$root/modules/order"
[ -z "$modules" ] || awk -v wanted="$wanted" '
    { path = $1; sub(/:$/, "", path); name = path; sub(/.*\//, "", name); sub(/\.ko$/, "", name)
      where[name] = path; needs[path] = ""
      for (i = NF; i > 1; i--) needs[path] = needs[path] " " $i }
    function out(path) { if (!(path in done)) { done[path] = 1; print path } }
    END { n = split(wanted, w, " ")
          for (i = 1; i <= n; i++) if (w[i] in where) {
              m = split(needs[where[w[i]]], d, " ")
              for (j = 1; j <= m; j++) out(d[j])
              out(where[w[i]]) } }
' "$modules/modules.dep" >"$work/list"
if [ -n "$modules" ]; then
    for module in $wanted; do
        grep -q "/$module.ko$" "$work/list" || grep -q "/$module.ko$" "$modules/modules.builtin" ||
            die "no module $module in $modules"
    done
    while read -r path; do
        cp "$modules/$path" "$root/modules/"
        basename "$path" >>"$root/modules/order"
    done <"$work/list"
fi

cat >"$root/init" <<'INIT'
#!/bin/sh
# Disk a holds the job and its files as a tar, disk b takes the results, the
# others get their names from in/disks.
export PATH=/sbin:/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mkdir -p /run/cryptsetup
while read -r module; do
    insmod "/modules/$module" || echo "BED: cannot load $module"
done </modules/order
tar -xf /dev/ubda -C /in || echo "BED: cannot read the job"
letters=cdefghijklmnop
while read -r name; do
    ln -s "/dev/ubd$(echo "$letters" | cut -c1)" "/d/$name"
    letters=$(echo "$letters" | cut -c2-)
done </in/disks
echo "BED: start"
cd /out || exit 1
sh /in/job
echo $? >/out/status
cd /
echo "BED: end"
sync
tar -cf /dev/ubdb -C /out . && sync && echo "BED: saved"
poweroff -f
INIT
chmod +x "$root/init"

(cd "$root" && find . | sort | cpio --quiet -o -H newc -R 0:0) | gzip -1 >"$work/image"
mv "$work/image" "$image"
echo "$image"
