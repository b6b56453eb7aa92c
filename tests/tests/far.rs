//! Volumes behind an NBD server of somebody else.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use xtent_tests::far::Far;
use xtent_tests::luks::{Container, Maker, OTHER_KEY, Shape, add_key, cryptsetup_opens};
use xtent_tests::mount::{Cleaner, make_ext4, mount, umount};
use xtent_tests::nbd::{nbdsh, read_all, write_all};
use xtent_tests::scratch::{Unchanged, assert_same};
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{Cmd, Scratch, bed, pattern};

const OTHER_UUID: &str = "6b1ab6f8-41c0-4d2d-8f0d-6d6f3b1f3d55";

/// The image in another format.
fn converted(image: &Path, from: &str, to: &str, name: &str) -> PathBuf {
    let target = image.with_file_name(name);
    Cmd::peer("qemu-img")
        .args(["convert", "-f", from, "-O", to])
        .args([image, &target])
        .ok();
    target
}

/// A QCOW2 image with a volume made by cryptsetup.
fn qcow2(shape: Shape, scratch: &Scratch) -> (PathBuf, PathBuf) {
    let container = shape.image(Maker::Cryptsetup, scratch, 8 << 20);
    let image = converted(&container.image, "raw", "qcow2", "disk.qcow2");
    (image, container.key)
}

fn plaintext(qcow2: &Path, key: PathBuf) -> Vec<u8> {
    let image = converted(qcow2, "qcow2", "raw", "again.raw");
    Container { image, key }.decrypt()
}

/// Every thread has given up what it could do beyond its work, and those that receive from the
/// other server are no exception.
fn assert_confined(id: u32) {
    let mut receive = 0;
    for task in std::fs::read_dir(format!("/proc/{id}/task")).unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        receive += status.lines().filter(|l| l.contains("upstream")).count();
        for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(status.contains(line), "{line:?} is not in {status}");
        }
    }
    assert!(receive > 0, "no thread receives");
}

#[test]
fn a_volume_in_a_qcow2_image_is_served() {
    for shape in [Shape::LUKS1, Shape::LUKS2_4096] {
        let scratch = Scratch::new();
        let (image, key) = qcow2(shape, &scratch);
        let far = Far::qemu(&image, &["--format=qcow2"]);
        let server = Server::start(&far.container(&key));
        assert_confined(server.id());
        let data = pattern(8 << 20, 71);
        write_all(&server.uri, &data);
        assert_same(&read_all(&server.uri), &data, "through the server");
        nbdsh(
            &server.uri,
            "h.pwrite(b'x' * 1000, 12345)\nassert h.pread(1000, 12345) == b'x' * 1000",
        );
        write_all(&server.uri, &data);
        server.stop();
        far.stop();
        assert_same(&plaintext(&image, key.clone()), &data, "in the image");
        if shape.version == 1 {
            // QEMU has a LUKS1 of its own.
            let plain = scratch.join("by-qemu");
            Cmd::peer("qemu-img")
                .args(["convert", "-O", "raw", "--object"])
                .arg(format!("secret,id=key,file={}", key.display()))
                .arg("--image-opts")
                .arg(format!(
                    "driver=luks,key-secret=key,file.driver=qcow2,file.file.filename={}",
                    image.display()
                ))
                .arg(&plain)
                .ok();
            assert_same(&std::fs::read(plain).unwrap(), &data, "by QEMU");
        }
    }
}

#[test]
fn volumes_are_made_and_their_keys_managed_there() {
    for shape in [Shape::LUKS1, Shape::LUKS2] {
        let scratch = Scratch::new();
        let raw = scratch.image("raw", shape.data_offset() + (1 << 20));
        let key = scratch.file("key", b"secret");
        let new = scratch.file("new", OTHER_KEY);
        let far = Far::qemu(&raw, &["--format=raw", "--shared=8"]);
        let uri = PathBuf::from(far.uri());
        shape.format(Maker::Xtent, &uri, &key);
        add_key(shape.version, &uri, &key, &new).ok();
        let saved = scratch.join("saved");
        let header = |action: &str| xtent().args(["header", action, "-q"]).arg(&uri);
        xtent().args(["header", "backup"]).args([&uri, &saved]).ok();
        Cmd::peer("cryptsetup").arg("luksDump").arg(&raw).ok();
        assert!(cryptsetup_opens(&raw, &key) && cryptsetup_opens(&raw, &new));
        header("erase").ok();
        header("restore").arg(&saved).ok();
        assert!(cryptsetup_opens(&raw, &new));
        let uuid = xtent().arg("uuid").arg(&uri).ok();
        let known = Cmd::peer("cryptsetup").arg("luksUUID").arg(&raw).ok();
        assert_eq!(uuid.out(), known.out());
        // How large an export is, is its server's affair.
        xtent()
            .args(["format", "-q", "--size", "1M", "--key-file"])
            .args([&key, &uri])
            .fails(1)
            .says(&["--size", "its server decides"]);
        // Plaintext from a server and to one.
        let data = pattern(1 << 20, 72);
        far.container(&key).encrypt(&data);
        let plain = scratch.image("plain", 1 << 20);
        let other = Far::qemu(&plain, &["--format=raw"]);
        xtent()
            .args(["decrypt", "-q", "--key-file"])
            .args([&key, &uri])
            .arg(other.uri())
            .ok();
        assert_same(
            &std::fs::read(&plain).unwrap(),
            &data,
            "decrypted to a server",
        );
        // Where another volume lies, or what a damaged start leaves of one, nobody else's word is enough.
        if shape.version == 2 {
            assert_no_volume_is_decrypted_over(&uri, &key);
        }
        shape.format(Maker::Xtent, &uri, &key);
        xtent()
            .args(["encrypt", "--key-file"])
            .arg(&key)
            .arg(other.uri())
            .arg(&uri)
            .ok();
        assert_same(
            &far.container(&key).decrypt(),
            &data,
            "encrypted from a server",
        );
    }
}

fn assert_no_volume_is_decrypted_over(uri: &Path, key: &Path) {
    let scratch = Scratch::new();
    let there = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, 20 << 20);
    for damaged in [false, true] {
        if damaged {
            let image = File::options().write(true).open(&there.image).unwrap();
            image.write_all_at(&[0; 4096], 0).unwrap();
        }
        let before = std::fs::read(&there.image).unwrap();
        let other = Far::qemu(&there.image, &["--format=raw"]);
        let decrypt = || {
            let decrypt = xtent().args(["decrypt", "-q", "--key-file"]);
            decrypt.args([key, uri]).arg(other.uri())
        };
        decrypt()
            .fails(1)
            .says(&["UUID", "--batch-mode", "--overwrite-luks"]);
        assert!(std::fs::read(&there.image).unwrap() == before);
        if damaged {
            decrypt().arg("--overwrite-luks").ok();
            assert!(std::fs::read(&there.image).unwrap() != before);
        }
    }
}

/// Its last bytes cannot be asked for in whole sectors; a copy would lack them.
#[test]
fn plaintext_of_an_odd_size_is_not_cut() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let plain = scratch.file("plain", &pattern(1_000_900, 74));
    let far = Far::nbdkit(&["file", &plain.to_string_lossy()]);
    let unchanged = Unchanged::new(&container.image);
    xtent()
        .args(["encrypt", "--key-file"])
        .arg(&container.key)
        .arg(far.uri())
        .arg(&container.image)
        .fails(4)
        .says(&["its last 452 bytes", "nbdcopy"]);
    unchanged.assert("a part of the source was refused");
}

#[test]
fn an_export_has_one_user_on_this_machine() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let image = format!("{}", container.image.display());
    let far = Far::nbdkit(&["file", &image]);
    let there = far.container(&container.key);
    let server = Server::start(&there);
    let refused = |command: Cmd| {
        command.fails(5).says(&[
            "is in use by `xtent serve` at nbd",
            &there.image.to_string_lossy(),
        ]);
    };
    refused(Server::command(&there, &scratch.join("sock"), &[]));
    refused(xtent().args(["header", "erase", "-q"]).arg(far.uri()));
    refused(
        xtent()
            .args(["format", "-q", "--key-file"])
            .args([&there.key, &there.image]),
    );
    // Keys can be managed all the same.
    let new = scratch.file("new", OTHER_KEY);
    add_key(2, &there.image, &there.key, &new).ok();
    let status = xtent().args(["status", "--json"]).ok().out();
    assert!(status.contains(&far.uri()), "{status}");
    server.stop();
    let readers = [
        Server::start_with(&there, &["--read-only"]),
        Server::start_with(&there, &["--read-only"]),
    ];
    refused(xtent().args(["header", "erase", "-q"]).arg(far.uri()));
    drop(readers);
    xtent().args(["header", "erase", "-q"]).arg(far.uri()).ok();
}

/// The server dies in the middle, with what it had not flushed, and comes back.
#[test]
fn a_server_that_dies_and_comes_back_loses_nothing() {
    let scratch = Scratch::new();
    let (image, key) = qcow2(Shape::LUKS2_4096, &scratch);
    let far = Far::qemu(&image, &["--format=qcow2"]);
    let server = Server::start_with(&far.container(&key), &["--reconnect", "300"]);
    let data = pattern(8 << 20, 73);
    let file = scratch.file("data", &data);
    let script = format!(
        r#"
data = open('{}', 'rb').read()
piece = 1 << 16
for at in range(0, len(data), piece):
    h.pwrite(data[at:at + piece], at)
    if at // piece % 16 == 15:
        h.flush()
    if at == 5 * (1 << 20):
        print('now', flush=True)
h.flush()
assert h.pread(1 << 20, 3 << 20) == data[3 << 20:4 << 20]
"#,
        file.display()
    );
    let mut client = Cmd::peer("nbdsh")
        .args(["-u", &server.uri, "-c", &script])
        .spawn();
    client.wait_for_line(|line| line == "now");
    far.kill();
    far.start_again();
    let done = client.finish();
    assert_eq!(done.code(), Some(0), "{}", done.text());
    server.stop();
    far.stop();
    assert_same(&plaintext(&image, key), &data, "everything was flushed");
}

/// Without the patience for it, requests fail, and so does the end.
#[test]
fn a_server_that_stays_away_fails_requests() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let far = Far::qemu(&container.image, &["--format=raw"]);
    let server = Server::start_with(&far.container(&container.key), &["--reconnect", "1"]);
    nbdsh(&server.uri, "h.pwrite(b'x' * 4096, 0)");
    far.kill();
    let fails = "try:\n h.pread(4096, 0)\nexcept nbd.Error as e:\n assert e.errno == 'EIO', e\n\
                 else:\n assert False";
    nbdsh(&server.uri, fails);
    let done = server.terminate(rustix::process::Signal::TERM);
    assert_eq!(done.code(), Some(4), "{}", done.text());
    done.says(&["flush", "no connection for 1 second"]);
}

/// Whether the other server is gone or silent, a first signal is not met with silence, and a
/// second one ends it.
#[test]
fn the_end_says_what_it_waits_for() {
    for (silent, why) in [(false, "was lost"), (true, "does not answer")] {
        let scratch = Scratch::new();
        let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
        let far = Far::qemu(&container.image, &["--format=raw"]);
        let socket = scratch.join("sock");
        let command = Server::command(
            &far.container(&container.key),
            &socket,
            &["--reconnect", "300"],
        );
        // Its messages, too, as they come.
        let mut server = Cmd::peer("sh")
            .args(["-c", "exec \"$@\" 2>&1", "sh"])
            .wrapping(command)
            .spawn();
        server.wait_for_line(|line| line.contains("nbd+unix://"));
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        nbdsh(&uri, "h.pwrite(b'x' * 4096, 0)");
        match silent {
            true => far.pause(),
            false => far.kill(),
        }
        server.signal(rustix::process::Signal::TERM);
        let line = server.wait_for_line(|line| line.starts_with("xtent: waiting for"));
        for words in [why, "seconds at most", "a second signal", &far.uri()] {
            assert!(line.contains(words), "{line}");
        }
        // Those of the first second are the same wish.
        while server.is_running() {
            server.signal(rustix::process::Signal::TERM);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let done = server.finish();
        assert_eq!(done.code(), Some(128 + 15), "{}", done.text());
        assert!(done.text().contains("second signal"), "{}", done.text());
    }
}

#[test]
fn errors_of_the_server_reach_the_client() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let bad = scratch.join("bad");
    let far = Far::nbdkit(&[
        "--filter=error",
        "file",
        &container.image.display().to_string(),
        "error-pread=EIO",
        "error-pread-rate=100%",
        &format!("error-pread-file={}", bad.display()),
    ]);
    let server = Server::start(&far.container(&container.key));
    let before = read_all(&server.uri);
    std::fs::write(&bad, "").unwrap();
    let fails = "try:\n h.pread(4096, 0)\nexcept nbd.Error as e:\n assert e.errno == 'EIO', e\n\
                 else:\n assert False";
    nbdsh(&server.uri, fails);
    let unread = xtent().args(["header", "dump"]).arg(far.uri()).fails(4);
    unread.says(&["read of", &far.uri(), "the server answered EIO"]);
    // The header may be in order.
    assert!(!unread.text().contains("backup"), "{}", unread.text());
    std::fs::remove_file(&bad).unwrap();
    assert_same(&read_all(&server.uri), &before, "reads work again");
    server.stop();
}

#[test]
fn a_read_only_export_is_only_read() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let data = pattern(1 << 20, 74);
    container.encrypt(&data);
    let unchanged = Unchanged::new(&container.image);
    let far = Far::qemu(&container.image, &["--format=raw", "--read-only"]);
    let there = far.container(&container.key);
    Server::command(&there, &scratch.join("sock"), &[])
        .fails(2)
        .says(&["reading only", "--read-only", &far.uri()]);
    add_key(2, &there.image, &there.key, &there.key).fails(2);
    let server = Server::start_with(&there, &["--read-only"]);
    assert_same(&read_all(&server.uri), &data, "read");
    server.stop();
    unchanged.assert("nothing was written");
}

#[test]
fn an_export_that_shrinks_fails_what_is_missing() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 8 << 20);
    let far = Far::qemu(&container.image, &["--format=raw"]);
    let there = far.container(&container.key);
    let server = Server::start_with(&there, &["--reconnect", "300"]);
    far.kill();
    let file = File::options().write(true).open(&container.image);
    file.unwrap().set_len(20 << 20).unwrap();
    far.start_again();
    let fails = "try:\n h.pread(4096, 7 << 20)\nexcept nbd.Error as e:\n assert e.errno == 'EIO', e\n\
                 else:\n assert False";
    nbdsh(&server.uri, fails);
    let done = server.terminate(rustix::process::Signal::TERM);
    done.assert_no_crash();
}

/// What was not flushed is on no disk then, above all not on the wrong one.
#[test]
fn another_disk_in_its_place_is_not_written_to() {
    for shape in [Shape::LUKS1, Shape::LUKS2] {
        let scratch = Scratch::new();
        let container = shape.image(Maker::Cryptsetup, &scratch, 4 << 20);
        let size = container.image.metadata().unwrap().len();
        let aside = scratch.join("aside");
        let far = Far::qemu(&container.image, &["--format=raw", "--shared=8"]);
        let there = far.container(&container.key);
        let server = Server::start_with(&there, &["--reconnect", "300"]);
        let again = || xtent().args(["config", "--uuid"]).arg(OTHER_UUID);
        again().arg(&there.image).fails(5).says(&["is in use by"]);
        nbdsh(&server.uri, "h.pwrite(b'x' * (1 << 20), 0)");
        far.kill();
        std::fs::rename(&container.image, &aside).unwrap();
        let others = Scratch::new();
        let other = shape.image(Maker::Cryptsetup, &others, 4 << 20);
        std::fs::copy(&other.image, &container.image).unwrap();
        assert_eq!(container.image.metadata().unwrap().len(), size);
        let unchanged = Unchanged::new(&container.image);
        far.start_again();
        let fails = "try:\n h.flush()\nexcept nbd.Error as e:\n assert e.errno == 'EIO', e\n\
                     else:\n assert False";
        nbdsh(&server.uri, fails);
        // The right one would know nothing of what was acknowledged.
        far.kill();
        unchanged.assert("another disk");
        std::fs::rename(&aside, &container.image).unwrap();
        far.start_again();
        nbdsh(&server.uri, fails);
        let uuids = [&other, &container].map(|it| xtent().arg("uuid").arg(&it.image).ok().out());
        let done = server.terminate(rustix::process::Signal::TERM);
        assert_eq!(done.code(), Some(4), "{}", done.text());
        done.says(&["another disk", uuids[0].trim(), uuids[1].trim()]);
        again().arg(&there.image).ok();
    }
}

#[test]
fn a_file_system_behind_a_server_is_mounted() {
    let name = "a_file_system_behind_a_server_is_mounted";
    if !bed::has_fuse(name) || !bed::has_loop(name) {
        return;
    }
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let container = Shape::LUKS2_4096.image(Maker::Xtent, &scratch, 32 << 20);
    let far = Far::qemu(&container.image, &["--format=raw", "--shared=8"]);
    let there = far.container(&container.key);
    make_ext4(&there, &scratch, &["-b", "4096"]);
    let folder = scratch.folder("mounted");
    let data = pattern(5 << 20, 75);
    mount(&there, &folder, &[]).ok();
    std::fs::write(folder.join("file"), &data).unwrap();
    // By its URI as well.
    umount(&folder).ok();
    mount(&there, &folder, &["--read-only", "-o", "noload"]).ok();
    assert_same(
        &std::fs::read(folder.join("file")).unwrap(),
        &data,
        "mounted again",
    );
    // By its device, as with files.
    umount(&there.image).ok();
    umount(&there.image)
        .fails(1)
        .says(&["nothing that xtent mounted"]);
    umount(Path::new("rbd:pool/none"))
        .fails(1)
        .says(&["rbd:pool/none: nothing that xtent mounted"]);
}

/// Whether its program ends when it is asked to or not, no folder is left behind.
#[test]
fn an_interrupted_mkfs_leaves_no_mount() {
    let name = "an_interrupted_mkfs_leaves_no_mount";
    if !bed::has_fuse(name) {
        return;
    }
    for obeys in [true, false] {
        let scratch = Scratch::new();
        let _cleaner = Cleaner::new(scratch.path());
        let (programs, temporary) = (scratch.folder("bin"), scratch.folder("tmp"));
        let (key, image) = (
            scratch.file("key", b"secret"),
            scratch.image("raw", 20 << 20),
        );
        let (running, stop) = (scratch.join("running"), scratch.join("stop"));
        let ignore = if obeys { "" } else { "trap '' TERM; " };
        let script = format!(
            "#!/bin/sh\n{ignore}touch {}\nwhile ! [ -e {} ]; do sleep 0.02; done\n",
            running.display(),
            stop.display()
        );
        let program = scratch.file("bin/mkfs.ext4", script.as_bytes());
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let far = Far::qemu(&image, &["--format=raw"]);
        let mut format = xtent()
            .args(["format", "-q", "--mkfs", "ext4", "--key-file"])
            .arg(&key)
            .args(["--pbkdf", "pbkdf2", "--iter-time", "1"])
            .arg(far.uri())
            .env("PATH", path)
            .env("TMPDIR", &temporary)
            .spawn();
        while !running.exists() {
            assert!(format.is_running());
            std::thread::yield_now();
        }
        while format.is_running() {
            format.signal(rustix::process::Signal::TERM);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let done = format.finish();
        std::fs::write(&stop, "").unwrap();
        assert_eq!(done.code(), Some(128 + 15), "{}", done.text());
        let said = if obeys { "mkfs.ext4" } else { "second signal" };
        assert!(done.text().contains(said), "{}", done.text());
        assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
        assert!(cryptsetup_opens(&image, &key));
    }
}

#[test]
fn what_is_no_export_is_told() {
    let scratch = Scratch::new();
    let key = scratch.file("key", b"secret");
    let serve = |uri: &str| {
        let container = Container {
            image: uri.into(),
            key: key.clone(),
        };
        Server::command(&container, &scratch.join("sock"), &["--reconnect", "1"])
    };
    serve("nbd+vsock://2/x").fails(1).says(&["nbd+vsock"]);
    serve("nbd+unix:///x").fails(1).says(&["socket=PATH"]);
    serve("nbd+unix:///?socket=/none/here")
        .fails(4)
        .says(&["check that the server runs"]);
    let image = scratch.image("raw", 1 << 20);
    let far = Far::nbdkit(&["file", &image.display().to_string()]);
    xtent()
        .args(["serve", "--partition", "1", "--key-file"])
        .arg(&key)
        .arg(far.uri())
        .fails(1)
        .says(&["--partition", "nbdkit"]);
    xtent()
        .arg("is-luks")
        .arg(far.uri())
        .run()
        .assert_no_crash();
}
