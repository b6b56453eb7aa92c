#!/bin/sh
# Runs inside the guest: the check of the kernel's log finds a report, and a kernel
# that checks itself reports what planted.ko does: what PLANTED says.
# shellcheck disable=SC1091
. /in/log.sh
fail() {
    echo "FAILED: $*"
    exit 1
}

# found TERM: the log is not clean, and says why; then it is cleared.
found() {
    ! log_is_clean >/tmp/found || fail "$1 was not reported"
    grep -q "$1" /tmp/found || fail "reported was not $1 but: $(head -5 /tmp/found)"
    [ ! -e /sys/kernel/debug/kmemleak ] || echo clear >/sys/kernel/debug/kmemleak
    dmesg -c >/dev/null
    rm /tmp/dmesg
}

log_is_clean || fail "complaints before anything was planted"
echo "<4>WARNING: planted" >/dev/kmsg
found "WARNING: planted"
what="a line"
# A race that nobody of ours is in is no complaint.
echo "<4>BUG: KCSAN: data-race in one / other [brd]" >/dev/kmsg
log_is_clean || fail "complaints of a race elsewhere"
# The validator of locks comes first: it stops at anything that KASAN reports.
for pair in "lockdep:possible circular locking" "sleep:BUG: sleeping function" "leak:memory is lost" \
    "kasan:KASAN: slab-use-after-free" "kcsan:KCSAN: data-race in .*\[planted\]"; do
    case " $PLANTED " in *" ${pair%%:*} "*) ;; *) continue ;; esac
    insmod /in/planted.ko "what=${pair%%:*}" || fail "planted.ko what=${pair%%:*}"
    rmmod planted
    found "${pair#*:}"
    what="$what, ${pair%%:*}"
done
if [ -e /sys/kernel/debug/kmemleak ]; then
    # What the allocator's arrays still pointed to would be found by the search after this job. This forgets
    # all, on a work queue; with "clear" after it both would do so at once, and the kernel crashes.
    echo off >/sys/kernel/debug/kmemleak
fi
echo "planted and found: $what"
