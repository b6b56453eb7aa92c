#!/usr/bin/env bash
# Runs a shell script as root inside User Mode Linux: the kernel's own
# dm-crypt, as an ordinary process, without privileges on the host.
#
# usage: uml.sh [options] JOB
#   --disk NAME=FILE    the script sees FILE as the block device /d/NAME
#                       (size a multiple of 512; NAME=FILE:ro for read-only)
#   --file NAME=FILE    the script sees a copy of FILE as /in/NAME
#   --out DIR           files that the script leaves in /out (its working
#                       directory) appear in DIR
#   --kernel FILE       this kernel (scripts/uml612.sh), with everything built in,
#                       instead of Debian's with its modules
#   --timeout SECONDS   default 120
#   --quiet             no console log unless the bed itself fails
#
# Prints the console. Exits with the script's status; 124 on a timeout, 125 if
# the bed failed (then with the whole console log on standard error).
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
die() {
    printf 'uml: %s\n' "$*" >&2
    exit 125
}

names=()
paths=()
files=()
out=
seconds=120
quiet=
kernel=
while [ $# -gt 0 ]; do
    case $1 in
    --disk)
        names+=("${2%%=*}")
        paths+=("${2#*=}")
        shift 2
        ;;
    --file) files+=("$2") && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    --kernel) kernel=$2 && shift 2 ;;
    --timeout) seconds=$2 && shift 2 ;;
    --quiet) quiet=1 && shift ;;
    -*) die "unknown option $1" ;;
    *) break ;;
    esac
done
[ $# -eq 1 ] || die "one job script wanted"
job=$1
[ ${#paths[@]} -le 14 ] || die "at most 14 disks"

initramfs=$("$here/uml-initramfs.sh" ${kernel:+--no-modules}) || exit 125

work=$(mktemp -d "${TMPDIR:-/tmp}/uml.XXXXXX")
guest=
watchdog=
# shellcheck disable=SC2317  # called by the trap
finish() {
    # The guest leads a session of its own; its helper processes go with it.
    if [ -n "$guest" ]; then
        kill -KILL -- "-$guest" 2>/dev/null || true
        wait "$guest" 2>/dev/null || true
    fi
    [ -z "$watchdog" ] || kill "$watchdog" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

mkdir "$work/in" "$work/results"
cp "$job" "$work/in/job"
for file in ${files[@]+"${files[@]}"}; do
    cp "${file#*=}" "$work/in/${file%%=*}"
done
: >"$work/in/disks"
[ ${#names[@]} -eq 0 ] || printf '%s\n' "${names[@]}" >"$work/in/disks"
tar -cf "$work/job.tar" -C "$work/in" .
truncate -s 256M "$work/results.tar"

# "d": the file is data even if it looks like a copy-on-write overlay.
drives=("ubdadr=$work/job.tar" "ubdbd=$work/results.tar")
letters=cdefghijklmnop
i=0
for path in ${paths[@]+"${paths[@]}"}; do
    flags=d
    case $path in *:ro)
        path=${path%:ro}
        flags=dr
        ;;
    esac
    case $path in *[,:]*) die "$path: User Mode Linux takes no commas or colons in file names" ;; esac
    [ -e "$path" ] || die "$path: no such file"
    drives+=("ubd${letters:$i:1}$flags=$(realpath "$path")")
    i=$((i + 1))
done

# The guest's memory is a file that it maps executable.
memory=/dev/shm
if [ ! -w $memory ] || findmnt -no OPTIONS -T $memory | grep -qw noexec; then
    memory=$work
fi

TMPDIR=$memory setsid "${kernel:-linux.uml}" mem=384M initrd="$initramfs" \
    con=null con0=null,fd:1 quiet panic=-1 "${drives[@]}" \
    </dev/null >"$work/console" 2>&1 &
guest=$!
sleep "$seconds" &
watchdog=$!
wait -n "$guest" "$watchdog" 2>/dev/null || true
timed_out=
kill -0 "$watchdog" 2>/dev/null || timed_out=1

# The console ends its lines with CR LF.
tr -d '\r' <"$work/console" >"$work/log"
if [ -n "$timed_out" ]; then
    cat "$work/log" >&2
    printf 'uml: no end after %s seconds; console log above\n' "$seconds" >&2
    exit 124
fi
if ! grep -q '^BED: saved' "$work/log" || ! tar -xf "$work/results.tar" -C "$work/results"; then
    cat "$work/log" >&2
    die "the guest did not finish; console log above"
fi
[ -n "$quiet" ] || sed -n '/^BED: start/,/^BED: end/p' "$work/log" | sed '1d;$d'
if [ -n "$out" ]; then
    mkdir -p "$out"
    cp -r "$work/results/." "$out/"
fi
exit "$(cat "$work/results/status")"
