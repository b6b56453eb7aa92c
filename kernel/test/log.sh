# shellcheck shell=sh
# Runs inside the guest: what the kernel complains about. Sourced.
complaints="WARNING:|BUG:|Oops|KASAN:|INFO: |ODEBUG:|UBSAN:|general protection|Call Trace|new suspected|pages lost"

# log_is_clean: fails if the kernel has complained, as far as its log reaches, or if
# kmemleak finds memory that nothing points to.
log_is_clean() {
    # What a test has cleared away is in /tmp/dmesg.
    dmesg >>/tmp/dmesg
    if grep -q -E "$complaints" /tmp/dmesg; then
        echo "FAILED: the kernel complains"
        grep -E -B 6 -A 60 "$complaints" /tmp/dmesg | head -160
        return 1
    fi
    [ -e /sys/kernel/debug/kmemleak ] || return 0
    # It takes nothing for lost that is younger than five seconds.
    sleep 6
    echo scan >/sys/kernel/debug/kmemleak
    echo scan >/sys/kernel/debug/kmemleak
    if grep -q . /sys/kernel/debug/kmemleak; then
        echo "FAILED: memory is lost"
        head -40 /sys/kernel/debug/kmemleak
        return 1
    fi
}
