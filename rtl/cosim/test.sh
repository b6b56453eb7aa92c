#!/usr/bin/env bash
# Builds the models that the tests of xtent-engine-sim use, and runs them.
#
# usage: test.sh [--all] [CARGO-TEST-ARGUMENTS...]
#
#   --all  every design of designs.txt, which takes many minutes to build, and what needs them;
#          without it a few
#
# Needs what scripts/setup.sh rtl installs.
set -euo pipefail
cosim=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$cosim/../../target}
mkdir -p "$target"
# Cargo and its tests run elsewhere.
target=$(cd "$target" && pwd)
export CARGO_TARGET_DIR=$target
designs=(xts xts-2rings xts-512 ecb xts-bus4)
case ${1:-} in
--all)
    mapfile -t designs < <("$cosim/model.sh" --list)
    shift
    set -- "$@" -- --include-ignored
    ;;
--help | -h)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit
    ;;
esac
"$cosim/model.sh" "${designs[@]}"
nice "${CARGO:-cargo}" test --manifest-path "$cosim/Cargo.toml" --target-dir "$target/cosim" "$@"
