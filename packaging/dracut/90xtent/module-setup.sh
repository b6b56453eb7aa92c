#!/bin/bash
# shellcheck disable=SC2154 # variables of dracut
# Puts into the initramfs what it takes to open volumes before the root file system is there: lines of
# /etc/crypttab with the options x-xtent and x-initrd.attach, or whose mapping / lies on.

xtent_wanted() { # prints names
    local name _ initrd device
    while read -r name _ _ _ initrd; do
        if [[ $initrd == initrd ]]; then
            echo "$name"
            continue
        fi
        for device in "${!host_fs_types[@]}"; do
            if [[ /dev/mapper/$name -ef $device ]]; then
                echo "$name"
                break
            fi
        done
    done < <(@bindir@/xtent --quiet crypttab list --file "${dracutsysrootdir-}/etc/crypttab" 2> /dev/null)
}

# called by dracut
check() {
    require_binaries @bindir@/xtent || return 1
    [[ -n $(xtent_wanted) ]] && return 0
    return 255
}

# called by dracut
depends() {
    echo dm rootfs-block
}

# called by dracut
installkernel() {
    hostonly='' instmods dm_crypt dm_xtent xtent_fast loop '=crypto' aesni_intel aes_arm64 \
        tpm tpm_crb tpm_tis tpm_tis_core
}

# called by dracut
install() {
    local name key header library table=/etc/xtent/crypttab systemd=''
    dracut_module_included systemd && systemd=yes && table=/etc/crypttab
    mkdir -p "${initdir:?}/etc/xtent"

    while read -r name; do
        read -r _ _ key header _ < <(@bindir@/xtent --quiet crypttab list | awk -v name="$name" '$1 == name')
        [[ $key == - ]] || dwarn "xtent: $name: the key file $key is not put into the initramfs, which is not encrypted; the passphrase will be asked for"
        [[ $header == - || $header == /dev/* ]] || inst_simple "$header"
        # The crypt module may have been here before.
        if [[ -e $initdir$table ]]; then
            awk -v name="$name" '$1 != name' "$initdir$table" > "$initdir$table.new"
            mv "$initdir$table.new" "$initdir$table"
        fi
        awk -v name="$name" '$1 == name && $4 ~ /(^|,)x-xtent(,|$)/ { $3 = "none"; print; exit }' \
            "${dracutsysrootdir-}/etc/crypttab" >> "$initdir$table"
    done < <(xtent_wanted)

    inst_multiple @bindir@/xtent @libexecdir@/xtent/ask-console stty
    if [[ -x @libexecdir@/xtent/xtent-token-plugin ]]; then
        inst_multiple @libexecdir@/xtent/xtent-token-plugin
        inst_libdir_file 'cryptsetup/libcryptsetup-token-*.so' 'libtss2-esys.so.*' 'libtss2-mu.so.*' \
            'libtss2-rc.so.*' 'libtss2-sys.so.*' 'libtss2-tcti-device.so.*' 'libtss2-tctildr.so.*' 'libfido2.so.*'
        # dracut finds out what programs are linked to, but not libraries that programs load.
        while read -r library; do
            inst_library "$library"
        done < <(find "$initdir" \( -name 'libcryptsetup-token-*.so' -o -name 'libtss2-*.so.*' -o -name 'libfido2.so.*' \) \
            -printf '/%P\n' | xargs -r ldd 2> /dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u)
    fi
    if [[ $systemd ]]; then
        inst_multiple -o @libexecdir@/xtent/ask-systemd systemd-ask-password \
            @systemddir@/system-generators/xtent-generator \
            "$systemdsystemunitdir"/cryptsetup.target \
            "$systemdsystemunitdir"/sysinit.target.wants/cryptsetup.target \
            "$systemdsystemunitdir"/remote-cryptsetup.target \
            "$systemdsystemunitdir"/systemd-ask-password-console.path \
            "$systemdsystemunitdir"/systemd-ask-password-console.service systemd-tty-ask-password-agent
    else
        inst_hook initqueue/settled 60 "${moddir:?}/xtent-open.sh"
    fi
    dracut_need_initqueue
}
