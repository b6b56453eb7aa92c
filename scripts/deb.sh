#!/usr/bin/env bash
# Builds the Debian packages, from this tree as it is, into target/deb.
#
# usage: deb.sh
#   DEB_BUILD_OPTIONS=noopt   without optimisation, for a try
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C.UTF-8
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$target/deb
rm -rf "$out"
mkdir -p "$out"
trap dh_clean EXIT
export CARGO_TARGET_DIR=$target XTENT_DEB_OUT=$out
dpkg-buildpackage --build=binary --no-sign \
    --buildinfo-file="$out/xtent.buildinfo" --changes-file="$out/xtent.changes" --buildinfo-option=-u"$out" --changes-option=-u"$out"
ls -1 "$out"/*.deb
