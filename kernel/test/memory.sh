#!/bin/sh
# Runs inside a guest with little memory: whether the kernel keeps what processes have written while it swaps on a plain disk and
# moves pages, and another CPU takes them away. dm-xtent has no part in it: if it fails, no other job proves anything.
fail() {
    echo "FAILED: $*"
    dmesg | tail -20
    exit 1
}
# What the disk has been given, in pages: not every kernel counts swapped ones.
swapped_out() {
    awk '{ print int($7 / 8) }' "/sys/class/block/$(basename "$(readlink /d/scratch)")/stat"
}
# Told at the end: a process that has lost its memory may say anything, and the shell is one.
lost() {
    echo "$*" >>/tmp/lost
    touch /tmp/over
}
rm -f /tmp/lost /tmp/over
# See swap.sh.
echo 8192 >/proc/sys/vm/min_free_kbytes || fail min_free_kbytes
echo 200 >/proc/sys/vm/swappiness
mkswap /d/scratch >/dev/null || fail mkswap
swapon /d/scratch || fail swapon
before=$(swapped_out)
size=$(awk '$1 == "MemTotal:" { print int($2 / 1024 * 2 / 5) }' /proc/meminfo)
running=
for number in 1 2 3; do
    {
        times=0
        until [ -e /tmp/over ]; do
            /in/dirty "$size" 1 >"/tmp/dirty-$number" 2>&1 || lost "dirty: $(cat "/tmp/dirty-$number")"
            times=$((times + 1))
            [ $times -lt 6 ] || break
        done
        echo $times >"/tmp/times-$number"
    } &
    running="$running $!"
done
until [ -e /tmp/over ]; do echo 1 >/proc/sys/vm/compact_memory; done &
others=$!
for number in 1 2; do
    until [ -e /tmp/over ]; do dmsetup version >/dev/null 2>&1 || lost "dmsetup: $?"; done &
    others="$others $!"
done
for one in $running; do wait "$one" || lost "sh: $?"; done
touch /tmp/over
for one in $others; do wait "$one" || lost "sh: $?"; done
[ ! -s /tmp/lost ] || fail "$(sort /tmp/lost | uniq -c)"
out=$(($(swapped_out) - before))
[ $out -ge $((size * 256)) ] || fail "only $out pages were swapped out: this proves nothing"
swapoff /d/scratch || fail swapoff
echo "$(cat /tmp/times-* | awk '{ sum += $1 } END { print sum }') times $size MB by three processes, $((out / 256)) MB swapped out"
