//! Wide-block ciphers, end to end: volumes that Xtent makes, serves and mounts,
//! whose keys and headers cryptsetup manages, and which the kernel's dm-crypt
//! reads and writes where it has the cipher, and refuses where it has not.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use sector_cipher::CipherSpec;
use xtent_tests::luks::{
    Container, KEY, Maker, OTHER_KEY, Pbkdf, Shape, add_key, assert_opens, cheap, cryptsetup_opens,
    xtent_opens,
};
use xtent_tests::mount::Cleaner;
use xtent_tests::scratch::{Unchanged, assert_same, read_range};
use xtent_tests::uml::{Job, Peer, assert_both_ways};
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{Cmd, Scratch, bed, nbd, pattern};

const ADIANTUM: Shape = Shape::wide("xchacha12,aes-adiantum-plain64", 256);
const XCB: Shape = Shape::wide("capi:xcb(aes)-plain64", 256);

/// Every wide-block cipher that new volumes may have, with its longest key.
fn modes() -> impl Iterator<Item = Shape> {
    CipherSpec::all()
        .filter(|spec| spec.mode().is_wide_block() && !spec.mode().is_broken())
        .map(|spec| {
            let bytes = spec.key_lengths().iter().max().unwrap();
            Shape::wide(spec.to_string().leak(), u32::try_from(8 * bytes).unwrap())
        })
}

/// Has cryptsetup encrypt a new keyslot as we do.
const KEYSLOT_IN_XTS: [&str; 4] = [
    "--keyslot-cipher",
    "aes-xts-plain64",
    "--keyslot-key-size",
    "512",
];

/// Of plaintext where no file system is wanted: not a power of two.
const DATA: usize = (1 << 20) + 3 * 4096;

/// A file system image with files in it, and the files.
fn ext4_image(scratch: &Scratch, size: u64) -> (PathBuf, Vec<(PathBuf, Vec<u8>)>) {
    let folder = scratch.folder("files");
    let mut files = Vec::new();
    for (len, seed) in [0, 1, 511, 4097, 100_001, 3 << 20].into_iter().zip(81..) {
        let name = PathBuf::from(format!("file-{len}"));
        let data = pattern(len, seed);
        fs::write(folder.join(&name), &data).unwrap();
        files.push((name, data));
    }
    let image = scratch.image("ext4", size);
    Cmd::peer("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-d"])
        .args([&folder, &image])
        .ok();
    (image, files)
}

fn assert_files(folder: &Path, files: &[(PathBuf, Vec<u8>)], what: &str) {
    for (name, data) in files {
        let found = fs::read(folder.join(name)).unwrap();
        assert_same(&found, data, &format!("{what}: {}", name.display()));
    }
}

/// A file system goes in through a server, is used through a mount, and comes
/// out consistent, by the portable implementation as well.
#[test]
fn a_file_system_on_every_mode() {
    let test = "a_file_system_on_every_mode";
    if !bed::has_fuse(test) || !bed::has_loop(test) {
        return;
    }
    const SIZE: u64 = 32 << 20;
    let images = Scratch::new();
    let (image, files) = ext4_image(&images, SIZE);
    for shape in modes() {
        let what = shape.to_string();
        let scratch = Scratch::new();
        let _cleaner = Cleaner::new(scratch.path());
        let container = shape.image(Maker::Xtent, &scratch, SIZE);
        let server = Server::start(&container);
        Cmd::peer("nbdcopy")
            .arg("--flush")
            .arg(&image)
            .arg(&server.uri)
            .ok();
        server.stop();

        let folder = scratch.folder("mnt");
        let mount = |options: &[&str]| {
            xtent()
                .arg("mount")
                .args(options)
                .arg("--key-file")
                .args([&container.key, &container.image, &folder])
                .ok()
        };
        mount(&[]);
        assert_files(&folder, &files, &what);
        let more = pattern(700_001, 91);
        fs::write(folder.join("more"), &more).unwrap();
        xtent().arg("umount").arg(&folder).ok();
        mount(&["--read-only", "--cipher-threads", "2"]);
        assert_files(&folder, &files, &what);
        assert_same(&fs::read(folder.join("more")).unwrap(), &more, &what);
        xtent().arg("umount").arg(&folder).ok();

        let plain = scratch.join("plain");
        xtent()
            .args(["decrypt", "--cpu", "portable", "--key-file"])
            .args([&container.key, &container.image, &plain])
            .ok();
        Cmd::peer("e2fsck").args(["-f", "-n"]).arg(&plain).ok();
        assert_same(&container.decrypt(), &fs::read(&plain).unwrap(), &what);
    }
}

/// Requests of every alignment, cut over threads and not, against a model.
#[test]
fn odd_requests_through_a_server() {
    for (shape, threads) in modes().zip(["1", "2", "auto"].into_iter().cycle()) {
        for sector in [512, 4096] {
            let shape = Shape { sector, ..shape };
            let scratch = Scratch::new();
            let container = shape.image(Maker::Xtent, &scratch, DATA as u64);
            let mut data = pattern(DATA, 92);
            let server = Server::start_with(&container, &["--cipher-threads", threads]);
            nbd::write_all(&server.uri, &data);
            let mut script = String::new();
            for (at, len, fill) in [
                (0, 1, 0x11),
                (511, 2, 0x22),
                (4095, 4098, 0x33),
                (100_000, 700_000, 0x44),
                (DATA - 1, 1, 0x55),
            ] {
                data[at..at + len].fill(fill);
                script.push_str(&format!("h.pwrite(bytes([{fill}]) * {len}, {at})\n"));
            }
            nbd::nbdsh(&server.uri, &format!("{script}h.flush()"));
            let what = format!("{shape}, {threads} threads");
            assert_same(&nbd::read_all(&server.uri), &data, &what);
            server.stop();
            assert_same(&container.decrypt(), &data, &what);
        }
    }
}

/// No 16 bytes of a sector stay when one byte of it changes, and no other
/// sector changes.
#[test]
fn a_sector_is_one_block() {
    for shape in modes() {
        let scratch = Scratch::new();
        let container = shape.image(Maker::Xtent, &scratch, 3 * 4096);
        let mut data = pattern(3 * 4096, 93);
        container.encrypt(&data);
        let before = read_range(&container.image, shape.data_offset(), 3 * 4096);
        data[4096 + 2500] ^= 1;
        container.encrypt(&data);
        let after = read_range(&container.image, shape.data_offset(), 3 * 4096);
        let changed = before.chunks(16).zip(after.chunks(16));
        for (block, (before, after)) in changed.enumerate() {
            let is_inside = (256..512).contains(&block);
            assert_eq!(before != after, is_inside, "{shape}: block {block}");
        }
    }
}

/// cryptsetup lists, tests, adds and changes keys, and saves and restores the
/// header, of a volume whose cipher it has never heard of.
#[test]
fn cryptsetup_manages_keys_and_headers() {
    for shape in modes() {
        let scratch = Scratch::new();
        let container = shape.image(Maker::Xtent, &scratch, DATA as u64);
        let (image, first) = (&container.image, &container.key);
        let data = pattern(DATA, 94);
        container.encrypt(&data);
        let second = scratch.file("second", OTHER_KEY);
        let third = scratch.file("third", b"third");
        let wrong = scratch.file("wrong", b"wrong");
        let cryptsetup = |action: &str| {
            let mut command = Cmd::peer("cryptsetup").args([action, "--batch-mode"]);
            if matches!(action, "luksAddKey" | "luksChangeKey") {
                command = command.args(cheap(Pbkdf::Pbkdf2, 2));
                if !shape.cipher.starts_with("capi:") {
                    // A name that it knows it takes for new keyslots too,
                    // which needs a kernel that has the cipher.
                    command = command.args(KEYSLOT_IN_XTS);
                }
            }
            command
        };
        let assert_dump = |keyslots: usize| {
            let dump = cryptsetup("luksDump").arg(image).ok().out();
            let count = |line: &str| dump.lines().filter(|l| l.trim() == line).count();
            assert_eq!(count(&format!("cipher: {}", shape.cipher)), 1, "{dump}");
            assert_eq!(
                count(&format!("Key:        {} bits", shape.key_bits)),
                keyslots,
                "{dump}"
            );
            // Whatever the data's cipher is.
            assert_eq!(count("Cipher:     aes-xts-plain64"), keyslots, "{dump}");
            assert_eq!(count("Cipher key: 512 bits"), keyslots, "{dump}");
            let area = (shape.key_bits / 8 * 4000).next_multiple_of(4096);
            assert_eq!(
                count(&format!("Area length:{area} [bytes]")),
                keyslots,
                "{dump}"
            );
        };

        assert_dump(1);
        assert_opens(image, first, true, "the first key");
        assert_opens(image, &wrong, false, "a wrong key");
        cryptsetup("luksAddKey")
            .arg("--key-file")
            .args([first, image, &second])
            .ok();
        assert_dump(2);
        assert_opens(image, &second, true, "luksAddKey");
        let backup = scratch.join("backup");
        cryptsetup("luksHeaderBackup")
            .arg("--header-backup-file")
            .args([&backup, image])
            .ok();
        cryptsetup("luksChangeKey")
            .arg("--key-file")
            .args([&second, image, &third])
            .ok();
        assert_dump(2);
        assert_opens(image, &second, false, "luksChangeKey");
        assert_opens(image, &third, true, "luksChangeKey");
        assert_same(
            &Container {
                image: image.clone(),
                key: third.clone(),
            }
            .decrypt(),
            &data,
            "by cryptsetup's key",
        );
        cryptsetup("luksHeaderRestore")
            .arg("--header-backup-file")
            .args([&backup, image])
            .ok();
        assert_opens(image, &third, false, "luksHeaderRestore");
        assert_opens(image, &second, true, "luksHeaderRestore");
        // And Xtent's own key commands beside it.
        add_key(2, image, &second, &third).ok();
        assert_dump(3);
        assert!(cryptsetup_opens(image, &third));
        assert_same(&container.decrypt(), &data, "after everything");
    }
}

/// The kernel writes Adiantum and Xtent reads it, and the reverse.
#[test]
fn the_kernel_agrees_on_adiantum() {
    let shapes = [
        ADIANTUM,
        Shape {
            sector: 512,
            ..ADIANTUM
        },
        Shape::wide("xchacha20,aes-adiantum-plain64", 256),
    ];
    assert_both_ways(&shapes, &Peer::DmCrypt);
}

/// A keyslot that cryptsetup encrypts with the data's cipher, as it does where
/// the kernel has it, opens.
#[test]
fn keyslots_in_other_ciphers_open() {
    let scratch = Scratch::new();
    let container = ADIANTUM.image(Maker::Xtent, &scratch, DATA as u64);
    let second = scratch.file("second", OTHER_KEY);
    Job::new(
        "cryptsetup luksAddKey --batch-mode --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
             --key-file /in/key /d/volume /in/second",
    )
    .disk("volume", &container.image)
    .file("key", KEY)
    .file("second", OTHER_KEY)
    .run();
    let dump = xtent().args(["header", "dump"]).arg(&container.image).ok();
    for line in [
        "Cipher:     aes-xts-plain64",
        "Cipher:     xchacha12,aes-adiantum-plain64",
    ] {
        assert!(dump.out().contains(line), "{}", dump.out());
    }
    assert!(xtent_opens(&container.image, &second));
    assert!(xtent_opens(&container.image, &container.key));
}

/// A kernel that lacks the cipher makes no device of the volume, and changes
/// nothing.
#[test]
fn the_kernel_fails_closed_on_names_of_ours() {
    let scratch = Scratch::new();
    let mut job = Job::new(
        "for name in $(cat /in/names); do
             if open_luks $name key; then echo \"$name was opened\"; exit 1; fi
             if [ -e /dev/mapper/$name ]; then echo \"$name is there\"; exit 1; fi
             cryptsetup open --test-passphrase --key-file /in/key /d/$name
         done",
    );
    let mut names = String::new();
    let mut unchanged = Vec::new();
    for shape in modes() {
        if !shape.cipher.starts_with("capi:") {
            continue;
        }
        let container = shape.image(Maker::Xtent, &scratch, DATA as u64);
        names.push_str(&format!("{shape}\n"));
        job = job.disk(&shape.to_string(), &container.image);
        unchanged.push(Unchanged::new(&container.image));
    }
    job.file("names", names.as_bytes()).file("key", KEY).run();
    for image in unchanged {
        image.assert("a refused open");
    }
}

/// Made only on demand, opened with a warning.
#[test]
fn a_broken_cipher_wants_to_be_insisted_on() {
    let scratch = Scratch::new();
    let image = scratch.image("xcb.img", XCB.data_offset() + DATA as u64);
    let key = scratch.file("key", KEY);
    let format = || {
        xtent()
            .args(["format", "--batch-mode", "--cipher", XCB.cipher])
            .args(cheap(XCB.pbkdf, 2))
            .arg("--key-file")
            .arg(&key)
    };
    let unchanged = Unchanged::new(&image);
    format()
        .arg(&image)
        .fails(1)
        .says(&["broken", "ePrint 2024/1554", "--insecure-broken-cipher"]);
    unchanged.assert("a refused format");
    format().arg("--insecure-broken-cipher").arg(&image).ok();
    let container = Container { image, key };
    let data = pattern(DATA, 96);
    container.encrypt(&data);
    assert_same(&container.decrypt(), &data, "xcb");
    let server = Server::start(&container);
    assert_same(&nbd::read_all(&server.uri), &data, "xcb");
    server.stop().says(&["broken", "ePrint 2024/1554"]);
}

#[test]
fn luks1_takes_none_of_them() {
    let scratch = Scratch::new();
    let key = scratch.file("key", KEY);
    let image = scratch.image("luks1.img", 8 << 20);
    let unchanged = Unchanged::new(&image);
    for shape in modes() {
        xtent()
            .args(["format", "--batch-mode", "--type", "luks1"])
            .args(["--cipher", shape.cipher, "--key-file"])
            .args([&key, &image])
            .fails(1)
            .says(&[shape.cipher, "needs LUKS2"]);
    }
    unchanged.assert("a refused format");
}
