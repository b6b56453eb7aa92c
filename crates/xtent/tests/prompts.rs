//! Questions on a terminal: what is typed is not shown, and however the prompt
//! ends the terminal echoes again.
#![allow(clippy::unwrap_used, reason = "a panic is how tests fail")]

mod common;

use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ExitStatus, Stdio};

use common::{Bed, SECRET};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

/// A command on a terminal of its own.
struct Session {
    child: Child,
    terminal: File,
    line: File,
    seen: String,
}

impl Session {
    fn start(bed: &Bed, line: &str) -> Self {
        Self::start_command(bed, &bed.command(line.split(' ')))
    }

    fn start_command(bed: &Bed, inner: &std::process::Command) -> Self {
        let terminal =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let other = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        // util-linux's setsid makes standard input the controlling terminal.
        let mut command = std::process::Command::new("setsid");
        command
            .args(["--ctty", "--wait"])
            // A test run in the background of a shell has Ctrl-C ignored.
            .args(["env", "--default-signal=INT"])
            .arg(inner.get_program())
            .args(inner.get_args())
            .current_dir(bed.dir())
            .env_remove("CREDENTIALS_DIRECTORY")
            .stdin(Stdio::from(other.try_clone().unwrap()))
            .stdout(Stdio::from(other.try_clone().unwrap()))
            .stderr(Stdio::from(other.try_clone().unwrap()));
        let child = command.spawn().expect("setsid, of package util-linux");
        Self {
            child,
            terminal: File::from(terminal),
            line: other,
            seen: String::new(),
        }
    }

    /// Reads what is shown until `text` comes, and returns it.
    #[track_caller]
    fn expect(&mut self, text: &str) -> String {
        let mut buf = [0; 256];
        while !self.seen.contains(text) {
            let n = self.terminal.read(&mut buf).unwrap_or(0);
            assert!(n > 0, "no `{text}` in `{}`", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&buf[..n]));
        }
        let end = self.seen.find(text).unwrap() + text.len();
        self.seen.drain(..end).collect()
    }

    fn echoes(&self) -> bool {
        tcgetattr(&self.line)
            .unwrap()
            .local_modes
            .contains(LocalModes::ECHO)
    }

    /// Types at a prompt without echo.
    fn type_secret(&mut self, text: &str) {
        assert!(!self.echoes());
        self.terminal.write_all(text.as_bytes()).unwrap();
    }

    fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        let echoes = self.echoes();
        let Self {
            mut terminal,
            line,
            mut seen,
            ..
        } = self;
        drop(line);
        let mut rest = Vec::new();
        // The terminal's far end is closed: an error instead of an end.
        let _ = terminal.read_to_end(&mut rest);
        seen.push_str(&String::from_utf8_lossy(&rest));
        assert!(echoes, "echo is still off");
        (status, seen)
    }
}

#[test]
fn the_passphrase_is_not_shown() {
    let bed = Bed::with_luks2();
    let mut s = Session::start(&bed, "key test disk.img");
    s.expect("Passphrase for disk.img: ");
    s.type_secret(&format!("{SECRET}\n"));
    s.expect("opens keyslot 0");
    let (status, rest) = s.end();
    assert_eq!(status.code(), Some(0));
    assert!(!rest.contains(SECRET));
}

#[test]
fn three_tries() {
    let bed = Bed::with_luks2();
    let mut s = Session::start(&bed, "key test disk.img");
    for _ in 0..3 {
        s.expect("Passphrase for disk.img: ");
        s.type_secret("wrong\n");
        s.expect("no keyslot opens with this passphrase");
    }
    let (status, rest) = s.end();
    assert_eq!(status.code(), Some(2));
    assert!(!rest.contains("wrong"), "{rest}");
}

#[test]
fn each_volume_of_several_is_asked_for_by_name() {
    let bed = Bed::with_luks2();
    std::fs::copy(bed.path("disk.img"), bed.path("other.img")).unwrap();
    let mut s = Session::start(&bed, "serve --nbd unix:s disk.img other.img");
    for name in ["disk.img", "other.img"] {
        s.expect(&format!("Passphrase for {name}: "));
        s.type_secret(&format!("{SECRET}\n"));
    }
    s.expect("nbd+unix:///disk.img?socket=");
    s.expect("nbd+unix:///other.img?socket=");
    s.expect("Serving 2 volumes.");
    s.terminal.write_all(b"\x03").unwrap();
    assert_eq!(s.end().0.code(), Some(0));
    // The wrong one is named, and none is served.
    let mut s = Session::start(&bed, "serve --tries 1 --nbd unix:s disk.img other.img");
    s.expect("Passphrase for disk.img: ");
    s.type_secret(&format!("{SECRET}\n"));
    s.expect("Passphrase for other.img: ");
    s.type_secret("wrong\n");
    let (status, said) = s.end();
    assert_eq!(status.code(), Some(2));
    assert!(said.contains("other.img"), "{said}");
    assert!(!bed.path("s").exists());
}

#[test]
fn ctrl_c_gives_the_terminal_back() {
    let bed = Bed::with_luks2();
    for command in [
        "key test disk.img",
        "serve disk.img",
        "mount --file-only disk.img .",
    ] {
        let mut s = Session::start(&bed, command);
        s.expect("Passphrase for disk.img: ");
        s.type_secret("half a pass\x03");
        let (status, rest) = s.end();
        assert_eq!(status.code(), Some(130), "{command}: {status:?}");
        assert!(!rest.contains("half"), "{rest}");
        // On a line of its own, and once.
        assert_eq!(rest.matches("\nxtent: interrupted").count(), 1, "{rest:?}");
    }
}

#[test]
fn a_new_passphrase_is_asked_twice() {
    let bed = Bed::with_luks2();
    let cheap = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    let add = format!("key add --key-file key {cheap} disk.img");
    let mut s = Session::start(&bed, &format!("{add} --tries 2"));
    for told in [
        "do not match; try again",
        "do not match; nothing was changed",
    ] {
        s.expect("New passphrase for disk.img: ");
        s.type_secret("one\n");
        s.expect("Verify passphrase: ");
        s.type_secret("two\n");
        s.expect(told);
    }
    assert_eq!(s.end().0.code(), Some(2));

    // The old passphrase is asked for once, whatever happens to the new one.
    let mut s = Session::start(&bed, &format!("key add {cheap} --new-key-slot 9 disk.img"));
    s.expect("Passphrase for disk.img: ");
    s.type_secret(&format!("{SECRET}\n"));
    s.expect("New passphrase for disk.img: ");
    s.type_secret("nine\n");
    s.expect("Verify passphrase: ");
    s.type_secret("mine\n");
    s.expect("New passphrase for disk.img: ");
    s.type_secret("nine\n");
    s.expect("Verify passphrase: ");
    s.type_secret("nine\n");
    s.expect("Key added in keyslot 9");
    assert_eq!(s.end().0.code(), Some(0));

    let mut s = Session::start(&bed, &add);
    s.expect("New passphrase for disk.img: ");
    s.type_secret("one\n");
    s.expect("Verify passphrase: ");
    s.type_secret("one\n");
    s.expect("Key added");
    assert_eq!(s.end().0.code(), Some(0));
    bed.run_with("key test disk.img", "one\n").ok();
}

#[test]
fn who_types_nothing_in_time_is_not_waited_for() {
    let bed = Bed::with_luks2();
    // Twice the time again, until there was enough of it to type something.
    for seconds in (0..8).map(|power| 1 << power) {
        let mut s = Session::start(&bed, &format!("key test --timeout {seconds} disk.img"));
        s.expect("Passphrase for disk.img: ");
        // Without echo before and after it, it was in time.
        let mut in_time = !s.echoes();
        if in_time {
            s.terminal.write_all(b"half").unwrap();
            in_time = !s.echoes();
        }
        let shown = s.expect(&format!("no passphrase was typed within {seconds} seconds"));
        let (status, rest) = s.end();
        assert_eq!(status.code(), Some(1));
        if in_time {
            assert!(
                !shown.contains("half") && !rest.contains("half"),
                "{shown}{rest}"
            );
            break;
        }
        assert!(seconds < 128, "never in time");
    }
    // With time enough nothing changes.
    let mut s = Session::start(&bed, "key test --timeout 1000000 disk.img");
    s.expect("Passphrase for disk.img: ");
    s.type_secret(&format!("{SECRET}\n"));
    s.expect("opens keyslot 0");
    assert_eq!(s.end().0.code(), Some(0));
}

#[test]
fn the_question_says_which_passphrase() {
    let bed = Bed::with_luks2();
    bed.run("key add --key-file key --new-key-file other --pbkdf pbkdf2 --pbkdf-force-iterations 1000 disk.img")
        .ok();
    let mut s = Session::start(&bed, "key kill disk.img 1");
    s.expect("Passphrase for disk.img (any but that of keyslot 1): ");
    s.type_secret(&format!("{SECRET}\n"));
    s.expect("Keyslot 1 destroyed.");
    assert_eq!(s.end().0.code(), Some(0));
    let mut s = Session::start(&bed, "header erase disk.img");
    s.expect("This will erase the only keyslot of disk.img");
    s.expect("Type YES");
    s.terminal.write_all(b"no\n").unwrap();
    assert_eq!(s.end().0.code(), Some(1));
}

#[test]
fn only_yes_is_yes() {
    let bed = Bed::with_luks2();
    for (answer, code) in [("yes", 1), ("", 1), ("YES", 0)] {
        let mut s = Session::start(&bed, "header erase disk.img");
        s.expect("nobody will be able to read the data again");
        s.expect("Type YES in capital letters: ");
        s.terminal
            .write_all(format!("{answer}\n").as_bytes())
            .unwrap();
        assert_eq!(s.end().0.code(), Some(code), "{answer}");
    }
    bed.run("key test --key-file key disk.img")
        .failed(1, &["no keyslot"]);
}

#[test]
fn plaintext_is_not_shown() {
    let bed = Bed::with_luks2();
    for target in ["-", "/dev/stdout", "/dev/tty"] {
        let line = format!("decrypt --key-file key disk.img {target}");
        let mut s = Session::start(&bed, &line);
        s.expect("is a terminal: plaintext is not written there");
        assert_eq!(s.end().0.code(), Some(1));
    }
    let mut s = Session::start(&bed, "encrypt --key-file key - disk.img");
    s.expect("is a terminal, not an image");
    assert_eq!(s.end().0.code(), Some(1));
}

#[test]
fn the_terminal_is_asked_when_standard_input_is_the_data() {
    let bed = Bed::with_luks2();
    let mut shell = std::process::Command::new("sh");
    let xtent = env!("CARGO_BIN_EXE_xtent");
    shell.args(["-c", &format!("echo plain | {xtent} encrypt - disk.img")]);
    let mut s = Session::start_command(&bed, &shell);
    s.expect("Passphrase for disk.img: ");
    s.type_secret("wrong\n");
    s.expect("Passphrase for disk.img: ");
    s.type_secret(&format!("{SECRET}\n"));
    s.expect("Encrypted 6 bytes");
    assert_eq!(s.end().0.code(), Some(0));
}

/// A volume with a token that `script` opens, in the folder `helpers`.
fn with_token(script: &str) -> Bed {
    let bed = Bed::with_luks2();
    let token = r#"{"type":"made-up","keyslots":["0"]}"#;
    std::fs::write(bed.dir().join("token.json"), token).unwrap();
    bed.run("token import --json-file token.json disk.img").ok();
    let helpers = bed.dir().join("helpers");
    std::fs::create_dir(&helpers).unwrap();
    let helper = helpers.join("xtent-token-made-up");
    std::fs::write(&helper, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&helper, Permissions::from_mode(0o755)).unwrap();
    bed
}

const BY_TOKEN: &str = "key test --token-helpers helpers disk.img";

#[test]
fn a_token_that_does_not_answer_is_told_of_and_given_up() {
    let bed = with_token("exec sleep infinity");
    let mut s = Session::start(&bed, BY_TOKEN);
    s.expect("Waiting for token 0 (made-up), up to 60 s");
    s.terminal.write_all(b"\x03").unwrap();
    let (status, rest) = s.end();
    assert_eq!(status.code(), Some(130), "{status:?}");
    assert_eq!(rest.matches("xtent: interrupted").count(), 1, "{rest:?}");

    let mut s = Session::start(&bed, &format!("{BY_TOKEN} --token-timeout 1"));
    s.expect("token 0 (made-up): no answer in 1 s");
    s.expect("Passphrase for disk.img: ");
    s.type_secret(&format!("{SECRET}\n"));
    s.expect("opens keyslot 0");
    assert_eq!(s.end().0.code(), Some(0));
}

#[test]
fn the_pin_of_a_token_is_asked_for_and_not_shown() {
    let bed = with_token(&format!(
        "IFS= read -r request
         pin=$(cat)
         case $request in *'\"pin\":true'*) ;; *) exit 10 ;; esac
         [ \"$pin\" = 2468 ] || exit 11
         printf %s '{SECRET}'"
    ));
    let prompt = "PIN of token 0 (made-up) of disk.img: ";
    let mut s = Session::start(&bed, BY_TOKEN);
    s.expect(prompt);
    s.type_secret("1357\n");
    s.expect("the PIN is wrong");
    s.expect(prompt);
    s.type_secret("2468\n");
    s.expect("opens keyslot 0");
    let (status, rest) = s.end();
    assert_eq!(status.code(), Some(0));
    assert!(!rest.contains("1357") && !rest.contains("2468"), "{rest}");

    // Wrong too often: the passphrase is next.
    let mut s = Session::start(&bed, &format!("{BY_TOKEN} --tries 2"));
    for _ in 0..2 {
        s.expect(prompt);
        s.type_secret("1357\n");
    }
    s.expect("Passphrase for disk.img: ");
    s.type_secret(&format!("{SECRET}\n"));
    s.expect("opens keyslot 0");
    assert_eq!(s.end().0.code(), Some(0));

    let mut s = Session::start(&bed, BY_TOKEN);
    s.expect(prompt);
    s.type_secret("24\x03");
    let (status, rest) = s.end();
    assert_eq!(status.code(), Some(130), "{status:?}");
    assert!(!rest.contains("24"), "{rest}");
}
