//! A command whose output is the passphrase: the client of a key server, most of all.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use xtent_luks::{Device, Header};
use xtent_secret::SecretBytes;

use super::Source;
use crate::failure::{Exit, Failure, Result};
use crate::output::complain;
use crate::watched::{self, Ended, Patience};

/// How long a command may take, unless an option says.
const LIMIT: Duration = Duration::from_secs(60);

/// What is of systemd's to this process, and nothing to its children.
const NOT_INHERITED: [&str; 4] = [
    "NOTIFY_SOCKET",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];

/// The volume that a passphrase is for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// The device by the name that it was given by.
    device: Option<PathBuf>,
    /// The header's UUID, if there is a header.
    uuid: Option<String>,
}

impl Asked {
    /// One without a header, or whose header is still to be made.
    pub(crate) fn of(device: &Path, uuid: Option<&str>) -> Self {
        Self {
            device: Some(device.to_owned()),
            uuid: uuid.map(str::to_owned),
        }
    }

    /// One with a header, which is read if `source` is a command that is told of it. That it
    /// cannot be read is for others to tell.
    pub(crate) fn of_volume(device: &Path, metadata: &Device, source: &Source) -> Self {
        let header = match source {
            Source::Command(_) => metadata.read().ok(),
            _ => None,
        };
        Self::of(device, header.as_ref().map(Header::uuid))
    }
}

/// A program and its arguments from one text, split as a shell does: at blanks, but for quotes
/// and backslashes. Nothing else that a shell does happens.
pub(crate) fn parse(text: &OsStr) -> std::result::Result<Vec<OsString>, String> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let words = shlex::bytes::split(text.as_bytes())
        .ok_or("a quote in it has no end, or nothing follows a backslash")?;
    if words.is_empty() {
        return Err("it names no program".to_owned());
    }
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

/// Whether it could be run.
pub(super) fn check(command: &[OsString]) -> Result<()> {
    let program = program(command)?;
    find(program).map(drop).ok_or_else(|| {
        Failure::parameters(format!(
            "cannot run {}: there is no such program",
            program.display()
        ))
        .advise("Give its path, or the name of one in $PATH.")
    })
}

/// Runs it; what it prints is the passphrase, byte by byte.
pub(super) fn ask(
    command: &[OsString],
    asked: &Asked,
    limit: Option<Duration>,
) -> Result<SecretBytes> {
    let name = program(command)?;
    let mut to_run = Command::new(name);
    to_run.args(&command[1..]);
    for name in NOT_INHERITED
        .into_iter()
        .chain(["XTENT_DEVICE", "XTENT_UUID"])
    {
        to_run.env_remove(name);
    }
    if let Some(device) = &asked.device {
        to_run.env("XTENT_DEVICE", device);
    }
    if let Some(uuid) = &asked.uuid {
        to_run.env("XTENT_UUID", uuid);
    }
    let name = name.display();
    let limit = limit.unwrap_or(LIMIT);
    let patience = Patience {
        limit,
        silent: crate::open::PATIENCE,
        note: &|| {
            if std::io::stderr().is_terminal() {
                complain(&format!("Waiting for {name} ..."));
            }
        },
    };
    let mut say = |line: &str| complain(&format!("{name}: {line}"));
    let no = |why: String| Failure::new(Exit::Permission, format!("no passphrase: {why}"));
    match watched::run(&mut to_run, &[], &patience, &mut say)? {
        Ended::So(status, _) if !status.success() => {
            Err(no(format!("{name} has failed ({status})")))
        }
        Ended::So(_, passphrase) if passphrase.is_empty() => {
            Err(no(format!("{name} has printed nothing")))
        }
        Ended::So(_, passphrase) => Ok(passphrase),
        Ended::TimedOut => Err(no(format!(
            "{name} has not ended within {} seconds",
            limit.as_secs()
        ))
        .advise("Give it more time: --timeout SECONDS.")),
    }
}

fn program(command: &[OsString]) -> Result<&OsStr> {
    command
        .first()
        .map(OsString::as_os_str)
        .ok_or_else(|| Failure::parameters("the key's command names no program"))
}

/// Where a program is, as the system looks for it.
fn find(program: &OsStr) -> Option<PathBuf> {
    let may_run = |path: &Path| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    let path = Path::new(program);
    if path.components().count() > 1 || path.is_absolute() {
        return may_run(path).then(|| path.to_owned());
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(path))
        .find(|path| may_run(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Vec<OsString> {
        ["sh", "-c", script, "first", "a b"]
            .map(OsString::from)
            .to_vec()
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        let words = |text: &str| parse(OsStr::new(text));
        assert_eq!(
            words("vault  kv get 'a b' \"c\\\"d\" e\\ f $HOME *").unwrap(),
            ["vault", "kv", "get", "a b", "c\"d", "e f", "$HOME", "*"].map(OsString::from)
        );
        for bad in ["", "  ", "a 'b", "a \\"] {
            assert!(words(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_byte_of_the_output_counts() {
        let asked = Asked::of(Path::new("/dev/x y"), Some("0-1"));
        // By the shell itself, which has no pipe then, but one more to read that folder.
        let script = "printf '%s:%s:%s:' \"$XTENT_DEVICE\" \"$XTENT_UUID\" \"$1\"; \
            cat; set -- /proc/$$/fd/*; echo $(($# - 1)); echo; echo";
        check(&shell(script)).unwrap();
        let secret = ask(&shell(script), &asked, None).unwrap();
        assert_eq!(&*secret, b"/dev/x y:0-1:a b:3\n\n\n");
        let secret = ask(
            &shell("printf '%s' \"${XTENT_DEVICE-none}\""),
            &Asked::default(),
            None,
        );
        assert_eq!(&*secret.unwrap(), b"none");
    }

    #[test]
    fn a_failure_is_no_passphrase() {
        for (script, said) in [
            ("printf secret; exit 3", "exit status: 3"),
            ("kill -9 $$", "signal: 9"),
            ("exit 0", "has printed nothing"),
            ("head -c 9000000 /dev/zero", "8 MiB"),
        ] {
            let failure = ask(&shell(script), &Asked::default(), None).unwrap_err();
            assert!(failure.message.contains(said), "{failure}");
            assert!(!failure.to_string().contains("secret"), "{failure}");
        }
        let failure = ask(
            &shell("sleep 1000"),
            &Asked::default(),
            Some(Duration::ZERO),
        );
        assert!(failure.unwrap_err().message.contains("within 0 seconds"));
        assert!(check(&["/nonexistent/x".into()]).is_err());
        assert!(check(&["nonexistent-program".into()]).is_err());
        assert!(check(&[]).is_err());
    }
}
