#!/usr/bin/env bash
# Builds the modules for a kernel and prints the folder that holds them. Sources
# and kernels are cached under target/kernel.
#
# usage: build.sh uml     for Debian's User Mode Linux (6.1)
set -euo pipefail
export LC_ALL=C

die() {
    printf 'kernel: %s\n' "$*" >&2
    exit 125
}

kernel=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=$(realpath -m "${CARGO_TARGET_DIR:-$kernel/../target}/kernel")
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9

step() { # step WHAT COMMAND...
    printf 'kernel: %s\n' "$1" >&2
    shift
    "$@" >"$cache/log" 2>&1 || {
        tail -40 "$cache/log" >&2
        die "that failed; the end of the log is above"
    }
}

# source_tree VERSION: unpacks Debian's linux-source-6.1 of that very version,
# since a module's version magic holds it.
source_tree() {
    tree=$cache/linux-$1
    [ ! -e "$tree/Makefile" ] || return 0
    local revision work
    revision=$(apt-cache madison linux-source-6.1 | awk -v v="$1-" 'index($3, v) == 1 { print $3; exit }')
    [ -n "$revision" ] || die "apt knows no linux-source-6.1 of version $1; apt-get update may help"
    work=$(mktemp -d "$cache/unpack.XXXXXX")
    (
        cd "$work"
        step "downloading linux-source-6.1 $revision" apt-get download "linux-source-6.1=$revision"
        step "unpacking the package" dpkg-deb -x linux-source-6.1_*.deb unpacked
        # Without the drivers that no such kernel has: half of the files.
        step "unpacking the source" tar -xf unpacked/usr/src/linux-source-6.1.tar.xz --wildcards \
            --exclude='*/drivers/gpu/*.[ch]' --exclude='*/drivers/net/*.[ch]' --exclude='*/drivers/media/*.[ch]' \
            --exclude='*/sound/*.[ch]' --exclude='*/tools/testing/*' --exclude='*/boot/dts/*' --exclude='*/tools/perf/*'
    )
    mv "$work/linux-source-6.1" "$tree"
    rm -rf "$work"
}

case ${1:-} in
uml)
    version=$(linux.uml --version) || die "linux.uml is missing (Debian package user-mode-linux)"
    source_tree "$version"
    output=$cache/uml-$version
    build=(make -C "$tree" ARCH=um "O=$output")
    if [ ! -e "$output/scripts/mod/modpost" ]; then
        mkdir -p "$output"
        linux.uml --showconfig >"$output/.config"
        step "configuring" "${build[@]}" olddefconfig
        step "preparing" "${build[@]}" modules_prepare
    fi
    # The binary does not tell its symbols: what is missing shows when it is loaded.
    modules=$cache/modules-uml
    mkdir -p "$modules"
    cp "$kernel"/*.[ch] "$kernel/Kbuild" "$modules/"
    step "building the modules" make -C "$output" ARCH=um "M=$modules" W=1 KBUILD_MODPOST_WARN=1 modules
    if grep -E 'kernel/.*warning:|modules-uml/.*warning:' "$cache/log" >&2; then
        die "warnings; see above"
    fi
    ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2
    exit 2
    ;;
esac
echo "$modules"
