#!/usr/bin/env bash
# Puts nextpnr-ecp5 of Debian trixie, which bookworm does not have, into a folder, with all that it
# needs there: nothing is installed. Quick when it is there.
#
# usage: nextpnr.sh FOLDER     21 MB to download; afterwards FOLDER/nextpnr-ecp5 runs
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C

die() {
    printf 'nextpnr: %s\n' "$*" >&2
    exit 1
}
step() { # step WHAT COMMAND...
    printf 'nextpnr: %s\n' "$1" >&2
    shift
    quietly "$@"
}

if [[ $# != 1 || $1 == -* ]]; then
    sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
folder=$(realpath -m "$1")
[ -e "$folder/nextpnr-ecp5" ] && exit
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/lib/debian.sh
. "$here/lib/debian.sh"

mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2034  # of debian.sh
cache=$work log=$work/log
new=$work/new
foreign_apt amd64 trixie
step "downloading nextpnr-ecp5 of trixie, 21 MB" unpack_all "$new" nextpnr-ecp5
native_apt
# Devices that are not asked for.
rm "$new"/usr/share/nextpnr/ecp5/chipdb-[24]5k.bin
# By the loader and libraries that came with it. It looks for the device where it would be installed:
# a name space of its own has it there, which takes no root.
cat >"$new/nextpnr-ecp5" <<'NEXTPNR'
#!/bin/sh
root=$(dirname "$(realpath "$0")")
# shellcheck disable=SC2016
exec unshare --map-root-user --mount sh -c '
    root=$1
    shift
    mount --bind "$root/usr/share" /usr/share
    exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" "$root/usr/bin/nextpnr-ecp5" "$@"
' sh "$root" "$@"
NEXTPNR
chmod 755 "$new/nextpnr-ecp5"
"$new/nextpnr-ecp5" --help 2>&1 | grep -e --85k >/dev/null ||
    die "nextpnr-ecp5 does not run, or does not find its devices: are user name spaces allowed here (unshare --map-root-user --mount true)?"
rm -rf "$folder"
mv "$new" "$folder"
