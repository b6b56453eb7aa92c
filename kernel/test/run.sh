#!/usr/bin/env bash
# Builds the modules for kernels and runs their tests there.
#
# usage: run.sh [--quick | --rest] [BED...]
#   BED                    kernels of scripts/kernel.sh; "all" is all of them, and the
#                          default is the quick one, uml
#   --quick                only the jobs that show that a disk's bytes are dm-crypt's,
#                          those of make test
#   --rest                 only the others
#   JOBS=REGEX             only the jobs whose name matches it
set -euo pipefail
part=
case ${1:-} in
--quick | --rest)
    part=$1
    shift
    ;;
-*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2
    exit 2
    ;;
esac
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..
# The driver that takes runs, for tests.
export CONFIG_XTENT_RUN_TEST=m
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# For a guest that hangs, in seconds: many times what any job takes alone, since emulated CPUs get
# little of a busy machine.
patience=5400
truncate -s 256M "$work/scratch"
truncate -s 64M "$work/nvme"
# shellcheck source=scripts/lib/guest-jobs.sh
. "$root/scripts/lib/guest-jobs.sh"

# wanted NAME: whether this bed's job is to run. Where it cannot, since the bed is broken, that is noted.
wanted() {
    local its_part=--rest
    case $1 in
    *planted* | "against dm-crypt"* | "tables, keys, LUKS"*) its_part=--quick ;;
    esac
    [ "${part:-$its_part}" = "$its_part" ] && [[ "$bed, $1" =~ ${JOBS:-.} ]] || return
    [ -n "$broken" ] || return 0
    not_run "$1 on $bed, $broken"
    return 1
}

# job NAME SCRIPTS MEGABYTES CIPHERS MODULE-OPTIONS...: runs scripts of this folder in
# a guest with two RAM disks, each with the modules loaded anew. The kernel's log is
# searched for complaints after each.
job() {
    local name="$bed, $1" scripts=$2 size=$3 ciphers=$4 started=$SECONDS files=() file why status=0
    wanted "$1" || return 0
    shift 4
    for file in $scripts log.sh engine-lib.sh worker-lib.sh; do files+=(--file "$file=$here/$file"); done
    for file in dm-xtent.ko xtent_fast.ko planted.ko shifted.ko xtent_run_test.ko; do
        files+=(--file "$file=$modules/$file")
    done
    for file in $programs; do files+=(--file "$file=$work/$file-$arch"); done
    case $scripts in verify.sh | interrupts.sh) files+=("${fio[@]}") ;; esac
    cat >"$work/job" <<JOB
. /in/log.sh
[ ! -d /sys/kernel/debug ] || [ -d /sys/kernel/debug/block ] || mount -t debugfs none /sys/kernel/debug
chmod +x /in/addkey /in/dirty
export CIPHERS='$ciphers' BYTES=$((size * 1048576)) SECTORS='$sectors' ROUNDS=$rounds PASSES=$passes CPUS=$cpus PAGE=$page PLANTED='$planted'
rmmod brd 2>/dev/null
modprobe brd rd_nr=2 rd_size=$((size * 1024)) || exit
insmod /in/xtent_fast.ko || { dmesg | tail -5; exit 1; }
results=
for script in $scripts; do
    insmod /in/dm-xtent.ko $* || { dmesg | tail -5; exit 1; }
    sh /in/\$script >/tmp/output 2>&1
    status=\$?
    cat /tmp/output
    [ \$status = 0 ] || exit \$status
    ! grep -q '^dm_xtent ' /proc/modules || rmmod dm_xtent || exit
    log_is_clean || exit
    results="\$results\${results:+; }\$(tail -1 /tmp/output)"
done
echo "\$results"
JOB
    "$root/scripts/guest.sh" --on "$bed" ${memory:+--memory "$memory"} "${files[@]}" --disk "scratch=$work/scratch" \
        ${nvme:+--nvme "nvme=$nvme"} --timeout "$patience" "$work/job" >"$work/log" 2>&1 || status=$?
    if [ $status = 0 ]; then
        why=$(tail -1 "$work/log")
        if [[ $why == "NOT RUN: "* ]]; then
            echo "$name: $why"
            not_run "${name#*, } on $bed"
        else
            passed "$name" "$why; $((SECONDS - started)) s"
        fi
    else
        # Nor would it for the others, each of which would wait as long.
        [ $status -lt 124 ] || grep -q '^BED: start' "$work/log" || broken="which does not boot"
        failed "$name"
    fi
}

# lacks ISA FLAGS: what these flags of a CPU lack for an instruction set.
lacks() {
    local needs flag
    case $1 in
    vaes512) needs="vaes vpclmulqdq avx512vl avx512bw avx512dq" ;;
    vaes256) needs="vaes vpclmulqdq avx2" ;;
    aesni_avx) needs="aes pclmulqdq avx" ;;
    aesni) needs="aes pclmulqdq" ;;
    none) needs="" ;;
    esac
    for flag in $needs; do
        [[ " $2 " == *" $flag "* ]] || printf ' %s' "$flag"
    done
}

# against CIPHERS: the byte by byte comparisons, with each instruction set. The first
# that runs does so with these ciphers, the others with XTS.
against() {
    local isa lacking flags="" ciphers=$1
    for isa in vaes512 vaes256 aesni_avx aesni none; do
        wanted "against dm-crypt, $isa" || continue
        [ -n "$flags" ] || flags=$(flags) || {
            failed "$bed, what its CPU has"
            return
        }
        lacking=$(lacks $isa "$flags")
        if [ -n "$lacking" ]; then
            echo "$bed, against dm-crypt, $isa: NOT RUN, its CPU lacks$lacking"
            not_run "$isa on $bed"
            continue
        fi
        job "against dm-crypt, $isa" against-dm-crypt.sh "$megabytes" "$ciphers" "isa=$isa"
        ciphers="xts-plain64 64"
    done
}

# What the guests' CPU has: in User Mode Linux this machine's, else as the guest sees it.
flags() {
    case $bed in
    uml*) cp /proc/cpuinfo "$work/log" ;;
    *)
        echo 'cat /proc/cpuinfo' >"$work/flags"
        "$root/scripts/guest.sh" --on "$bed" --timeout "$patience" "$work/flags" >"$work/log" 2>&1 || return
        ;;
    esac
    sed -nE '/^(flags|[Ff]eatures)/{s/.*: //p;q}' "$work/log" | grep .
}

# build_programs CC ARCH: builds what guests of that kind run.
build_programs() {
    local program
    for program in $programs; do
        [ -e "$work/$program-$2" ] ||
            "$1" -static -O1 -Wall -Werror -o "$work/$program-$2" "$here/$program.c" || return
    done
}

run_bed() {
    local modules="" arch=$bed memory="" nvme="" megabytes=1 sectors="512 1024 2048 4096" rounds=6 passes=2 cpus=1 page=4096
    local planted="" programs="addkey dirty lines zones ask atomic"
    [ "$bed" != uml ] || megabytes=4
    # An emulated CPU is slow, and so are two whose every access to memory is checked.
    case $bed in
    uml-7-smp) rounds=2 passes=1 cpus=2 planted="sleep leak kasan" ;;
    uml*-smp*) cpus=2 ;;
    uml-6.12 | uml-7) planted="lockdep sleep leak kasan" ;;
    uml*) ;;
    x86-7-bochs) sectors="512 4096" programs="addkey dirty registers" ;;
    x86-7-kcsan) sectors="512 4096" rounds=2 passes=1 cpus=2 planted="lockdep sleep kcsan" ;;
    *) sectors="512 4096" rounds=2 passes=1 cpus=2 ;;
    esac
    # So much that some of it is not mapped at all times.
    [ "$bed" != armhf ] || memory=1280
    [ "$bed" != arm64-64k ] || page=65536
    local cc=cc
    case $bed in
    arm64*) cc=aarch64-linux-gnu-gcc ;;
    armhf) cc=arm-linux-gnueabihf-gcc ;;
    s390x) cc=s390x-linux-gnu-gcc ;;
    *) arch=host ;;
    esac
    # What went wrong is on the screen; the other beds have their turn.
    { modules=$("$here/build.sh" "$bed") && build_programs "$cc" "$arch"; } || {
        : >"$work/log"
        broken="which could not be made"
        failed "$bed, its kernel and modules"
    }
    if [ "$bed" = x86-7-bochs ]; then
        job "registers of others, vaes512" vectors.sh 1 . isa=vaes512
        job "registers of others, by itself" vectors.sh 1 .
        job "against dm-crypt, vaes512" against-dm-crypt.sh 1 "xts-plain64 64" isa=vaes512
        job "against dm-crypt, vaes256" against-dm-crypt.sh 1 "xts-plain64 64" isa=vaes256
        not_run "the other jobs on $bed, which is slow"
        return
    fi
    job "a planted report is found" planted.sh 4 .
    # These have been mended for that: scripts/kernel.sh.
    case $bed in
    uml-7 | uml-7-smp*)
        memory=256
        job "memory of processes" memory.sh 1 .
        memory=
        ;;
    esac
    case $bed in
    uml)
        # It has no HCTR2.
        against "xts|cbc|adiantum|fast"
        ;;
    uml-6.12* | uml-7*)
        against "hctr2|adiantum|fast|xts-plain64 64"
        ;;
    *) against "xts-plain64 64|adiantum|fast\(" ;;
    esac
    if [ "$bed" = arm64-64k ]; then
        # They count requests of 4 KiB, which Busybox makes only where that is a page.
        not_run "the other jobs on $bed"
        return
    fi
    job "tables, keys, LUKS; parallel load; failing disks" "control.sh load.sh failing.sh" 32 .
    job "random tables" lines.sh 2 .
    job "ways of requests" ways.sh 32 .
    [[ "$bed" != x86* ]] || job "CPUs that come and go" hotplug.sh 2 .
    job "zones" zoned.sh 2 .
    job "FAST beside who asks for it" asked.sh 2 .
    # Without preemption its cryptd never has more than one request waiting on a CPU.
    if [[ "$bed" != uml-*-fast ]]; then
        job "XTS over an ECB engine" engine.sh 2 .
    elif wanted "XTS over an ECB engine"; then
        not_run "engines on $bed"
    fi
    job "drivers that take runs" engine-run.sh 2 .
    job "drivers that fail" engine-fail.sh 2 .
    if [ "$arch" = host ]; then
        [ ${#fio[@]} -gt 0 ] || find_fio
        job "verified by fio" verify.sh 8 .
        # A disk for the guests that can have it.
        [[ "$bed" != x86* ]] || nvme=$work/nvme
        job interrupts interrupts.sh 8 .
        nvme=
    elif wanted "verified by fio" || wanted interrupts; then
        not_run "fio on $bed"
    fi
    case $bed in
    # Their checkers take most of it.
    uml-6.12 | uml-7) memory=160 ;;
    # With 160 a page for readahead once took more than ten seconds to get, of which Linux 7.3 complains.
    uml-7-smp) memory=192 ;;
    # The smallest kernels of all.
    uml-6.12-fast | uml-7-fast | uml-7-smp-fast) memory=64 ;;
    # With 80 to 112 User Mode Linux 6.1 could not start the crypto API's self-tests in a boot in four.
    *) memory=192 ;;
    esac
    job "swap, $memory MB" swap.sh 1 .
}

# fips: a boot of its own, since that mode is for good.
fips() {
    local name="$bed, FIPS mode" started=$SECONDS modules
    wanted "FIPS mode" || return 0
    if modules=$("$here/build.sh" "$bed") && "$root/scripts/guest.sh" --on "$bed" --append fips=1 --timeout "$patience" \
        --file "dm-xtent.ko=$modules/dm-xtent.ko" --file "xtent_fast.ko=$modules/xtent_fast.ko" "$here/fips.sh" >"$work/log" 2>&1; then
        passed "$name" "$(tail -1 "$work/log"); $((SECONDS - started)) s"
    else
        failed "$name"
    fi
}

# instructions: how many a read takes, where one is as long as another. A boot of its own, since that clock is the guest's.
instructions() {
    local name="$bed, instructions of a read" started=$SECONDS programs=reads
    wanted "instructions of a read" || return 0
    if build_programs cc host && "$root/scripts/guest.sh" --on "$bed" --count-instructions --timeout "$patience" \
        --file "dm-xtent.ko=$("$here/build.sh" "$bed")/dm-xtent.ko" --file "reads=$work/reads-host" --file "log.sh=$here/log.sh" "$here/reads.sh" >"$work/log" 2>&1; then
        passed "$name" "$(tail -1 "$work/log"); $((SECONDS - started)) s"
    else
        failed "$name"
    fi
}

# lint: what sparse and checkpatch say of the sources, once. It builds all of them, too.
lint() {
    wanted "sparse and checkpatch" || return 0
    if "$here/lint.sh" >"$work/log" 2>&1; then
        passed "sparse and checkpatch" "$(tail -1 "$work/log")"
    else
        failed "sparse and checkpatch"
    fi
}

# with_clang: whether clang builds everything without warnings, once.
with_clang() {
    local status=0
    wanted clang || return 0
    "$here/clang.sh" >"$work/log" 2>&1 || status=$?
    case $status in
    0) passed clang "$(tail -1 "$work/log")" ;;
    77)
        echo "clang: $(tail -1 "$work/log")"
        not_run clang
        ;;
    *) failed clang ;;
    esac
}

power_off() {
    local name="$bed, power-offs" started=$SECONDS
    wanted power-offs || return 0
    if "$here/power-off.sh" "$bed" "$("$here/build.sh" "$bed")" >"$work/log" 2>&1; then
        passed "$name" "$(paste -sd ';' "$work/log"); $((SECONDS - started)) s"
    else
        failed "$name"
    fi
}

case "${*:-}" in
"") beds=uml ;;
all) beds="uml uml-6.12 uml-6.12-fast uml-7 uml-7-fast uml-7-smp uml-7-smp-fast x86-6.1 x86-6.12
    x86-6.12-threadirqs x86-rt x86-7 x86-7-kcsan x86-7-bochs arm64 arm64-64k armhf s390x" ;;
*) beds=$* ;;
esac
broken=
reports=()
for bed in $beds; do
    before=("$passed" "$failed" "$failures" "$left_out")
    broken=
    run_bed
    if [ "$bed" = uml ]; then
        lint
        with_clang
    fi
    # Debian's kernels for it have that mode.
    case $bed in x86-6*) fips ;; esac
    # Not where interrupts are threads, for which dm-xtent has other limits.
    case $bed in x86-6.1 | x86-6.12 | x86-7) instructions ;; esac
    # Any kernel's file systems will do; this one has most of them new.
    [ "$bed" != x86-6.12 ] || power_off
    reports+=("$bed: $((passed - before[0])) passed, $((failed - before[1])) failed${failures#"${before[2]}"}${left_out#"${before[3]}"}")
done
[ $((passed + failed)) -gt 0 ] || { echo "no job ran that is called ${JOBS:-}$left_out" >&2 && exit 2; }
[ ${#reports[@]} = 1 ] || { printf '%s\n' "${reports[@]}" && left_out=; }
echo "$passed passed, $failed failed$failures$left_out"
[ "$failed" = 0 ]
