# shellcheck shell=bash disable=SC2034,SC2154
# What those share who run jobs in guests; sourced. Expects $work, a folder, with the log of the last job.

passed=0
failed=0
failures=
left_out=
passed() { # passed NAME WHAT
    echo "$1: ok ($2)"
    passed=$((passed + 1))
}
failed() { # failed NAME: with the log
    cat "$work/log"
    echo "$1: FAILED"
    failed=$((failed + 1))
    failures="$failures; FAILED: $1"
}
not_run() { # not_run WHAT: and why
    left_out="$left_out; NOT RUN: $1"
}

# This machine's fio, with the libraries that it needs, for guests of the same kind.
fio=()
find_fio() {
    local library
    command -v fio >/dev/null || { echo "fio is missing; run scripts/setup.sh kernel" >&2 && exit 1; }
    fio=(--file "fio=$(command -v fio)")
    for library in $(ldd "$(command -v fio)" | grep -o '/[^ ]*'); do
        fio+=(--file "$(basename "$library")=$library")
    done
}
