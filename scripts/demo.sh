#!/usr/bin/env bash
# Makes an encrypted volume, serves it, puts a file system with real files on
# it, and has a second implementation, the kernel's own dm-crypt, read them
# back. Needs no privileges, and leaves nothing behind.
#
# usage: demo.sh   (DEMO_MIB=N for another size of the volume)
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mib=${DEMO_MIB:-256}
. scripts/lib/steps.sh
now() { date +%s.%N; }
rate() { # rate START END: MB/s and seconds for the whole volume
    awk -v mib="$mib" -v a="$1" -v b="$2" \
        'BEGIN { t = b - a; printf "%.0f MB/s (%d MiB in %.2f s)", mib * 1.048576 / t, mib, t }'
}

server=
work=$(mktemp -d "${TMPDIR:-/tmp}/xtent-demo.XXXXXX")
# shellcheck disable=SC2317  # called by the trap
finish() {
    local status=$?
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
    if [ $status -ne 0 ]; then
        failed "The demo"
    fi
}
trap finish EXIT
trap 'exit 130' INT TERM

step "Build the xtent command"
cargo build --release --package xtent
xtent=$(realpath "${CARGO_TARGET_DIR:-target}/release/xtent")
good "$("$xtent" --version)"

step "Make a LUKS2 volume of $mib MiB in an image file"
# The guest of step 6 is small, so Argon2 gets 64 MiB instead of up to 1 GiB.
printf 'a passphrase for the demo' >"$work/key"
show "$xtent" format --size "${mib}M" --iter-time 500 --pbkdf-memory 65536 \
    --key-file "$work/key" "$work/vault.img"

step "Serve it over NBD, to any client that speaks it"
serve() {
    # The URI is its first line, once it is ready; none comes if it fails.
    mkfifo "$work/announcement"
    "$xtent" serve --nbd "unix:$work/vault.sock" --key-file "$work/key" "$work/vault.img" \
        >"$work/announcement" &
    server=$!
    exec 3<"$work/announcement"
    read -r -u 3 uri
}
stop() {
    kill "$server"
    wait "$server"
    server=
}
printf '   %s$ xtent serve --nbd unix:vault.sock --key-file key vault.img &%s\n' "$dim" "$plain"
serve
good "listening: ${uri//"$work"\//}"

step "Put an ext4 file system with real files on it"
mkdir "$work/files"
git ls-files -z 2>/dev/null | xargs -0 -r cp --parents -t "$work/files" 2>/dev/null ||
    cp -r crates scripts Cargo.toml "$work/files/"
cp "$xtent" "$work/files/"
(cd "$work/files" && find . -type f -exec sha256sum {} +) >"$work/manifest"
# Blocks not smaller than the sectors of the volume, or the kernel refuses it.
mke2fs -q -t ext4 -b 4096 -L demo -d "$work/files" "$work/fs.img" "${mib}M" >/dev/null 2>&1
start=$(now)
show nbdcopy --flush "$work/fs.img" "$uri"
end=$(now)
good "written and flushed: $(rate "$start" "$end"), $(wc -l <"$work/manifest") files"
wrote=$(rate "$start" "$end")
start=$(now)
show nbdcopy "$uri" null:
end=$(now)
read=$(rate "$start" "$end")
good "read back: $read"
stop
good "server stopped, everything on the disk"

step "Look at the image as a thief would"
if grep -qaF '[workspace.package]' "$work/vault.img"; then
    echo "plaintext in the image!" >&2
    exit 1
fi
grep -qaF '[workspace.package]' "$work/fs.img"
good "text that is in the file system is nowhere in the image"

step "Have the kernel's own dm-crypt read the files (in User Mode Linux)"
cat >"$work/job" <<'JOB'
set -e
uname -sr
cryptsetup open --disable-keyring --key-file /in/key /d/vault vault
dmsetup table vault | cut -d' ' -f3-4
mount -t ext4 /dev/mapper/vault /mnt
cd /mnt
sha256sum -c /in/manifest >/tmp/checked || { grep -v ': OK$' /tmp/checked; exit 1; }
wc -l </tmp/checked
echo "Written by $(uname -sr), read by Xtent." >/mnt/from-the-kernel
cd /
umount /mnt
cryptsetup close vault
JOB
scripts/guest.sh --disk "vault=$work/vault.img" --file "key=$work/key" --file "manifest=$work/manifest" \
    "$work/job" >"$work/guest" || {
    cat "$work/guest" >&2
    exit 1
}
good "$(sed -n 1p "$work/guest") opened it as: $(sed -n 2p "$work/guest")"
good "$(sed -n 3p "$work/guest") files have the right SHA-256"

step "And the other way: read what that kernel wrote"
show "$xtent" decrypt --key-file "$work/key" "$work/vault.img" "$work/plain.img"
message=$(debugfs -R 'cat /from-the-kernel' "$work/plain.img" 2>/dev/null)
case $message in
"Written by Linux"*) good "$message" ;;
*)
    echo "the kernel's file is not there" >&2
    exit 1
    ;;
esac

printf '\n%s%sIt works.%s Written at %s, read at %s, through one server.\n' \
    "$bold" "$green" "$plain" "$wrote" "$read"
cat <<NEXT

What to try next ($(basename "$xtent") is ${CARGO_TARGET_DIR:-target}/release/xtent):
  xtent format --size 1G my.img            a volume of your own, passphrase asked for
  xtent serve my.img                       serve it; nbdinfo, qemu-img and fio take the URI
  xtent mount --file-only my.img dir       its plaintext as the file dir/volume, for mkfs.ext4 -b 4096
  sudo xtent mount my.img /mnt             that file system
  sudo cryptsetup open my.img my           the same volume, through the kernel
  xtent bench my.img                       what this machine can do
  make test                                every claim above, checked against real peers
NEXT
