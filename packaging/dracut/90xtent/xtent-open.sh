#!/bin/sh
# Opens the volumes of the initramfs's table whose devices are there; without systemd.

table=/etc/xtent/crypttab
@bindir@/xtent --quiet crypttab list --file "$table" >/run/xtent-list
while read -r name device _ <&3; do
    if [ -e "/dev/mapper/$name" ] || [ -e "/run/xtent-$name.failed" ] || [ ! -e "$device" ]; then
        continue
    fi
    @bindir@/xtent crypttab open --file "$table" --ask-with @libexecdir@/xtent/ask-console -- "$name" \
        </dev/console >/dev/null 2>/dev/console || : >"/run/xtent-$name.failed"
done 3</run/xtent-list
