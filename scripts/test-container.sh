#!/usr/bin/env bash
# Builds the image of the Containerfile with buildah, and serves a volume of cryptsetup from
# a container of it. Images are not downloaded: those that the recipe begins with are made
# of a fresh Debian 12, the one for building with this machine's Rust in it.
#
# usage: test-container.sh
#   XTENT_CONTAINER_QUICK=1   without optimisation, for a try
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
    printf 'test-container: %s\n' "$*" >&2
    exit 1
}
step() {
    printf 'test-container: %s (after %s s)\n' "$*" "$SECONDS"
}
# shellcheck source=scripts/debian-root.sh
. scripts/debian-root.sh

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/debian/container
log=$target/debian/container.log
mkdir -p "$target/debian"
server=''
# Neither a registry nor the images of this machine, and no privilege but chroot.
# Words, not a function, whose shell would be stopped in place of the container.
images=(buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs)
finish() {
    [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
rm -rf "$work"
mkdir -p "$work"

# image NAME ROOT [VARIABLE=VALUE...]: makes an image of a folder.
image() {
    local name=$1 root=$2 container variable
    shift 2
    container=$("${images[@]}" from scratch)
    quietly "${images[@]}" copy "$container" "$root" /
    for variable; do
        quietly "${images[@]}" config --env "$variable" "$container"
    done
    quietly "${images[@]}" commit --rm "$container" "$name"
}

step "what the recipe begins with"
fresh_root "$target/debian/base" "$work/debian"
image docker.io/library/debian:12-slim "$work/debian"
quietly within "$work/debian" apt-get install -y --no-install-recommends gcc libc6-dev ca-certificates
mkdir -p "$work/debian/usr/local/rust/lib"
sysroot=$(rustc --print sysroot)
host=$(rustc -vV | sed -n 's/^host: //p')
mkdir "$work/debian/usr/local/rust/bin" "$work/debian/usr/local/rust/lib/rustlib"
cp -a "$sysroot"/bin/{cargo,rustc} "$work/debian/usr/local/rust/bin/"
cp -a "$sysroot"/lib/*.so* "$work/debian/usr/local/rust/lib/"
cp -a "$sysroot/lib/rustlib/$host" "$work/debian/usr/local/rust/lib/rustlib/"
settings=(PATH=/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin CARGO_HOME=/usr/local/cargo)
if [ "${XTENT_CONTAINER_QUICK:-0}" = 1 ]; then
    settings+=(CARGO_PROFILE_RELEASE_{OPT_LEVEL=0,DEBUG=0,LTO=off,CODEGEN_UNITS=16})
fi
image docker.io/library/rust:1-bookworm "$work/debian" "${settings[@]}"
rm -rf "$work/debian"

step "the recipe"
# What this machine has downloaded of crates need not be downloaded again.
cargo fetch --quiet --locked
quietly "${images[@]}" bud --pull-never --isolation chroot --tag xtent --file Containerfile \
    --volume "${CARGO_HOME:-$HOME/.cargo}/registry:/usr/local/cargo/registry" .
"${images[@]}" inspect --type image --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}' xtent | tee "$log"
grep -qx '\[/usr/bin/xtent\] \[--help\]' "$log" || die "the image starts something else"

step "a container of it serves a volume"
printf secret >"$work/key"
truncate -s 32M "$work/volume"
cryptsetup luksFormat --batch-mode --type luks2 --pbkdf argon2id --pbkdf-memory 65536 --pbkdf-force-iterations 4 \
    "$work/volume" "$work/key"
head -c 8M /dev/urandom >"$work/data"
mkdir "$work/socket"
container=$("${images[@]}" from --pull-never xtent)
volumes=(--volume "$work/volume:/volume" --volume "$work/socket:/run/xtent" --volume "$work/key:/key:ro")
"${images[@]}" run --isolation chroot "${volumes[@]}" "$container" -- \
    /usr/bin/xtent serve --nbd unix:/run/xtent/vm1.sock --key-file /key /volume >"$work/said" 2>"$log" &
server=$!
until grep -q '^nbd+unix:' "$work/said"; do
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2 && die "the server ended"; }
    sleep 0.1
done
uri="nbd+unix:///?socket=$work/socket/vm1.sock"
nbdcopy "$work/data" "$uri"
nbdcopy "$uri" "$work/back"
cmp --bytes=8388608 "$work/data" "$work/back"
kill "$server"
wait "$server" || true
server=''
if nbdinfo --size "$uri" >/dev/null 2>&1; then die "the server goes on without its container"; fi
step "passed"
