#!/usr/bin/env bash
# Builds the static command with either C library, and uses it in a folder that has nothing
# but the binary, the volumes, /proc and /dev/null: it opens a volume that cryptsetup made, makes one that
# cryptsetup opens, and serves both.
#
# usage: test-static.sh [musl|glibc ...]
#   PROFILE=dev   without optimisation, for a try
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
    printf 'test-static: %s\n' "$*" >&2
    exit 1
}
step() {
    printf 'test-static: %s (after %s s)\n' "$*" "$SECONDS"
}
[ "$(id -u)" -eq 0 ] || die "needs root, to chroot"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
profile=${PROFILE:-release}
work=$(mktemp -d "${TMPDIR:-/tmp}/xtent-static.XXXXXX")
server=''
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
root=$work/root
uri="nbd+unix:///?socket=$root/s"

# The command where there is nothing else but /proc, by which it opens its volume a second
# time, for the lock of the metadata, and /dev/null, a server's standard input. Words, not a function, whose shell would be stopped in
# place of the server.
# shellcheck disable=SC2016 # for the inner shell
alone=(unshare --mount --propagation private sh -c '
    root=$1 && shift
    mount -t proc proc "$root/proc" && mount --bind /dev/null "$root/dev/null" && exec chroot "$root" /xtent "$@"' sh "$root")

serve() { # serve VOLUME: until stopped; ready when it has said where
    : >"$work/said"
    "${alone[@]}" serve --nbd unix:/s --key-file /key "/$1" >"$work/said" 2>"$work/errors" &
    server=$!
    until grep -q '^nbd+unix:' "$work/said"; do
        kill -0 "$server" 2>/dev/null || { cat "$work/errors" >&2 && die "the server of $1 ended"; }
        sleep 0.1
    done
}
stop() {
    kill "$server"
    wait "$server" || { cat "$work/errors" >&2 && die "the server ended with $?"; }
    server=''
    [ ! -s "$work/errors" ] || cat "$work/errors"
}

head -c 8M /dev/urandom >"$work/data"
kdf=(--pbkdf argon2id --pbkdf-memory 65536 --pbkdf-force-iterations 4)
[ $# -gt 0 ] || set -- musl glibc
for libc; do
    step "building with $libc"
    PROFILE=$profile scripts/static.sh "$libc"
    triple=$(rustc -vV | sed -n 's/^host: \([^-]*\)-.*/\1/p')-unknown-linux-${libc/%glibc/gnu}
    rm -rf "$root"
    mkdir -p "$root/proc" "$root/dev"
    : >"$root/dev/null"
    cp "$target/$triple/${profile/%dev/debug}/xtent" "$root/xtent"
    printf secret >"$root/key"

    step "$libc: a volume of cryptsetup, Argon2id"
    truncate -s 32M "$root/theirs"
    cryptsetup luksFormat --batch-mode --type luks2 "${kdf[@]}" "$root/theirs" "$root/key"
    "${alone[@]}" key test --key-file /key /theirs
    serve theirs
    nbdcopy "$work/data" "$uri"
    stop
    serve theirs
    nbdcopy "$uri" "$work/back"
    stop
    cmp --bytes=8388608 "$work/data" "$work/back"

    step "$libc: a volume of its own"
    "${alone[@]}" format --batch-mode --size 32M "${kdf[@]}" --key-file /key /ours
    cryptsetup open --test-passphrase --key-file "$root/key" "$root/ours"
    serve ours
    nbdcopy "$work/data" "$uri"
    stop
    "${alone[@]}" decrypt --key-file /key /ours /plain
    cmp --bytes=8388608 "$work/data" "$root/plain"
done
step passed
