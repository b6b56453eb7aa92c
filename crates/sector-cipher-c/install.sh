#!/bin/sh
# Installs the C library that was built in a folder of Cargo's: header, shared and static
# library, and the file for pkg-config.
#
# usage: [DESTDIR=...] [PREFIX=/usr/local] [LIBDIR=$PREFIX/lib] install.sh target/release
set -eu
[ $# = 1 ] || {
    echo "usage: [DESTDIR=...] [PREFIX=/usr/local] [LIBDIR=\$PREFIX/lib] install.sh target/release" >&2
    exit 2
}
from=$1
here=$(dirname "$0")
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
root=${DESTDIR:-}
number() {
    sed -n "s/^#define SECTOR_CIPHER_VERSION_$1 \([0-9]*\)\$/\1/p" "$here/sector_cipher.h"
}
version=$(number MAJOR).$(number MINOR).$(number PATCH)
soname=libsector_cipher.so.$(number MAJOR)

install -d "$root$libdir/pkgconfig" "$root$prefix/include"
install -m644 "$here/sector_cipher.h" "$root$prefix/include/"
install -m755 "$from/libsector_cipher.so" "$root$libdir/libsector_cipher.so.$version"
ln -sf "libsector_cipher.so.$version" "$root$libdir/$soname"
ln -sf "$soname" "$root$libdir/libsector_cipher.so"
install -m644 "$from/libsector_cipher.a" "$root$libdir/"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@VERSION@|$version|" \
    "$here/sector_cipher.pc.in" >"$root$libdir/pkgconfig/sector_cipher.pc"
chmod 644 "$root$libdir/pkgconfig/sector_cipher.pc"
