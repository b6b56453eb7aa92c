# shellcheck shell=sh disable=SC2086,SC2154
# Runs inside the guest; disk.py puts kernel/modules.sh and these in front:
#   rounds  requests  random (sizes in bytes)  depth  random_depth  span (MiB of a disk
#   that are used)  megabytes (of a figure)  most (requests of a figure)
#   contenders: of each its name, the host's process that serves its disk, and
#               what is in front of the disk here: -, or a target of the device mapper, with its size of sectors
# Prints lines for disk.py: FACT, ROUND, POINT. Leaves in /out/plain what it has
# written to each disk in the end.
sectors=$((span * 2048))
mkdir /tmp/of
names=
while read -r name server target size; do
    disk=$(readlink -f /d/$name)
    # Requests keep their size.
    queue=/sys/block/${disk##*/}/queue
    echo 2 >$queue/nomerges
    echo none >$queue/scheduler
    case $target in
    -) path=$disk ;;
    *)
        [ $target = xtent ] && cipher=aes-xts-plain64 || cipher=capi:$driver-plain64
        [ $size = 512 ] && options= || options="1 sector_size:$size"
        dmsetup create $name --noudevrules --noudevsync --table \
            "0 $sectors $target $cipher $key 0 $disk 0 $options" || die "cannot open $name"
        dmsetup mknodes $name
        path=/dev/mapper/$name
        ;;
    esac
    names="${names:+$names }$name"
    echo $path $server >/tmp/of/$name
done <<END
$contenders
END
echo "FACT kernel $(uname -r)"
echo "FACT stock $driver"
for name in $names; do
    case $name in dm-xtent*) echo "FACT xtent $(dmsetup status $name | cut -d' ' -f4)" && break ;; esac
done

# all WHAT REQUEST DEPTH: everybody's turn, a line each
all() {
    bytes=$((megabytes << 20))
    [ $bytes -le $(($2 * most)) ] || bytes=$(($2 * most))
    for name in $names; do
        read -r path server </tmp/of/$name
        echo $server >/sys/module/host_clock/parameters/server
        got=$(/in/io $1 $path $2 $((span << 20)) $bytes $3) || die "$1 of $name failed"
        echo "POINT $round $name $1 $2 $got"
    done
}

# Once unmeasured: memory and code that is touched for the first time.
for name in $names; do
    read -r path server </tmp/of/$name
    for what in write read; do
        /in/io $what $path 1048576 $((span << 20)) $((span << 20)) $depth >/dev/null || exit
    done
done
round=0
while [ $round -lt $rounds ]; do
    round=$((round + 1))
    echo "ROUND $round"
    for request in $requests; do
        all read $request $depth
        all write $request $depth
    done
    for request in $random; do
        all randread $request $random_depth
        all randwrite $request $random_depth
    done
    # Nobody is always the first.
    names="${names#* } ${names%% *}"
done

# Who writes what others cannot read has been measured at something else: disk.py looks
# into the images for this.
dd if=/in/io of=/tmp/plain bs=256k count=1 conv=sync 2>/dev/null
for name in $names; do
    read -r path server </tmp/of/$name
    dd if=/tmp/plain of=$path bs=256k oflag=direct conv=fsync,notrunc 2>/dev/null || exit
    dd if=$path bs=256k count=1 iflag=direct 2>/dev/null | cmp - /tmp/plain || exit
done
cp /tmp/plain /out/plain
