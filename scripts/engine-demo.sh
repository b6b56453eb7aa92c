#!/usr/bin/env bash
# Serves an encrypted volume whose cipher is a co-processor: the hardware of rtl/engine, simulated
# cycle by cycle in a process of its own, behind the driver that would drive the real one. Puts a file
# system on the volume through it, and reads the files back with the CPU and with the kernel's dm-crypt. All is small, since
# the simulation takes seconds for what the hardware would do in milliseconds. Needs no privileges, and
# leaves nothing behind.
#
# usage: engine-demo.sh   (ENGINE_DEMO_KIB=N for another size of the file system)
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
kib=${ENGINE_DEMO_KIB:-4096}

# shellcheck source=scripts/lib/steps.sh
. scripts/lib/steps.sh
# shellcheck source=scripts/lib/device.sh
. scripts/lib/device.sh

server=
work=$(mktemp -d "${TMPDIR:-/tmp}/xtent-engine-demo.XXXXXX")
# shellcheck disable=SC2317  # called by the trap
finish() {
    local status=$?
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    end_device
    wait 2>/dev/null || true
    rm -rf "$work"
    if [ $status -ne 0 ]; then
        failed "The engine's demo"
    fi
}
trap finish EXIT
trap 'exit 130' INT TERM

step "Build the xtent command, and the hardware's simulation"
cargo build --release --package xtent
xtent=$target/release/xtent
rtl/cosim/model.sh --models "$target/rtl/cosim" xts
cargo build --release --manifest-path rtl/cosim/Cargo.toml --target-dir "$target/cosim"
sim=$target/cosim/release/xtent-engine-sim
good "$("$xtent" --version)"

step "Start the device: AES-XTS over runs, with rings and DMA, behind vfio-user"
printf '   %s$ xtent-engine-sim --design xts --socket engine.sock &%s\n' "$dim" "$plain"
start_device "$sim" --design xts --models "$target/rtl/cosim" --socket "$work/engine.sock"
good "${announced//"$work"\//}"

step "Make a LUKS2 volume, and serve it with that device as its cipher"
printf 'a passphrase for the demo' >"$work/key"
# cryptsetup's header is 16 MiB; a small one is enough here.
show "$xtent" format --size "$((kib + 2048))K" --luks2-metadata-size 16K --luks2-keyslots-size 1M --iter-time 500 \
    --pbkdf-memory 65536 --key-file "$work/key" "$work/vault.img"
serve() { # serve OPTION...
    rm -f "$work/ready" && mkfifo "$work/ready"
    printf '   %s$ xtent serve %s--nbd unix:vault.sock --key-file key vault.img &%s\n' "$dim" "${*:+${*//"$work"\//} }" "$plain"
    "$xtent" serve "$@" --nbd "unix:$work/vault.sock" --key-file "$work/key" "$work/vault.img" >"$work/ready" &
    server=$!
    exec 4<"$work/ready"
    read -r -u 4 uri
}
stop() {
    kill "$server"
    wait "$server"
    server=
}
# Everything goes to the device: left alone, the server would find that this CPU is faster.
serve --engine "vfio-user:$work/engine.sock" --engine-threshold 0
good "listening: ${uri//"$work"\//}"

step "Put an ext4 file system with files on it"
mkdir "$work/files"
cp -r README.md LICENSE-* rtl/engine "$work/files/"
(cd "$work/files" && find . -type f -exec sha256sum {} +) >"$work/manifest"
mke2fs -q -t ext4 -b 4096 -O ^has_journal -L engine -d "$work/files" "$work/fs.img" "${kib}K" >/dev/null 2>&1
start=$SECONDS
show nbdcopy --flush "$work/fs.img" "$uri"
good "$(wc -l <"$work/manifest") files, $kib KiB encrypted by the device in $((SECONDS - start)) s"
start=$SECONDS
nbdcopy "$uri" "$work/back.img"
cmp -n "$((kib * 1024))" "$work/fs.img" "$work/back.img"
good "read back through it, the same, in $((SECONDS - start)) s"
"$xtent" status "$work/vault.img" | sed -n "s|$work/||; s/^ *engine */   /p"
stop

step "What the device is, beside this CPU, and what it counted"
show "$xtent" bench --engine "vfio-user:$work/engine.sock" --cipher aes-xts-plain64 2>&1

step "Read them with the CPU"
serve
nbdcopy "$uri" "$work/cpu.img"
cmp -n "$((kib * 1024))" "$work/fs.img" "$work/cpu.img"
good "the same"
stop

step "And have the kernel's own dm-crypt read the files (in User Mode Linux)"
cat >"$work/job" <<'JOB'
set -e
uname -sr
cryptsetup open --disable-keyring --key-file /in/key /d/vault vault
mount -t ext4 -o ro /dev/mapper/vault /mnt
cd /mnt
sha256sum -c /in/manifest >/tmp/checked || { grep -v ': OK$' /tmp/checked; exit 1; }
wc -l </tmp/checked
cd /
umount /mnt
cryptsetup close vault
JOB
scripts/guest.sh --disk "vault=$work/vault.img" --file "key=$work/key" --file "manifest=$work/manifest" \
    "$work/job" >"$work/guest" || {
    cat "$work/guest" >&2
    exit 1
}
good "$(sed -n 1p "$work/guest"): $(sed -n 2p "$work/guest") files have the right SHA-256"
printf '\n%s%sIt works.%s What was on the disk is what the CPU and the kernel read; the hardware made it.\n' "$bold" "$green" "$plain"
