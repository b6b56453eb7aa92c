# shellcheck shell=bash disable=SC2034,SC2154
# The kernels and guests of kernel-series.sh, whose variables and compose() these use; sourced.

# configs STEP: what the steps up to that one have to be configured with.
configs() {
    local step
    for step in "${steps[@]}"; do
        [ "$step" -gt "$1" ] || [ ! -e "$patches/$step/config" ] || echo "$patches/$step/config"
    done
}

# configure ARCH FOLDER PIECE...: for a build there, by tinyconfig and these.
configure() {
    local make=(nice make -C "$tree" "ARCH=$1" "O=$2") folder=$2
    shift 2
    mkdir -p "$folder"
    [ "$(cat "$@" | sha256sum)" != "$(cat "$folder/of" 2>/dev/null)" ] || return 0
    step "configuring" "${make[@]}" tinyconfig
    cat "$@" >>"$folder/.config"
    step "configuring" "${make[@]}" olddefconfig
    cat "$@" | sha256sum >"$folder/of"
}

# kernel STEP um|x86_64: it, in $build, and in $kernel as guest.sh wants one.
kernel() {
    local pieces extra make targets
    mapfile -t pieces < <(printf '%s\n' "$here"/../kernel/test/{uml-6.12,uml-7,uml-fast}.config "$bed/uml.config" && configs "$1")
    extra=("${pieces[@]:3}")
    if [ "$2" = um ]; then
        compose "$1" bed
        targets=(linux modules)
    else
        compose "$1" plain
        extra+=("$here/../kernel/test/x86-7-bochs.config" "$bed/qemu.config")
        pieces+=("${extra[@]: -2}")
        targets=(bzImage modules)
    fi
    kernel=$out/kernel-$2
    build=$out/build-kernel-$2
    make=(nice make -C "$tree" "ARCH=$2" "O=$build")
    configure "$2" "$build" "${pieces[@]}"
    ! grep -h '^CONFIG_' "${extra[@]}" | grep -vxFf "$build/.config" >&2 || die "the configuration refuses the above"
    rm -f "$build/crypto/seg-test.ko"
    step "building Linux for $2 with step $1" "${make[@]}" -j2 "${targets[@]}"
    rm -rf "$kernel"
    mkdir -p "$kernel"
    step "installing its modules" "${make[@]}" "INSTALL_MOD_PATH=$kernel" modules_install
    if [ "$2" = um ]; then cp "$build/linux" "$kernel/image"; else cp "$build/arch/x86/boot/bzImage" "$kernel/image"; fi
    echo "$2" >"$kernel/arch"
    cp "$build/include/config/kernel.release" "$kernel/version"
}

# guest OPTION... JOB: guest.sh, with the kernel that is in $kernel; in Bochs if $in_bochs is set.
in_bochs=
guest() {
    rm -rf "$out/guest"
    mkdir -p "$out/guest/scripts" "$out/guest/target"
    ln -s "$here"/{guest.sh,guest-bochs.sh,guest-initramfs.sh,uml-exec.c} "$out/guest/scripts/"
    # shellcheck disable=SC2016  # its own
    printf '#!/bin/sh\n[ "$1" != bochs ] || exec "%s/kernel.sh" bochs\necho %s\n' "$here" "$kernel" >"$out/guest/scripts/kernel.sh"
    chmod +x "$out/guest/scripts/kernel.sh"
    local name=x86-series${in_bochs:+-bochs}
    [ "$(cat "$kernel/arch")" != um ] || name=uml-series
    CARGO_TARGET_DIR=$out/guest/target "$out/guest/scripts/guest.sh" --on "$name" "$@"
}

# modules ARCH: $modules, what the guests load beside the kernel's own: dm-crypt as it is without the series, and
# for User Mode Linux the kernel's AES driver for x86, and what bench/kernel measures with.
modules() {
    local name names=(before)
    modules=$out/modules-$1
    mkdir -p "$modules"/{before,aesni,clock}
    [ "$1" != um ] || names+=(aesni clock)
    cp "$source"/drivers/md/{dm-crypt.c,dm-audit.h} "$modules/before/"
    echo "obj-m := dm-crypt.o" >"$modules/before/Kbuild"
    cp "$bed"/aesni/* "$modules/aesni/"
    for name in aesni-intel_glue.c aesni-intel_asm.S aes-{ctr-avx,gcm-aesni,xts-avx}-x86_64.S aes-gcm-vaes-avx{2,512}.S; do
        cp "$source/arch/x86/crypto/$name" "$modules/aesni/"
    done
    cp "$here"/../bench/kernel/host_clock.c "$here"/../kernel/host_clock.h "$modules/clock/"
    echo "obj-m := host_clock.o" >"$modules/clock/Kbuild"
    for name in "${names[@]}"; do
        step "building the guests' modules: $name" nice make -C "$build" "ARCH=$1" "M=$modules/$name" modules
    done
    step "building bed/requests.c" cc -static -O2 -Wall -Wextra -Werror -o "$modules/requests" "$bed/requests.c"
    step "building bench/kernel/io.c" cc -static -O1 -Wall -Wextra -Werror -o "$modules/io" "$here/../bench/kernel/io.c"
}

kunit() { # kunit [JOB [OPTION...]]: of guest.sh; the job is bed/kunit.sh, or has it in it
    guest --timeout 3000 --file "aes_xts_kunit.ko=$build/lib/crypto/tests/aes_xts_kunit.ko" "${@:2}" "${1:-$bed/kunit.sh}"
}

# What every guest loads.
guest_files() {
    local name
    for name in "before.ko=$modules/before/dm-crypt.ko" "after.ko=$build/drivers/md/dm-crypt.ko" \
        "aesni-intel.ko=$modules/aesni/aesni-intel.ko" "host_clock.ko=$modules/clock/host_clock.ko" \
        "requests=$modules/requests" "io=$modules/io" "seg-test.ko=$build/crypto/seg-test.ko"; do
        # A step brings the last.
        [ ! -e "${name#*=}" ] || printf -- '--file\n%s\n' "$name"
    done
}

# Each step boots and passes KUnit; dm-crypt is compared where it is another.
run_tests() {
    local step files
    for step in "${steps[@]}"; do
        kernel "$step" um
        echo "step $step boots; KUnit:"
        kunit
        files_of "$step" | grep -q '^drivers/md/' || continue
        modules um
        mapfile -t files < <(guest_files)
        guest --memory 900 --timeout 1200 "${files[@]}" "$bed/same.sh"
    done
}

# No modules, which would have to be signed. The driver of the series is asynchronous, and so is its test: init waits for it.
fips() {
    local build=$out/build-kernel-fips said=$out/fips
    compose "${steps[-1]}" bed
    configure um "$build" "$here"/../kernel/test/{uml-6.12,uml-7,uml-fast}.config "$bed/fips.config"
    ! grep -h '^CONFIG_' "$bed/fips.config" | grep -vxFf "$build/.config" >&2 || die "the configuration refuses the above"
    step "building Linux for um with fips=1" nice make -C "$tree" ARCH=um "O=$build" -j2 linux
    mkdir "$work/root"
    step "building bed/tested.c" cc -static -O2 -Wall -Wextra -Werror -o "$work/root/init" "$bed/tested.c"
    (cd "$work/root" && echo init | cpio --quiet -o -H newc) >"$work/initramfs"
    timeout 600 "$build/linux" mem=256M fips=1 con=null con0=null,fd:1 panic=-1 "initrd=$work/initramfs" >"$said" 2>&1 </dev/null || true
    grep -q 'xts-aes-seg-test, selftest *: passed' "$said" || { tail -30 "$said" >&2 && die "xts-aes-seg-test did not pass its test: see $said"; }
    grep -q 'self-tests for xts-aes-seg-test (xts(aes)) passed' "$said" || die "xts-aes-seg-test was not tested: see $said"
    echo "fips=1: $(grep -c 'alg: self-tests for .* passed' "$said") algorithms passed their tests"
}

# Real kernel_fpu_begin(), two CPUs, as far as the emulated one has the instructions: AES-NI and AVX.
qemu() {
    local files
    kernel "${steps[-1]}" x86_64
    kunit
    modules x86_64
    mapfile -t files < <(guest_files)
    # Slow: fewer configurations.
    { printf 'CIPHERS="aes-xts-plain64 128|seg-test" SECTORS="512 4096"\n' && cat "$bed/same.sh"; } >"$work/job"
    guest --memory 1200 --timeout 3000 "${files[@]}" "$work/job"
}

# our_modules: those of kernel/, for the kernel in $build, in $modules/xtent.
our_modules() {
    mkdir -p "$modules/xtent"
    cp -r "$here"/../kernel/{*.[ch],Kbuild,pci} "$modules/xtent/"
    step "building dm-xtent" nice make -C "$build" ARCH=um "M=$modules/xtent" modules
}

engine() {
    local files status=0 target
    target=$(realpath -m "${CARGO_TARGET_DIR:-$here/../target}")
    # shellcheck source=scripts/lib/device.sh
    . "$here/lib/device.sh"
    trap 'end_device; rm -rf "$work"' EXIT
    step "building the co-processor's model" "$here/../rtl/cosim/model.sh" --models "$target/rtl/cosim" xts
    step "building its simulation" nice cargo build --quiet --release --manifest-path "$here/../rtl/cosim/Cargo.toml" --target-dir "$target/cosim"
    kernel "${steps[-1]}" um
    modules um
    our_modules
    mapfile -t files < <(guest_files)
    start_device "$target/cosim/release/xtent-engine-sim" --design xts --models "$target/rtl/cosim" --vhost-user "$work/engine"
    guest --engine "$work/engine" --timeout 1200 "${files[@]}" --file "dm-xtent.ko=$modules/xtent/dm-xtent.ko" \
        --file "xtent_pci.ko=$modules/xtent/xtent_pci.ko" --file "pci-lib.sh=$here/../kernel/test/pci-lib.sh" "$bed/engine.sh" || status=1
    stop_device || status=1
    return $status
}

# Bochs's CPU is an Ice Lake, where the kernel prefers 256 bits; the second time it is told not to, by the number of
# X86_FEATURE_PREFER_YMM. By that the library chooses, and the crypto API's AES driver the priority that tells of it.
bochs() {
    local append
    kernel "${steps[-1]}" x86_64
    in_bochs=1
    for append in "" clearcpuid=680; do
        {
            # shellcheck disable=SC2016  # the guest's
            printf '[ "$(sed -n "/^driver *: xts-aes-vaes-avx512$/,/^$/s/^priority *: //p" /proc/crypto | head -1)" = %s ] || ' "$([ -n "$append" ] && echo 800 || echo 1)"
            printf '{ echo "FAILED: not the CPU that was wanted" && exit 1; }\n'
            cat "$bed/kunit.sh"
        } >"$work/job"
        echo "Bochs, VAES with $([ -n "$append" ] && echo AVX-512 || echo AVX2); KUnit:"
        kunit "$work/job" ${append:+--append "$append"}
    done
    in_bochs=
}

time_it() {
    local last=${steps[-1]} files
    build_units
    "$work/units" time
    echo
    kernel "$last" um
    modules um
    mapfile -t files < <(guest_files)
    # dm-xtent beside them.
    our_modules
    { printf 'rounds=%s\nmegabytes=%s\nspan=256\n' "${ROUNDS:-7}" "${MEGABYTES:-128}" && cat "$bed/time.sh"; } >"$work/job"
    guest --memory 700 --timeout 3000 "${files[@]}" --file "dm-xtent.ko=$modules/xtent/dm-xtent.ko" "$work/job" >"$out/times"
    "$bed/table.py" <"$out/times"
}
