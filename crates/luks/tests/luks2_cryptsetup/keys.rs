//! Keys made, added, changed and removed by either, also interrupted and at once.

use super::*;

#[test]
fn what_either_makes_the_other_opens() {
    let bed = Bed::new();
    for key_length in [32, 64] {
        for sector_size in [512, 4096] {
            for (kdf, arguments) in KDFS {
                bed.image("theirs", 20 << 20);
                let bits = (key_length * 8).to_string();
                let size = sector_size.to_string();
                let more = [&["--key-size", &bits, "--sector-size", &size], arguments].concat();
                let all = [
                    &["luksFormat", "--type", "luks2"],
                    &more[..],
                    &["theirs", "one"],
                ];
                bed.ok(&all.concat());
                let theirs = bed.device("theirs");
                let unlocked = unlock(&theirs, "one").unwrap();
                assert_eq!(*unlocked.key, bed.volume_key("theirs", "one"));
                assert!(unlock(&theirs, "wrong").is_none());
                let segment = theirs.read().unwrap().segment(20 << 20).unwrap();
                assert_eq!(segment.encryption, "aes-xts-plain64");
                assert_eq!(segment.sector_size, sector_size);
                assert_eq!((segment.offset, segment.length), (16 << 20, 4 << 20));

                bed.image("ours", 20 << 20);
                let ours = bed.device("ours");
                ours.format(&options(key_length, sector_size, kdf), &word("one"))
                    .unwrap();
                assert_eq!(bed.opens("ours", "one"), Some(0));
                assert_eq!(bed.opens("ours", "wrong"), None);
                let key = unlock(&ours, "one").unwrap().key;
                assert_eq!(*key, bed.volume_key("ours", "one"));
                assert_eq!(key.len(), key_length);
                let dump = bed.ok(&["luksDump", "ours"]);
                assert!(
                    dump.contains(&format!("sector: {sector_size} [bytes]")),
                    "{dump}"
                );
                assert_eq!(
                    dump.trim_end(),
                    ours.read().unwrap().dump().to_string().trim_end()
                );
            }
        }
    }
}

#[test]
fn keys_changed_by_either_work_in_the_other() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let device = bed.device("disk");
    let key = bed.volume_key("disk", "one");

    // Ours: add, change, kill.
    let unlocked = unlock(&device, "one").unwrap();
    assert_eq!(*unlocked.key, key);
    let added = device.add_key(&unlocked, &word("two"), None, &fast("argon2id"));
    assert_eq!(added.unwrap(), 1);
    assert_eq!(bed.opens("disk", "two"), Some(1));
    let added = device.add_key(&unlocked, &word("three"), Some(31), &fast("pbkdf2"));
    assert_eq!(added.unwrap(), 31);
    assert_eq!(bed.opens("disk", "three"), Some(31));
    let taken = device.add_key(&unlocked, &word("three"), Some(31), &fast("pbkdf2"));
    assert_eq!(taken.unwrap_err().kind, ErrorKind::Keyslot);
    let changed = device.change_key(
        &word("three"),
        None,
        &word("wrong"),
        &fast("argon2i"),
        ChangeOptions::default(),
        &LIMITS,
    );
    assert_eq!(changed.unwrap(), 31);
    assert_eq!(bed.opens("disk", "wrong"), Some(31));
    assert_eq!(bed.opens("disk", "three"), None);
    device.kill_slot(31, false).unwrap();
    assert_eq!(bed.opens("disk", "wrong"), None);
    assert_eq!(bed.opens("disk", "one"), Some(0));

    // Theirs: the same.
    let fast = [
        "--pbkdf",
        "pbkdf2",
        "--pbkdf-force-iterations",
        "1000",
        "-d",
        "two",
    ];
    bed.ok(&[&["luksAddKey"], &fast[..], &["disk", "three"]].concat());
    assert_eq!(slot(&device, "three"), Some(2));
    bed.ok(&[&["luksChangeKey"], &fast[..], &["disk", "wrong"]].concat());
    assert_eq!(slot(&device, "wrong"), Some(1));
    assert_eq!(slot(&device, "two"), None);
    bed.ok(&["luksKillSlot", "-d", "three", "disk", "1"]);
    assert_eq!(slot(&device, "wrong"), None);
    assert_eq!(slot(&device, "one"), Some(0));
    assert_eq!(*unlock(&device, "three").unwrap().key, key);

    // The last one stays unless the user insists.
    device.kill_slot(0, false).unwrap();
    assert_eq!(
        device.kill_slot(2, false).unwrap_err().kind,
        ErrorKind::LastKeyslot
    );
    assert_eq!(
        device.kill_slot(5, false).unwrap_err().kind,
        ErrorKind::Keyslot
    );
    device.erase().unwrap();
    assert!(device.read().unwrap().keyslots().is_empty());
    assert!(!bed.ok(&["luksDump", "disk"]).contains("luks2\n\tKey"));
    let error = device.unlock(&word("three"), None, &LIMITS).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Keyslot);
}

#[test]
fn unbound_keys_of_ours_are_cryptsetups() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let device = bed.device("disk");
    for (length, keyslot) in [(1, 1), (33, 2), (512, 3)] {
        let key = SecretBytes::random(length).unwrap();
        let added = device.add_unbound_key(&key, &word("two"), None, &fast("pbkdf2"));
        assert_eq!(added.unwrap(), keyslot);
        let found = device.unlock_any(&word("two"), Some(keyslot), &LIMITS);
        assert_eq!(found.unwrap().key, key);
        let number = keyslot.to_string();
        let test = [
            "open",
            "--test-passphrase",
            "--unbound",
            "-S",
            &number,
            "-d",
            "two",
            "disk",
        ];
        bed.ok(&test);
        let _ = fs::remove_file(bed.path("unbound.key"));
        let dump = [
            "luksDump",
            "--unbound",
            "-S",
            &number,
            "-d",
            "two",
            "--volume-key-file",
            "unbound.key",
            "disk",
        ];
        bed.ok(&dump);
        assert_eq!(fs::read(bed.path("unbound.key")).unwrap(), *key);
    }
    // None of them opens the volume, whatever is tried.
    assert_eq!(slot(&device, "two"), None);
    // cryptsetup's answer is that of the last keyslot that it looked at.
    let test = ["open", "--test-passphrase", "-d", "two", "disk"];
    assert_eq!(bed.run(&test).status.code(), Some(1));
    assert_eq!(slot(&device, "one"), Some(0));
    assert_eq!(bed.opens("disk", "one"), Some(0));
    device.kill_slot(2, false).unwrap();
    assert!(!bed.ok(&["luksDump", "disk"]).contains("2: luks2"));
    for length in [0, 513] {
        let key = SecretBytes::zeroed(length).unwrap();
        let error = device
            .add_unbound_key(&key, &word("two"), None, &fast("pbkdf2"))
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::Options);
    }
}

#[test]
fn a_volume_key_opens_where_no_keyslot_is_left() {
    let bed = Bed::new();
    for kind in ["luks1", "luks2"] {
        bed.image("disk", 20 << 20);
        bed.ok(&[
            "luksFormat",
            "--type",
            kind,
            "--pbkdf",
            "pbkdf2",
            "--pbkdf-force-iterations",
            "1000",
            "disk",
            "one",
        ]);
        let device = bed.device("disk");
        let key = SecretBytes::copy_of(&bed.volume_key("disk", "one")).unwrap();
        device.erase().unwrap();
        let test = ["open", "--test-passphrase", "-d", "one", "disk"];
        assert_eq!(bed.run(&test).status.code(), Some(1));

        let mut wrong = SecretBytes::copy_of(&key).unwrap();
        wrong[7] ^= 1;
        for wrong in [
            wrong,
            SecretBytes::copy_of(&key[1..]).unwrap(),
            SecretBytes::copy_of(&[&key[..], &[0]].concat()).unwrap(),
        ] {
            let error = device.unlock_with_volume_key(wrong, &LIMITS).unwrap_err();
            assert_eq!(error.kind, ErrorKind::WrongPassphrase, "{error}");
        }
        let unlocked = device.unlock_with_volume_key(key, &LIMITS).unwrap();
        assert_eq!(unlocked.keyslot, None);
        let error = device.remove_key(&unlocked, true).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Options, "{error}");
        let choice = KdfChoice {
            hash: (kind == "luks1").then(|| "sha256".into()),
            ..fast("pbkdf2")
        };
        let added = device.add_key(&unlocked, &word("two"), None, &choice);
        assert_eq!(added.unwrap(), 0);
        assert_eq!(bed.opens("disk", "two"), Some(0));
        assert_eq!(bed.volume_key("disk", "two"), *unlocked.key);
    }
}

#[test]
fn a_volume_is_made_around_a_key() {
    let bed = Bed::new();
    for version in [Version::Luks1, Version::Luks2] {
        bed.image("disk", 20 << 20);
        let device = bed.device("disk");
        let options = FormatOptions {
            version,
            ..options(64, 512, "pbkdf2")
        };
        let key = SecretBytes::random(64).unwrap();
        let equal = SecretBytes::copy_of(&[7; 64]).unwrap();
        let short = SecretBytes::random(32).unwrap();
        for bad in [equal, short] {
            let error = device.format_with_volume_key(&options, &word("one"), &bad);
            assert_eq!(error.unwrap_err().kind, ErrorKind::Options);
        }
        device
            .format_with_volume_key(&options, &word("one"), &key)
            .unwrap();
        assert_eq!(bed.volume_key("disk", "one"), *key);
    }
}

#[test]
fn priorities_and_unbound_keys_are_as_in_cryptsetup() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let device = bed.device("disk");
    let fast_options = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];
    // The same passphrase in three slots, and an unbound key.
    for number in ["3", "4"] {
        let all = [
            &["luksAddKey", "-S", number],
            &fast_options[..],
            &["-d", "one", "disk", "one"],
        ];
        bed.ok(&all.concat());
    }
    let all = [
        &["luksAddKey", "--unbound", "--key-size", "256", "-S", "7"],
        &fast_options[..],
        &["disk", "three"],
    ];
    bed.ok(&all.concat());
    bed.ok(&["config", "--priority", "ignore", "-S", "0", "disk"]);
    bed.ok(&["config", "--priority", "prefer", "-S", "4", "disk"]);
    assert_eq!(slot(&device, "one"), Some(4));
    assert_eq!(bed.opens("disk", "one"), Some(4));
    device.kill_slot(4, false).unwrap();
    assert_eq!(slot(&device, "one"), Some(3));
    assert_eq!(bed.opens("disk", "one"), Some(3));
    device.kill_slot(3, false).unwrap();
    // Ignored slots open only by name.
    assert_eq!(
        device.unlock(&word("one"), None, &LIMITS).unwrap_err().kind,
        ErrorKind::OnlyNamed
    );
    assert_eq!(
        device
            .unlock(&word("one"), Some(0), &LIMITS)
            .unwrap()
            .keyslot,
        Some(0)
    );
    let error = device.unlock(&word("three"), Some(7), &LIMITS).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Keyslot);
    let unbound = device.unlock_any(&word("three"), Some(7), &LIMITS).unwrap();
    assert_eq!((unbound.keyslot, unbound.key.len()), (Some(7), 32));
    let error = device.add_key(&unbound, &word("two"), None, &fast("pbkdf2"));
    assert_eq!(error.unwrap_err().kind, ErrorKind::Changed);
    let info = device.read().unwrap().keyslot_info();
    let summary: Vec<_> = info
        .iter()
        .map(|slot| {
            (
                slot.keyslot,
                slot.priority,
                slot.opens_volume,
                slot.key_length,
            )
        })
        .collect();
    assert_eq!(
        summary,
        [
            (0, Priority::Ignore, true, 64),
            (7, Priority::Normal, false, 32)
        ]
    );
    assert_eq!(
        bed.ok(&["luksDump", "disk"]).trim_end(),
        device.read().unwrap().dump().to_string().trim_end()
    );
    // Killing it takes its digest along; the volume's last key stays.
    device.kill_slot(7, false).unwrap();
    assert_eq!(
        device.kill_slot(0, false).unwrap_err().kind,
        ErrorKind::LastKeyslot
    );
    let dump = bed.ok(&["luksDump", "disk"]);
    assert!(!dump.contains("  1: pbkdf2"), "{dump}");
}

/// After a power cut in one of our updates, cryptsetup sees the same header as
/// we do: the old one or the new one.
#[test]
fn cryptsetup_opens_what_a_power_cut_leaves() {
    let bed = Bed::new();
    let size = 1 << 20;
    bed.image("disk", size);
    let mut options = options(32, 512, "pbkdf2");
    options.data_offset = Some(512 << 10);
    bed.device("disk").format(&options, &word("one")).unwrap();
    let store = Arc::new(RecordingStore::new(fs::read(bed.path("disk")).unwrap()));
    let device = Device::without_locks(store.clone());
    let options = ChangeOptions::default();
    device
        .change_key(
            &word("one"),
            None,
            &word("two"),
            &fast("pbkdf2"),
            options,
            &LIMITS,
        )
        .unwrap();
    let sampling = Sampling {
        exhaustive: 2,
        random: 2,
        single_sectors: 0,
        seed: 3,
    };
    let mut seen = [0; 2];
    for survivor in store.survivors(sampling) {
        fs::write(bed.path("disk"), &survivor.image).unwrap();
        let device = bed.device("disk");
        let is_new = slot(&device, "two").is_some();
        assert_ne!(is_new, slot(&device, "one").is_some(), "{survivor}");
        assert_eq!(is_new, bed.opens("disk", "two").is_some(), "{survivor}");
        assert_ne!(is_new, bed.opens("disk", "one").is_some(), "{survivor}");
        seen[usize::from(is_new)] += 1;
    }
    assert!(seen[0] > 2 && seen[1] > 2, "{seen:?}");
}

/// Two of ours and cryptsetup add keys at once: whoever reports success, its
/// key opens; nobody tramples on the others.
#[test]
fn everybody_adds_keys_at_once() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let added = std::thread::scope(|scope| {
        let ours = ["a", "b"].map(|name| {
            let bed = &bed;
            scope.spawn(move || {
                let device = bed.device("disk");
                let unlocked = unlock(&device, "one").unwrap();
                (0..6)
                    .map(|number| format!("{name}{number}"))
                    .inspect(|new| {
                        // Nothing but the slots has changed, so this succeeds.
                        device
                            .add_key(&unlocked, &word(new), None, &fast("pbkdf2"))
                            .unwrap();
                    })
                    .collect::<Vec<_>>()
            })
        });
        // cryptsetup gives up when the header changed since it was read.
        let theirs = (0..6)
            .map(|number| format!("c{number}"))
            .filter(|new| {
                fs::write(bed.path(new), new).unwrap();
                let output = bed.run(&[
                    "luksAddKey",
                    "--pbkdf",
                    "pbkdf2",
                    "--pbkdf-force-iterations",
                    "1000",
                    "-d",
                    "one",
                    "disk",
                    new,
                ]);
                output.status.success()
            })
            .collect::<Vec<_>>();
        let mut added = theirs;
        for thread in ours {
            added.extend(thread.join().unwrap());
        }
        added
    });
    let device = bed.device("disk");
    assert_eq!(device.read().unwrap().keyslots().len(), 1 + added.len());
    for word in &added {
        assert!(slot(&device, word).is_some(), "{word}");
    }
    assert_eq!(bed.opens("disk", "one"), Some(0));
}
