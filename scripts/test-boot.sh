#!/usr/bin/env bash
# Boots a Debian 12 whose root file system is on LUKS2, opened by the package of target/deb
# alone (no cryptsetup in its initramfs), in QEMU: with the passphrase typed; with a software
# TPM for which systemd-cryptenroll has enrolled it; with another TPM, which has to
# end in the question for the passphrase. By initramfs-tools, and by dracut with systemd in
# its initramfs and without.
#
# Emulated, each boot takes minutes. XTENT_BOOT_ACCEL=kvm is faster where that works.
#
# usage: test-boot.sh
#   XTENT_BOOT_DRACUT=0   without dracut, half the time
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
    printf 'test-boot: %s\n' "$*" >&2
    exit 1
}
step() {
    printf 'test-boot: %s (after %s s)\n' "$*" "$SECONDS"
}
# shellcheck source=scripts/debian-root.sh
. scripts/debian-root.sh

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/debian
root=$work/boot
log=$work/boot.log
mkdir -p "$work"
compgen -G "$target/deb/xtent_*.deb" >/dev/null || die "there are no packages in target/deb: run make deb"
secret='correct horse'
uuid=11111111-2222-3333-4444-555555555555

step "a Debian 12 with a kernel"
# The slow part, kept. The initramfs is made once Xtent is there. dracut's core and
# initramfs-tools go together; only the hooks that choose one of them for new kernels do not.
packages=(linux-image-amd64 initramfs-tools dracut-core busybox systemd-sysv udev libnbd-bin)
if [ "$(cat "$work/boot-base/complete" 2>/dev/null)" != "${packages[*]}" ]; then
    fresh_root "$work/base" "$work/boot-base"
    quietly within "$work/boot-base" apt-get install -y --no-install-recommends "${packages[@]}"
    echo "${packages[*]}" >"$work/boot-base/complete"
fi
rm -rf "$root"
cp -a "$work/boot-base" "$root"
rm "$root/complete"

step "the package"
cp "$target"/deb/xtent_*.deb "$root/root/"
quietly within "$root" sh -ec 'apt-get install -y /root/xtent_*.deb'
if [ -e "$root/usr/sbin/cryptsetup" ] || [ -e "$root/usr/share/initramfs-tools/hooks/cryptroot" ]; then
    die "cryptsetup is there too: this would not show who opens the volume"
fi

step "its configuration"
xtent=$root/usr/bin/xtent
mkdir -p "$root/etc/keys"
printf secret >"$root/etc/keys/data.key"
# Argon2 on an emulated processor is not what is tested.
for volume in data served; do
    truncate -s 32M "$root/srv/$volume.img"
    cryptsetup luksFormat --batch-mode --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
        "$root/srv/$volume.img" "$root/etc/keys/data.key"
done
cat >"$root/etc/crypttab" <<TAB
root UUID=$uuid none x-xtent,luks,x-initrd.attach
data /srv/data.img /etc/keys/data.key x-xtent,luks,nofail
TAB
echo "/dev/mapper/root / ext4 defaults 0 1" >"$root/etc/fstab"
mkdir -p "$root/etc/xtent/serve"
printf 'XTENT_DEVICE=/srv/served.img\nXTENT_OPTIONS=--key-file=/etc/keys/data.key\n' >"$root/etc/xtent/serve/disk.conf"
cat >"$root/usr/local/sbin/report" <<'REPORT'
#!/bin/sh
# What the test waits for, on the console, and off.
exec >/dev/console 2>&1 </dev/null
if grep -q report=enroll /proc/cmdline; then
    PASSWORD='correct horse' systemd-cryptenroll --tpm2-device=auto --tpm2-pcrs=7 /dev/vda && echo "REPORT: enrolled"
fi
echo "REPORT: / is on $(findmnt -no SOURCE /), $(dmsetup table root | cut -d ' ' -f 3,4)"
echo "REPORT: data is $(systemctl is-active systemd-cryptsetup@data.service), $(test -b /dev/mapper/data && echo there)"
systemctl status --no-pager systemd-cryptsetup@data.service | tail -5
systemctl start xtent-serve@disk.service || journalctl --no-pager -u xtent-serve@disk.service
echo "REPORT: served is $(nbdinfo --size 'nbd+unix:///?socket=/run/xtent/disk.sock')"
systemctl stop xtent-serve@disk.service xtent-serve@disk.socket
systemctl stop systemd-cryptsetup@data.service && ! test -e /dev/mapper/data && echo "REPORT: data is closed"
echo "REPORT: failed units: $(systemctl --failed --plain --no-legend | grep -c .)"
systemctl --failed --plain --no-legend
sync
systemctl poweroff --force
REPORT
chmod 755 "$root/usr/local/sbin/report"
cat >"$root/etc/systemd/system/report.service" <<'UNIT'
[Unit]
After=multi-user.target systemd-cryptsetup@data.service
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/report
TimeoutSec=infinity
[Install]
WantedBy=multi-user.target
UNIT
ln -s ../report.service "$root/etc/systemd/system/multi-user.target.wants/report.service" 2>/dev/null ||
    { mkdir -p "$root/etc/systemd/system/multi-user.target.wants" &&
        ln -s ../report.service "$root/etc/systemd/system/multi-user.target.wants/report.service"; }
quietly within "$root" update-initramfs -u -k all
kernel=$(echo "$root"/boot/vmlinuz-*)
initrd=$(echo "$root"/boot/initrd.img-*)
cp "$kernel" "$work/vmlinuz"
cp "$initrd" "$work/initrd"
quietly within "$root" sh -ec 'lsinitramfs /boot/initrd.img-*'
for file in usr/bin/xtent usr/libexec/xtent/xtent-token-plugin usr/libexec/xtent/ask-console etc/xtent/crypttab \
    scripts/local-top/xtent libtss2-esys.so.0 libcryptsetup-token-systemd-tpm2.so libcryptsetup.so.12 dm-crypt.ko; do
    grep -q "$file\$" "$log" || die "the initramfs has no $file"
done

dracut() { # dracut OUT OPTION... -- FILE...: makes an initramfs, and looks for files in it
    local out=$1 file
    local -a options=()
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    # shellcheck disable=SC2016 # for the inner shell
    quietly within "$root" sh -ec 'exec dracut --force --kver "$(ls /lib/modules)" "$@" /boot/dracut.img' sh "${options[@]}"
    quietly within "$root" lsinitrd /boot/dracut.img
    mv "$root/boot/dracut.img" "$out"
    # Links are listed with what they point to.
    for file in usr/bin/xtent xtent/xtent-token-plugin xtent/ask-console libtss2-esys.so.0 \
        libcryptsetup-token-systemd-tpm2.so libcryptsetup.so.12 dm-crypt.ko "$@"; do
        grep -Eq "$file( ->|\$)" "$log" || die "the initramfs of dracut has no $file"
    done
    if grep -Eq '(sbin|systemd)/(systemd-)?cryptsetup$' "$log"; then
        die "cryptsetup is there too: this would not show who opens the volume"
    fi
}
if [ "${XTENT_BOOT_DRACUT:-1}" = 1 ]; then
    step "its initramfs by dracut"
    # Without the module that would have systemd's own program open the volume.
    dracut "$work/initrd-dracut" --omit crypt -- etc/crypttab system-generators/xtent-generator xtent/ask-systemd
    # All that has systemd in it.
    dracut "$work/initrd-dracut-plain" --omit "crypt systemd systemd-initrd systemd-udevd systemd-journald systemd-modules-load
        systemd-sysctl systemd-tmpfiles systemd-sysusers systemd-ask-password dracut-systemd dbus" -- \
        etc/xtent/crypttab settled/60-xtent-open.sh
    if grep -q system-generators/ "$log"; then die "this would not show how it goes without systemd"; fi
fi

step "the disk"
image=$work/disk.img
plain=$work/plain.img
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/root/*.deb "$root"/usr/share/doc \
    "$root"/usr/share/locale "$root"/boot/initrd*
initrd=$work/initrd
rm -f "$plain" "$image"
truncate -s 1600M "$plain"
quietly mke2fs -q -t ext4 -b 4096 -d "$root" "$plain"
truncate -s 1616M "$image"
printf %s "$secret" | cryptsetup luksFormat --batch-mode --type luks2 --uuid "$uuid" --sector-size 4096 --pbkdf pbkdf2 \
    --pbkdf-force-iterations 1000 --key-file - "$image"
printf %s "$secret" | "$xtent" encrypt --key-file - "$plain" "$image"
rm -rf "$plain" "$root"

boot() { # boot WHAT TPM APPEND STEP...
    step "$1"
    local tpm=$2 append=$3
    shift 3
    scripts/boot-guest.py --kernel "$work/vmlinuz" --initrd "$initrd" --disk "$image" --log "$work/console.log" \
        --tpm "$tpm" --append "root=/dev/mapper/root ro console=ttyS0 panic=-1 $append" "$@"
    grep -a "REPORT" "$work/console.log" | tr -d '\r'
}
report=(expect 'REPORT: / is on /dev/mapper/root, crypt aes-xts-plain64' expect 'REPORT: data is active, there'
    expect 'REPORT: served is 16777216' expect 'REPORT: data is closed' expect 'REPORT: failed units: 0')
rm -rf "$work"/tpm-*
boot "the first boot, passphrase typed after a wrong one" "$work/tpm-own" report=enroll \
    expect 'Passphrase for /dev/disk/by-uuid' type 'wrong' expect 'try again' expect 'Passphrase for /dev/disk/by-uuid' \
    type "$secret" expect 'REPORT: enrolled' "${report[@]}"
boot "unattended, by the TPM" "$work/tpm-own" "" never 'Passphrase for' "${report[@]}"
boot "another TPM: the passphrase is asked for" "$work/tpm-other" "" \
    expect 'Passphrase for /dev/disk/by-uuid' type "$secret" "${report[@]}"
if [ "${XTENT_BOOT_DRACUT:-1}" = 1 ]; then
    for initrd in "$work/initrd-dracut" "$work/initrd-dracut-plain"; do
        boot "${initrd##*/}, unattended, by the TPM" "$work/tpm-own" "" never 'Passphrase for' "${report[@]}"
        boot "${initrd##*/}, another TPM: the passphrase is asked for, typed after a wrong one" "$work/tpm-other" "" \
            expect 'Passphrase for /dev/disk/by-uuid' type 'wrong' expect 'Passphrase for /dev/disk/by-uuid' \
            type "$secret" "${report[@]}"
    done
else
    step "NOT RUN: dracut (XTENT_BOOT_DRACUT=0)"
fi
rm -f "$image"
step "passed"
