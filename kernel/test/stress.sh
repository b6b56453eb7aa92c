#!/usr/bin/env bash
# Keeps dm-xtent busy for minutes in one guest with all that it can do at the same time, and compares.
#
# usage: stress.sh BED [MINUTES [MODULES]]
#   BED       a kernel of scripts/kernel.sh
#   MINUTES   30 without
#   MODULES   the folder with the modules; without it they are built
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..
if [ $# -lt 1 ] || [[ ! ${2:-30} =~ ^[1-9][0-9]*$ ]]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2
    exit 2
fi
# The driver that takes runs, for tests.
export CONFIG_XTENT_RUN_TEST=m
bed=$1
minutes=${2:-30}
modules=${3:-$("$here/build.sh" "$bed")}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

truncate -s 384M "$work/scratch"
files=(--file "log.sh=$here/log.sh" --file "stress-guest.sh=$here/stress-guest.sh")
for file in dm-xtent.ko xtent_fast.ko xtent_run_test.ko; do files+=(--file "$file=$modules/$file"); done
for program in addkey dirty worker; do
    cc -static -O1 -Wall -Werror -o "$work/$program" "$here/$program.c"
    files+=(--file "$program=$work/$program")
done
cat >"$work/job" <<JOB
[ ! -d /sys/kernel/debug ] || [ -d /sys/kernel/debug/block ] || mount -t debugfs none /sys/kernel/debug
MINUTES=$minutes sh /in/stress-guest.sh
JOB
# So little memory that it does not suffice. A hang shows as the end of this time.
if "$root/scripts/guest.sh" --on "$bed" "${files[@]}" --memory 256 --disk "scratch=$work/scratch" --follow \
    --timeout $((minutes * 120 + 900)) "$work/job"; then
    echo "$bed, stress: ok"
else
    echo "$bed, stress: FAILED"
    exit 1
fi
