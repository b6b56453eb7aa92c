#!/usr/bin/env bash
# Runs the fuzz targets with libFuzzer on the stable toolchain, assertions and
# overflow checks on, starting from seeds: those in fuzz/seeds and headers that
# cryptsetup makes on the spot. A finding is left in fuzz/artifacts and fails
# the run. As many targets run at once as there are processors.
#
# usage: fuzz.sh [--seconds N] [TARGET...]
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=30
if [ "${1:-}" = --seconds ]; then
    seconds=$2
    shift 2
fi

# What `-Z sanitizer=…` would switch on, from the compiler's stable options.
# A target triple keeps build scripts and macros out of it.
flags=(--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1
    -Cdebug-assertions=yes -Coverflow-checks=yes)
triple=$(rustc -vV | sed -n 's/^host: //p')
build=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
RUSTFLAGS="${flags[*]}" cargo build --manifest-path fuzz/Cargo.toml --release \
    --target "$triple" --target-dir "$build"

if [ $# -gt 0 ]; then
    targets=("$@")
else
    mapfile -t targets < <(find fuzz/fuzz_targets -name '*.rs' -exec basename {} .rs \; | sort)
fi

# Headers of every shape, small: 32 KiB have both copies of a LUKS2 header.
headers=$build/headers
mkdir -p "$headers"
if command -v cryptsetup >/dev/null && [ -z "$(ls -A "$headers")" ]; then
    image=$headers/image
    make_header() { # make_header NAME OPTIONS...
        truncate -s 18M "$image"
        printf fuzz | cryptsetup luksFormat --batch-mode --pbkdf-force-iterations "$2" \
            --key-file - "${@:3}" "$image"
        head -c 32768 "$image" >"$headers/$1"
        rm "$image"
    }
    make_header luks1 1000 --type luks1
    make_header luks1-cbc 1000 --type luks1 --cipher aes-cbc-essiv:sha256 --key-size 256 --hash sha1
    make_header luks2-pbkdf2 1000 --type luks2 --pbkdf pbkdf2 --label fuzz --sector-size 4096
    make_header luks2-argon2 4 --type luks2 --pbkdf argon2id --pbkdf-memory 32 --pbkdf-parallel 1
fi

# run TARGET: for all of the time, or to what it finds; what it says in one piece.
run() {
    local target=$1 corpus artifacts seeds=()
    corpus=$build/corpus/$target
    artifacts=fuzz/artifacts/$target
    mkdir -p "$corpus" "$artifacts"
    [ ! -d "fuzz/seeds/$target" ] || seeds+=("fuzz/seeds/$target")
    case $target in
    luks1*) cp "$headers"/luks1* "$corpus/" 2>/dev/null || true ;;
    luks2*) cp "$headers"/luks2* "$corpus/" 2>/dev/null || true ;;
    esac
    if ! "$build/$triple/release/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$artifacts/" \
        "$corpus" ${seeds[@]+"${seeds[@]}"} >"$build/$target.log" 2>&1; then
        printf '%s\nfuzz: %s found something; the input is in %s\n' \
            "$(tail -40 "$build/$target.log")" "$target" "$artifacts" >&2
        return 1
    fi
    printf 'fuzz: %s, %s s\n%s\n%s\n' "$target" "$seconds" "$(grep 'cov: ' "$build/$target.log" | tail -1)" \
        "$(grep number_of_executed_units "$build/$target.log")"
}

status=0
running=0
begun=() group=
trap 'for group in "${begun[@]}"; do kill -- "-$group" 2>/dev/null || true; done' EXIT
for target in "${targets[@]}"; do
    if [ "$running" -ge "$(nproc)" ]; then
        wait -n || status=1
        running=$((running - 1))
    fi
    [ $status = 0 ] || break
    # In a process group of its own, so that Ctrl-C ends what it has started, too.
    set -m
    run "$target" &
    set +m
    begun+=($!)
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || status=1
    running=$((running - 1))
done
exit $status
