#!/usr/bin/env bash
# Tests the co-processor's simulation as a device, and the driver in user space against it: every model of
# sharing the work, against the ciphers of the CPU.
#
# usage: engine-test.sh [DESIGN...]   (of rtl/cosim/model.sh --list; without any, one of each level, and one with two rings)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
designs=("$@")
[ ${#designs[@]} -gt 0 ] || designs=(ecb xts-512 xts xts-2rings)

rtl/cosim/test.sh
rtl/cosim/model.sh --models "$target/rtl/cosim" "${designs[@]}"
# As its tests build it: the model spends the time, and it is not Rust.
nice cargo build --manifest-path rtl/cosim/Cargo.toml --target-dir "$target/cosim"

# shellcheck source=scripts/lib/device.sh
. scripts/lib/device.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/xtent-engine-test.XXXXXX")
# shellcheck disable=SC2317  # called by the trap
finish() {
    end_device
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
for design in "${designs[@]}"; do
    echo "the driver against the design $design:"
    start_device "$target/cosim/debug/xtent-engine-sim" --design "$design" --models "$target/rtl/cosim" --socket "$work/socket"
    XTENT_ENGINE_SOCKET=$work/socket nice cargo test --workspace --test device -- --ignored
    stop_device
done
