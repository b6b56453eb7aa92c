//! What `xtent mount` and `umount` say, to people and to programs, where there is no
//! file system to be had, and where there is.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use xtent_tests::luks::{Container, Maker, Shape};
use xtent_tests::mount::{self, Cleaner, make_ext4, mounts_under, processes_naming};
use xtent_tests::xtent::{binary, xtent};
use xtent_tests::{Cmd, Scratch, bed, pattern};

fn mount(container: &Container, folder: &Path, options: &[&str]) -> Cmd {
    mount::mount(container, folder, options).arg("--json")
}

fn umount(place: &Path) -> Cmd {
    mount::umount(place).arg("--json")
}

/// What a failed mount said.
fn refusal(container: &Container, folder: &Path, options: &[&str]) -> String {
    let said = mount(container, folder, options).fails(4).stderr;
    assert!(fs::read_dir(folder).unwrap().next().is_none());
    said
}

#[test]
fn a_volume_with_data_is_never_taken_for_a_new_one() {
    let test = "a_volume_with_data_is_never_taken_for_a_new_one";
    if !bed::has_fuse(test) || !bed::has_loop(test) {
        return;
    }
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let container = Shape::LUKS2_4096.image(Maker::Xtent, &scratch, 16 << 20);
    let folder = scratch.folder("mnt");

    // Nothing on it: the way to a file system.
    let said = refusal(&container, &folder, &[]);
    assert!(said.contains("mkfs.ext4 -b 4096"), "{said}");

    // Something that nobody here knows.
    let file_only = &["--file-only"];
    mount(&container, &folder, file_only).ok();
    let volume = fs::File::options()
        .write(true)
        .open(folder.join("volume"))
        .unwrap();
    volume
        .write_all_at(b"my own format, version 3        ", 70_000)
        .unwrap();
    drop(volume);
    umount(&folder).ok();
    let said = refusal(&container, &folder, &[]);
    assert!(!said.contains("mkfs"), "{said}");
    assert!(said.contains("There is data on the volume"), "{said}");

    make_ext4(&container, &scratch, &["-b", "4096"]);
    for (options, refused) in [
        (&["-o", "noatime,nosuchopt,x-z"][..], "nosuchopt"),
        (&["-t", "xfs"], "-t xfs"),
        (&["-t", "xfs", "-o", "noatime"], "-t xfs -o noatime"),
    ] {
        let said = refusal(&container, &folder, options);
        assert!(!said.contains("mkfs"), "{said}");
        assert!(said.contains("holds an ext2, ext3 or ext4"), "{said}");
        assert!(said.contains(refused), "{said}");
    }
    mount(&container, &folder, &["-o", "noatime"]).ok();
    umount(&folder).ok();

    // Blocks smaller than sectors: the kernel's reason is no option.
    make_ext4(&container, &scratch, &["-b", "1024"]);
    let said = refusal(&container, &folder, &["-o", "noatime"]);
    assert!(!said.contains("mkfs"), "{said}");
    assert!(said.contains("blocks of 1024 bytes"), "{said}");
}

#[test]
fn noise_is_not_taken_for_a_new_volume() {
    let test = "noise_is_not_taken_for_a_new_volume";
    if !bed::has_fuse(test) || !bed::has_loop(test) {
        return;
    }
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let container = Shape::LUKS2_4096.image(Maker::Xtent, &scratch, 16 << 20);
    let folder = scratch.folder("mnt");
    make_ext4(&container, &scratch, &["-b", "4096"]);
    mount(&container, &folder, &[]).ok();
    umount(&folder).ok();

    // The header of another volume, opened by the same key.
    let elsewhere = Scratch::new();
    let other = Shape::LUKS2_4096.image(Maker::Xtent, &elsewhere, 16 << 20);
    let detached = scratch.join("detached");
    let saved = |container: &Container, to: &Path| {
        let backup = xtent().args(["header", "backup"]);
        backup.arg(&container.image).arg(to).ok();
    };
    saved(&other, &detached);
    let header = detached.to_str().unwrap();
    let said = refusal(&container, &folder, &["--header", header]);
    assert!(!said.contains("mkfs"), "{said}");
    assert!(
        said.contains("holds noise") && said.contains("--header"),
        "{said}"
    );

    // That header restored.
    let restore = xtent().args(["header", "restore", "-q"]);
    restore.args([&container.image, &detached]).ok();
    let said = refusal(&container, &folder, &[]);
    assert!(!said.contains("mkfs"), "{said}");
    assert!(
        said.contains("holds noise") && said.contains("restored"),
        "{said}"
    );

    // Plain dm-crypt by another cipher; and new, where the command is not spelled out.
    let plain = [
        "--type",
        "plain",
        "--cipher",
        "aes-cbc-plain64",
        "--key-size",
        "128",
    ];
    let whole = [&plain[..], &["--ignore-signature"]].concat();
    let said = refusal(&container, &folder, &whole);
    assert!(!said.contains("mkfs"), "{said}");
    let new = Container {
        image: scratch.image("new", 16 << 20),
        key: container.key.clone(),
    };
    let said = refusal(&new, &folder, &plain);
    assert!(said.contains("mkfs.ext4 -b 4096"), "{said}");
    assert!(said.contains("same command with --file-only"), "{said}");
    assert!(!said.contains("xtent mount"), "{said}");

    // A new volume behind a detached header keeps that in what it is told to run.
    let data = scratch.image("data", 16 << 20);
    let head = scratch.join("head");
    let format = xtent().args(["format", "-q", "--pbkdf", "pbkdf2"]);
    let format = format.args(["--pbkdf-force-iterations", "1000", "--header"]);
    let format = format.arg(&head).arg("--key-file");
    format.args([&container.key, &data]).ok();
    let new = Container {
        image: data,
        key: container.key.clone(),
    };
    let said = refusal(&new, &folder, &["--header", head.to_str().unwrap()]);
    let command = format!("mount --file-only --header {}", head.display());
    assert!(said.contains(&command), "{said}");
}

#[test]
fn without_root_no_file_system_is_an_error() {
    let test = "without_root_no_file_system_is_an_error";
    if !bed::has_fuse(test) || !bed::is_root(test) {
        return;
    }
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 16 << 20);
    let folder = scratch.folder("mnt");
    let files = scratch.folder("files");
    make_ext4(&container, &scratch, &["-b", "4096"]);
    // Where the other user gets at it.
    let program = scratch.join("xtent");
    Cmd::peer("cp").args([binary(), &program]).ok();
    fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let nobody = Some(65534);
    for path in [&container.image, &container.key, &folder, &files] {
        chown(path, nobody, nobody).unwrap();
    }
    let as_user = |command: Cmd| {
        Cmd::peer("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .wrapping(command)
            .env("XDG_RUNTIME_DIR", &files)
    };
    let mount = |options: &[&str]| {
        as_user(
            Cmd::new(&program)
                .arg("mount")
                .args(options)
                .arg("--key-file")
                .args([&container.key, &container.image, &folder]),
        )
    };

    for options in [&[][..], &["-t", "ext4"], &["-o", "noatime"]] {
        let said = mount(options).fails(2).stderr;
        assert!(said.contains("requires root"), "{said}");
        assert!(said.contains("--file-only"), "{said}");
        assert_eq!(mounts_under(scratch.path()), Vec::<PathBuf>::new());
    }

    // What it says to do instead works.
    let said = mount(&["--file-only"]).ok().stderr;
    let mounted = folder.join("volume");
    let mounted = mounted.to_str().unwrap();
    assert!(
        said.contains(&format!("fuse2fs -o fakeroot {mounted} FOLDER")),
        "{said}"
    );
    let place = scratch.folder("place");
    chown(&place, nobody, nobody).unwrap();
    as_user(
        Cmd::peer("fuse2fs")
            .args(["-o", "fakeroot", mounted])
            .arg(&place),
    )
    .ok();
    let file = place.join("file");
    let data = pattern(100_000, 81);
    as_user(Cmd::peer("tee").arg(&file)).stdin(&data).ok();
    let seen = as_user(Cmd::peer("cat").arg(&file)).ok().stdout;
    assert!(seen == data);
    as_user(Cmd::peer("fusermount3").arg("-u").arg(&place)).ok();
    // fuse2fs writes and lets go of the file after that.
    while !processes_naming(&place).is_empty() {
        std::thread::yield_now();
    }
    as_user(Cmd::new(&program).arg("umount").arg(&container.image)).ok();
    let plain = scratch.file("plain", &container.decrypt());
    Cmd::peer("e2fsck").args(["-f", "-n"]).arg(plain).ok();
}

#[test]
fn umount_takes_the_folder_or_the_image_from_anywhere() {
    let test = "umount_takes_the_folder_or_the_image_from_anywhere";
    if !bed::has_fuse(test) {
        return;
    }
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 4 << 20);
    let folder = scratch.folder("mnt");
    let file_only = &["--file-only"];
    let text = |path: &Path| path.to_str().unwrap().to_owned();

    let mounted = mount(&container, &folder, file_only).ok().json();
    let uuid = xtent()
        .args(["header", "dump", "--json"])
        .arg(&container.image)
        .ok()
        .json()["uuid"]
        .clone();
    assert_eq!(mounted["uuid"], uuid);
    for (field, value) in [
        ("device", text(&container.image)),
        ("dir", text(&folder)),
        ("file", text(&folder.join("volume"))),
        ("cipher", "aes-xts-plain64".to_owned()),
    ] {
        assert_eq!(mounted[field], value, "{field}");
    }
    assert_eq!(mounted["loop_device"], serde_json::Value::Null);
    assert_eq!(mounted["size"], 4 << 20);
    assert_eq!(mounted["keyslot"], 0);
    assert_eq!(mounted["read_only"], false);
    let pid = mounted["pid"].as_u64().unwrap();
    assert!(Path::new(&format!("/proc/{pid}")).exists());

    let status = || xtent().args(["status", "--json"]).arg(&container.image);
    let shown = status().ok().json()["volumes"][0].clone();
    assert_eq!(shown["kind"], "mount");
    for field in ["device", "uuid", "cipher", "size", "read_only", "pid"] {
        assert_eq!(shown[field], mounted[field], "{field}");
    }
    assert_eq!(shown["mount_point"], mounted["dir"]);
    assert_eq!(shown["alive"], true);

    let unmounted = umount(&container.image).ok().json();
    assert_eq!(
        unmounted,
        serde_json::json!({
            "dir": text(&folder), "device": text(&container.image), "closed": true
        })
    );

    status().fails(4);

    // From inside: the command itself is no user of what it unmounts.
    mount(&container, &folder, file_only).ok();
    umount(Path::new(".")).folder(&folder).ok();
    assert_eq!(mounts_under(scratch.path()), Vec::<PathBuf>::new());

    // In two places: which one?
    let other = scratch.folder("other");
    for folder in [&folder, &other] {
        mount(&container, folder, &["--file-only", "--read-only"]).ok();
    }
    let said = umount(&container.image).fails(1).stderr;
    assert!(said.contains("mnt") && said.contains("other"), "{said}");
    umount(&other).ok();
    umount(&container.image).ok();
    let said = umount(&container.image).fails(1).stderr;
    assert!(said.contains("nothing that xtent mounted"), "{said}");
}
