//! What a command that failed tells the person and the calling program: one
//! table from every crate's error kinds to cryptsetup's exit codes.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;

use xtent_export as export;
use xtent_luks as luks;
#[cfg(feature = "device-mapper")]
use xtent_mapping as mapping;
use xtent_store as store;
use xtent_volume as volume;

/// Exit codes, with cryptsetup's meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Wrong parameters, or an operation that the options forbid.
    Parameters = 1,
    /// No permission, or no keyslot for this passphrase.
    Permission = 2,
    /// Out of memory.
    Memory = 3,
    /// Wrong device: missing, not LUKS, damaged, too short, or failing.
    Device = 4,
    /// It exists already, or somebody else has it.
    Busy = 5,
    /// Ended by SIGHUP.
    HungUp = 129,
    /// Ended by SIGINT.
    Interrupted = 130,
    /// Ended by SIGTERM.
    Terminated = 143,
}

/// The table for the help texts and the manual.
pub(crate) const EXIT_STATUS: &str = "\
EXIT STATUS:
  0  success
  1  wrong parameters, or the options forbid it
  2  no permission, or no key for this passphrase
  3  out of memory (Argon2 needs more than is free)
  4  wrong device: missing, not LUKS, damaged, too short, or I/O error
  5  it exists already, or somebody else is using it
  129, 130, 143  ended by SIGHUP, SIGINT (Ctrl-C) or SIGTERM";

type Cause = Box<dyn StdError + Send + Sync>;

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The process's exit code.
    pub(crate) exit: Exit,
    /// What went wrong.
    pub(crate) message: String,
    /// What to do about it, where the message does not say.
    pub(crate) advice: Option<String>,
    /// The cause below.
    pub(crate) source: Option<Cause>,
    /// Whether another passphrase could have worked.
    pub(crate) is_wrong_passphrase: bool,
}

/// What every command returns.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            advice: None,
            source: None,
            is_wrong_passphrase: false,
        }
    }

    /// Wrong options or arguments.
    pub(crate) fn parameters(message: impl Into<String>) -> Self {
        Self::new(Exit::Parameters, message)
    }

    /// What a server ends with that has lost the volume on `device`.
    pub(crate) fn fenced(device: &str) -> Self {
        Self::new(
            Exit::Busy,
            format!(
                "{device}: somebody else has taken the volume over, and the cluster has shut this server out"
            ),
        )
        .advise(
            "What was written and not flushed is lost. Look who has the volume (`rbd lock ls`) before a \
             server is started for it again.",
        )
    }

    /// Exit code 1 as an answer, with nothing to say.
    pub(crate) fn silent() -> Self {
        Self::parameters("")
    }

    /// A system call that failed; the exit code follows from its errno.
    pub(crate) fn system(message: impl Into<String>, error: impl Into<std::io::Error>) -> Self {
        let error = error.into();
        Self::new(exit_of_io(&error), message).because(error)
    }

    /// What is wrong with the metadata in the file or device at `path`. A store's error names
    /// the place itself.
    pub(crate) fn of_metadata(error: luks::Error, path: &Path) -> Self {
        let is_named = matches!(error.kind, luks::ErrorKind::Store(_));
        let mut failure = Self::from(error);
        if !is_named {
            failure.message = format!("{}: {}", path.display(), failure.message);
        }
        failure
    }

    /// Adds what to do next.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Adds the cause.
    pub(crate) fn because(mut self, cause: impl Into<Cause>) -> Self {
        self.source = Some(cause.into());
        self
    }

    /// The causes' texts, outermost first.
    pub(crate) fn causes(&self) -> Vec<String> {
        let first = self
            .source
            .as_deref()
            .map(|s| s as &(dyn StdError + 'static));
        std::iter::successors(first, |&error| error.source())
            .map(ToString::to_string)
            .collect()
    }

    /// What to do: what was added, or else what a store among the causes says.
    pub(crate) fn advice(&self) -> Option<&str> {
        let of_store = || store::advice(self.source.as_deref()?);
        self.advice.as_deref().or_else(of_store)
    }

    /// The error as an object, for `--json`.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "error": {
            "exit": self.exit as u8,
            "message": self.message,
            "causes": self.causes(),
            "advice": self.advice(),
        }})
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", continued(&self.message))?;
        for cause in self.causes() {
            write!(f, "\n  because: {}", continued(&cause))?;
        }
        if let Some(advice) = self.advice() {
            write!(f, "\n  {}", continued(advice))?;
        }
        Ok(())
    }
}

/// Text of several lines with all but the first indented: what begins a line is said by this
/// program, and no file's name can look as if it were.
pub(crate) fn continued(text: &str) -> String {
    text.replace('\n', "\n  ")
}

fn exit_of_io(error: &std::io::Error) -> Exit {
    use std::io::ErrorKind as K;
    match error.kind() {
        K::PermissionDenied | K::ReadOnlyFilesystem => Exit::Permission,
        K::OutOfMemory => Exit::Memory,
        K::AlreadyExists | K::AddrInUse | K::ResourceBusy => Exit::Busy,
        K::InvalidInput => Exit::Parameters,
        _ => Exit::Device,
    }
}

fn exit_of_store(kind: store::ErrorKind) -> Exit {
    use store::ErrorKind as K;
    match kind {
        K::Permission | K::ReadOnly => Exit::Permission,
        K::Busy | K::Exists | K::Fenced => Exit::Busy,
        _ => Exit::Device,
    }
}

fn exit_of_volume(kind: volume::ErrorKind) -> Exit {
    use volume::ErrorKind as K;
    match kind {
        K::ReadOnly => Exit::Permission,
        K::NoMemory => Exit::Memory,
        K::OutOfRange => Exit::Parameters,
        K::Store(kind) => exit_of_store(kind),
        _ => Exit::Device,
    }
}

impl From<xtent_tls::Error> for Failure {
    fn from(mut error: xtent_tls::Error) -> Self {
        use xtent_tls::ErrorKind as K;
        let cause = error.source.as_ref().and_then(|it| it.downcast_ref());
        let exit = match (error.kind, cause) {
            (K::File, Some(cause)) => exit_of_io(cause),
            (K::Untrusted | K::Refused, _) => Exit::Permission,
            (K::Protocol, _) => Exit::Device,
            _ => Exit::Parameters,
        };
        let advice = error.advice.map(str::to_owned);
        Self {
            exit,
            advice,
            source: error.source.take(),
            ..Self::new(exit, error.message)
        }
    }
}

impl From<luks::Error> for Failure {
    fn from(error: luks::Error) -> Self {
        use luks::ErrorKind as K;
        let exit = match error.kind {
            K::WrongPassphrase => Exit::Permission,
            K::NoMemory => Exit::Memory,
            K::Busy | K::Changed => Exit::Busy,
            K::Keyslot
            | K::Token
            | K::OnlyNamed
            | K::Full
            | K::LastKeyslot
            | K::Options
            | K::Refused
            | K::TooCostly => Exit::Parameters,
            K::Store(kind) => exit_of_store(kind),
            _ => Exit::Device,
        };
        let advice = match error.kind {
            K::TooCostly => Some(
                "To run it all the same, give --allow-expensive-kdf; afterwards `xtent key change` \
                 makes a keyslot of normal cost.",
            ),
            K::OnlyNamed => Some("Name the keyslot: --key-slot N."),
            _ => error.advice,
        };
        Self {
            exit,
            message: error.message,
            advice: advice.map(str::to_owned),
            source: error.source.map(|s| s as Cause),
            is_wrong_passphrase: error.kind == K::WrongPassphrase,
        }
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        if (error.kind, error.act) == (store::ErrorKind::Busy, store::Act::Lock)
            && let Some((who, advice)) = crate::holder::of(&error.place, error.offset)
        {
            let message = format!("{} is in use by {who}", error.place);
            return Self::new(Exit::Busy, message).advise(advice);
        }
        let advice = xtent_upstream::advice(&error).unwrap_or_else(|| error.advice());
        let failure = Self::new(exit_of_store(error.kind), error.to_string()).advise(advice);
        match error.source {
            Some(source) => failure.because(source),
            None => failure,
        }
    }
}

impl From<volume::Error> for Failure {
    fn from(error: volume::Error) -> Self {
        let failure = Self::new(exit_of_volume(error.kind), error.message);
        match error.source {
            Some(source) => failure.because(source),
            None => failure,
        }
    }
}

impl From<export::Error> for Failure {
    fn from(error: export::Error) -> Self {
        use export::ErrorKind as K;
        let exit = match error.kind {
            K::Busy => Exit::Busy,
            K::Permission => Exit::Permission,
            K::NotMounted | K::Argument => Exit::Parameters,
            K::Volume(kind) => exit_of_volume(kind),
            _ => Exit::Device,
        };
        Self {
            exit,
            message: error.message,
            advice: None,
            source: error.source.map(|s| s as Cause),
            is_wrong_passphrase: false,
        }
    }
}

#[cfg(feature = "device-mapper")]
impl From<mapping::Error> for Failure {
    fn from(error: mapping::Error) -> Self {
        use mapping::ErrorKind as K;
        let exit = match error.kind {
            K::Argument | K::Foreign | K::Interrupted => Exit::Parameters,
            K::Permission => Exit::Permission,
            K::Exists | K::Busy => Exit::Busy,
            _ => Exit::Device,
        };
        Self {
            exit,
            message: error.message,
            advice: error.advice,
            source: error.source.map(|s| s.into()),
            is_wrong_passphrase: false,
        }
    }
}

impl From<xtent_secret::Error> for Failure {
    fn from(error: xtent_secret::Error) -> Self {
        Self::new(Exit::Memory, error.to_string()).because(error.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_message_causes_and_advice_once() {
        let cause = std::io::Error::other("disk on fire");
        let failure = Failure::new(Exit::Device, "cannot read header")
            .because(cause)
            .advise("Pour water.\nThen try again.");
        assert_eq!(
            failure.to_string(),
            "cannot read header\n  because: disk on fire\n  Pour water.\n  Then try again."
        );
        assert_eq!(failure.to_json()["error"]["exit"], 4);
    }

    #[test]
    fn a_store_among_the_causes_says_what_to_do() {
        let error = || {
            let full = std::io::Error::other("it is full");
            store::Error {
                source: Some(full),
                ..store::Error::new(
                    store::ErrorKind::NoSpace,
                    store::Act::Write,
                    Path::new("disk"),
                    None,
                )
            }
        };
        let text = format!(
            "write of disk failed\n  because: it is full\n  {}",
            error().advice()
        );
        assert_eq!(Failure::from(error()).to_string(), text);
        assert_eq!(Failure::from(luks::Error::from(error())).to_string(), text);
        let above = Failure::new(Exit::Device, "nothing was copied").because(error());
        assert_eq!(
            above.to_string(),
            format!("nothing was copied\n  because: {text}")
        );
        let ours = above.advise("Make it larger.").to_string();
        assert!(ours.ends_with("it is full\n  Make it larger."), "{ours}");
    }

    #[test]
    fn maps_errno_to_exit_codes() {
        for (errno, exit) in [
            (rustix::io::Errno::ACCESS, Exit::Permission),
            (rustix::io::Errno::ROFS, Exit::Permission),
            (rustix::io::Errno::EXIST, Exit::Busy),
            (rustix::io::Errno::BUSY, Exit::Busy),
            (rustix::io::Errno::NOMEM, Exit::Memory),
            (rustix::io::Errno::NOENT, Exit::Device),
            (rustix::io::Errno::IO, Exit::Device),
        ] {
            assert_eq!(Failure::system("x", errno).exit, exit, "{errno:?}");
        }
    }
}
