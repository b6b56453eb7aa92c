#!/usr/bin/env bash
# Builds dm-xtent for Debian's User Mode Linux and runs its tests there: against
# the kernel's own dm-crypt with every instruction set, and what else a target does.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..
export CONFIG_XTENT_RUN_TEST=m
modules=$("$here/build.sh" uml)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -static -O1 -Wall -Werror -o "$work/addkey" "$here/addkey.c"

passed=0
failed=0
extra=()
# job NAME SCRIPT MEGABYTES CIPHERS MODULE-OPTIONS...: runs a script in a guest with
# two RAM disks.
job() {
    local name=$1 script=$2 size=$3 ciphers=$4
    shift 4
    cat >"$work/job" <<JOB
insmod /in/xtent_fast.ko && insmod /in/dm-xtent.ko $* || { dmesg | tail -5; exit 1; }
rmmod brd
insmod /modules/brd.ko rd_nr=2 rd_size=$((size * 1024))
chmod +x /in/addkey
export CIPHERS='$ciphers'
sh /in/script
JOB
    if "$root/scripts/uml.sh" --file "dm-xtent.ko=$modules/dm-xtent.ko" --file "addkey=$work/addkey" \
        --file "xtent_fast.ko=$modules/xtent_fast.ko" \
        ${extra[@]+"${extra[@]}"} --file "script=$script" --timeout 300 "$work/job" >"$work/log" 2>&1; then
        echo "$name: ok ($(tail -1 "$work/log"))"
        passed=$((passed + 1))
    else
        cat "$work/log"
        echo "$name: FAILED"
        failed=$((failed + 1))
    fi
}

# The first of them that this machine has runs every cipher.
ciphers=.
host=$(sed -n 's/^flags[^:]*: //p' /proc/cpuinfo | head -1)
for isa in vaes512 vaes256 aesni none; do
    case $isa in
    vaes512) needs="vaes vpclmulqdq avx512vl avx512bw avx512dq" ;;
    vaes256) needs="vaes vpclmulqdq avx2" ;;
    aesni) needs="aes pclmulqdq" ;;
    none) needs="" ;;
    esac
    lacks=
    for flag in $needs; do
        [[ " $host " == *" $flag "* ]] || lacks="$lacks $flag"
    done
    if [ -n "$lacks" ]; then
        echo "against dm-crypt, $isa: NOT RUN, this machine lacks$lacks"
        continue
    fi
    job "against dm-crypt, $isa" "$here/against-dm-crypt.sh" 4 "$ciphers" "isa=$isa"
    ciphers=xts
done
job "tables, keys, errors, LUKS" "$here/control.sh" 32 .
extra=(--file "cryptd.ko=/usr/lib/uml/modules/$(linux.uml --version)/kernel/crypto/cryptd.ko"
    --file "xtent_run_test.ko=$modules/xtent_run_test.ko" --file "engine-lib.sh=$here/engine-lib.sh")
job "XTS over an ECB engine" "$here/engine.sh" 2 .
job "drivers that take runs" "$here/engine-run.sh" 2 .
job "drivers that fail" "$here/engine-fail.sh" 2 .
extra=()
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
