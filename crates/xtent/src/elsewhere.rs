//! Commands that people type from habit or by guess, and what does it here: one
//! table.

/// What to say to `xtent NAME`, where NAME is no command.
pub(crate) fn advice(name: &str) -> Option<&'static str> {
    TABLE
        .iter()
        .find(|(names, _)| names.iter().any(|it| it.eq_ignore_ascii_case(name)))
        .map(|(_, advice)| *advice)
}

/// Names, and the advice. What is in backticks and begins with `xtent` exists: a test
/// looks.
const TABLE: &[(&[&str], &str)] = &[
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
        ],
        "cryptsetup's open is `xtent open NAME DEVICE`, which takes root. Without root `xtent \
         serve DEVICE` serves the plaintext over NBD, and `xtent mount --file-only DEVICE DIR` \
         offers it as a file.",
    ),
    (
        &["attach", "connect", "start", "export", "nbd", "server"],
        "`xtent serve DEVICE` serves a volume over NBD; `xtent mount DEVICE DIR` mounts it.",
    ),
    (
        &[
            "luksClose",
            "lock",
            "detach",
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
        &["luksRemoveKey", "removekey", "remove-key"],
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
        &["resize", "grow", "extend", "luksResize"],
        "A volume is as large as what it is on: make the image (`truncate --size`) or device \
         (`lvextend`) larger, then open it again; no command is needed. The process of a \
         running `xtent serve` or `xtent mount` (`xtent status` names it) takes SIGHUP instead: \
         `kill -HUP PID`. The file system inside is grown after that by its own \
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
        &["luksSuspend", "suspend", "luksResume", "resume"],
        "Mappings are suspended and resumed with cryptsetup.",
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
        assert_eq!(advice("LUKSopen"), advice("luksOpen"));
        assert_eq!(advice("frobnicate"), None);
    }

    #[test]
    fn what_is_advised_exists() {
        for (names, advice) in TABLE {
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
