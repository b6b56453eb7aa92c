#!/bin/sh
# Runs inside the guest: xtent_fast is loaded and unloaded beside programs that ask the crypto API for its ciphers all
# the time, and is loaded by the kernel since somebody asks. No privilege is needed to ask.
fail() {
    echo "FAILED: $*"
    dmesg | tail -20
    exit 1
}
# The kernel's thread that was to find a cipher for a program that was killed may keep the module a moment longer;
# whoever forgets to give it back keeps it for ever.
unload() {
    for try in $(seq 500); do
        rmmod xtent_fast 2>/dev/null && return
        [ "$try" -le "$refused" ] || refused=$try
    done
    rmmod xtent_fast
}
refused=0
chmod +x /in/ask
rmmod xtent_fast || fail "somebody uses xtent_fast"
modprobe -a ecb algif_skcipher 2>/dev/null
/in/ask "ecb(aes)" 2>/dev/null || {
    echo "NOT RUN: this kernel has no AF_ALG"
    exit 0
}
rounds=${1:-10}
for round in $(seq "$rounds"); do
    pids=
    for name in "fast(aes)" "fast(aes)" "fast_horner(aes)"; do
        /in/ask "$name" 0 2>/dev/null &
        pids="$pids $!"
    done
    insmod /in/xtent_fast.ko || fail "not loaded beside who asks for it, round $round"
    # The cipher is there for the next who comes.
    /in/ask "fast(aes)" || fail "loaded, and not there"
    # shellcheck disable=SC2086  # several
    kill $pids
    wait
    unload || fail "not unloaded, round $round"
done
# As the kernel would call modprobe.
cat >/tmp/modprobe <<'MODPROBE'
#!/bin/sh
case "$*" in
*crypto-fast*) exec insmod /in/xtent_fast.ko ;;
*) exec modprobe "$@" ;;
esac
MODPROBE
chmod +x /tmp/modprobe
modprobe=$(cat /proc/sys/kernel/modprobe) || fail "this kernel calls no modprobe"
echo /tmp/modprobe >/proc/sys/kernel/modprobe
/in/ask "fast(aes)" || fail "asked for, and not loaded"
grep -q '^xtent_fast ' /proc/modules || fail "who loaded it?"
echo "$modprobe" >/proc/sys/kernel/modprobe
echo "loaded $rounds times beside who asks for it, refused at most $refused times to be unloaded, and once since it was asked for"
