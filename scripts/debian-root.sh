# shellcheck shell=bash
# A fresh Debian 12 in a folder, to install packages in; sourced. Expects die().

# shellcheck source=scripts/lib/debian.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/debian.sh"

# fresh_root BASE ROOT: a copy in ROOT of the Debian in BASE, which is made the first time.
fresh_root() {
    local base=$1 root=$2
    [ "$(id -u)" -eq 0 ] || die "needs root, to make a Debian system in a folder and to chroot there"
    if [ ! -e "$base/complete" ]; then
        rm -rf "$base"
        quietly debootstrap --variant=minbase bookworm "$base" "$(mirror)"
        # A mirror that stands still has lists whose time is over.
        echo 'Acquire::Check-Valid-Until "false";' >"$base/etc/apt/apt.conf.d/99-valid"
        quietly chroot "$base" apt-get update
        touch "$base/complete"
    fi
    rm -rf "$root"
    cp -a "$base" "$root"
    rm "$root/complete"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
}

# within ROOT COMMAND...: there, with /proc and /sys of its own, which go with the command.
within() {
    local root=$1
    shift
    # shellcheck disable=SC2016 # for the inner shell
    unshare --mount --propagation private sh -c '
        root=$1 && shift
        mount -t proc proc "$root/proc" && mount -t sysfs -o ro sysfs "$root/sys" &&
            mount -t tmpfs tmpfs "$root/run" && mkdir -p "$root/run/lock" &&
            exec chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
                DEBIAN_FRONTEND=noninteractive "$@"' sh "$root" "$@"
}
