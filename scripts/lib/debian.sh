# shellcheck shell=bash
# What scripts share that put other Debian systems and packages into folders; sourced.
# Expects die(), and $log where quietly() is used.

# The mirror that this machine itself uses.
mirror() {
    local found
    found=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
        awk '$1 == "URIs:" && $2 !~ /security/ && $2 ~ /debian/ { print $2; exit }')
    [ -n "$found" ] || found=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
        sed -nE 's|^deb +(\[[^]]*\] *)?([^ ]+debian/?) .*|\2|p' | grep -v security | head -1)
    printf '%s\n' "${found:-http://deb.debian.org/debian}"
}

# quietly COMMAND...: its output, kept in $log, only if it fails.
quietly() {
    "$@" >"${log:?}" 2>&1 || {
        tail -40 "$log" >&2
        die "failed: $*"
    }
}
