//! Volumes in a Ceph cluster: what librbd, QEMU and Xtent read of each other, and who may write.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Instant;

use xtent_tests::bed::has_fuse;
use xtent_tests::ceph::{Bed, assert_confined, cluster};
use xtent_tests::luks::{Container, KEY, Maker, OTHER_KEY, Shape, add_key};
use xtent_tests::mount::{Cleaner, mount, umount};
use xtent_tests::nbd::{nbdsh, read_all, write_all};
use xtent_tests::process::PATIENCE;
use xtent_tests::scratch::assert_same;
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{Cmd, Scratch, pattern};

/// What Ceph's own encryption does with an image: `sys.argv[2:]` are the image, the format
/// (LUKS1, LUKS2), the key file and a file.
const LIBRBD: &str = "
_, _, name, kind, key, file = sys.argv
key = open(key, 'rb').read().decode()
kind = getattr(rbd, 'RBD_ENCRYPTION_FORMAT_' + kind)
image = rbd.Image(io, name)
";

/// Through librbd's encryption: `action` on `image`.
fn librbd(bed: &Bed, action: &str, image: &str, version: u32, key: &Path, file: &Path) {
    let kind = format!("LUKS{version}");
    let arguments = [Path::new(image), Path::new(&kind), key, file];
    bed.python(&format!("{LIBRBD}{action}\nimage.close()"), &arguments);
}

const LOAD_AND_WRITE: &str = "
image.encryption_load(kind, key)
data = open(file, 'rb').read()
assert len(data) == image.size(), (len(data), image.size())
image.write(data, 0)
image.flush()";

const LOAD_AND_READ: &str = "
image.encryption_load(kind, key)
open(file, 'wb').write(image.read(0, image.size()))";

fn read_by_librbd(bed: &Bed, image: &str, version: u32, key: &Path) -> Vec<u8> {
    let scratch = Scratch::new();
    let file = scratch.join("read");
    librbd(bed, LOAD_AND_READ, image, version, key, &file);
    std::fs::read(file).unwrap()
}

fn write_by_librbd(bed: &Bed, image: &str, version: u32, key: &Path, data: &[u8]) {
    let scratch = Scratch::new();
    let file = scratch.file("data", data);
    librbd(bed, LOAD_AND_WRITE, image, version, key, &file);
}

/// Plaintext as QEMU has it: by its own LUKS over an image, or by librbd's.
fn read_by_qemu(bed: &Bed, image: &str, key: &Path, by_librbd: Option<&str>) -> Vec<u8> {
    let scratch = Scratch::new();
    let target = scratch.join("by-qemu");
    let file = format!(
        "pool=rbd,{{}}image={image},{{}}conf={}",
        bed.conf().display()
    );
    let options = match by_librbd {
        Some(format) => format!(
            "driver=rbd,{},encrypt.format={format},encrypt.key-secret=key",
            file.replace("{}", "")
        ),
        None => format!(
            "driver=luks,key-secret=key,file.driver=rbd,file.{}",
            file.replace("{}", "file.")
        ),
    };
    Cmd::peer("qemu-img")
        .args(["convert", "-O", "raw", "--object"])
        .arg(format!("secret,id=key,file={}", key.display()))
        .args(["--image-opts", &options])
        .arg(&target)
        .ok();
    std::fs::read(target).unwrap()
}

/// An exported copy is what any other image is.
fn assert_exported(bed: &Bed, image: &str, key: &Path, data: &[u8]) {
    let scratch = Scratch::new();
    let copy = scratch.join("copy");
    bed.rbd(&["export", "--no-progress", image]).arg(&copy).ok();
    Cmd::peer("cryptsetup").arg("luksDump").arg(&copy).ok();
    let copy = Container {
        image: copy,
        key: key.to_owned(),
    };
    assert_same(&copy.decrypt(), data, "in an exported copy");
}

#[test]
fn librbd_and_qemu_read_and_write_what_xtent_made() {
    let Some(bed) = cluster("librbd_and_qemu_read_and_write_what_xtent_made") else {
        return;
    };
    let _share = bed.share();
    for shape in [Shape::LUKS1, Shape::LUKS2, Shape::LUKS2_4096] {
        let scratch = Scratch::new();
        let key = scratch.file("key", KEY);
        let name = format!("ours-{}-{}", shape.version, shape.sector);
        let size = 8 << 20;
        let container = bed.container(&name, shape.data_offset() + size, &key);
        shape.format(Maker::Xtent, &container.image, &key);
        let data = pattern(usize::try_from(size).unwrap(), 81);
        let server = Server::start(&container);
        write_all(&server.uri, &data);
        assert_same(&read_all(&server.uri), &data, "through the server");
        // Partial sectors at both ends, FUA, and a flush.
        nbdsh(
            &server.uri,
            "h.pwrite(b'x' * 5000, 12345, nbd.CMD_FLAG_FUA)\nassert h.pread(5000, 12345) == b'x' * 5000\nh.flush()",
        );
        write_all(&server.uri, &data);
        server.stop();
        let read = read_by_librbd(bed, &name, shape.version, &key);
        assert_same(&read, &data, "by librbd");
        if shape.version == 1 {
            assert_same(&read_by_qemu(bed, &name, &key, None), &data, "by QEMU");
        } else {
            let read = read_by_qemu(bed, &name, &key, Some("luks2"));
            assert_same(&read, &data, "by QEMU and librbd");
        }
        let other = pattern(data.len(), 82);
        write_by_librbd(bed, &name, shape.version, &key, &other);
        assert_same(&container.decrypt(), &other, "what librbd wrote");
        assert_exported(bed, &name, &key, &other);
        clones_and_snapshots(bed, &name, shape.version, &container, &other);
    }
}

#[test]
fn xtent_reads_and_writes_what_librbd_made() {
    let Some(bed) = cluster("xtent_reads_and_writes_what_librbd_made") else {
        return;
    };
    let _share = bed.share();
    for (version, size) in [(1, 16 << 20), (2, 24 << 20)] {
        let scratch = Scratch::new();
        let key = scratch.file("key", KEY);
        let name = format!("theirs-{version}");
        let container = bed.container(&name, size, &key);
        // It is loaded with that.
        let format = "image.encryption_format(kind, key)
import itertools
data = bytes(itertools.islice(itertools.cycle(range(251)), image.size()))
image.write(data, 0)
image.flush()
open(file, 'wb').write(data)";
        let file = scratch.join("data");
        librbd(bed, format, &name, version, &key, &file);
        let data = std::fs::read(file).unwrap();
        assert_same(&container.decrypt(), &data, "what librbd wrote");
        let other = pattern(data.len(), 84);
        let server = Server::start(&container);
        write_all(&server.uri, &other);
        server.stop();
        let read = read_by_librbd(bed, &name, version, &key);
        assert_same(&read, &other, "what Xtent wrote");
    }
}

/// A snapshot is only read; a clone of an encrypted image opens with its parent's key.
fn clones_and_snapshots(bed: &Bed, name: &str, version: u32, container: &Container, data: &[u8]) {
    let snapshot = format!("{name}@before");
    bed.rbd(&["snap", "create", "--no-progress", &snapshot])
        .ok();
    bed.rbd(&["snap", "protect", &snapshot]).ok();
    bed.rbd(&["clone", &snapshot, &format!("{name}-clone")])
        .ok();
    let at = |image: &str| Container {
        image: bed.name(image),
        key: container.key.clone(),
    };
    let clone = at(&format!("{name}-clone"));
    let server = Server::start(&clone);
    nbdsh(&server.uri, "h.pwrite(b'y' * 70000, 1000)\nh.flush()");
    server.stop();
    let mut changed = data.to_vec();
    changed[1000..71000].fill(b'y');
    let read = read_by_librbd(bed, &format!("{name}-clone"), version, &clone.key);
    assert_same(&read, &changed, "in the clone, by librbd");
    container.encrypt(&vec![0; data.len()]);
    let before = at(&snapshot);
    let server = Server::start_with(&before, &["--read-only"]);
    assert_same(&read_all(&server.uri), data, "in the snapshot");
    // Any number of readers.
    assert_same(&before.decrypt(), data, "in the snapshot");
    server.stop();
    let scratch = Scratch::new();
    Server::command(&before, &scratch.join("sock"), &[])
        .fails(2)
        .says(&["never changes", "--read-only"]);
    add_key(version, &before.image, &before.key, &before.key)
        .fails(2)
        .says(&["never changes"]);
}

#[test]
fn wide_block_ciphers_are_served_and_keys_managed() {
    let Some(bed) = cluster("wide_block_ciphers_are_served_and_keys_managed") else {
        return;
    };
    let _share = bed.share();
    let ciphers = [
        ("hctr2", Shape::wide("aes-hctr2-plain64", 256)),
        ("fast", Shape::wide("capi:fast(aes)-plain64", 256)),
    ];
    for (name, shape) in ciphers {
        let scratch = Scratch::new();
        let key = scratch.file("key", KEY);
        let container = bed.container(name, shape.data_offset() + (8 << 20), &key);
        shape.format(Maker::Xtent, &container.image, &key);
        let data = pattern(8 << 20, 85);
        let server = Server::start(&container);
        write_all(&server.uri, &data);
        nbdsh(
            &server.uri,
            "h.pwrite(b'z' * 4000, 4095)\nassert h.pread(4000, 4095) == b'z' * 4000",
        );
        write_all(&server.uri, &data);
        assert_same(&read_all(&server.uri), &data, "through the server");
        server.stop();
        let new = scratch.file("new", OTHER_KEY);
        add_key(2, &container.image, &key, &new).ok();
        let saved = scratch.join("saved");
        let image = &container.image;
        xtent()
            .args(["header", "backup"])
            .args([image, &saved])
            .ok();
        xtent().args(["header", "erase", "-q"]).arg(image).ok();
        xtent()
            .args(["header", "restore", "-q"])
            .args([image, &saved])
            .ok();
        let container = Container {
            image: image.clone(),
            key: new,
        };
        assert_same(&container.decrypt(), &data, "by another key");
        // How large an image is, the cluster decides.
        xtent()
            .args(["format", "-q", "--size", "1M", "--key-file"])
            .args([&key, image])
            .fails(1)
            .says(&["--size"]);
    }
}

#[test]
fn an_image_has_one_writer_and_grows_while_it_is_served() {
    let Some(bed) = cluster("an_image_has_one_writer_and_grows_while_it_is_served") else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let key = scratch.file("key", KEY);
    let shape = Shape::LUKS2_4096;
    let container = bed.container("one", shape.data_offset() + (4 << 20), &key);
    shape.format(Maker::Xtent, &container.image, &key);
    let server = Server::start(&container);
    assert_confined(server.id());
    for command in [
        Server::command(&container, &scratch.join("sock"), &[]),
        xtent()
            .args(["header", "erase", "-q"])
            .arg(&container.image),
        add_key(2, &container.image, &key, &key),
    ] {
        command.fails(5).says(&["is in use by `xtent serve`"]);
    }
    // What only reads is let in.
    xtent().args(["header", "dump"]).arg(&container.image).ok();
    // Not removed under it.
    assert!(
        !bed.rbd(&["rm", "--no-progress", "one"])
            .run()
            .status
            .success()
    );
    // Of a change of the size the server hears without being told, and of one that is none of that.
    bed.rbd(&["snap", "create", "--no-progress", "one@before"])
        .ok();
    resize(bed, "one", shape.data_offset() + (12 << 20));
    let size = format!("wanted = {}\n", 12 << 20);
    nbdsh(
        &server.uri,
        &format!(
            "{size}import time\nuri = h.get_uri()\nwhile True:\n c = nbd.NBD()\n c.connect_uri(uri)\n \
             if c.get_size() == wanted: break\n c.shutdown()\n time.sleep(0.01)\n\
             c.pwrite(b'g' * 8192, wanted - 8192)\nassert c.pread(8192, wanted - 8192) == b'g' * 8192\nc.flush()"
        ),
    );
    server.stop();
    let data = container.decrypt();
    assert_eq!(data.len(), 12 << 20);
    assert_same(&data[data.len() - 8192..], &[b'g'; 8192], "at the new end");
    bed.rbd(&["snap", "rm", "--no-progress", "one@before"]).ok();
    // Without its lock, an image would have any number of writers.
    for feature in ["fast-diff", "object-map", "exclusive-lock"] {
        bed.rbd(&["feature", "disable", "one", feature]).run();
    }
    Server::command(&container, &scratch.join("sock"), &[])
        .fails(4)
        .says(&["rbd feature enable rbd/one exclusive-lock"]);
    xtent().args(["header", "dump"]).arg(&container.image).ok();
}

fn resize(bed: &Bed, image: &str, size: u64) {
    bed.rbd(&[
        "resize",
        "--no-progress",
        image,
        "--size",
        &format!("{size}B"),
    ])
    .ok();
}

#[test]
fn a_mounted_image_grows() {
    let name = "a_mounted_image_grows";
    let Some(bed) = cluster(name) else {
        return;
    };
    if !has_fuse(name) {
        return;
    }
    let _share = bed.share();
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let key = scratch.file("key", KEY);
    let shape = Shape::LUKS2_4096;
    let container = bed.container("mounted", shape.data_offset() + (4 << 20), &key);
    shape.format(Maker::Xtent, &container.image, &key);
    let folder = scratch.folder("mnt");
    mount(&container, &folder, &["--file-only"]).ok();
    let size = || std::fs::metadata(folder.join("volume")).unwrap().len();
    assert_eq!(size(), 4 << 20);
    resize(bed, "mounted", shape.data_offset() + (12 << 20));
    let start = Instant::now();
    while size() != 12 << 20 {
        assert!(start.elapsed() < PATIENCE, "{} bytes", size());
        std::thread::yield_now();
    }
    umount(&folder).ok();
    assert_eq!(container.decrypt().len(), 12 << 20);
}

#[test]
fn what_is_no_image_is_told() {
    let Some(bed) = cluster("what_is_no_image_is_told") else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let dump = |name: &str| xtent().args(["header", "dump", name]);
    let conf = format!(":conf={}", bed.conf().display());
    for (name, words) in [
        ("rbd:image", &["pool is missing", "rbd:POOL/"][..]),
        ("rbd:rbd/a@b@c", &["too many"]),
        ("rbd:rbd/a:id", &["has no value"]),
    ] {
        dump(name).fails(1).says(words);
    }
    let secret = dump("rbd:rbd/a:key=AQsecret").fails(1);
    secret.says(&[":keyring=FILE"]);
    assert!(!secret.stderr.contains("AQsecret"), "{}", secret.text());
    for (name, words) in [
        ("rbd:rbd/none", &["no image rbd/none"][..]),
        ("rbd:none/none", &["no pool none"]),
        ("rbd:rbd/space/none", &["no image rbd/space/none"]),
        ("rbd:rbd/none:nonsense=1", &["no option nonsense"]),
        ("rbd:rbd/none:keyring=/none", &["/none"]),
        ("rbd:rbd/none:id=ghost", &["key", "permission denied"]),
        // Nobody listens on that port.
        (
            r"rbd:rbd/none:mon_host=127.0.0.1\:1:client_mount_timeout=1",
            &["no monitor", "127.0.0.1:1"],
        ),
    ] {
        let done = dump(&format!("{name}{conf}")).run();
        assert!(matches!(done.code(), Some(2 | 4)), "{}", done.text());
        done.says(words);
        done.assert_no_crash();
    }
    dump("rbd:rbd/none:conf=/none")
        .fails(4)
        .says(&["cannot read /none"]);
    // Another user's key.
    let keyring = scratch.join("keyring");
    let keys = bed.ceph(&[
        "auth",
        "get-or-create",
        "client.other",
        "mon",
        "profile rbd",
    ]);
    let keys = keys.ok().out();
    let admin = std::fs::read_to_string(bed.conf().with_file_name("keyring")).unwrap();
    let admin = admin
        .lines()
        .rev()
        .find(|line| line.contains("key = "))
        .unwrap();
    let wrong = keys.lines().map(|line| match line.contains("key = ") {
        true => format!("{admin}\n"),
        false => format!("{line}\n"),
    });
    std::fs::write(&keyring, wrong.collect::<String>()).unwrap();
    dump(&format!(
        "rbd:rbd/none:id=other:keyring={}{conf}",
        keyring.display()
    ))
    .fails(2)
    .says(&["does not take this user's key"]);
    // One that may look at nothing in the pool.
    std::fs::write(&keyring, keys).unwrap();
    bed.image("closed", 1 << 20);
    dump(&format!(
        "rbd:rbd/closed:id=other:keyring={}{conf}",
        keyring.display()
    ))
    .fails(2)
    .says(&["ceph auth get"]);
    let small = bed.image("small", 1 << 20);
    assert_eq!(xtent().arg("is-luks").arg(&small).run().code(), Some(1));
    xtent()
        .args(["format", "-q", "--key-file"])
        .arg(scratch.file("key", KEY))
        .arg(&small)
        .fails(4)
        .says(&["too small"]);
    xtent()
        .args(["key", "list", "--partition", "1"])
        .arg(&small)
        .fails(1)
        .says(&["--partition"]);
}
