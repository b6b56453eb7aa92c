# shellcheck shell=bash disable=SC2034,SC2154
# The simulated co-processor, for scripts that use one; sourced. Wants $work, a folder for what it needs. A trap
# for the script's end is to call end_device.

device=
start_device() { # start_device PROGRAM OPTIONS...: xtent-engine-sim, until it listens; $announced is what it says then
    rm -f "$work/announcement" && mkfifo "$work/announcement"
    "$@" >"$work/announcement" &
    device=$!
    exec 3<"$work/announcement"
    read -r -u 3 announced
}
stop_device() { # fails if it was not well, or had broken
    local status=0
    kill "$device" 2>/dev/null || true
    wait "$device" || status=$?
    device=
    exec 3<&-
    return $status
}
end_device() { # whatever it is at
    [ -z "$device" ] || kill "$device" 2>/dev/null || true
}
