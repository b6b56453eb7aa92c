#!/usr/bin/env bash
# Installs the packages of target/deb in a fresh Debian 12 in a folder, tries what can be
# tried without a machine of its own, and removes them again: nothing may be left.
# (test-boot.sh boots a machine from them.)
#
# usage: test-deb.sh
#   XTENT_TEST_DKMS=0   without building the kernel modules, which takes some minutes
# shellcheck disable=SC2016 # for the shells inside
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
    printf 'test-deb: %s\n' "$*" >&2
    exit 1
}
step() {
    printf 'test-deb: %s (after %s s)\n' "$*" "$SECONDS"
}
# shellcheck source=scripts/debian-root.sh
. scripts/debian-root.sh

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
root=$target/debian/deb
log=$target/debian/deb.log
mkdir -p "$target/debian"
debs=("$target"/deb/{xtent,xtent-dkms,libsector-cipher0,libsector-cipher-dev}_*.deb)
for deb in "${debs[@]}"; do
    [ -e "$deb" ] || die "there is no $deb: run make deb"
done
trap 'rm -rf "$root"' EXIT

step "lintian"
quietly lintian --fail-on error,warning --allow-root "$target/deb/xtent.changes"

step "a fresh Debian 12"
fresh_root "$target/debian/base" "$root"
mkdir "$root/debs"
cp "${debs[@]}" "$root/debs/"
in_root() {
    within "$root" "$@"
}
try() { # try WHAT COMMAND...
    step "$1"
    shift
    quietly in_root "$@"
}
files() { # what a package may not leave behind; not logs, caches and what dpkg and apt note down
    find "$root" -xdev \( -path "$root/proc" -o -path "$root/sys" -o -path "$root/run" -o -path "$root/tmp" \
        -o -path "$root/var/log" -o -path "$root/var/cache" -o -path "$root/var/lib/dpkg" \
        -o -path "$root/var/lib/apt" -o -path "$root/etc/ld.so.cache" \) -prune -o -print | sort
}

try "what the packages depend on" sh -ec '
    for deb in /debs/xtent_*.deb; do apt-get satisfy -y --no-install-recommends "$(dpkg-deb -f "$deb" Depends)"; done
    apt-get install -y --no-install-recommends systemd man-db fish zsh bash-completion'
files >"$root.before"

try "installing" sh -ec 'apt-get install -y --no-install-recommends /debs/xtent_*.deb'
files >"$root.with"
# A version for the eyes, and each thing where it is looked for.
in_root xtent --version
for path in usr/bin/xtent usr/libexec/xtent/ask-systemd usr/libexec/xtent/ask-console \
    usr/libexec/xtent/xtent-token-plugin lib/systemd/system-generators/xtent-generator \
    usr/share/initramfs-tools/hooks/xtent usr/share/initramfs-tools/scripts/local-top/xtent \
    usr/lib/dracut/modules.d/90xtent/module-setup.sh usr/share/man/man8/xtent-open.8.gz; do
    chroot "$root" test -s "/$path" || die "/$path is not there"
done
if grep -rl '@[a-z]*dir@' "$root"/usr/libexec/xtent/ask-* "$root"/lib/systemd/system/xtent* \
    "$root"/usr/share/initramfs-tools "$root"/usr/lib/dracut; then
    die "a place was not filled in"
fi

try "manual page" sh -ec 'man -P cat xtent-open | grep -q device-mapper\\\|dm-crypt'
try "completions" env HOME=/tmp sh -ec '
    bash -ec ". /usr/share/bash-completion/bash_completion; . /usr/share/bash-completion/completions/xtent; complete -p xtent"
    fish -c "complete -C \"xtent ser\"" | grep -q ^serve
    zsh -fc "autoload -Uz compinit; compinit -u -d /tmp/zcompdump; [[ -n \$_comps[xtent] ]]"'
try "a volume" sh -ec '
    printf secret >/tmp/key
    xtent format --batch-mode --size 32M --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file /tmp/key /tmp/v.luks
    xtent header dump /tmp/v.luks
    xtent key test --key-file /tmp/key /tmp/v.luks'
step "units"
cat >"$root/etc/crypttab" <<'TAB'
root UUID=1b2c3d4e-0000-1111-2222-333344445555 none x-xtent,luks,discard,x-initrd.attach
my-data /dev/vdb1 /etc/keys/data.key x-xtent,luks,read-only,nofail
image /var/lib/disk.img - x-xtent,luks,noauto
net LABEL=net none x-xtent,luks,_netdev,header=/etc/h.luks,timeout=30s,tries=2
plain /dev/vdc /dev/urandom swap
TAB
# The names are systemd's own, and its units are the ones that lose.
quietly in_root sh -ec '
    mkdir -p /tmp/units/normal /tmp/units/early /tmp/units/late
    cd /tmp/units
    for generator in xtent-generator systemd-cryptsetup-generator; do
        SYSTEMD_LOG_TARGET=console "/lib/systemd/system-generators/$generator" normal early late
    done
    (cd early && find . ! -type d | sort) >ours
    (cd normal && find . ! -type d ! -name "*@plain*" ! -path "*-plain.device*" | sort) >theirs
    diff ours theirs
    mkdir -p /etc/xtent/serve
    for unit in early/*.service; do
        SYSTEMD_UNIT_PATH=/tmp/units/early:/tmp/units/normal:/lib/systemd/system systemd-analyze verify "$unit"
    done
    systemd-analyze verify xtent-serve@disk.service xtent-serve@disk.socket xtent-gateway@all.service xtent-gateway@all.socket'
[ ! -s "$log" ] || { cat "$log" && die "systemd-analyze has something to say"; }
rm -rf "$root/etc/crypttab" "$root/tmp/units"

try "removing" apt-get purge -y xtent
rm -rf "$root"/tmp/*
files >"$root.after"
diff "$root.before" "$root.after" >"$log" || { cat "$log" && die "purging left a difference"; }
[ "$(wc -l <"$root.with")" -gt "$(wc -l <"$root.before")" ] || die "the list of files shows nothing"

try "a C compiler" apt-get install -y --no-install-recommends gcc libc6-dev pkgconf dpkg-dev
files >"$root.before"
try "installing the ciphers' C library" sh -ec 'apt-get install -y --no-install-recommends /debs/libsector-cipher*.deb'
# The example, with each library: it uses every function.
try "programs in C" sh -ec '
    cd /tmp
    example=/usr/share/doc/libsector-cipher-dev/examples/encrypt.c
    [ -e "$example" ] || { gunzip -c "$example.gz" >encrypt.c && example=encrypt.c; }
    cc -Wall -Wextra -Werror $(pkg-config --cflags sector_cipher) "$example" -o shared $(pkg-config --libs sector_cipher)
    cc -Wall -Wextra -Werror $(pkg-config --cflags sector_cipher) "$example" -o static \
        $(pkg-config --libs --static sector_cipher | sed s/-lsector_cipher/-l:libsector_cipher.a/)
    ldd shared | grep "libsector_cipher.so.0 => /"
    ! ldd static | grep sector_cipher
    for kind in shared static; do
        "./$kind" >said
        cat said
        [ -s said ]
    done'
step "a package that uses it depends on it"
quietly in_root sh -ec '
    mkdir -p /tmp/user/debian && cd /tmp/user
    printf "Source: user\n\nPackage: user\nArchitecture: any\n" >debian/control
    dpkg-shlibdeps -O ../shared | tee /dev/stderr | grep "libsector-cipher0 (>= 0.1.0)"'
try "removing it" apt-get purge -y libsector-cipher0
rm -rf "$root"/tmp/*
files >"$root.after"
diff "$root.before" "$root.after" >"$log" || { cat "$log" && die "purging left a difference"; }

if [ "${XTENT_TEST_DKMS:-1}" = 1 ]; then
    try "kernel headers and DKMS" apt-get install -y --no-install-recommends dkms linux-headers-amd64
    try "building the modules" sh -ec 'apt-get install -y --no-install-recommends /debs/xtent-dkms_*.deb'
    for module in dm-xtent xtent_fast xtent_pci; do
        compgen -G "$root/lib/modules/*/updates/dkms/$module.ko*" >/dev/null || die "no $module was built"
    done
    try "removing them" apt-get purge -y xtent-dkms
    if compgen -G "$root/lib/modules/*/updates/dkms/*xtent*" || compgen -G "$root/usr/src/*xtent*"; then
        die "purging xtent-dkms left these"
    fi
else
    step "NOT RUN: building the kernel modules (XTENT_TEST_DKMS=0)"
fi
step "passed"
