#!/usr/bin/env bash
# A patch series for Linux 7.3 (kernel/patches): AES-XTS over several data units in one call, and dm-crypt
# using it. Applies it to Debian's source, step by step, checks every step, and writes it as mails to
# target/kernel-series/mails. Needs no privileges.
#
# usage: kernel-series.sh [PART...]     without arguments mails, units, build, test, engine, fips, qemu and bochs
#   mails   applies the steps, each to the very files that it was made for; git's mails; the
#           kernel's checkpatch on each
#   units   the assembly outside the kernel, against portable code; that clang takes it
#   build   every step for x86-64 and 32-bit x86: what it touches, at W=1, without a warning
#   test    every step in User Mode Linux: KUnit, and dm-crypt's volumes read by the dm-crypt before and the
#           other way round. A quarter of an hour, the first time
#   engine  all steps in User Mode Linux with the simulated co-processor (rtl/engine), whose driver (kernel/pci)
#           takes several sectors in a request
#   fips    all steps in User Mode Linux with fips=1, where a self-test of the crypto API that fails is the end
#   qemu    all steps in QEMU, where kernel_fpu_begin() is real: AES-NI and AVX, two CPUs
#   bochs   all steps in Bochs, where it is real, too: KUnit with VAES by AVX2 and by AVX-512, one CPU
#   time    the assembly's speed, and the CPU time of dm-crypt with the series and without
#   record STEP TREE [PATH...]
#           makes a step of kernel/patches from a kernel's tree that has been changed, of these files
#           or those that it has
# shellcheck disable=SC2154  # of kernel-packages.sh
set -euo pipefail
export LC_ALL=C

die() {
    printf 'kernel-series: %s\n' "$*" >&2
    exit 125
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
patches=$here/../kernel/patches
bed=$patches/bed
# shellcheck disable=SC1091
. "$here/kernel-packages.sh"
out=$(dirname "$built")/kernel-series
mkdir -p "$out"
exec 9>"$out/lock"
flock 9
log=$out/log
tree=$out/linux
work=$(mktemp -d "$out/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
mapfile -t steps < <(cd "$patches" && printf '%s\n' [0-9] | sort)
assembly=lib/crypto/x86/aes-xts-units-avx-x86_64.S
source=$("$here/kernel.sh" source-7) || exit 125

# The files that a step has, or all steps.
files_of() {
    if [ $# -gt 0 ]; then cat "$patches/$1/sums"; else cat "$patches"/[0-9]/sums; fi | cut -d' ' -f1 | sort -u
}
bed_files() { (cd "$bed/tree" && find . -type f -printf '%P\n'); }

# sum FILE: its hash, or "-" where there is none.
sum() {
    if [ -e "$1" ]; then sha256sum "$1" | cut -d' ' -f1; else echo -; fi
}

# edit SCRIPT FILE: by ed.
edit() {
    { cat "$1" && printf 'w\nq\n'; } | ed -s "$2" >/dev/null || die "$1 does not apply"
}

# apply STEP FOLDER: to copies of the kernel's files there, as they are after the step before.
apply() {
    local path before after
    while read -r path before after; do
        [ "$(sum "$2/$path")" = "$before" ] || die "step $1 was made for another $path"
        mkdir -p "$2/$(dirname "$path")"
        if [ -e "$patches/$1/files/$path" ]; then
            cp "$patches/$1/files/$path" "$2/$path"
        else
            edit "$patches/$1/ed/$path.ed" "$2/$path"
        fi
        [ "$(sum "$2/$path")" = "$after" ] || die "step $1 makes another $path than it should"
    done <"$patches/$1/sums"
}

# pristine FOLDER PATH...: copies of the kernel's files.
pristine() {
    local folder=$1 path
    shift
    for path in "$@"; do
        mkdir -p "$folder/$(dirname "$path")"
        [ ! -e "$source/$path" ] || cp "$source/$path" "$folder/$path"
    done
}

# compose STEP bed|plain: the tree after that step, where bed lets User Mode Linux have the code for
# x86. The tree is hard links where that can be: files are replaced, never written in place,
# and only where they differ, so that little is built again.
compose() {
    local new=$work/new path step paths
    [ "$(cat "$out/source" 2>/dev/null)" = "$source" ] || {
        rm -rf "$tree" "$out"/build-*
        cp -al "$source" "$tree" 2>/dev/null || cp -a "$source" "$tree"
        echo "$source" >"$out/source"
    }
    rm -rf "$new"
    mapfile -t paths < <({ files_of && bed_files | sed 's|\.ed$||'; } | sort -u)
    pristine "$new" "${paths[@]}"
    for step in "${steps[@]}"; do
        [ "$step" -gt "$1" ] || apply "$step" "$new"
    done
    [ "$2" = plain ] || while read -r path; do
        case $path in
        *.ed) edit "$bed/tree/$path" "$new/${path%.ed}" ;;
        *) cp "$bed/tree/$path" "$new/$path" ;;
        esac
    done < <(bed_files)
    for path in "${paths[@]}"; do
        if [ ! -e "$new/$path" ]; then
            rm -f "$tree/$path"
        elif ! cmp -s "$new/$path" "$tree/$path"; then
            mv "$new/$path" "$tree/$path"
        fi
    done
}

record() { # record STEP TREE [PATH...]
    local step=$1 changed=$2 folder=$work/record path one
    shift 2
    [ $# -gt 0 ] || mapfile -t paths < <(files_of "$step")
    [ $# -eq 0 ] || paths=("$@")
    mapfile -t all < <({ files_of && printf '%s\n' "${paths[@]}"; } | sort -u)
    pristine "$folder" "${all[@]}"
    for one in "${steps[@]}"; do
        [ "$one" -ge "$step" ] || apply "$one" "$folder"
    done
    rm -rf "${patches:?}/$step"/{ed,files,sums}
    for path in "${paths[@]}"; do
        if [ -e "$folder/$path" ]; then
            mkdir -p "$patches/$step/ed/$(dirname "$path")"
            diff -e "$folder/$path" "$changed/$path" >"$patches/$step/ed/$path.ed" || [ $? -eq 1 ]
        else
            mkdir -p "$patches/$step/files/$(dirname "$path")"
            cp "$changed/$path" "$patches/$step/files/$path"
        fi
        echo "$path $(sum "$folder/$path") $(sum "$changed/$path")" >>"$patches/$step/sums"
    done
}

# As git writes them, of a repository that has only the files that the series touches.
mails() {
    local repo=$work/repo step name address date mail paths
    name=$(git -C "$here" log -1 --format=%an)
    address=$(git -C "$here" log -1 --format=%ae)
    mapfile -t paths < <(files_of)
    pristine "$repo" "${paths[@]}"
    date=$(git -C "$here" log -1 --format=%aD)
    git() { GIT_AUTHOR_DATE=$date GIT_COMMITTER_DATE=$date GIT_CONFIG_GLOBAL=/dev/null command git -C "$repo" -c "user.name=$name" -c "user.email=$address" "$@"; }
    git init -q -b base
    git add -A && git commit -q -m "Linux $(basename "$source")"
    git tag start
    for step in "${steps[@]}"; do
        apply "$step" "$repo"
        git add -A && git commit -q -F "$patches/$step/message"
    done
    rm -rf "$out/mails"
    git format-patch -q --rfc --cover-letter --zero-commit -o "$out/mails" start
    # The letter: its first line is the subject.
    mail=$out/mails/0000-cover-letter.patch
    awk -v letter="$patches/letter" '
        function fill() { while ((getline line < letter) > 0) print line }
        BEGIN { getline subject < letter; getline line < letter }
        { sub(/\*\*\* SUBJECT HERE \*\*\*/, subject) }
        /\*\*\* BLURB HERE \*\*\*/ { fill(); next }
        { print }' "$mail" >"$work/letter"
    mv "$work/letter" "$mail"
    unset -f git
    compose 0 plain
    for mail in "$out"/mails/000[1-9]*.patch; do
        # A new file always asks for a word in MAINTAINERS, whose entry for lib/crypto has them. Who sends a patch
        # signs it off.
        (cd "$tree" && perl scripts/checkpatch.pl --strict --no-signoff --ignore FILE_PATH_CHANGES "$mail") >"$log" || {
            cat "$log" >&2
            die "checkpatch complains of $(basename "$mail")"
        }
    done
    echo "mails: $(find "$out/mails" -type f | wc -l), each applies, checkpatch --strict content: $out/mails"
}

# The program of bed/units.c: $work/units
build_units() {
    mkdir -p "$work/stubs/linux"
    printf '%s\n' '#define SYM_FUNC_START(n) .globl n; .type n,@function; .balign 16; n:' \
        '#define SYM_TYPED_FUNC_START(n) SYM_FUNC_START(n)' '#define SYM_FUNC_END(n) .size n, .-n' \
        '#define RET ret' '.section .note.GNU-stack,"",@progbits' >"$work/stubs/linux/linkage.h"
    : >"$work/stubs/linux/cfi_types.h"
    step "building bed/units.c" cc -O2 -Wall -Wextra -Werror "-I$work/stubs" -o "$work/units" "$bed/units.c" \
        "$patches"/[0-9]/files/$assembly "$source/arch/x86/crypto/aes-xts-avx-x86_64.S"
}

units() {
    build_units
    "$work/units" check
    # Its assembler takes some things for mistakes that gcc's does not.
    step "assembling with clang" clang -c "-I$work/stubs" -o "$work/clang.o" \
        "$patches"/[0-9]/files/$assembly
    echo "clang assembles it, too"
}

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

# As the kernel is used: with objtool, which reads the assembly. 32-bit x86 has the library without it.
build() {
    local step arch folder objects pieces
    for arch in x86_64 i386; do
        folder=$out/build-$arch
        compose 0 plain
        mkdir -p "$folder"
        step "configuring for $arch" make -C "$tree" "ARCH=$arch" "O=$folder" defconfig
        cat "$bed/x86.config" >>"$folder/.config"
        step "configuring for $arch" make -C "$tree" "ARCH=$arch" "O=$folder" olddefconfig
        step "preparing for $arch" nice make -C "$tree" "ARCH=$arch" "O=$folder" -j2 prepare
        for step in "${steps[@]}"; do
            compose "$step" plain
            mapfile -t pieces < <(configs "$step")
            [ ${#pieces[@]} -eq 0 ] || cat "${pieces[@]}" >>"$folder/.config"
            step "configuring for $arch" make -C "$tree" "ARCH=$arch" "O=$folder" olddefconfig
            objects=(lib/crypto/aes.o lib/crypto/tests/aes_xts_kunit.o drivers/md/dm-crypt.o crypto/skcipher.o crypto/testmgr.o)
            [ "$arch" = i386 ] || [ ! -e "$tree/$assembly" ] || objects+=("${assembly%.S}.o")
            [ ! -e "$tree/crypto/seg-test.c" ] || objects+=(crypto/seg-test.o)
            step "building step $step for $arch" nice make -C "$tree" "ARCH=$arch" "O=$folder" W=1 -j2 "${objects[@]}"
            ! grep -i 'warning' "$log" >&2 || die "warnings; see above"
            # Of what is built in, objtool would see the whole kernel only.
            [ "$arch" = i386 ] || [ ! -e "$tree/$assembly" ] || step "running objtool" "$folder/tools/objtool/objtool" --stackval --rethunk --retpoline --sls --werror \
                --dry-run "$folder/${assembly%.S}.o"
        done
    done
    echo "build: steps ${steps[*]} for x86-64 and 32-bit x86, no warnings"
}

[ $# -gt 0 ] || set -- mails units build test engine fips qemu bochs
while [ $# -gt 0 ]; do
    case $1 in
    mails | units | build | fips | qemu | bochs | engine) "$1" ;;
    test) run_tests ;;
    time) time_it ;;
    record)
        shift
        record "$@"
        exit
        ;;
    *)
        sed -n '2,/^# shellcheck/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2
        exit 2
        ;;
    esac
    shift
done
