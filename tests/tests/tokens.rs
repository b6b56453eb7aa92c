//! Volumes that open without a person: tokens as systemd, clevis and cryptsetup write
//! them, and helpers that misbehave.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use xtent_tests::luks::{Container, Maker, Shape};
use xtent_tests::nbd::nbdsh;
use xtent_tests::tpm::{Tang, Tpm};
use xtent_tests::xtent::{token_helper, xtent};
use xtent_tests::{Cmd, PATIENCE, Scratch};

const PASSPHRASE: &str = "typed by nobody in these tests";

fn volume(maker: Maker, scratch: &Scratch) -> Container {
    Shape::LUKS2.image_with_key(maker, scratch, 1 << 20, PASSPHRASE.as_bytes())
}

/// `xtent key test` that may use tokens only, with our own helper.
fn by_token(image: &Path, options: &[&str]) -> Cmd {
    xtent()
        .args(["key", "test", "--json", "--token-only", "--token-helpers"])
        .arg(token_helper().parent().unwrap())
        .args(options)
        .arg(image)
}

fn assert_opened(command: Cmd, token: u32, keyslot: u32) {
    let found = command.ok().json();
    assert_eq!(found["token"], token, "{found}");
    assert_eq!(found["keyslot"], keyslot, "{found}");
}

/// Enrolled by systemd on a volume made by Xtent.
#[test]
fn a_tpm_opens_while_its_pcrs_hold() {
    let (scratch, tpm) = (Scratch::new(), Tpm::new());
    let image = volume(Maker::Xtent, &scratch).image;
    tpm.extend(16);
    tpm.enroll(&image, PASSPHRASE, &["--tpm2-pcrs=16"], "");
    let device = ["--tpm2-device", &tpm.device];
    assert_opened(by_token(&image, &device), 0, 1);
    tpm.flush();

    // Another TPM is refused, and so is this one in another state.
    let other = Tpm::new();
    by_token(&image, &["--tpm2-device", &other.device])
        .fails(2)
        .says(&["token 0", "not the one", "pcr"]);
    tpm.extend(16);
    by_token(&image, &device).fails(2).says(&[
        "policy digest does not match",
        "token 0",
        "policy does not hold",
    ]);
    tpm.flush();

    // Without --token-only the passphrase is next.
    let done = xtent()
        .args(["key", "test", "--json", "--token-helpers"])
        .arg(token_helper().parent().unwrap())
        .args(device)
        .arg(&image)
        .stdin(PASSPHRASE.as_bytes())
        .ok();
    assert_eq!(done.json()["keyslot"], 0);
    assert_eq!(done.json()["token"], serde_json::Value::Null);
    done.says(&["token 0"]);
}

#[test]
fn a_tpm_with_a_pin_wants_it() {
    let (scratch, tpm) = (Scratch::new(), Tpm::new());
    let image = volume(Maker::Cryptsetup, &scratch).image;
    let options = ["--tpm2-pcrs=", "--tpm2-with-pin=yes"];
    tpm.enroll(&image, PASSPHRASE, &options, "2468");
    let with = |pin: Option<&Path>| {
        let command = by_token(&image, &["--tpm2-device", &tpm.device]);
        match pin {
            Some(path) => command.arg("--token-pin-file").arg(path),
            None => command,
        }
    };
    with(None).fails(2).says(&["token 0", "needs a PIN"]);
    tpm.flush();
    let wrong = scratch.file("wrong", b"1357\n");
    with(Some(&wrong)).fails(2).says(&["PIN is wrong"]);
    tpm.flush();
    let right = scratch.file("right", b"2468\n");
    assert_opened(with(Some(&right)), 0, 1);
    tpm.flush();

    // As systemd gives it to a unit.
    let credentials = scratch.folder("credentials");
    fs::write(credentials.join("cryptsetup.tpm2-pin"), "2468").unwrap();
    assert_opened(with(None).env("CREDENTIALS_DIRECTORY", &credentials), 0, 1);
}

/// The other way: libcryptsetup with systemd's plugin opens what Xtent has made and written.
#[test]
fn libcryptsetup_opens_a_token_that_xtent_has_imported() {
    let (scratch, tpm) = (Scratch::new(), Tpm::new());
    let image = volume(Maker::Xtent, &scratch).image;
    tpm.enroll(&image, PASSPHRASE, &["--tpm2-pcrs="], "");
    let json = scratch.join("token.json");
    let token = |words: &[&str]| xtent().arg("token").args(words).arg(&image);
    let exported = token(&["export", "--token-id", "0"]).ok().stdout;
    fs::write(&json, exported).unwrap();
    token(&["remove", "--token-id", "0"]).ok();
    by_token(&image, &[]).fails(1).says(&["no token"]);
    let file = format!("--json-file={}", json.display());
    token(&["import", "--token-id", "5", &file]).ok();
    assert_opened(by_token(&image, &["--tpm2-device", &tpm.device]), 5, 1);
    tpm.flush();
    // What `cryptsetup open --test-passphrase --token-only` does, with a TPM of our choice.
    let script = r#"
import ctypes, sys
class Tpm2(ctypes.Structure):
    _fields_ = [("mask", ctypes.c_uint32), ("device", ctypes.c_char_p),
                ("signature", ctypes.c_char_p), ("pcrlock", ctypes.c_char_p)]
lib, cd = ctypes.CDLL("libcryptsetup.so.12"), ctypes.c_void_p()
assert lib.crypt_init(ctypes.byref(cd), sys.argv[1].encode()) == 0
assert lib.crypt_load(cd, b"LUKS2", None) == 0
tpm2 = Tpm2(0xffffffff, sys.argv[2].encode(), None, None)
print(lib.crypt_activate_by_token(cd, None, 5, ctypes.byref(tpm2), 0))
"#;
    let keyslot = Cmd::new("/usr/bin/python3")
        .args(["-c", script])
        .arg(&image)
        .arg(&tpm.device)
        .ok();
    assert_eq!(keyslot.out().trim(), "1", "{}", keyslot.text());
}

/// A server needs no key file where there is a token.
#[test]
fn a_server_starts_by_its_tpm() {
    let (scratch, tpm) = (Scratch::new(), Tpm::new());
    let container = volume(Maker::Xtent, &scratch);
    container.encrypt(&[7; 1 << 20]);
    tpm.enroll(&container.image, PASSPHRASE, &["--tpm2-pcrs="], "");
    let socket = scratch.join("nbd");
    let mut process = xtent()
        .args(["serve", "--nbd", &format!("unix:{}", socket.display())])
        .args(["--token-only", "--tpm2-device", &tpm.device])
        .arg("--token-helpers")
        .arg(token_helper().parent().unwrap())
        .arg(&container.image)
        .spawn();
    process.wait_for_line(|line| line.contains("nbd+unix"));
    nbdsh(
        &format!("nbd+unix:///?socket={}", socket.display()),
        "assert h.pread(512, 0) == b'\\x07' * 512",
    );
    process.signal(Signal::TERM);
    assert_eq!(process.finish().code(), Some(0));
}

#[test]
fn clevis_opens_with_tang_and_with_the_tpm() {
    let (scratch, tpm, tang) = (Scratch::new(), Tpm::new(), Tang::new());
    let container = volume(Maker::Cryptsetup, &scratch);
    let url = format!(r#"{{"url":"{}"}}"#, tang.url);
    let both = format!(r#"{{"t":2,"pins":{{"tang":[{url}],"tpm2":[{{}}]}}}}"#);
    for (pin, config) in [("tang", url.as_str()), ("sss", &both)] {
        Cmd::peer("clevis")
            .args(["luks", "bind", "-y", "-k"])
            .args([&container.key, Path::new("-d"), &container.image])
            .args([pin, config])
            .env("TPM2TOOLS_TCTI", &tpm.device)
            .ok();
        tpm.flush();
    }
    let image = &container.image;
    assert_opened(by_token(image, &["--token-id", "0"]), 0, 1);
    let device = ["--tpm2-device", &tpm.device];
    assert_opened(by_token(image, &["-S", "2", device[0], device[1]]), 1, 2);
    tpm.flush();
    // The second needs a TPM, and there is none.
    by_token(image, &["--token-id", "1"])
        .fails(2)
        .says(&["token 1", "clevis could not open it"]);
}

#[test]
fn a_key_in_the_users_keyring_opens() {
    let scratch = Scratch::new();
    let image = volume(Maker::Xtent, &scratch).image;
    let name = format!("xtent-test-{}", std::process::id());
    Cmd::peer("cryptsetup")
        .args([
            "token",
            "add",
            "--key-slot",
            "0",
            "--key-description",
            &name,
        ])
        .arg(&image)
        .ok();
    by_token(&image, &[])
        .fails(2)
        .says(&["no key", &name, "token 0"]);
    let key = Cmd::peer("keyctl")
        .args(["padd", "user", &name, "@u"])
        .stdin(PASSPHRASE.as_bytes())
        .ok()
        .out();
    let opened = by_token(&image, &["--token-type", "luks2-keyring"]).run();
    Cmd::peer("keyctl").args(["unlink", key.trim(), "@u"]).ok();
    assert_eq!(opened.json()["keyslot"], 0, "{}", opened.text());
}

/// A token in the form of systemd's, for which no device is plugged in.
#[test]
fn a_security_key_that_is_not_there_is_said_to_be_missing() {
    let scratch = Scratch::new();
    let container = volume(Maker::Cryptsetup, &scratch);
    import(
        &scratch,
        &container.image,
        r#"{"type":"systemd-fido2","keyslots":["0"],
        "fido2-credential":"AAAA","fido2-salt":"AAAA","fido2-rp":"io.systemd.cryptsetup",
        "fido2-clientPin-required":false,"fido2-up-required":true,"fido2-uv-required":false}"#,
    );
    by_token(&container.image, &[])
        .fails(2)
        .says(&["token 0 (systemd-fido2)", "device is not there"]);
    // What nobody knows is no news, unless it is asked for.
    import(
        &scratch,
        &container.image,
        r#"{"type":"nobodys","keyslots":["0"]}"#,
    );
    by_token(&container.image, &["--token-type", "nobodys"])
        .fails(2)
        .says(&["token 1 (nobodys)", "nothing here opens"]);
    let quiet = xtent()
        .args(["key", "test", "--token-type", "nobodys", "--no-tokens"])
        .arg(&container.image)
        .fails(1);
    quiet.says(&["cannot be used with"]);
}

/// A recovery key is typed by a person.
#[test]
fn a_recovery_key_is_an_ordinary_passphrase() {
    let scratch = Scratch::new();
    let image = volume(Maker::Xtent, &scratch).image;
    let key = Cmd::peer("systemd-cryptenroll")
        .arg("--recovery-key")
        .arg(&image)
        .env("PASSWORD", PASSPHRASE)
        .ok()
        .out();
    let done = xtent()
        .args(["key", "test", "--json"])
        .arg(&image)
        .stdin(key.trim().as_bytes())
        .ok();
    assert_eq!(done.json()["keyslot"], 1);
    assert!(!done.stderr.contains("token"), "{}", done.text());
    by_token(&image, &[]).fails(1).says(&["no token"]);
}

fn import(scratch: &Scratch, image: &Path, json: &str) {
    let file = scratch.file("token.json", json.as_bytes());
    Cmd::peer("cryptsetup")
        .args(["token", "import", "--json-file"])
        .args([&file, image])
        .ok();
}

/// A volume with a token of type "made-up", and a folder with `script` as its helper.
fn with_helper(scratch: &Scratch, script: &str) -> (PathBuf, PathBuf) {
    let image = volume(Maker::Xtent, scratch).image;
    import(
        scratch,
        &image,
        r#"{"type":"made-up","keyslots":["0"],"a":"b"}"#,
    );
    let folder = scratch.folder("helpers");
    scratch.program("helpers/xtent-token-made-up", script);
    (image, folder)
}

fn by_helper(image: &Path, folder: &Path) -> Cmd {
    xtent()
        .args(["key", "test", "--json", "--token-only", "--token-helpers"])
        .args([folder, image])
}

/// The PIN comes behind the request, and nowhere else.
#[test]
fn a_helper_of_ones_own_gets_token_and_pin() {
    let scratch = Scratch::new();
    let script = format!(
        r#"IFS= read -r request
        pin=$(cat)
        case $request in
            *'"type":"made-up"'*'"a":"b"'*'"pin":false'*) echo "touch it" >&2; exit 10 ;;
            *'"a":"b"'*'"pin":true'*) ;;
            *) exit 1 ;;
        esac
        [ "$pin" = 99 ] || exit 11
        printf %s '{PASSPHRASE}'"#
    );
    let (image, folder) = with_helper(&scratch, &script);
    let wrong = scratch.file("wrong", b"98\n");
    let right = scratch.file("right", b"99\n");
    let command = || by_helper(&image, &folder).arg("--token-pin-file");
    command()
        .arg(&wrong)
        .fails(2)
        .says(&["touch it", "PIN is wrong"]);
    assert_opened(command().arg(&right), 0, 0);

    // Before a program asks for the passphrase it asks for the PIN, and not what it may
    // remember of another volume.
    let asker = scratch.program(
        "asker",
        "case $1 in PIN*) [ \"$XTENT_ASK_TRY\" != 1 ] && echo 99 ;; *) echo no ;; esac",
    );
    let asked = xtent()
        .args(["key", "test", "--json", "--token-helpers"])
        .args([folder.as_path(), Path::new("--ask-with"), &asker, &image]);
    assert_opened(asked, 0, 0);
}

/// Data on standard input leaves the tokens as they are.
#[test]
fn a_stream_is_encrypted_by_a_token() {
    let scratch = Scratch::new();
    let (image, folder) = with_helper(&scratch, &format!("printf %s '{PASSPHRASE}'"));
    xtent()
        .args(["encrypt", "--token-only", "--token-helpers"])
        .args([folder.as_path(), Path::new("-"), &image])
        .stdin(&[9; 8192])
        .ok();
    let done = xtent()
        .args(["decrypt", "--token-only", "--token-helpers"])
        .args([folder.as_path(), &image, Path::new("-")])
        .ok();
    assert_eq!(done.stdout[..8192], [9; 8192]);
}

/// Neither descriptors nor the environment reach a helper.
#[test]
fn a_helper_inherits_nothing() {
    let scratch = Scratch::new();
    let seen = scratch.join("seen");
    let script = format!(
        "exec >{0}; /usr/bin/env; ls /proc/$$/fd; pwd; exit 1",
        seen.display()
    );
    let (image, folder) = with_helper(&scratch, &script);
    Cmd::peer("bash")
        .args(["-c", "exec \"$@\" 9</dev/null 11</dev/null", "bash"])
        .wrapping(by_helper(&image, &folder))
        .env("LD_LIBRARY_PATH", "/nowhere")
        .env("SECRET", "of the caller")
        .fails(2);
    let seen = fs::read_to_string(seen).unwrap();
    let mut lines: Vec<&str> = seen
        .lines()
        .filter(|line| !line.starts_with("_="))
        .collect();
    lines.sort_unstable();
    // 10 is where the shell keeps its script.
    lines.retain(|line| *line != "10" && *line != "PWD=/" && !line.starts_with("OLDPWD="));
    assert_eq!(
        lines,
        [
            "/",
            "0",
            "1",
            "2",
            "LC_ALL=C.UTF-8",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        ],
        "{seen}"
    );
}

#[test]
fn a_helper_that_floods_hangs_or_lies_is_ended() {
    // Only the one that hangs is not given all the time that a busy machine takes.
    let (soon, late) = ("1", "300");
    for (script, timeout, says) in [
        ("exec cat /dev/zero", late, "8 MiB"),
        ("exec sleep infinity", soon, "no answer in 1 s"),
        ("printf wrong", late, "opens none of its keyslots"),
        ("kill -SEGV $$", late, "signal 11"),
        ("exit 12", late, "not there"),
        ("exit 99", late, "could not be opened"),
    ] {
        let scratch = Scratch::new();
        let (image, folder) = with_helper(&scratch, script);
        let done = by_helper(&image, &folder)
            .args(["--token-timeout", timeout])
            .run();
        assert!(!done.status.success(), "{script}");
        done.says(&[says]);
        done.assert_no_crash();
    }
}

/// Whoever ends xtent ends the helper too, with what it has started.
#[test]
fn a_signal_ends_the_helper_first() {
    let scratch = Scratch::new();
    let fifo = scratch.join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let script = format!("sleep infinity & echo $$ $! >{}; wait", fifo.display());
    let (image, folder) = with_helper(&scratch, &script);
    let process = by_helper(&image, &folder).spawn();
    let pids = fs::read_to_string(&fifo).unwrap();
    let ends: Vec<_> = pids
        .split_whitespace()
        .map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap())
        .map(|pid| pidfd_open(pid, PidfdFlags::empty()).unwrap())
        .collect();
    assert_eq!(ends.len(), 2, "{pids}");
    process.signal(Signal::TERM);
    let done = process.finish();
    assert_eq!(done.code(), Some(143), "{}", done.text());
    for end in &ends {
        let limit = Timespec::try_from(PATIENCE).unwrap();
        let ended = poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(ended, 1, "still there: {pids}");
    }
}

/// The person types where the helper cannot be run.
#[test]
fn a_helper_that_does_not_start_keeps_nobody_from_typing() {
    let scratch = Scratch::new();
    let (image, folder) = with_helper(&scratch, "exit 0");
    let helper = folder.join("xtent-token-made-up");
    fs::write(&helper, "#!/no/such/shell\n").unwrap();
    let done = xtent()
        .args(["key", "test", "--json", "--token-helpers"])
        .args([&folder, &image])
        .stdin(PASSPHRASE.as_bytes())
        .ok();
    assert_eq!(done.json()["keyslot"], 0);
    done.says(&["token 0 (made-up)", "cannot run "]);
}

/// Without any helper a volume with tokens is one with a passphrase.
#[test]
fn no_helpers_are_no_news() {
    let scratch = Scratch::new();
    let (image, _) = with_helper(&scratch, "exit 1");
    let empty = scratch.folder("empty");
    let done = xtent()
        .args(["key", "test", "--token-helpers"])
        .args([&empty, &image])
        .stdin(PASSPHRASE.as_bytes())
        .ok();
    assert_eq!(done.stderr, "", "{}", done.text());
    by_helper(&image, &empty)
        .fails(2)
        .says(&["token 0", "not installed"]);
}
