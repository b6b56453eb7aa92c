#!/usr/bin/env bash
# Runs a shell script as root inside another Linux kernel, with its own dm-crypt:
# in User Mode Linux, as an ordinary process, or in QEMU without hardware
# virtualisation. No privileges on the host.
#
# usage: guest.sh [options] JOB
#   --on BED            the kernel, as scripts/kernel.sh names it; default uml. x86-7-bochs runs in Bochs, not in
#                       QEMU, and has one disk at most
#   --disk NAME=FILE    the script sees FILE as the block device /d/NAME
#                       (size a multiple of 512; NAME=FILE:ro for read-only; QEMU
#                       takes nbd+unix:///?socket=PATH as well)
#   --vhost-user NAME=SOCKET
#               the script sees the disk that is served there as /d/NAME
#   --nvme NAME=FILE    QEMU only, one: the script sees FILE as the NVMe disk /d/NAME, which has a
#               queue and an interrupt for each CPU
#   --append OPTION     for the kernel's command line
#   --count-instructions
#               QEMU only: one CPU, to whose clock an instruction takes a nanosecond; where it is idle, that jumps
#               to the next timer
#   --engine SOCKET     the guest has the co-processor that xtent-engine-sim serves there as a PCI
#               device: by its --vhost-user for User Mode Linux (not
#               Debian's), by its --socket for x86-64 in QEMU, which then is that of Debian's backports
#               (scripts/kernel.sh qemu)
#   --time SOCKET       User Mode Linux only: its time is what xtent-engine-sim --time says there
#   --iommu     QEMU for x86-64 only: the machine has an IOMMU, and the kernel uses it
#   --file NAME=FILE    the script sees a copy of FILE as /in/NAME
#   --out DIR           files that the script leaves in /out (its working
#                       directory) appear in DIR
#   --host              QEMU only, with a kernel for this machine's processor: the script sees
#                       this machine's files below /host, read-only
#   --memory MEGABYTES  default 384 for User Mode Linux, 768 for QEMU
#   --cut WORD=N        power-off: kills the guest when it has printed N lines that
#                       begin with WORD
#   --migrate WORD      QEMU only: when the guest has printed a line that begins with WORD, it moves
#               to another QEMU on this machine while it runs; there its script can read the line "moved"
#   --timeout SECONDS   default 120
#   --follow            the script's lines at once, not at its end
#   --quiet             no console log unless the bed itself fails
#
# Prints the console. Exits with the script's status; 124 on a timeout, 125 if
# the bed failed (then with the whole console log on standard error).
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
die() {
    printf 'guest: %s\n' "$*" >&2
    exit 125
}

names=()
paths=()
served=()
sockets=()
nvme=
files=()
out=
seconds=120
quiet=
host=
follow=
bed=uml
memory=
cut=
migrate=
append=()
accel="tcg,thread=multi -smp 2"
engine=
clock=
iommu=
while [ $# -gt 0 ]; do
    case $1 in
    --disk)
        names+=("${2%%=*}")
        paths+=("${2#*=}")
        shift 2
        ;;
    --vhost-user)
        served+=("${2%%=*}")
        sockets+=("${2#*=}")
        shift 2
        ;;
    --nvme) nvme=$2 && shift 2 ;;
    --engine) engine=$2 && shift 2 ;;
    --time) clock=$2 && shift 2 ;;
    --iommu) iommu=1 && shift ;;
    --file) files+=("$2") && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    --on) bed=$2 && shift 2 ;;
    --memory) memory=$2 && shift 2 ;;
    --cut) cut=$2 && shift 2 ;;
    --migrate) migrate=$2 && shift 2 ;;
    --timeout) seconds=$2 && shift 2 ;;
    --append) append+=("$2") && shift 2 ;;
    --count-instructions) accel="tcg,thread=single -smp 1 -icount shift=0,sleep=off" && shift ;;
    --host) host=1 && shift ;;
    --follow) follow=1 quiet=1 && shift ;;
    --quiet) quiet=1 && shift ;;
    -*) die "unknown option $1" ;;
    *) break ;;
    esac
done
[ $# -eq 1 ] || die "one job script wanted"
job=$1
[ ${#paths[@]} -le 14 ] || die "at most 14 disks"
for path in ${engine:+"$engine"} ${clock:+"$clock"}; do
    case $path in *[:,\"\\]*) die "$path: the name of such a socket has no colon, comma, quotation mark or backslash" ;; esac
    [ -S "$path" ] || die "$path: nobody listens there; start xtent-engine-sim first"
done
case $bed in
uml) [ -z "$engine$clock$iommu" ] || die "$bed has no PCI; --engine takes another" ;;
uml*) [ -z "$iommu" ] || die "--iommu is for QEMU" ;;
x86*) [ -z "$clock" ] || die "--time is for User Mode Linux" ;;
*) [ -z "$engine$clock$iommu" ] || die "--engine, --time and --iommu are not for $bed" ;;
esac

case $bed in *-threadirqs) append+=(threadirqs) ;; esac

kernel=$("$here/kernel.sh" "$bed") || exit 125
initramfs=$("$here/guest-initramfs.sh" "$kernel") || exit 125

work=$(mktemp -d "${TMPDIR:-/tmp}/guest.XXXXXX")
guest=
destination=
watchdog=
# shellcheck disable=SC2317  # called by the trap
finish() {
    local one
    # The guest leads a session of its own; its helper processes go with it.
    for one in $guest $destination; do
        kill -KILL -- "-$one" 2>/dev/null || true
        wait "$one" 2>/dev/null || true
    done
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
: >"$work/in/served"
[ ${#served[@]} -eq 0 ] || printf '%s\n' "${served[@]}" >"$work/in/served"
: >"$work/in/nvme"
[ -z "$nvme" ] || echo "${nvme%%=*}" >"$work/in/nvme"
tar -cf "$work/job.tar" -C "$work/in" .
truncate -s 256M "$work/results.tar"

# shellcheck disable=SC2054  # the commas are the programs' own
uml() {
    # "d": the file is data even if it looks like a copy-on-write overlay.
    local drives=("ubdadr=$work/job.tar" "ubdbd=$work/results.tar") letters=cdefghijklmnop i=0 path flags
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
    local shared=/dev/shm
    if [ ! -w $shared ] || findmnt -no OPTIONS -T $shared | grep -qw noexec; then
        shared=$work
    fi
    cc -O1 -Wall -Werror -o "$work/uml-exec" "$here/uml-exec.c" || die "cannot compile uml-exec; run scripts/setup.sh"
    # It describes, in its little memory, the gap between its program and its heap, which is up to
    # 1 GiB at random.
    fixed=()
    ! setarch -R true 2>/dev/null || fixed=(setarch -R)
    command=(env "TMPDIR=$shared" ${fixed[@]+"${fixed[@]}"} "$work/uml-exec" "$kernel/image" "mem=${memory:-384}M" "initrd=$initramfs"
        con=null con0=null,fd:1 quiet panic=-1 ${append[@]+"${append[@]}"} "${drives[@]}")
    # Kind 2 is a disk.
    for path in ${sockets[@]+"${sockets[@]}"}; do
        command+=("virtio_uml.device=$path:2")
    done
    # What CONFIG_UML_PCI_OVER_VIRTIO_DEVICE_ID says.
    # On a busy machine a register is not always read within 40 ms, after which the kernel complains; 7 and 6.12 call it so.
    [ -z "$engine" ] || command+=("virtio_uml.device=$engine:1234" virtio_pcidev.max_delay_us=10000000 virt_pci.max_delay_us=10000000)
    [ -z "$clock" ] || command+=("time-travel=ext:$clock")
    # Only without ptrace(), which takes one thread on the host.
    case $bed in *-smp*)
        [[ " ${append[*]-}" = *" ncpus="* ]] || command+=(ncpus=2)
        command+=(seccomp=on)
        ;;
    esac
    # Under its checkers, and with two of its CPUs on a busy machine's, the crypto API's slow tests take minutes,
    # and who waits for them gives up after one. uml-7 has them all.
    [ "$bed" != uml-7-smp ] || command+=(cryptomgr.noslowtests=1)
}

# shellcheck disable=SC2054
qemu() {
    local machine console=ttyAMA0 path more i options="" program=qemu-system-x86_64 again=reconnect=1
    # Debian 12's has no vfio-user-pci, and what its processors write while it looks for written pages it misses at
    # times: a guest that has moved finds old memory (until QEMU 9.0 with emulated processors).
    [ -z "$engine$migrate" ] || {
        program=$("$here/kernel.sh" qemu)/qemu-system-x86_64 || exit 125
        again=reconnect-ms=1000
    }
    case $(cat "$kernel/arch") in
    # Without cmpxchg16b, which this QEMU emulates wrongly for Linux 6.12.
    x86_64) machine=("$program" -M q35 -cpu max,-cx16) console=ttyS0 ;;
    arm64) machine=(qemu-system-aarch64 -M virt -cpu max) ;;
    arm) machine=(qemu-system-arm -M virt -cpu max) ;;
    s390x) machine=(qemu-system-s390x -M s390-ccw-virtio -cpu max) console=ttysclp0 ;;
    esac
    # On a busy machine its timer may not tick while the kernel waits for that, which then gives up.
    [[ "$bed" != x86* ]] || append+=(no_timer_check)
    command -v "${machine[0]}" >/dev/null || die "${machine[0]} is missing; run scripts/setup.sh kernel-all"
    # A page that its processor has zeroed first would be sent again whatever we say of it.
    [ -z "$migrate" ] || options=init_on_alloc=0
    # strict: what the driver has given back is out of the device's reach at once.
    [ -z "$iommu" ] || {
        machine+=(-device "intel-iommu,intremap=off,caching-mode=on")
        options="$options intel_iommu=on iommu.strict=1"
    }
    # shellcheck disable=SC2206  # options
    command=("${machine[@]}" -accel $accel -m "${memory:-768}M" -nographic -no-reboot -nodefaults
        -serial stdio -monitor none -kernel "$kernel/image" -initrd "$initramfs"
        -append "console=$console quiet panic=-1 oops=panic mitigations=off $options ${append[*]-}"
        -drive "file=$work/job.tar,format=raw,if=virtio,read-only=on"
        -drive "file=$work/results.tar,format=raw,if=virtio")
    for path in ${paths[@]+"${paths[@]}"}; do
        more=
        case $path in *:ro)
            path=${path%:ro}
            more=,read-only=on
            ;;
        esac
        command+=(-drive "file=${path//,/,,},format=raw,if=virtio,cache=writeback$more")
    done
    if [ ${#sockets[@]} -gt 0 ] || [ -n "$engine" ]; then
        command+=(-object "memory-backend-memfd,id=memory,size=${memory:-768}M,share=on" -machine memory-backend=memory)
    fi
    path=${nvme#*=}
    [ -z "$nvme" ] || command+=(-drive "file=${path//,/,,},format=raw,if=none,cache=writeback,id=nvme" -device nvme,drive=nvme,serial=0,max_ioqpairs=2)
    i=0
    # Behind the other disks on the bus, and so in names.
    for path in ${sockets[@]+"${sockets[@]}"}; do
        command+=(-chardev "socket,id=served$i,path=${path//,/,,},$again" -device "vhost-user-blk-pci,chardev=served$i,num-queues=2,addr=0x$((10 + i))")
        i=$((i + 1))
    done
    [ -z "$engine" ] || command+=(-device "$(printf '{"driver":"vfio-user-pci","socket":{"path":"%s","type":"unix"}}' "$engine")")
    [ -z "$host" ] || command+=(-virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap")
}

case $bed in
uml*)
    [ -z "$migrate$nvme" ] || die "--migrate and --nvme are for QEMU"
    uml
    ;;
*-bochs)
    [[ -z "$migrate$nvme$engine$iommu$host${sockets[*]-}" && ${#paths[@]} -le 1 ]] ||
        die "$bed has no more than one disk, and nothing that only QEMU has"
    command=(env "MEMORY=${memory:-512}" "$here/guest-bochs.sh" "$work/bochs" "$work/console" "$kernel/image" "$initramfs"
        "console=ttyS0 quiet panic=-1 oops=panic mitigations=off ${append[*]-}" "$work/job.tar" "$work/results.tar" ${paths[@]+"${paths[@]}"})
    ;;
*) qemu ;;
esac
# Where several guests wait for each other's disks, none of it may be held open.
: >"$work/console"
[ -z "$migrate" ] || command+=(-qmp "unix:$work/qmp,server=on,wait=off")
setsid "${command[@]}" </dev/null >>"$work/console" 2>&1 9>&- &
guest=$!
sleep "$seconds" &
watchdog=$!
if [ -n "$cut" ]; then
    # Ends when the guest does, or when it has seen enough.
    tail --pid="$guest" -s 0.05 -n +1 -f "$work/console" |
        grep -a -c -m "${cut#*=}" "^${cut%%=*}" >"$work/seen" &
    watcher=$!
    wait -n "$guest" "$watchdog" "$watcher" 2>/dev/null || true
    kill -KILL -- "-$guest" 2>/dev/null || true
    wait "$guest" 2>/dev/null || true
    guest=
    kill "$watcher" 2>/dev/null || true
    kill -0 "$watchdog" 2>/dev/null || {
        cat "$work/console" >&2
        die "$cut lines were not reached in $seconds seconds; console log above"
    }
    tr -d '\r' <"$work/console" >"$work/log"
    [ "$(grep -c -a "^${cut%%=*}" "$work/log")" -ge "${cut#*=}" ] || {
        cat "$work/log" >&2
        die "the guest ended before it had printed $cut; console log above"
    }
    sed -n '/^BED: start/,$p' "$work/log" | sed 1d
    exit 0
fi
if [ -n "$migrate" ]; then
    # The rest as without it, if the guest or its time ends before it has said the word.
    tail --pid="$guest" -s 0.05 -n +1 -f "$work/console" | grep -a -q -m 1 "^$migrate" &
    watcher=$!
    wait -n "$guest" "$watchdog" "$watcher" 2>/dev/null || true
    if ! kill -0 "$watcher" 2>/dev/null && kill -0 "$guest" 2>/dev/null; then
        mkfifo "$work/input"
        exec 7<>"$work/input"
        # The same machine, which waits for what is sent to it.
        setsid "${command[@]:0:${#command[@]}-1}" "unix:$work/qmp2,server=on,wait=off" -incoming defer \
            <"$work/input" >>"$work/console" 2>&1 7>&- 9>&- &
        destination=$!
        if "$here/migrate.py" "$work/qmp" "$work/qmp2" "$work/migration" 7>&- 9>&-; then
            kill -KILL -- "-$guest" 2>/dev/null || true
            wait "$guest" 2>/dev/null || true
            guest=$destination
            destination=
            echo moved >&7
        else
            cat "$work/console" >&2
            die "the guest did not move; console log above"
        fi
    else
        kill "$watcher" 2>/dev/null || true
    fi
fi
if [ -n "$follow" ]; then
    tail --pid="$guest" -s 0.2 -n +1 -f "$work/console" |
        sed -u -n 's/\r$//; /^BED: start/,/^BED: end/ { /^BED: /! p }' &
    follower=$!
fi
# One that was waited for above, and has ended there, is not reported again.
! kill -0 "$guest" 2>/dev/null || wait -n "$guest" "$watchdog" 2>/dev/null || true
timed_out=
kill -0 "$watchdog" 2>/dev/null || timed_out=1
[ -z "$follow" ] || [ -n "$timed_out" ] || wait "$follower"

# The console ends its lines with CR LF.
tr -d '\r' <"$work/console" >"$work/log"
if [ -n "$timed_out" ]; then
    cat "$work/log" >&2
    printf 'guest: no end after %s seconds; console log above\n' "$seconds" >&2
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
