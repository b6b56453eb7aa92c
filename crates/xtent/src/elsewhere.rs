//! Commands that people type from habit or by guess, and what does it here: one
//! table.

/// What to say to `xtent NAME`, where NAME is no command.
pub(crate) fn advice(name: &str) -> Option<&'static str> {
    look_up(TABLE, name)
}

/// The same below a command: to `xtent GROUP NAME`.
pub(crate) fn advice_below(group: &str, name: &str) -> Option<&'static str> {
    let (_, table) = GROUPS.iter().find(|(known, _)| *known == group)?;
    look_up(table, name)
}

fn look_up(table: Table, name: &str) -> Option<&'static str> {
    table
        .iter()
        .find(|(names, _)| names.iter().any(|it| it.eq_ignore_ascii_case(name)))
        .map(|(_, advice)| *advice)
}

/// Names, and the advice. What is in backticks and begins with `xtent` exists: a test
/// looks.
type Table = &'static [(&'static [&'static str], &'static str)];

/// Below commands that have some of their own.
const GROUPS: &[(&str, Table)] = &[
    (
        "key",
        &[
            (
                &["delete", "del", "rm", "revoke", "erase", "wipe", "destroy"],
                "`xtent key remove DEVICE` removes the passphrase that is typed; `xtent key kill \
                 DEVICE SLOT` any one.",
            ),
            (
                &["new", "create", "insert"],
                "`xtent key add DEVICE` adds a passphrase.",
            ),
            (
                &["set", "replace", "update", "passwd", "rotate"],
                "`xtent key change DEVICE` changes a passphrase.",
            ),
            (
                &["ls", "show", "dump", "slots", "status"],
                "`xtent key list DEVICE` lists the keyslots.",
            ),
            (
                &["check", "try", "verify"],
                "`xtent key test DEVICE` tries a passphrase and writes nothing.",
            ),
        ],
    ),
    (
        "header",
        &[
            (
                &["show", "info", "print", "list", "ls"],
                "`xtent header dump DEVICE` shows it.",
            ),
            (
                &["save", "export", "copy"],
                "`xtent header backup DEVICE FILE` saves it.",
            ),
            (
                &["load", "import", "write"],
                "`xtent header restore DEVICE FILE` writes a saved header back.",
            ),
            (
                &["fix", "check", "recover"],
                "`xtent header repair DEVICE` mends a damaged copy of it.",
            ),
            (
                &["wipe", "destroy", "delete", "remove", "rm"],
                "`xtent header erase DEVICE` destroys all keyslots.",
            ),
        ],
    ),
    (
        "token",
        &[
            (
                &["delete", "del", "rm", "kill", "erase"],
                "`xtent token remove DEVICE --token-id N` removes one.",
            ),
            (
                &["ls", "show", "dump", "info"],
                "`xtent token list DEVICE` lists them.",
            ),
            (
                &["create", "new", "enroll"],
                "`xtent token add DEVICE` adds one for the kernel's keyring; those of a TPM or a \
                 FIDO2 key are made by systemd-cryptenroll.",
            ),
            (
                &["save", "backup"],
                "`xtent token export DEVICE --token-id N` writes its JSON.",
            ),
            (
                &["load", "restore"],
                "`xtent token import DEVICE` reads its JSON.",
            ),
        ],
    ),
];

const TABLE: Table = &[
    (
        &["luksFormat", "create", "init", "new", "make", "mkfs"],
        "`xtent format DEVICE` makes a volume.",
    ),
    (
        &[
            "luksOpen",
            "unlock",
            "decrypt-open",
            "map",
            "activate",
            "cryptopen",
            "plainOpen",
        ],
        "cryptsetup's open is `xtent open NAME DEVICE`, which requires root. Without root `xtent \
         serve DEVICE` serves the plaintext over NBD, and `xtent mount --file-only DEVICE DIR` \
         offers it as a file.",
    ),
    (
        &["connect", "start", "export", "nbd", "server"],
        "`xtent serve DEVICE` serves a volume over NBD; `xtent mount DEVICE DIR` mounts it.",
    ),
    (
        &[
            "luksClose",
            "plainClose",
            "loopaesClose",
            "tcryptClose",
            "bitlkClose",
            "fvault2Close",
            "lock",
            "disconnect",
            "stop",
            "remove",
            "deactivate",
            "kill",
            "unserve",
        ],
        "`xtent close NAME` undoes `xtent open`, `xtent umount DIR` undoes `xtent mount`; `xtent \
         serve` ends with Ctrl-C or SIGTERM. `xtent status` shows what there is.",
    ),
    (&["unmount"], "`xtent umount DIR` undoes `xtent mount`."),
    (
        &["luksAddKey", "addkey", "add-key", "add"],
        "`xtent key add DEVICE` adds a passphrase.",
    ),
    (
        &[
            "luksChangeKey",
            "passwd",
            "password",
            "passphrase",
            "change",
            "rekey",
        ],
        "`xtent key change DEVICE` changes a passphrase.",
    ),
    (
        &[
            "luksRemoveKey",
            "luksDelKey",
            "removekey",
            "remove-key",
            "delete",
        ],
        "`xtent key remove DEVICE` removes the passphrase that is typed; `xtent key kill DEVICE \
         SLOT` any one.",
    ),
    (
        &["luksKillSlot", "killslot"],
        "`xtent key kill DEVICE SLOT` removes a keyslot.",
    ),
    (
        &["keys", "slots", "keyslots"],
        "`xtent key list DEVICE` lists the keyslots.",
    ),
    (
        &["test", "check", "verify", "test-passphrase"],
        "`xtent key test DEVICE` tries a passphrase and writes nothing.",
    ),
    (
        &["luksDump", "dump", "info", "show", "inspect"],
        "`xtent header dump DEVICE` shows a volume's metadata, `xtent status` what is in use.",
    ),
    (
        &["list", "ls", "ps", "mounts", "lsblk"],
        "`xtent status` lists what is served, mounted and mapped.",
    ),
    (
        &["luksHeaderBackup", "backup"],
        "`xtent header backup DEVICE FILE` saves the header; the data is saved like that of any \
         file or disk.",
    ),
    (
        &["luksHeaderRestore", "restore"],
        "`xtent header restore DEVICE FILE` writes a saved header back.",
    ),
    (
        &["repair", "fsck"],
        "`xtent header repair DEVICE` mends a damaged copy of the header. A file system is \
         checked by its own tools, once it is served, mapped or offered as a file.",
    ),
    (
        &["luksErase", "erase", "wipe", "destroy"],
        "`xtent header erase DEVICE` destroys all keyslots.",
    ),
    (&["benchmark"], "`xtent bench` measures."),
    (
        &["grow", "extend", "luksResize"],
        "A volume is as large as what it is on: make the image (`truncate --size`) or device \
         (`lvextend`) larger, then open it again; no command is needed. A running `xtent \
         serve` or `xtent mount` looks at it with `xtent resize NAME`. The file system inside is grown after that by its own \
         tool (`resize2fs`, `xfs_growfs`).",
    ),
    (
        &["copy", "convert-image", "import", "dd"],
        "`xtent encrypt SOURCE DEVICE` copies a plain image in, `xtent decrypt DEVICE TARGET` out.",
    ),
    (
        &["reencrypt", "luksReencrypt"],
        "Xtent does not reencrypt in place: cryptsetup does, or `xtent format` makes a volume \
         elsewhere, and `xtent decrypt` and `xtent encrypt` move the data.",
    ),
    (
        &["luksConvertKey"],
        "`xtent key convert DEVICE` gives a key another key derivation.",
    ),
    (
        &["luksUUID"],
        "`xtent uuid DEVICE` prints the UUID; `xtent config --uuid UUID DEVICE` changes it.",
    ),
    (
        &["isLuks"],
        "`xtent is-luks DEVICE` says by its exit code whether it is a LUKS volume.",
    ),
    (&["version"], "`xtent --version` prints the version."),
    (
        &[
            "loopaesOpen",
            "tcryptOpen",
            "bitlkOpen",
            "fvault2Open",
            "tcryptDump",
            "bitlkDump",
            "fvault2Dump",
        ],
        "Xtent has LUKS and plain dm-crypt. Volumes of loop-AES, TrueCrypt and VeraCrypt, \
         BitLocker and FileVault2 are cryptsetup's.",
    ),
    (
        &["luksSuspend", "freeze", "pause"],
        "`xtent suspend NAME` takes the key of a mapping out of memory; `xtent resume NAME` gives it back.",
    ),
    (
        &["luksResume", "thaw", "continue"],
        "`xtent resume NAME` gives a mapping that is suspended its key back.",
    ),
];

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn names_are_none_of_ours_and_unique() {
        let cli = Cli::command();
        let names: Vec<&str> = TABLE
            .iter()
            .flat_map(|(names, _)| *names)
            .copied()
            .collect();
        for (at, name) in names.iter().enumerate() {
            assert!(cli.find_subcommand(name).is_none(), "{name} is a command");
            assert!(!names[..at].contains(name), "{name} twice");
        }
        for (group, table) in GROUPS {
            let command = cli.find_subcommand(group).unwrap();
            for name in table.iter().flat_map(|(names, _)| *names) {
                assert!(command.find_subcommand(name).is_none(), "{group} {name}");
            }
        }
        assert_eq!(advice("LUKSopen"), advice("luksOpen"));
        assert_eq!(advice("frobnicate"), None);
    }

    /// The actions of cryptsetup 2.6 and their old names, by its `--help`.
    #[test]
    fn every_action_of_cryptsetup_leads_somewhere() {
        let cli = Cli::command();
        for name in "open close resize status benchmark repair reencrypt erase convert config \
                     luksFormat luksAddKey luksRemoveKey luksChangeKey luksConvertKey \
                     luksKillSlot luksUUID isLuks luksDump tcryptDump bitlkDump fvault2Dump \
                     luksSuspend luksResume luksHeaderBackup luksHeaderRestore token create \
                     plainOpen luksOpen loopaesOpen tcryptOpen bitlkOpen fvault2Open remove \
                     plainClose luksClose loopaesClose tcryptClose bitlkClose fvault2Close \
                     luksErase luksDelKey"
            .split_whitespace()
        {
            let is_ours = cli.find_subcommand(name).is_some()
                || cfg!(not(feature = "device-mapper"))
                    && ["open", "close", "suspend", "resume"].contains(&name);
            assert!(is_ours || advice(name).is_some(), "{name}");
        }
    }

    #[test]
    fn what_is_advised_exists() {
        let groups = GROUPS.iter().flat_map(|(_, table)| *table);
        for (names, advice) in TABLE.iter().chain(groups) {
            for quoted in advice.split('`').skip(1).step_by(2) {
                let Some(line) = quoted.strip_prefix("xtent ") else {
                    continue;
                };
                let mut command = Cli::command();
                for word in line.split_whitespace() {
                    if word.chars().any(char::is_uppercase) || word.starts_with('-') {
                        break;
                    }
                    let Some(found) = command.find_subcommand(word) else {
                        panic!("{names:?}: no `xtent {line}`");
                    };
                    command = found.clone();
                }
            }
        }
    }
}
