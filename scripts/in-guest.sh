#!/usr/bin/env bash
# Runs a program of this machine as root under another kernel, Debian's 6.1 in QEMU, with what this
# machine's kernel may lack: uhid, dm-crypt, loop devices. The program sees this machine's files,
# read-only, with a /tmp and a /run of its own, and ends with the status that this script ends with.
# Emulated: a boot takes a quarter of a minute, and programs take ten times as long. As Cargo's runner it
# takes a test's binary there.
#
# usage: in-guest.sh PROGRAM [ARGUMENT...]
set -euo pipefail

die() {
    printf 'in-guest: %s\n' "$*" >&2
    exit 125
}
[ $# -gt 0 ] || die "wanted: a program and its arguments"
[ "$(uname -m)" = x86_64 ] || die "only for x86-64: the guest runs this machine's programs"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$(realpath "$1")
shift

job=$(mktemp "${TMPDIR:-/tmp}/in-guest.XXXXXX")
trap 'rm -f "$job"' EXIT
{
    cat <<'JOB'
modprobe uhid && modprobe hid-generic && modprobe loop || exit 125
mkdir -p /dev/pts /dev/shm
mount -t devpts -o ptmxmode=666 pts /dev/pts
for folder in proc sys dev dev/pts; do
    mount --bind "/$folder" "/host/$folder" || exit 125
done
mount -t tmpfs tmp /host/tmp && mount -t tmpfs run /host/run && mkdir /host/run/cryptsetup || exit 125
JOB
    printf 'exec chroot /host /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8'
    printf ' %q' ${XTENT_BIN:+"XTENT_BIN=$XTENT_BIN"} "$program" "$@"
    echo
} >"$job"
echo "in-guest: booting" >&2
"$here/guest.sh" --on x86-6.1 --host --follow --memory 1024 --timeout "${XTENT_GUEST_SECONDS:-3600}" "$job"
