#!/usr/bin/env bash
# Types docs/tour.md, line by line, in a fresh Debian 12 in a folder, and compares what
# comes out with what the document shows.
#
# usage: tour.sh          in a fresh Debian, with the package of target/deb; needs root
#        tour.sh --here   on this machine, with the xtent of $PATH and without the
#                         installation; root is needed for the lines of root
set -euo pipefail
export LC_ALL=C.UTF-8
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
    printf 'tour: %s\n' "$*" >&2
    exit 1
}
[ "$(id -u)" -eq 0 ] || die "needs root, for the lines of root and to become a user for the others"

# The user of the lines with `$`: nobody on this machine, one of his own elsewhere.
user=65534 tourist=1000

# Runs a line as USER in the folder of the tour. What is started with & may go on: its
# output goes to the file, not to a pipe that somebody would wait for.
run_line() { # run_line USER LINE
    local command=(bash -c "cd $home && $2")
    if [ "$1" = '$' ]; then
        command=(setpriv --reuid="$user" --regid="$user" --clear-groups "${command[@]}")
    fi
    "${enter[@]}" env -i HOME="$home" PATH="$path" LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive "${command[@]}" </dev/null >"$said" 2>&1
}

# Whether the lines that are expected are in the output, in order; `…` is any text.
as_expected() {
    local line pattern part rest found=0
    local -a lines
    mapfile -t lines <"$said"
    for line in "${expected[@]}"; do
        pattern='' rest=$line
        while [[ $rest == *…* ]]; do
            printf -v part %q "${rest%%…*}"
            [ -n "${rest%%…*}" ] || part=''
            pattern+="$part*" rest=${rest#*…}
        done
        [ -z "$rest" ] || { printf -v part %q "$rest" && pattern+=$part; }
        while :; do
            [ $found -lt ${#lines[@]} ] || return 1
            # shellcheck disable=SC2053 # a pattern
            [[ ${lines[found++]} == $pattern ]] && break
        done
    done
}

try() { # the command of $who, $line; the output in $expected
    local status=0
    printf '%s %s\n' "$who" "$line"
    run_line "$who" "$line" || status=$?
    # What runs in the background is ready when it has said so.
    if [[ $line == *'&' ]]; then
        local end=$((SECONDS + 60))
        until as_expected || [ $SECONDS -gt $end ]; do
            sleep 0.1
        done
    fi
    [ $status -eq 0 ] || {
        cat "$said" >&2
        die "line $number: exit code $status"
    }
    as_expected || {
        cat "$said" >&2
        printf -- '--- docs/tour.md has\n' >&2
        printf '%s\n' "${expected[@]}" >&2
        die "line $number: something else came out"
    }
    commands=$((commands + 1))
}

# Types the document.
tour() {
    local text who='' line='' number=0 commands=0 at=0 inside='' section=''
    local -a expected=()
    finish_line() {
        [ -z "$line" ] || try
        line='' expected=()
    }
    while IFS= read -r text <&3; do
        at=$((at + 1))
        case $inside,$text in
            ,'## '*) section=${text#'## '} ;;
            ,'```console') inside=yes ;;
            yes,'```') finish_line && inside='' ;;
            yes,'$ '* | yes,'# '*)
                finish_line
                if [ "$section" = Install ] && [ -n "$here" ] && [[ $text == '# '* ]]; then
                    continue
                fi
                who=${text:0:1} line=${text:2} number=$at
                ;;
            yes,*) expected+=("$text") ;;
        esac
    done 3<docs/tour.md
    [ "$commands" -gt 20 ] || die "docs/tour.md has $commands commands only: it was not read as meant"
    printf 'tour: all %s commands did what docs/tour.md says\n' "$commands"
}

work=$(mktemp -d "${TMPDIR:-/tmp}/xtent-tour.XXXXXX")
said=$work/said
here='' enter=() path=$PATH
finish() {
    # Mounts and processes of a session on this machine that broke off.
    if [ -n "$here" ]; then
        for point in /mnt/secret "$work/home/files" "$work/home/dir"; do
            mountpoint -q "$point" && umount --lazy "$point"
        done
    fi
    rm -rf "$work" "${root:-$work/none}"
}
trap finish EXIT
trap 'exit 130' INT TERM

case ${1:-} in
    --here)
        here=yes home=$work/home
        chmod 755 "$work"
        mkdir "$home" && chown $user:$user "$home" && chmod 1777 "$home"
        tour
        ;;
    '')
        # shellcheck source=scripts/debian-root.sh
        . scripts/debian-root.sh
        target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
        debs=("$target"/deb/xtent_*.deb)
        [ -e "${debs[0]}" ] || die "there is no package in target/deb: run make deb"
        # shellcheck disable=SC2034 # for fresh_root
        root=$target/debian/tour log=$work/log
        mkdir -p "$target/debian"
        fresh_root "$target/debian/base" "$root"
        # Debian's installer makes it, debootstrap does not.
        ln -sf ../proc/self/mounts "$root/etc/mtab"
        chroot "$root" useradd --create-home --uid $tourist tour
        cp "${debs[@]}" "$root/home/tour/"
        chmod 1777 "$root/home/tour"
        # One session: mounts and processes are its own, and go with it.
        export TOUR_ROOT=$root
        unshare --mount --pid --fork --kill-child --propagation private scripts/tour.sh --within
        ;;
    --within)
        root='' user=$tourist home=/home/tour path=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
        enter=(chroot "$TOUR_ROOT")
        mount -t proc proc "$TOUR_ROOT/proc"
        mount -t sysfs -o ro sysfs "$TOUR_ROOT/sys"
        mount --rbind /dev "$TOUR_ROOT/dev"
        mount -t tmpfs tmpfs "$TOUR_ROOT/run"
        mkdir -p "$TOUR_ROOT/run/lock"
        tour
        ;;
    *) die "usage: tour.sh [--here]" ;;
esac
