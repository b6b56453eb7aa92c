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

# The ciphers' tests go through the back-ends that the CPU has.
features=" $(sed -nE '/^(flags|Features)\s*:/{s/.*://p;q}' /proc/cpuinfo) "
# back_end NAME FEATURE...: notes what the CPU lacks for a back-end.
back_end() {
    local feature lacking=
    for feature in "${@:2}"; do
        [[ $features == *" $feature "* ]] || lacking+=" $feature"
    done
    [ -z "$lacking" ] || echo "NOT RUN on this machine: back-end $1: this CPU lacks$lacking" >>"$not_run"
}
aes_ni="aes avx pclmulqdq sse4_1"
vaes="vaes vpclmulqdq"
if [ "$(uname -m)" = aarch64 ]; then
    back_end armv8 asimd aes pmull
    echo "NOT RUN on this machine: back-ends aes-ni, vaes256 and vaes512: they are for x86-64" >>"$not_run"
else
    # shellcheck disable=SC2086 # words
    {
        back_end aes-ni $aes_ni
        back_end vaes256 $aes_ni avx2 $vaes
        back_end vaes512 $aes_ni avx2 $vaes avx512f avx512bw avx512vl avx512vbmi
    }
    echo "NOT RUN on this machine: back-end armv8: make test-aarch64 emulates it" >>"$not_run"
fi

if [ -s "$not_run" ]; then
    echo
    cat "$not_run"
fi
exit $status
