#!/usr/bin/env bash
# Tests the co-processor's Linux driver (kernel/pci) against the hardware, simulated cycle by cycle: each job starts
# xtent-engine-sim and a guest that has it as a PCI device, and searches the kernel's log for complaints.
#
# usage: engine-kernel-test.sh [--all] [BED...]
#   BED         a kernel of scripts/kernel.sh with PCI; the default is uml-7-fast, in which a boot takes a second.
#               With +time behind it the device's cycles are its time (User Mode Linux), with +iommu it has
#               an IOMMU (QEMU)
#   --all       all of them: with KASAN and lockdep, with two CPUs and MSI-X in QEMU; long
#   JOBS=REGEX  only the jobs whose name matches it
#
# Says at its end what it left out. Three minutes on two cores, when the kernel and the models are built; the first time builds them.
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")
tests=$root/kernel/test
every="uml-7-fast uml-7-fast+time uml-7 uml-6.12 x86-6.12 x86-6.12+iommu x86-7 x86-7+iommu"

beds=
while [ $# -gt 0 ]; do
    case $1 in
    --all) beds=$every ;;
    -*)
        sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2
        exit 2
        ;;
    *) beds="$beds $1" ;;
    esac
    shift
done
: "${beds:=uml-7-fast uml-7-fast+time}"

work=$(mktemp -d "${TMPDIR:-/tmp}/xtent-engine-kernel-test.XXXXXX")
# shellcheck source=scripts/lib/guest-jobs.sh
. "$root/scripts/lib/guest-jobs.sh"
# shellcheck source=scripts/lib/device.sh
. "$root/scripts/lib/device.sh"
# shellcheck disable=SC2317  # called by the trap
finish() {
    end_device
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

# start DESIGN OPTIONS...: the device for a guest, when it listens.
start() {
    local design=$1 way=--socket
    shift
    [[ $bed != uml* ]] || way=--vhost-user
    rm -f "$work/engine" "$work/time"
    start_device "$target/cosim/release/xtent-engine-sim" --design "$design" --models "$target/rtl/cosim" \
        "$way" "$work/engine" "$@" 2>"$work/device"
}

# wanted NAME: whether this bed's job is to run.
wanted() {
    [[ "$bed$variant, $1" =~ ${JOBS:-.} ]]
}

# job NAME DESIGN SCRIPT DEVICE-OPTIONS...: runs a script of kernel/test in a guest with two RAM disks and
# the modules, of which dm-xtent is loaded.
job() {
    local name="$bed$variant, $1, $2" design=$2 script=$3 started=$SECONDS file files=() options=() spoil="" status=0
    local key_bits=256
    wanted "$1, $2" || return 0
    shift 3
    [ "${1:-}" != --spoil ] || spoil=${2%%:*}
    for file in "$script" log.sh pci-lib.sh engine-lib.sh; do files+=(--file "$file=$tests/$file"); done
    for file in dm-xtent.ko xtent_pci.ko; do files+=(--file "$file=$modules/$file"); done
    ! grep -q fio_on "$tests/$script" || files+=("${fio[@]}")
    [ "$design" != xts-128 ] || key_bits=128
    case $variant in
    +time)
        # The driver looks for the answer once in 1000 ns.
        set -- "$@" --time "$work/time" --register-latency 1000
        options=(--time "$work/time")
        ;;
    +iommu) options=(--iommu) ;;
    esac
    cat >"$work/job" <<JOB
. /in/log.sh
[ ! -d /sys/kernel/debug ] || [ -d /sys/kernel/debug/block ] || mount -t debugfs none /sys/kernel/debug
export LEVEL=${levels[$design]} KEY_BITS=$key_bits SPOIL=$spoil BYTES=1048576
rmmod brd 2>/dev/null
modprobe brd rd_nr=2 rd_size=1024 || exit
insmod /in/dm-xtent.ko || { dmesg | tail -5; exit 1; }
sh /in/$script >/tmp/output 2>&1
status=\$?
cat /tmp/output
[ \$status = 0 ] || exit \$status
rmmod dm_xtent || exit
log_is_clean || exit
tail -1 /tmp/output
JOB
    start "$design" "$@"
    "$root/scripts/guest.sh" --on "$bed" --engine "$work/engine" ${options[@]+"${options[@]}"} "${files[@]}" \
        --timeout "$seconds" "$work/job" >"$work/log" 2>&1 || status=1
    stop_device || status=1
    if [ $status = 0 ]; then
        passed "$name" "$(tail -1 "$work/log"); $((SECONDS - started)) s"
    else
        sed 's/^/device: /' "$work/device" >>"$work/log"
        failed "$name"
    fi
}

# By name, what drivers see of a design; all but one have AES-256 as well.
declare -A levels=([ecb]=1 [xts-512]=2 [xts]=3 [xts-128]=3 [xts-2rings]=3 [xts-2slots]=3)

# What xtent-engine-sim --spoil can do, and to every how manieth: more than there are of it in the driver's own test
# at its start, or in a read that is tried again, since each try would fail; few enough for some in a job.
spoils="read-error:1009 write-error:1009 lost-interrupt:3 late-interrupt:3 double-interrupt:3 lost-completion:307
    double-completion:307 wrong-cookie:307 wrong-units:307 bad-status:307 hang:1009 vanish:1009"

run_bed() { # run_bed BED[+VARIANT]
    local bed=${1%%+*} variant="" modules seconds=300 design spoil
    [ "$bed" = "$1" ] || variant=+${1#*+}
    if [ "$bed" = x86-7 ] && [ "$(id -u)" -ne 0 ]; then
        not_run "$1, which needs root"
        return 0
    fi
    # Checkers and emulated CPUs are slow.
    [ "$bed" = uml-7-fast ] || seconds=1800
    modules=$("$tests/build.sh" "$bed")
    if [ "$variant" = +time ]; then
        job "the kernel's own tests" xts pci-crypto.sh
        job "simulated time" xts pci-time.sh
        return 0
    fi
    for design in ecb xts-512 xts-2rings; do
        job "the kernel's own tests" $design pci-crypto.sh
        job "against dm-crypt" $design pci-same.sh
        # What takes longer, of one design on the quick bed.
        case "$bed $design" in "uml-7-fast ecb" | "uml-7-fast xts-512") continue ;; esac
        job "verified by fio" $design pci-verify.sh
        job "removed and back" $design pci-remove.sh
    done
    job "the kernel's own tests" xts-128 pci-crypto.sh
    job "against dm-crypt" xts-128 pci-same.sh
    job "more keys than slots" xts-2slots pci-keys.sh
    if [[ "$bed" != uml* ]]; then
        job "interrupts that move" xts-2rings pci-affinity.sh
        job "put to sleep" xts-2rings pci-sleep.sh
    fi
    # Within a minute.
    [ "$bed" != uml-7-fast ] || job "reset too often" xts-2rings pci-reset.sh --spoil hang:97
    for spoil in $spoils; do
        job "spoiled by $spoil" xts-2rings pci-spoiled.sh --spoil "$spoil"
        [ "$bed" = uml-7-fast ] || job "fio, spoiled by $spoil" xts-2rings pci-faulty.sh --spoil "$spoil"
    done
}

# Of a test that no job runs nobody would hear.
for file in "$tests"/pci-*.sh; do
    grep -q "[ =]$(basename "$file")" "${BASH_SOURCE[0]}" || { echo "no job runs $file" >&2 && exit 1; }
done
"$root/rtl/cosim/model.sh" --models "$target/rtl/cosim" "${!levels[@]}" >"$work/log"
nice cargo build --quiet --release --manifest-path "$root/rtl/cosim/Cargo.toml" --target-dir "$target/cosim"
find_fio
for one in $every; do
    case " $beds " in
    *" $one "*) run_bed "$one" ;;
    *) not_run "$one" ;;
    esac
done
[ $((passed + failed)) -gt 0 ] || { echo "no job ran that is called ${JOBS:-}$left_out" >&2 && exit 2; }
echo "$passed passed, $failed failed$left_out"
[ "$failed" = 0 ]
