//! Storage that nobody trusts: headers that were changed, exchanged and put back, against what
//! was pinned of them; formats over volumes; sectors that were never written; keys by commands.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use rustix::process::Signal;
use serde_json::json;
use sha2::{Digest, Sha256};
use xtent_tests::far::Far;
use xtent_tests::header::{COPY, edit_json};
use xtent_tests::luks::{Container, KEY, Maker, OTHER_KEY, Pbkdf, Shape, add_key, cheap};
use xtent_tests::nbd::nbdsh;
use xtent_tests::scratch::{Unchanged, read_range, write_range};
use xtent_tests::terminal::Terminal;
use xtent_tests::xtent::xtent;
use xtent_tests::{Cmd, Finished, Scratch, pattern};

/// Bytes that hold the header and keyslots of a test's volume.
const HEAD: usize = 2 << 20;

fn pin(image: &Path, options: &[&str]) -> String {
    let done = xtent()
        .args(["header", "pin"])
        .args(options)
        .arg(image)
        .ok();
    done.out().trim().to_owned()
}

/// A test of the passphrase where `pin` is expected.
fn test(container: &Container, pin: &str) -> Finished {
    xtent()
        .args(["key", "test", "--expect-header", pin, "--key-file"])
        .args([&container.key, &container.image])
        .run()
}

fn assert_expected(container: &Container, pin: &str) {
    let done = test(container, pin);
    assert_eq!(done.code(), Some(0), "{}", done.text());
}

fn assert_refused(container: &Container, pin: &str, why: &[&str]) {
    let done = test(container, pin);
    assert_eq!(done.code(), Some(4), "{}", done.text());
    done.says(&["the header is not the one that was pinned"]);
    done.says(why);
}

#[test]
fn pins_are_the_same_to_whoever_computes_them() {
    let scratch = Scratch::new();
    for (version, copies) in [(1, 1), (2, 2)] {
        let shape = if version == 1 {
            Shape::LUKS1
        } else {
            Shape::LUKS2_4096
        };
        let image = shape.image(Maker::Cryptsetup, &scratch, 4096).image;
        let metadata = pin(&image, &["--metadata", "--short"]);
        for n in 0..copies {
            let covered = match version {
                1 => read_range(&image, 0, 592),
                _ => {
                    let mut copy = read_range(&image, n * COPY as u64, COPY);
                    for zeroed in [0..6, 104..168, 256..264, 448..512] {
                        copy[zeroed].fill(0);
                    }
                    copy
                }
            };
            let digest = Sha256::new()
                .chain_update(b"xtent1:metadata\n")
                .chain_update(covered)
                .finalize();
            let hex: String = digest.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(metadata, format!("xtent1:metadata:sha256:{hex}"));
        }
    }
}

#[test]
fn what_cryptsetup_does_to_keys_keeps_the_volumes_pin_alone() {
    let scratch = Scratch::new();
    let other = scratch.file("other", OTHER_KEY);
    for shape in [Shape::LUKS1, Shape::LUKS2] {
        let container = shape.image(Maker::Cryptsetup, &scratch, 1 << 20);
        let image = &container.image;
        let cryptsetup = |args: &[&str]| {
            Cmd::peer("cryptsetup")
                .args(args)
                .arg("--batch-mode")
                .arg("--key-file")
                .arg(&container.key)
        };
        let volume = pin(image, &[]);
        let backup = scratch.join(&format!("{shape}.backup"));
        Cmd::peer("cryptsetup")
            .args(["luksHeaderBackup", "--batch-mode", "--header-backup-file"])
            .args([&backup, image])
            .ok();
        let mut metadata = pin(image, &["--metadata"]);
        assert_expected(&container, &metadata);
        cryptsetup(&["luksAddKey"])
            .args(cheap(Pbkdf::Pbkdf2, shape.version))
            .arg(image)
            .arg(&other)
            .ok();
        assert_refused(&container, &metadata, &["(metadata)"]);
        assert_expected(&container, &volume);
        metadata = pin(image, &["--metadata"]);
        Cmd::peer("cryptsetup")
            .args(["luksKillSlot", "--batch-mode", "--key-file"])
            .args([&other, image])
            .arg("0")
            .ok();
        // The passphrase that was removed comes back with the old header.
        let now = Container {
            image: image.clone(),
            key: other.clone(),
        };
        assert_refused(&now, &metadata, &["(metadata)"]);
        assert_expected(&now, &volume);
        metadata = pin(image, &["--metadata"]);
        Cmd::peer("cryptsetup")
            .args(["luksHeaderRestore", "--batch-mode", "--header-backup-file"])
            .arg(&backup)
            .arg(image)
            .ok();
        assert_refused(&container, &metadata, &["(metadata)"]);
        assert_expected(&container, &volume);
        // Both formats are one volume.
        if shape.version == 1 {
            Cmd::peer("cryptsetup")
                .args(["convert", "--batch-mode", "--type", "luks2"])
                .arg(image)
                .ok();
            assert_expected(&container, &volume);
        }
    }
}

#[test]
fn another_volume_key_is_another_volume() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, 1 << 20);
    let pinned = pin(&container.image, &[]);
    let uuid = Cmd::peer("cryptsetup")
        .arg("luksUUID")
        .arg(&container.image)
        .ok()
        .out();
    Cmd::peer("cryptsetup")
        .args([
            "luksFormat",
            "--batch-mode",
            "--type",
            "luks2",
            "--sector-size",
            "512",
            "--uuid",
            uuid.trim(),
        ])
        .args(cheap(Pbkdf::Pbkdf2, 2))
        .arg("--key-file")
        .args([&container.key, &container.image])
        .ok();
    assert_refused(&container, &pinned, &["the volume key's digest differs"]);
    // Named by UUID where that differs too, and by the digest alone in the short form.
    let other = Shape::LUKS2_4096.image(Maker::Xtent, &scratch, 1 << 20);
    assert_refused(
        &other,
        &pinned,
        &["uuid: pinned ", "sector: pinned 512, found 4096"],
    );
    let short = pin(&container.image, &["--short"]);
    assert_refused(&other, &short, &["the digest is another"]);
}

/// With the checksums made right, as the storage's owner would.
#[test]
fn forged_headers_are_refused_before_a_passphrase_is_asked_for() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, 1 << 20);
    let (image, good) = (&container.image, read_range(&container.image, 0, HEAD));
    let pins = scratch.file(
        "pins",
        format!("# of a test\n{}\n", pin(image, &[])).as_bytes(),
    );
    let expected = format!("@{}", pins.display());
    let segment = |name: &'static str, value: &'static str| {
        edit_json(image, |json| json["segments"]["0"][name] = json!(value));
    };
    type Forge<'a> = &'a dyn Fn();
    let forgeries: [(Forge<'_>, &str); 4] = [
        (
            &|| segment("encryption", "cipher_null-ecb"),
            "found cipher_null-ecb",
        ),
        (&|| segment("iv_tweak", "8"), "tweak: pinned 0, found 8"),
        (
            &|| segment("offset", "16781312"),
            "offset: pinned 16777216, found 16781312",
        ),
        (
            &|| {
                edit_json(image, |json| {
                    json["digests"]["0"]["iterations"] = json!(1001)
                })
            },
            "the volume key's digest differs",
        ),
    ];
    for (forge, why) in forgeries {
        forge();
        let plain = scratch.join("plain");
        // Nobody is asked: the source of the passphrase would fail with another text.
        let opening = |args: &[&str], rest: &[&Path]| {
            let ask = ["--expect-header", &expected, "--key-command", "false"];
            xtent()
                .args(args)
                .args(ask)
                .args(rest)
                .fails(4)
                .says(&[why]);
        };
        opening(&["serve", "--run", "true"], &[image]);
        opening(&["decrypt"], &[image, &plain]);
        opening(&["key", "test"], &[image]);
        opening(&["key", "add"], &[image]);
        opening(&["header", "dump", "--volume-key", "-q"], &[image]);
        xtent()
            .args(["is-luks", "--expect-header", &expected])
            .arg(image)
            .fails(4)
            .says(&[why]);
        // The good copy is forged, the other one is gone.
        for gone in [0, COPY as u64] {
            let forged = read_range(image, 0, HEAD);
            write_range(image, gone, &[0; 4096]);
            opening(&["serve", "--run", "true"], &[image]);
            write_range(image, 0, &forged);
        }
        write_range(image, 0, &good);
        assert_expected(&container, &expected);
    }
    // A good second copy is as good as the first.
    write_range(image, 0, &[0; 4096]);
    assert_expected(&container, &expected);
    xtent()
        .args(["header", "repair", "--expect-header", &expected])
        .arg(image)
        .ok();
}

#[test]
fn the_backup_that_is_restored_can_be_pinned() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let (backup, other) = (scratch.join("backup"), scratch.file("other", OTHER_KEY));
    xtent()
        .args(["header", "backup"])
        .args([&container.image, &backup])
        .ok();
    let metadata = pin(&container.image, &["--metadata"]);
    add_key(2, &container.image, &container.key, &other).ok();
    let restore = |pin: &str| {
        xtent()
            .args(["header", "restore", "-q", "--expect-header", pin])
            .args([&container.image, &backup])
    };
    restore(&pin(&container.image, &["--metadata"]))
        .fails(4)
        .says(&["seqid: pinned"]);
    restore(&metadata).ok();
    assert_expected(&container, &metadata);
}

/// Whoever writes a keyslot in the clear knows the key that it gives out.
#[test]
fn the_null_cipher_is_refused_by_name() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, 1 << 20);
    let good = read_range(&container.image, 0, HEAD);
    let refused = |what: &str| {
        let serve = ["serve", "--run", "true", "--key-command", "false"];
        xtent()
            .args(serve)
            .arg(&container.image)
            .fails(4)
            .says(&[what, "the null cipher"]);
    };
    for (member, what) in [("area", "the key in keyslot 0"), ("segment", "the data")] {
        edit_json(&container.image, |json| {
            let place = match member {
                "area" => &mut json["keyslots"]["0"]["area"],
                _ => &mut json["segments"]["0"],
            };
            place["encryption"] = json!("cipher_null-ecb");
        });
        refused(what);
        write_range(&container.image, 0, &good);
    }
    let container = Shape::LUKS1.image(Maker::Cryptsetup, &scratch, 1 << 20);
    for (field, text) in [(8, "cipher_null"), (40, "ecb")] {
        let mut bytes = [0; 32];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        write_range(&container.image, field, &bytes);
    }
    let open = [
        "--key-file".as_ref(),
        container.key.as_os_str(),
        container.image.as_os_str(),
    ];
    xtent()
        .args(["serve", "--run", "true"])
        .args(open)
        .fails(4)
        .says(&["the null cipher"]);
    xtent()
        .args(["key", "test"])
        .args(open)
        .fails(4)
        .says(&["the null cipher"]);
}

#[test]
fn no_format_goes_over_a_volume_unasked() {
    let scratch = Scratch::new();
    for shape in [Shape::LUKS1, Shape::LUKS2] {
        let container = shape.image(Maker::Cryptsetup, &scratch, 17 << 20);
        let image = &container.image;
        let format = |options: &[&str]| {
            xtent()
                .args(["format", "--key-file"])
                .arg(&container.key)
                .args(cheap(Pbkdf::Pbkdf2, 2))
                .args(options)
                .arg(image)
        };
        let uuid = xtent().arg("uuid").arg(image).ok().out();
        let uuid = uuid.trim();
        let unchanged = Unchanged::new(image);
        format(&["-q"]).fails(1).says(&[uuid, "--overwrite-luks"]);
        // The first question is not the second.
        let mut terminal = Terminal::start(format(&[]));
        terminal.expect("Type YES");
        terminal.type_line("YES");
        terminal.expect("type its UUID");
        terminal.type_line("YES");
        let (code, text) = terminal.end();
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("nothing was changed"), "{text}");
        unchanged.assert("formats that were not confirmed");
        if shape.version == 2 {
            // What is left is a volume still.
            write_range(image, 0, &[0; 4096]);
            format(&["-q"])
                .fails(1)
                .says(&["second LUKS2 header", uuid]);
        }
        let mut terminal = Terminal::start(format(&[]));
        terminal.expect("Type YES");
        terminal.type_line("YES");
        terminal.expect("type its UUID");
        terminal.type_line(uuid);
        let (code, text) = terminal.end();
        assert_eq!(code, 0, "{text}");
        format(&["-q", "--overwrite-luks"]).ok();
    }
}

/// Storage that reads as zeros for a while has lost volumes to a format.
#[test]
fn zeros_where_a_header_was_are_no_reason_to_format() {
    let scratch = Scratch::new();
    let key = scratch.file("key", KEY);
    let far = Far::nbdkit(&["memory", "64M"]);
    for command in [
        &["serve", "--run", "true"][..],
        &["key", "test"],
        &["key", "add"],
        &["header", "dump"],
    ] {
        let done = xtent().args(command).arg(far.uri()).run();
        assert_eq!(done.code(), Some(4), "{}", done.text());
        done.says(&["It reads as zeros", "is the storage there"]);
        assert!(!done.text().contains("xtent format"), "{}", done.text());
    }
    for command in [
        &["header", "repair"][..],
        &["convert", "-q", "--type", "luks1", "--no-backup"],
        &["header", "erase", "-q"],
    ] {
        assert_eq!(xtent().args(command).arg(far.uri()).run().code(), Some(4));
    }
    // Nor is what cannot be read.
    let failing = Far::nbdkit(&["--filter=error", "memory", "64M", "error-pread-rate=1"]);
    xtent()
        .args(["format", "-q", "--overwrite-luks", "--key-file"])
        .arg(&key)
        .arg(failing.uri())
        .fails(4)
        .says(&["nothing was written"]);
}

#[test]
fn holes_read_as_noise_or_as_zeros() {
    let scratch = Scratch::new();
    let size = 1 << 20;
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, size);
    let data = pattern(8192, 3);
    {
        let server = xtent_tests::xtent::Server::start_with(&container, &["--holes", "zero"]);
        let file = scratch.file("data", &data);
        // The second one into a hole, in part.
        let script = format!(
            "data = open('{}', 'rb').read()\n\
             assert h.pread(65536, 0) == bytearray(65536)\n\
             h.pwrite(data, 4100)\n\
             assert h.pread(65536, 0) == bytearray(4100) + data + bytearray(65536 - 4100 - len(data))\n",
            file.display()
        );
        let done = nbdsh(&server.uri, &script);
        assert_eq!(done.code(), Some(0), "{}", done.text());
        server.stop();
    }
    let decrypt = |holes: &str| {
        let target = scratch.join(holes);
        xtent()
            .args(["decrypt", "--holes", holes, "--key-file"])
            .args([&container.key, &container.image, &target])
            .ok();
        std::fs::read(target).unwrap()
    };
    let mut expected = vec![0; usize::try_from(size).unwrap()];
    expected[4100..4100 + data.len()].copy_from_slice(&data);
    assert!(decrypt("zero") == expected);
    let noise = decrypt("noise");
    assert!(noise[4096..4100 + data.len()] == expected[4096..4100 + data.len()]);
    assert!(
        noise[65_536..]
            .chunks(512)
            .all(|sector| sector.iter().any(|b| *b != 0))
    );
    xtent()
        .args([
            "serve",
            "--encrypt",
            "--holes",
            "zero",
            "--header",
            "x",
            "y",
        ])
        .fails(1)
        .says(&["--holes", "cannot be used with"]);
}

#[test]
fn a_command_gives_the_passphrase() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let image = &container.image;
    let uuid = xtent().arg("uuid").arg(image).ok().out();
    let program = scratch.program(
        "key server",
        &format!(
            "test \"$XTENT_UUID\" = '{}' -a \"$XTENT_DEVICE\" = '{}' || exit 7\n\
             echo looked up >&2; cat \"$1\"",
            uuid.trim(),
            image.display()
        ),
    );
    let command = format!("'{}' {}", program.display(), container.key.display());
    let test = |options: &[&str]| xtent().args(["key", "test"]).args(options).arg(image);
    test(&["--key-command", &command]).ok().says(&["looked up"]);
    test(&["--key-command", "sh -c 'printf wrong'"]).fails(2);
    test(&["--key-command", "sh -c 'echo why >&2; exit 3'"])
        .fails(2)
        .says(&["why", "exit status: 3"]);
    test(&["--key-command", "sleep 1000", "--timeout", "1"])
        .fails(2)
        .says(&["within 1 seconds"]);
    test(&["--key-command", "no-such-program"])
        .fails(1)
        .says(&["no-such-program"]);
    test(&["--key-command", "'"]).fails(1);
    test(&["--key-command", "true", "--key-file", "x"]).fails(1);
    // A new one too.
    let other = scratch.file("other", OTHER_KEY);
    xtent()
        .args(["key", "add"])
        .args(cheap(Pbkdf::Pbkdf2, 2))
        .args(["--key-command", &command])
        .arg("--new-key-command")
        .arg(format!("cat {}", other.display()))
        .arg(image)
        .ok();
    test(&["--key-command", &format!("cat {}", other.display())]).ok();
}

/// Ctrl-C ends the command and all that it has started.
#[test]
fn an_end_of_this_program_is_one_of_its_command() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let pipe = scratch.join("pipe");
    Cmd::peer("mkfifo").arg(&pipe).ok();
    let script = format!(
        "exec 3>'{}'; echo started >&3; sleep 1000; true",
        pipe.display()
    );
    let program = scratch.program("slow", &script);
    let test = xtent()
        .args(["key", "test", "--key-command"])
        .args([&program, &container.image])
        .spawn();
    let mut said = BufReader::new(File::open(&pipe).unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "started\n");
    test.signal(Signal::INT);
    let done = test.finish();
    assert_eq!(done.code(), Some(130), "{}", done.text());
    // The pipe ends when nobody holds it any more.
    assert_eq!(said.read_line(&mut line).unwrap(), 0);
}

/// The storage answers with the pinned header first, and then with another.
#[test]
fn a_header_that_is_swapped_after_the_first_look_is_noticed() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, 1 << 20);
    let pinned = pin(&container.image, &[]);
    // While the passphrase is fetched, the header becomes one of another volume whose key the
    // same passphrase opens.
    let other = Shape::LUKS2.image_with_key(Maker::Xtent, &scratch, 1 << 20, KEY);
    let swap = format!(
        "sh -c 'dd if={} of={} bs=1M count=2 conv=notrunc status=none; cat {}'",
        other.image.display(),
        container.image.display(),
        container.key.display()
    );
    xtent()
        .args([
            "key",
            "test",
            "--expect-header",
            &pinned,
            "--key-command",
            &swap,
        ])
        .arg(&container.image)
        .fails(4)
        .says(&["the header is not the one that was pinned", "uuid: pinned"]);
}
