# shellcheck shell=bash
# What scripts share that put other Debian systems and packages into folders; sourced.
# Expects die(), $log where quietly() is used, $work where packages are unpacked, and $cache and
# step() for those of another Debian.

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

# unpack_all FOLDER PACKAGE...: these and all that they depend on.
unpack_all() {
    local into=$1
    shift
    mkdir -p "$into" "${work:?}/all/partial"
    apt-get install -y -q --no-install-recommends --download-only -o APT::Sandbox::User=root \
        -o "Dir::Cache::Archives=$work/all" "$@"
    for deb in "$work/all"/*.deb; do dpkg-deb -x "$deb" "$into"; done
}

# foreign_apt ARCH [SUITE...]: from here on apt knows the suites' packages (bookworm's) for that
# machine, and nothing of what is installed on this one.
foreign_apt() {
    local state suite suites=("${@:2}")
    state=${cache:?}/apt-$1${2:+-$2}
    [ ${#suites[@]} -gt 0 ] || suites=(bookworm)
    mkdir -p "$state"/{lists/partial,archives/partial,sources}
    : >"$state/status"
    for suite in "${suites[@]}"; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(mirror) $suite main"
    done >"$state/sources.list"
    cat >"$state/conf" <<CONF
APT::Architecture "$1";
APT::Architectures { "$1"; };
APT::Sandbox::User "root";
Acquire::Check-Valid-Until "false";
Dir::State "$state";
Dir::State::status "$state/status";
Dir::State::Lists "$state/lists";
Dir::Cache "$state";
Dir::Etc::SourceList "$state/sources.list";
Dir::Etc::SourceParts "$state/sources";
CONF
    export APT_CONFIG=$state/conf
    [ -n "$(find "$state/lists" -name '*Packages*' -print -quit)" ] ||
        step "asking for the packages of ${suites[*]} for $1" apt-get update
}
native_apt() {
    unset APT_CONFIG
}
