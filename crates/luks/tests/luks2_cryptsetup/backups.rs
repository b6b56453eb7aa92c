//! Backups made and restored by either.

use super::*;

#[test]
fn backups_of_either_restore_by_the_other() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let device = bed.device("disk");
    device.backup(&bed.path("ours.bak")).unwrap();
    bed.ok(&[
        "luksHeaderBackup",
        "disk",
        "--header-backup-file",
        "theirs.bak",
    ]);
    assert!(
        fs::read(bed.path("ours.bak")).unwrap() == fs::read(bed.path("theirs.bak")).unwrap(),
        "not cryptsetup's bytes"
    );
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(bed.path("ours.bak"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o400);
    }
    // Never over an existing file.
    let error = device.backup(&bed.path("ours.bak")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Store(xtent_store::ErrorKind::Busy));

    let unlocked = unlock(&device, "one").unwrap();
    device
        .add_key(&unlocked, &word("two"), None, &fast("pbkdf2"))
        .unwrap();
    device.kill_slot(0, false).unwrap();
    let plan = device.plan_restore(&bed.path("theirs.bak")).unwrap();
    assert_eq!(plan.warnings.len(), 1, "{:?}", plan.warnings);
    device.restore(plan).unwrap();
    assert_eq!(bed.opens("disk", "one"), Some(0));
    assert_eq!(bed.opens("disk", "two"), None);
    let start = fs::read(bed.path("disk")).unwrap();
    assert!(start[..16 << 20] == fs::read(bed.path("ours.bak")).unwrap());

    device.erase().unwrap();
    bed.ok(&[
        "luksHeaderRestore",
        "disk",
        "--header-backup-file",
        "ours.bak",
    ]);
    assert_eq!(slot(&device, "one"), Some(0));

    // To a device without a header, to one with another, and refusals.
    bed.image("empty", 20 << 20);
    let empty = bed.device("empty");
    let plan = empty.plan_restore(&bed.path("ours.bak")).unwrap();
    assert!(
        plan.warnings[0].contains("no LUKS header"),
        "{:?}",
        plan.warnings
    );
    empty.restore(plan).unwrap();
    assert_eq!(bed.opens("empty", "one"), Some(0));
    bed.format("empty", &[]);
    let plan = empty.plan_restore(&bed.path("ours.bak")).unwrap();
    assert!(
        plan.warnings
            .iter()
            .any(|warning| warning.contains("UUIDs differ"))
    );
    empty.restore(plan).unwrap();
    assert_eq!(bed.opens("empty", "one"), Some(0));
    for arguments in [
        &["--offset", "16384"][..],
        &["--key-size", "256"],
        &["--sector-size", "512"],
    ] {
        bed.format("empty", arguments);
        let error = empty.plan_restore(&bed.path("ours.bak")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Refused, "{arguments:?}");
    }
    let small = bed.image("small", 15 << 20);
    let error = self::device(&small)
        .plan_restore(&bed.path("ours.bak"))
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooShort);
    // Over a LUKS1 header, and the reverse.
    bed.ok(&[
        "luksFormat",
        "--type",
        "luks1",
        "--pbkdf-force-iterations",
        "1000",
        "empty",
        "two",
    ]);
    bed.ok(&[
        "luksHeaderBackup",
        "empty",
        "--header-backup-file",
        "luks1.bak",
    ]);
    empty.backup(&bed.path("our1.bak")).unwrap();
    assert!(fs::read(bed.path("our1.bak")).unwrap() == fs::read(bed.path("luks1.bak")).unwrap());
    let plan = empty.plan_restore(&bed.path("ours.bak")).unwrap();
    assert!(plan.warnings[0].contains("LUKS1"), "{:?}", plan.warnings);
    empty.restore(plan).unwrap();
    assert_eq!(bed.opens("empty", "one"), Some(0));
    let plan = empty.plan_restore(&bed.path("luks1.bak")).unwrap();
    assert!(plan.warnings[0].contains("LUKS2"), "{:?}", plan.warnings);
    empty.restore(plan).unwrap();
    assert_eq!(bed.opens("empty", "two"), Some(0));
    assert_eq!(slot(&empty, "two"), Some(0));
}

#[test]
fn a_plan_is_for_the_header_it_was_made_for() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let device = bed.device("disk");
    device.backup(&bed.path("bak")).unwrap();
    let plan = device.plan_restore(&bed.path("bak")).unwrap();
    bed.ok(&["config", "--label", "changed", "disk"]);
    assert_eq!(device.restore(plan).unwrap_err().kind, ErrorKind::Changed);
    assert_eq!(bed.opens("disk", "one"), Some(0));
}
