# shellcheck shell=sh
# Runs inside the guest: what the kernel complains about. Sourced.
complaints="WARNING:|BUG:|Oops|KASAN:|INFO: |ODEBUG:|UBSAN:|general protection|Call Trace|new suspected|pages lost"

# Of KCSAN's reports the first line names who made the two accesses, with their modules. The kernel has races of
# its own, which are not ours to mend; those in which one access is ours are.
ours='\[(dm_xtent|xtent_fast|xtent_pci|xtent_run_test|planted)\]'

# log_is_clean: fails if the kernel has complained, as far as its log reaches, or if
# kmemleak finds memory that nothing points to.
log_is_clean() {
    # What a test has cleared away is in /tmp/dmesg.
    dmesg >>/tmp/dmesg
    sed -E "/$ours/! s/BUG: KCSAN: /elsewhere: /" /tmp/dmesg >/tmp/complaints
    if grep -q -E "$complaints" /tmp/complaints; then
        echo "FAILED: the kernel complains"
        grep -E -B 6 -A 60 "$complaints" /tmp/complaints | head -160
        return 1
    fi
    [ ! -e /sys/kernel/debug/kcsan ] ||
        echo "KCSAN: $(grep "elsewhere: " /tmp/complaints | sort -u | grep -c .) reports of races elsewhere in the kernel, none of ours"
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
