# shellcheck shell=sh
# Runs inside the guest before a job: loads the modules that build.sh has built, with $level (wide, or aesni
# for instructions that CPUs without VAES have), and says what the job has to know:
#   driver  the kernel's own driver of XTS, the widest that this CPU has
#   key     of AES-256-XTS, as a table of the device mapper has it
chmod +x /in/io
die() {
    dmesg | tail -5
    echo "$*"
    exit 1
}
# The driver needs it, and it may be built in.
modprobe cryptd 2>/dev/null
[ "${level:-wide}" = aesni ] && only=only_aesni=1 isa=isa=aesni_avx || only='' isa=''
for module in "host_clock.ko $only" "aesni-intel.ko $only" "dm-xtent.ko $isa"; do
    # shellcheck disable=SC2086  # words
    insmod /in/$module || die "cannot load $module"
done
# The widest that this CPU has.
for driver in xts-aes-vaes-avx512 xts-aes-vaes-avx10_512 xts-aes-vaes-avx10_256 xts-aes-vaes-avx2 xts-aes-aesni-avx xts-aes-aesni; do
    ! grep -q "^driver *: $driver\$" /proc/crypto || break
done
# Not every kernel has the tests; without, the comparison below has to do.
verdict=$(awk -v d="$driver" '$1 == "driver" { mine = $3 == d } mine && $1 == "selftest" { print $3 }' /proc/crypto)
[ "$verdict" = passed ] || die "$driver has not passed the kernel's test"
# shellcheck disable=SC2034
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
key=${key}f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff
