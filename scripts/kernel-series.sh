#!/usr/bin/env bash
# A patch series for Linux 7.3 (kernel/patches): AES-XTS over several data units in one call, and dm-crypt
# using it. Applies it to Debian's source, step by step, checks every step, and writes it as mails to
# target/kernel-series/mails. Needs no privileges.
#
# usage: kernel-series.sh [PART...]     without arguments mails, units, build, test, engine, fips, qemu and bochs
#   mails   applies the steps, each to the very files that it was made for; git's mails; the
#           kernel's checkpatch on each
#   units   the assembly outside the kernel, against portable code; that clang takes it
#   build   every step for x86-64 and 32-bit x86: what it touches, at W=1, without a warning of the compiler's
#           or of sparse's
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

# shellcheck source=scripts/lib/series-guests.sh
. "$here/lib/series-guests.sh"

# As the kernel is used: with objtool, which reads the assembly. 32-bit x86 has the library without it.
build() {
    local step arch folder objects pieces sparse one
    sparse=$(sparse_root)/sparse
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
            step "running sparse on step $step for $arch" nice make -C "$tree" "ARCH=$arch" "O=$folder" W=1 C=2 "CHECK=$sparse" -j2 "${objects[@]}"
            ! grep -E '(warning|error):' "$log" >&2 || die "sparse complains; see above"
            for one in "${objects[@]}"; do
                # Not of assembly.
                [ ! -e "$tree/${one%.o}.c" ] || grep -q "^  CHECK  *${one%.o}.c$" "$log" || die "sparse has not seen ${one%.o}.c"
            done
            # Of what is built in, objtool would see the whole kernel only.
            [ "$arch" = i386 ] || [ ! -e "$tree/$assembly" ] || step "running objtool" "$folder/tools/objtool/objtool" --stackval --rethunk --retpoline --sls --werror \
                --dry-run "$folder/${assembly%.S}.o"
        done
    done
    echo "build: steps ${steps[*]} for x86-64 and 32-bit x86, no warnings, none of sparse's"
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
