#!/usr/bin/env bash
# The tests of every part, some 25 minutes on two cores with the first build: every crate with every
# peer, the kernel module in User Mode Linux against dm-crypt, and one core of each design.
# Repeats at the end which of them this machine could not run for want of a privilege, a
# kernel feature or an instruction. `make test-all` is the rest.
#
# usage: test.sh
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" # cryptsetup, for ordinary users too
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
not_run=$target/tests-not-run
rm -f "$not_run"

kernel_and_cores() {
    local status=0
    kernel/test/run.sh --quick || status=1
    rtl/test/run.sh --quick --build "$target/rtl" || status=1
    return $status
}

# Beside the crates' tests, which wait for disks and peers more than they compute.
log=$target/tests-kernel-and-cores.log
# In a process group of its own, so that Ctrl-C ends what it has started, too.
set -m
kernel_and_cores >"$log" 2>&1 &
set +m
beside=$!
trap 'kill -- "-$beside" 2>/dev/null || true' EXIT
status=0
# Where signals are ignored (nohup), tests of what they do would wait for ever.
env --default-signal cargo test --workspace --no-fail-fast || status=$?
echo
echo "Kernel module and hardware cores:"
wait "$beside" || status=1
trap - EXIT
cat "$log"

[ "$(uname -m)" = aarch64 ] || echo "NOT RUN: the back-end armv8, which make test-aarch64 emulates" >>"$not_run"
echo "NOT RUN: long tests, and the other jobs of kernel module and cores: make test-all" >>"$not_run"
echo
cat "$not_run"
exit $status
