# shellcheck shell=bash disable=SC2154
# For kernel.sh and build.sh: where kernels are kept ($cache) and what is built for them from
# this tree ($built), and Debian's packages for them. Expects die(), and $log and $work where
# something is fetched.

# shellcheck source=scripts/lib/debian.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/debian.sh"

# Outside the tree, since they take long to build and do not depend on it.
cache=$(realpath -m "${XTENT_KERNEL_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/xtent/kernel}")
built=$(realpath -m "${CARGO_TARGET_DIR:-$(dirname "${BASH_SOURCE[0]}")/../target}/kernel")
mkdir -p "$cache" "$built"

step() { # step WHAT COMMAND...
    printf 'kernel: %s\n' "$1" >&2
    shift
    quietly "$@"
}

# newest_of META: the version of the kernel that this package stands for.
newest_of() {
    local found
    found=$(apt-cache depends "$1" 2>/dev/null | awk '/Depends: linux-image-/ { print $2; exit }')
    [ -n "$found" ] || die "apt does not know $1; apt-get update may help"
    printf '%s\n' "${found#linux-image-}"
}

# unpack FOLDER APT-GET... -- PACKAGE...: these, and nothing that they depend on.
unpack() {
    local into=$1 apt=() debs
    shift
    while [ "$1" != -- ]; do apt+=("$1") && shift; done
    shift
    mkdir -p "$into"
    debs=$(mktemp -d "$work/debs.XXXXXX")
    (cd "$debs" && "${apt[@]}" download -q -o APT::Sandbox::User=root "$@")
    for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$into"; done
    rm -r "$debs"
}

# in_root ROOT apt-get ...: downloads to the working directory by the apt of another Debian.
in_root() {
    local root=$1
    shift
    rm -rf "$root/debs" && mkdir "$root/debs"
    chroot "$root" env --chdir=/debs "$@"
    mv "$root"/debs/*.deb .
}

# source_tree PACKAGE [VERSION]: the folder with Debian's source of that kernel.
source_tree() {
    local package=$1 revision tree
    revision=$(apt-cache madison "$package" | awk -v v="${2:+$2-}" 'index($3, v) == 1 { print $3; exit }')
    [ -n "$revision" ] || die "apt knows no $package${2:+ of version $2}; apt-get update may help"
    tree=$cache/linux-${revision%%-*}
    exec 8>"$cache/lock-source"
    flock 8
    [ -e "$tree/Makefile" ] || {
        step "downloading $package $revision" unpack "$work/source" apt-get -- "$package=$revision"
        # Without the drivers that no such kernel has: half of the files.
        mkdir "$work/tree"
        step "unpacking the source" tar -xf "$work/source/usr/src/$package.tar.xz" -C "$work/tree" --wildcards \
            --exclude='*/drivers/gpu/*.[ch]' --exclude='*/drivers/net/*.[ch]' --exclude='*/drivers/media/*.[ch]' \
            --exclude='*/sound/*.[ch]' --exclude='*/tools/testing/*' --exclude='*/boot/dts/*' --exclude='*/tools/perf/*'
        mv "$work/tree/$package" "$tree"
    }
    exec 8>&-
    printf '%s\n' "$tree"
}

# sid_root: a folder with Debian's sid, for its compiler, made the first time.
sid_root() {
    local root=$cache/sid
    [ "$(id -u)" -eq 0 ] || die "x86-7 needs root, to make a Debian system in a folder and to chroot there"
    [ -e "$root/complete" ] || {
        rm -rf "$root"
        # Debian 12's debootstrap does not know every name; that of sid's script is the same.
        step "Debian sid from $(mirror) into a folder" \
            debootstrap --variant=minbase --include=make,gcc sid "$root" "$(mirror)" sid
        # A mirror that stands still has lists whose time is over.
        echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/99-valid"
        step "asking for its packages" chroot "$root" apt-get update
        touch "$root/complete"
    }
    printf '%s\n' "$root"
}

# begin_trixie WHAT: packages of trixie and its backports from here on, if there is room for that program.
begin_trixie() {
    local free
    free=$(df --output=avail -m "$cache" | tail -1)
    [ "$free" -ge 400 ] || die "$cache has $free MB left; $1 needs 400 while it is unpacked"
    foreign_apt amd64 trixie trixie-backports
}

# qemu_root: a folder with a QEMU that takes PCI devices of other processes (vfio-user, since 10.1),
# that of trixie-backports, made the first time. Its program is qemu-system-x86_64 there, which needs no root.
qemu_root() {
    local root=$cache/qemu new=$work/qemu
    [ -e "$root/qemu-system-x86_64" ] || {
        begin_trixie QEMU
        step "downloading QEMU of trixie-backports, 40 MB" unpack_all "$new" -t trixie-backports qemu-system-x86
        native_apt
        # By the loader and libraries that came with it, and nothing of this machine's. Beside the program
        # that runs, which is the loader, QEMU looks for a folder from which to take modules and firmware.
        cp -L "$new/usr/lib64/ld-linux-x86-64.so.2" "$new/usr/bin/loader"
        ln -s ../.. "$new/usr/bin/qemu-bundle"
        cat >"$new/qemu-system-x86_64" <<'QEMU'
#!/bin/sh
root=$(dirname "$(realpath "$0")")
exec "$root/usr/bin/loader" --library-path "$root/usr/lib/x86_64-linux-gnu" --argv0 "$0" "$root/usr/bin/qemu-system-x86_64" "$@"
QEMU
        chmod 755 "$new/qemu-system-x86_64"
        "$new/qemu-system-x86_64" -device help | grep -q vfio-user-pci || die "this QEMU has no vfio-user-pci"
        rm -rf "$root"
        mv "$new" "$root"
    }
    printf '%s\n' "$root"
}

# bochs_root: a folder with a Bochs that has AVX-512 and boots Linux, that of trixie, made the first time. Its
# program is "bochs" there, which needs no root. With Debian 12's, 2.7, Linux finds the layout of the registers' state
# wrong and gives AVX up; with sid's, 3.1, it divides by zero when it registers a clock.
bochs_root() {
    local root=$cache/bochs new=$work/bochs
    [ -e "$root/bochs" ] || {
        begin_trixie Bochs
        # It asks for GTK's libraries, whatever it shows its screen with.
        step "downloading Bochs of trixie, 60 MB" unpack_all "$new" bochs bochs-term bochsbios vgabios
        native_apt
        # As in qemu_root.
        cat >"$new/bochs" <<'BOCHS'
#!/bin/sh
root=$(dirname "$(realpath "$0")")
libraries=$root/usr/lib/x86_64-linux-gnu
export LTDL_LIBRARY_PATH="$libraries/bochs/plugins" BXSHARE="$root/usr/share/bochs" TERM=linux
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$libraries" "$root/usr/bin/bochs-bin" "$@"
BOCHS
        chmod 755 "$new/bochs"
        # Not grep -q, which may be gone before the list has ended.
        "$new/bochs" --help cpu 2>&1 | grep corei7_icelake_u >/dev/null || die "this Bochs has no corei7_icelake_u"
        rm -rf "$root"
        mv "$new" "$root"
    }
    printf '%s\n' "$root"
}

# sparse_root: a folder with a sparse that reads the headers of Linux 7, that of sid, made the first time. Its program is
# "sparse" there, which needs no root. Debian 12's does not know __typeof_unqual__, and the kernel goes on without it.
sparse_root() {
    local root=$cache/sparse new=$work/sparse
    [ -e "$root/sparse" ] || {
        foreign_apt amd64 sid
        step "downloading sparse of sid" unpack "$new" apt-get -- sparse libc6
        native_apt
        # As in qemu_root.
        cat >"$new/sparse" <<'SPARSE'
#!/bin/sh
root=$(dirname "$(realpath "$0")")
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" "$root/usr/bin/sparse" "$@"
SPARSE
        chmod 755 "$new/sparse"
        "$new/sparse" --version >/dev/null || die "this sparse does not run"
        rm -rf "$root"
        mv "$new" "$root"
    }
    printf '%s\n' "$root"
}

# newest_source: the folder with the source of the newest kernel 7 that trixie-backports has.
newest_source() {
    local package
    foreign_apt amd64 trixie trixie-backports
    package=$(apt-cache pkgnames linux-source-7 | sort -V | tail -1)
    [ -n "$package" ] || die "trixie-backports has no linux-source-7"
    source_tree "$package"
    native_apt
}
