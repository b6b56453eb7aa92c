# shellcheck shell=sh disable=SC2086,SC2154
# Runs inside the guest after modules.sh and before a job: what opens the contestants on $device, and measures.
#   names  contestants, each WHO-SECTOR[-HOW], or raw for the device as it is
#   span   MiB of the device that are used
sectors=$((span * 2048))
open() {
    [ $1 != raw ] || return 0
    case $1 in
    stock-*) target="crypt capi:$driver-plain64" ;;
    xtent-*) target="xtent aes-xts-plain64" ;;
    inline-*) target="inlinecrypt aes-xts-plain64" ;;
    *) die "nobody is called $1" ;;
    esac
    options=
    # dm-inlinecrypt knows no other numbers for such sectors, and the others take them as well.
    case $1 in *-4096*) options="sector_size:4096 iv_large_sectors" ;; esac
    case $1 in
    *-noqueue) options="$options no_read_workqueue no_write_workqueue" ;;
    *-nowrite) options="$options no_write_workqueue" ;;
    *-write) options="$options write_workqueue" ;;
    esac
    dmsetup create $1 --noudevrules --noudevsync \
        --table "0 $sectors $target $key 0 $device 0 $(echo $options | wc -w) $options" || die "cannot open $1"
    dmsetup mknodes $1
}
close() {
    [ $1 = raw ] || dmsetup remove $1 --noudevrules --noudevsync || die "cannot close $1"
}
path() {
    [ $1 = raw ] && echo $device || echo /dev/mapper/$1
}
# users: the drivers of xts(aes) and how many use each
users() {
    awk '$1 == "name" { mine = $3 == "xts(aes)" } $1 == "driver" { d = $3 } mine && $1 == "refcnt" { print d, $3 }' /proc/crypto
}
facts() {
    echo "FACT kernel $(uname -r)"
    echo "FACT cpus $(grep -c ^processor /proc/cpuinfo)"
    echo "FACT stock $driver"
}

# All decrypt what all others encrypt: else somebody's figure is for something else. All are open.
all_agree() {
    dd if=/in/io of=/tmp/plain bs=256k count=1 conv=sync 2>/dev/null
    for size in 512 4096; do
        mine=$(echo $names | tr ' ' '\n' | grep -- "-$size")
        for writer in $mine; do
            dd if=/tmp/plain of=/dev/mapper/$writer bs=256k oflag=direct 2>/dev/null || die "$writer does not write"
            for reader in $mine; do
                dd if=/dev/mapper/$reader bs=256k count=1 iflag=direct 2>/dev/null | cmp - /tmp/plain ||
                    die "$reader does not read what $writer wrote"
            done
            # The next writer has to write.
            dd if=/dev/zero of=$device bs=256k count=1 oflag=direct 2>/dev/null || die "cannot write $device"
        done
    done
}

# measure KIND WHAT REQUEST ARGUMENTS...: one line, of the round and the name at hand
measure() {
    kind=$1 what=$2 request=$3
    shift 3
    got=$(/in/io "$@") || die "$kind of $name failed"
    echo "$kind $round $name $what $request $got"
}

# open_all: opens them, and says which driver dm-inlinecrypt took, by who has more users than before. It keeps it.
took=
open_all() {
    users >/tmp/before
    for name in $names; do
        case $name in inline-*) open $name ;; esac
    done
    users >/tmp/after
    case " $names" in *" inline-"*)
        took=${took:-$(grep -vxFf /tmp/before /tmp/after | cut -d' ' -f1)}
        # Else it is another comparison than what the tables say.
        [ "$took" = "$driver" ] || die "dm-inlinecrypt has $took, not $driver"
        echo "FACT inline $took"
        ;;
    esac
    for name in $names; do
        case $name in inline-*) ;; *) open $name ;; esac
    done
    facts
    echo "FACT xtent $(dmsetup status xtent-512 | cut -d' ' -f4)"
}
