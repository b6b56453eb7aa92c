//! How people find the command they need: help, names from elsewhere, completions,
//! and what is in use by whom.
#![allow(clippy::unwrap_used, reason = "a panic is how tests fail")]

mod common;

use std::io::Write;
use std::path::Path;
use std::process::Command;

use common::Bed;
use common::server::Server;
use rustix::fs::{FlockOperation, flock};

#[test]
fn help_goes_by_the_name_of_a_command() {
    let bed = Bed::new();
    assert_eq!(bed.run("help").ok().out, bed.run("--help").ok().out);
    for command in ["serve", "key", "key add", "header restore"] {
        let help = bed.run(&format!("help {command}")).ok().out;
        assert_eq!(help, bed.run(&format!("{command} --help")).ok().out);
    }
    bed.run("help key unlock")
        .failed(1, &["there is no command `xtent key unlock`"]);
    bed.run("help luksOpen")
        .failed(1, &["xtent open NAME DEVICE"]);
}

#[test]
fn names_from_elsewhere_lead_here() {
    let bed = Bed::new();
    for (name, told) in [
        ("luksOpen", "`xtent open NAME DEVICE`"),
        ("luksFormat", "`xtent format DEVICE`"),
        ("unlock", "`xtent serve DEVICE`"),
        ("connect", "`xtent serve DEVICE`"),
        ("luksClose", "`xtent close NAME`"),
        ("luksAddKey", "`xtent key add DEVICE`"),
        ("luksDump", "`xtent header dump DEVICE`"),
        ("luksHeaderBackup", "`xtent header backup DEVICE FILE`"),
        ("unmount", "`xtent umount DIR`"),
        ("benchmark", "`xtent bench`"),
        ("grow", "no command is needed"),
        ("luksUUID", "`xtent uuid DEVICE`"),
        ("luksSuspend", "`xtent suspend NAME`"),
        ("luksResume", "`xtent resume NAME`"),
        ("luksConvertKey", "`xtent key convert DEVICE`"),
        ("version", "`xtent --version`"),
        ("bitlkOpen", "cryptsetup's"),
        ("key delete", "`xtent key kill DEVICE SLOT`"),
        ("header save", "`xtent header backup DEVICE FILE`"),
    ] {
        let command = format!("{name} disk.img");
        bed.run(&command).failed(1, &[name, told]);
        let said = bed.run(&format!("--json {command}")).failed(1, &[told]);
        let error: serde_json::Value = serde_json::from_str(&said.err).unwrap();
        assert_eq!(error["error"]["exit"], 1);
    }
}

#[test]
fn more_verbose_says_more_and_no_secret() {
    for bed in [Bed::with_luks1(), Bed::with_luks2()] {
        let lines = |option: &str| {
            let said = bed
                .run(&format!("key test {option} --key-file key disk.img"))
                .ok()
                .err;
            assert!(!said.contains(common::SECRET), "{said}");
            said
        };
        let (once, twice) = (lines("-v"), lines("-vv"));
        assert!(twice.lines().count() > once.lines().count(), "{twice}");
        for part in ["header read", "disk.img", "keyslot=0", "pbkdf2", "took="] {
            assert!(twice.contains(part), "no {part} in {twice}");
        }
    }
}

#[test]
fn quiet_leaves_answers() {
    let bed = Bed::new();
    let cheap = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    std::fs::write(bed.path("plain"), vec![1; 1 << 20]).unwrap();
    for command in [
        format!("format --size 1M --key-file key {cheap} disk.img"),
        format!("key add --key-file key --new-key-file other {cheap} disk.img"),
        "key test --key-file key disk.img".to_owned(),
        "header backup disk.img disk.hdr".to_owned(),
        "encrypt --key-file key plain disk.img".to_owned(),
        "decrypt --key-file key disk.img again".to_owned(),
    ] {
        let said = bed.run(&format!("--quiet {command}")).ok();
        assert_eq!(
            (said.out.as_str(), said.err.as_str()),
            ("", ""),
            "{command}"
        );
    }
    assert!(
        bed.run("--quiet key list disk.img")
            .ok()
            .out
            .contains("keyslot 1")
    );
    assert!(
        bed.run("--quiet header dump disk.img")
            .ok()
            .out
            .contains("aes-xts")
    );
    let tested = bed.run("--quiet --json key test --key-file other disk.img");
    assert_eq!(tested.ok().json()["keyslot"], 1);
}

#[test]
fn the_last_of_repeated_options_counts() {
    let bed = Bed::new();
    bed.run(
        "format --size 9T --size 1M --key-file other --key-file key --pbkdf pbkdf2 \
         --pbkdf-force-iterations 1000 disk.img",
    )
    .ok();
    bed.run("key test --key-file other --key-file key disk.img")
        .ok();
    // A list stays one.
    let _server = Server::start(&bed, "--nbd unix:a.sock --nbd unix:b.sock");
    assert!(bed.path("a.sock").exists() && bed.path("b.sock").exists());
}

#[test]
fn status_shows_what_is_served_and_by_whom() {
    let bed = Bed::with_luks2();
    let ours = |bed: &Bed| -> Vec<serde_json::Value> {
        // Root sees everybody's, those of other tests too.
        let all = bed.run("status --json").ok().json();
        let device = bed.path("disk.img").canonicalize().unwrap();
        all["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|volume| volume["device"] == device.to_str().unwrap())
            .cloned()
            .collect()
    };
    assert_eq!(ours(&bed).len(), 0);
    bed.run("status disk.img")
        .failed(4, &["disk.img is neither served, mounted nor mapped"]);

    let server = Server::start(&bed, "--nbd unix:a.sock");
    let found = ours(&bed);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["kind"], "server");
    assert_eq!(found[0]["pid"], server.child.id());
    assert_eq!(found[0]["alive"], true);
    assert_eq!(found[0]["size"], 1 << 20);
    assert_eq!(found[0]["cipher"], "aes-xts-plain64");
    assert_eq!(found[0]["read_only"], false);
    assert!(found[0]["since"].as_u64().unwrap() > 1_600_000_000);
    let uuid = found[0]["uuid"].as_str().unwrap();
    let uri = found[0]["uris"][0].as_str().unwrap();
    assert!(uri.ends_with("a.sock"), "{uri}");
    for name in ["disk.img", uuid, uri] {
        let text = bed.run(&format!("status {name}")).ok().out;
        for part in [
            uri,
            uuid,
            " 1 MiB",
            &format!("{}, of user", server.child.id()),
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }
    drop(server);
    assert_eq!(
        ours(&bed).iter().filter(|it| it["alive"] == true).count(),
        0,
        "killed"
    );
}

#[test]
fn status_of_a_server_that_was_killed_is_no_success() {
    let bed = Bed::with_luks2();
    let server = Server::start(&bed, "--nbd unix:a.sock");
    bed.run("status disk.img").ok();
    // Nobody registers while this is held, and takes away what the dead have left.
    let status = match rustix::process::geteuid().is_root() {
        true => "/run/xtent/status".into(),
        false => bed.path("xtent/status"),
    };
    let turn = std::fs::File::open(status).unwrap();
    flock(&turn, FlockOperation::LockExclusive).unwrap();
    // Killed, and waited for.
    drop(server);
    let said = bed
        .run("status disk.img")
        .failed(4, &["disk.img is in use no more: its process was killed"]);
    assert!(said.out.contains("its process was killed"), "{said:?}");
    let said = bed.run("status --json disk.img").failed(4, &["killed"]);
    assert_eq!(said.json()["volumes"][0]["alive"], false);
    // The list is one all the same.
    bed.run("status").ok();
}

#[test]
fn help_says_what_has_to_be_given() {
    let bed = Bed::new();
    let said = bed.run("completions --help").ok();
    assert!(
        said.out.contains("completions [OPTIONS] <SHELL>"),
        "{said:?}"
    );
    assert!(!said.out.contains("[SHELL]"), "{said:?}");
    bed.run("completions").failed(1, &["<SHELL>"]);
    bed.run("completions --names all").ok();
}

#[test]
fn whoever_has_the_volume_is_named() {
    let bed = Bed::with_luks2();
    {
        let server = Server::start(&bed, "--nbd unix:a.sock");
        let process = format!("process {}", server.child.id());
        let end = format!("kill {}", server.child.id());
        for (command, dir) in [
            ("serve", ""),
            ("serve --read-only", ""),
            ("mount --file-only", " ."),
        ] {
            let said = bed
                .run(&format!("{command} --key-file key disk.img{dir}"))
                .failed(5, &["in use by `xtent serve`", "a.sock", &process, &end]);
            // Of no use beside somebody who writes.
            assert!(!said.err.contains("--read-only"), "{said:?}");
        }
    }
    let _server = Server::start(&bed, "--nbd unix:a.sock --read-only");
    bed.run("serve --key-file key disk.img")
        .failed(5, &["which only reads", "--read-only"]);
}

#[test]
fn bash_completes_commands_and_names() {
    let bed = Bed::with_luks2();
    let _server = Server::start(&bed, "--nbd unix:a.sock");
    let script = bed.run("completions bash").ok().out;
    std::fs::write(bed.path("completion"), script).unwrap();
    let folder = Path::new(env!("CARGO_BIN_EXE_xtent")).parent().unwrap();
    let complete = |words: &str| -> Vec<String> {
        let output = Command::new("bash")
            .args(["--norc", "-c"])
            .arg(format!(
                "PATH={}:$PATH; source completion; COMP_WORDS=({words}); \
                 COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); \
                 _xtent_or_name xtent \"${{COMP_WORDS[COMP_CWORD]}}\" \
                 \"${{COMP_WORDS[COMP_CWORD-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                folder.display()
            ))
            .current_dir(bed.dir())
            .env("XDG_RUNTIME_DIR", bed.dir())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let commands = complete("xtent ''");
    assert!(commands.contains(&"format".to_owned()), "{commands:?}");
    assert!(!commands.contains(&"man".to_owned()), "{commands:?}");
    let first_option = commands.iter().position(|word| word.starts_with('-'));
    let last_command = commands.iter().rposition(|word| !word.starts_with('-'));
    assert!(first_option > last_command, "{commands:?}");
    assert_eq!(complete("xtent key ad"), ["add"]);
    let ciphers = complete("xtent format --cipher aes-xts");
    assert!(
        ciphers.contains(&"aes-xts-plain64".to_owned()),
        "{ciphers:?}"
    );
    let image = bed.path("disk.img").canonicalize().unwrap();
    let image = image.to_str().unwrap();
    assert_eq!(complete(&format!("xtent status {image}")), [image]);
    assert_eq!(complete("xtent umount --l"), ["--lazy"]);
    // Other users choose these names: no shell may take them for more than text.
    let ran = bed.path("ran");
    for name in [
        format!("/$(touch {})", ran.display()),
        format!("/`touch {}`", ran.display()),
        "/a * b".to_owned(),
    ] {
        let entry = serde_json::json!({
            "kind": "mount", "device": name, "uuid": null, "uris": [], "mount_point": name,
            "loop_device": null, "size": 512, "sector_size": 512, "cipher": "x",
            "read_only": false, "since": 1, "pid": 1, "uid": 0,
        });
        let status = bed.dir().join("xtent/status");
        let status = if status.is_dir() {
            status
        } else {
            "/run/xtent/status".into()
        };
        let file = status.join(format!("completion-{}.json", std::process::id()));
        // Locked, as a process that lives has it: whoever registers takes others away.
        let unfinished = file.with_extension("new");
        let mut held = std::fs::File::create(&unfinished).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        held.write_all(entry.to_string().as_bytes()).unwrap();
        std::fs::rename(&unfinished, &file).unwrap();
        let found = ["umount", "resize"].map(|it| complete(&format!("xtent {it} ''")));
        std::fs::remove_file(&file).unwrap();
        assert!(found.iter().all(|it| it.contains(&name)), "{found:?}");
        assert!(!ran.exists(), "{name} was run");
    }
}
