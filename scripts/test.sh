#!/usr/bin/env bash
# Runs all tests, and repeats at the end which of them this machine could not
# run for want of a privilege, a kernel feature or an instruction.
#
# usage: test.sh [options for cargo test]
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" # cryptsetup, for ordinary users too
cd "$(dirname "${BASH_SOURCE[0]}")/.."

not_run=${CARGO_TARGET_DIR:-target}/tests-not-run
rm -f "$not_run"
status=0
cargo test --workspace --no-fail-fast "$@" || status=$?
published=../shared/vectors/published.json
[ -e "$published" ] ||
    echo "NOT RUN on this machine: published_vectors: $published is not there; the vectors in the tree were run" >>"$not_run"
[ "$(uname -m)" = aarch64 ] || echo "make test-aarch64 emulates the back-end armv8" >>"$not_run"
if [ -s "$not_run" ]; then
    echo
    cat "$not_run"
fi
exit $status
