//! The client's side: finding the server, and asking it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xtent_control::{ErrorKind, FixedSize, Link, Peer, Reply, Request, Served};

use super::{folder, folder_of_mounts, socket};
use crate::failure::{Exit, Failure, Result};
use crate::registry::{Entry, Kind, Listed};
use crate::runtime;
use crate::wanted::HandedOver;

/// How long a server may take to say what it serves, and about as long all of them together
/// where one after the other is asked: other users' may do anything.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a process may take to look at the size of a device: longer than a look at that of an export of
/// another server, which is the longest.
const LOOKING: Duration = Duration::from_secs(12);
/// Most exports that a server is believed to have, and bytes that it may say of them: some 2 KB of each.
const MOST: usize = 4096;
const MOST_BYTES: usize = 16 << 20;

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    socket: PathBuf,
    /// The process that has to answer there.
    pid: Option<u32>,
    trust: Trust,
}

/// Whose process may answer: it may be given keys.
#[derive(Clone, Copy, Debug)]
enum Trust {
    /// This user's, or root's.
    OwnOrRoot,
    /// Of root: whosever socket was named. Others' servers answer nobody else.
    NamedToRoot,
    /// Anybody's, to be asked for its status only.
    Anybody,
}

/// What a server did.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Where clients connect.
    pub(crate) uris: Vec<String>,
    /// Bytes before and after.
    sizes: Option<(u64, u64)>,
    served: Vec<Served>,
}

impl Server {
    /// The server that `--server` names, by its process id or control socket; the only one
    /// this user has without. It will be given keys, so nobody else's is found by accident.
    pub(crate) fn find(named: Option<&str>) -> Result<Self> {
        match named {
            Some(name) if name.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => {
                let pid = name.parse().unwrap_or(u32::MAX);
                let runtimes = runtime::folders();
                let found = runtimes.iter().map(|runtime| socket(&folder(runtime), pid));
                let mut found = found.filter(|path| path.exists()).map(|socket| Self {
                    pid: Some(pid),
                    ..Self::at(socket, Trust::OwnOrRoot)
                });
                found.next().ok_or_else(|| {
                    Failure::new(
                        Exit::Device,
                        format!("process {name} is no server of this user's"),
                    )
                    .advise("`xtent status` shows those that there are.")
                })
            }
            Some(path) => Ok(Self::at(PathBuf::from(path), Trust::NamedToRoot)),
            None => Self::only(&runtime::folder()?),
        }
    }

    /// The process of this user's that has said to have a volume.
    pub(crate) fn of(entry: &Entry) -> Result<Self> {
        let folder = match entry.kind {
            Kind::Mount | Kind::Ublk => folder_of_mounts,
            Kind::Server | Kind::Standby => folder,
        };
        let runtimes = runtime::folders();
        let mut sockets = runtimes
            .iter()
            .map(|runtime| socket(&folder(runtime), entry.pid));
        let socket = sockets.find(|path| path.exists()).ok_or_else(|| {
            let message = format!("process {} has no control socket", entry.pid);
            Failure::new(Exit::Device, message)
        })?;
        Ok(Self {
            pid: Some(entry.pid),
            ..Self::at(socket, Trust::OwnOrRoot)
        })
    }

    fn at(socket: PathBuf, trust: Trust) -> Self {
        Self {
            socket,
            pid: None,
            trust,
        }
    }

    /// Of the servers that run: those of killed ones leave their sockets behind.
    fn only(runtime: &Path) -> Result<Self> {
        let entries = std::fs::read_dir(folder(runtime));
        let sockets = entries.into_iter().flatten().flatten().map(|it| it.path());
        let mut running: Vec<PathBuf> =
            sockets.filter(|path| Link::connect(path).is_ok()).collect();
        match running.len() {
            0 => Err(Failure::new(Exit::Device, "no server runs")
                .advise("`xtent serve` starts one; --server SOCKET names one of another user's.")),
            1 => Ok(Self::at(running.remove(0), Trust::OwnOrRoot)),
            _ => {
                let pids: Vec<String> = running
                    .iter()
                    .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
                    .collect();
                Err(Failure::parameters(format!(
                    "{} servers run: the processes {}",
                    pids.len(),
                    pids.join(", ")
                ))
                .advise("Say which with --server PID; `xtent status` shows what they serve."))
            }
        }
    }

    /// What it serves.
    pub(crate) fn status(&self) -> Result<Vec<Served>> {
        let link = self.connect()?;
        link.set_patience(PATIENCE)?;
        Ok(ask(&link, &Request::Status, None, Some(PATIENCE))?.served)
    }

    /// Has it serve a volume.
    pub(crate) fn attach(&self, volume: &HandedOver) -> Result<Answer> {
        let request = Request::Attach(Box::new(volume.attach.clone()));
        ask(&self.connect()?, &request, Some(volume), None)
    }

    /// Has a standby take its volume away from whoever has it; returns when nobody else does.
    pub(crate) fn take_over(&self) -> Result<()> {
        ask(&self.connect()?, &Request::Takeover, None, None).map(drop)
    }

    /// Has it let go of an export; returns when that is on the disk.
    pub(crate) fn detach(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        ask(&self.connect()?, &Request::Detach { name }, None, None).map(drop)
    }

    /// Has it look at the size of an export's device, or of a mount's (which has no name), or let the
    /// volume have the size that its header says by now; its size before and after. It may take some seconds.
    pub(crate) fn resize(&self, name: &str, fixed: Option<FixedSize>) -> Result<(u64, u64)> {
        let name = name.to_owned();
        let request = Request::Resize { name, fixed };
        let link = self.connect()?;
        link.set_patience(LOOKING)?;
        let answer = ask(&link, &request, None, None)?;
        answer
            .sizes
            .ok_or_else(|| Failure::new(Exit::Device, "the server does not say a size"))
    }

    /// The name of the export that a person means by it, or by its device.
    pub(crate) fn export(&self, wanted: &str) -> Result<String> {
        let served = self.status()?;
        if served.iter().any(|it| it.name == wanted) {
            return Ok(wanted.to_owned());
        }
        let path = std::fs::canonicalize(wanted)
            .or_else(|_| std::path::absolute(wanted))
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default();
        let mut named = served.iter().filter(|it| {
            it.device == path || it.device == wanted || it.uuid.as_deref() == Some(wanted)
        });
        match (named.next(), named.next()) {
            (Some(one), None) => Ok(one.name.clone()),
            (Some(_), Some(_)) => Err(Failure::parameters(format!(
                "{wanted} is served more than once: give the name of the export"
            ))),
            (None, _) => Err(Failure::new(
                Exit::Device,
                format!("the server has no volume {wanted}"),
            )
            .advise("`xtent status` shows what is served.")),
        }
    }

    fn connect(&self) -> Result<Link> {
        let link = Link::connect(&self.socket).map_err(|error| {
            let message = format!("no server answers at {}", self.socket.display());
            Failure::new(Exit::Device, message).because(error)
        })?;
        let Peer { pid: found, uid } = link.peer()?;
        let own = rustix::process::geteuid().as_raw();
        if !self.trust.allows(uid, own) {
            let failure = Failure::new(
                Exit::Permission,
                format!(
                    "process {found} of another user (UID {uid}) answers at {}: it is told nothing",
                    self.socket.display()
                ),
            );
            return Err(match own {
                0 => failure.advise("To use it all the same, name the socket: --server SOCKET."),
                _ => failure.advise("A server takes volumes from its owner and root."),
            });
        }
        match self.pid {
            Some(pid) if i64::from(pid) != i64::from(found) => Err(Failure::new(
                Exit::Permission,
                format!(
                    "process {found} has the control socket of process {pid}, {}",
                    self.socket.display()
                ),
            )
            .advise("To use it all the same, name the socket: --server SOCKET.")),
            _ => Ok(link),
        }
    }
}

impl Trust {
    /// Whether a process of user `uid` may answer to one of user `own`.
    fn allows(self, uid: u32, own: u32) -> bool {
        match self {
            Self::OwnOrRoot => uid == own || uid == 0,
            Self::NamedToRoot => uid == own || uid == 0 || own == 0,
            Self::Anybody => true,
        }
    }
}

/// Asks, and waits for the end of the answer; if there is a limit, not much longer.
fn ask(
    link: &Link,
    request: &Request,
    volume: Option<&HandedOver>,
    limit: Option<Duration>,
) -> Result<Answer> {
    let start = Instant::now();
    let files = volume.map(HandedOver::files).unwrap_or_default();
    link.send(&request.to_bytes()?, &files)?;
    for key in volume.iter().flat_map(|it| it.keys()) {
        match link.send(key, &[]) {
            // It has an answer already.
            Err(error) if error.kind == ErrorKind::Closed => {}
            other => other?,
        }
    }
    let mut answer = Answer::default();
    let mut said = 0;
    loop {
        if said > MOST_BYTES || limit.is_some_and(|limit| start.elapsed() > limit) {
            return Err(Failure::new(Exit::Device, "the server does not end"));
        }
        let (bytes, _) = link.receive().map_err(|error| match error.kind {
            ErrorKind::Closed => Failure::new(
                Exit::Device,
                "the server has ended, or closed the connection",
            )
            .advise("Its log may say why; `xtent status` shows whether it runs."),
            ErrorKind::TimedOut => silent(link),
            _ => error.into(),
        })?;
        said += bytes.len();
        match Reply::parse(&bytes)? {
            Reply::Served(served) if answer.served.len() < MOST => answer.served.push(served),
            Reply::Served(_) => return Err(Failure::new(Exit::Device, "the server does not end")),
            Reply::Done { uris, sizes } => {
                answer.uris = uris;
                answer.sizes = sizes;
                return Ok(answer);
            }
            Reply::Failed {
                exit,
                message,
                advice,
            } => {
                let failure = Failure::new(exit_of(exit), message);
                return Err(match advice {
                    Some(advice) => failure.advise(advice),
                    None => failure,
                });
            }
        }
    }
}

/// The failure of a process that does not answer.
fn silent(link: &Link) -> Failure {
    let process = link.peer().map_or_else(
        |_| "the server".to_owned(),
        |peer| format!("process {}", peer.pid),
    );
    Failure::new(Exit::Device, format!("{process} does not answer")).advise(
        "It is stopped, or its storage is: its log may say why. It does what it was told once it goes on; \
         `xtent status` shows sizes.",
    )
}

fn exit_of(code: u8) -> Exit {
    match code {
        1 => Exit::Parameters,
        2 => Exit::Permission,
        3 => Exit::Memory,
        5 => Exit::Busy,
        _ => Exit::Device,
    }
}

/// What the servers that are listed say of each of their exports, by process id and name.
/// What cannot be asked is left out.
pub(crate) fn told_of(listed: &[Listed]) -> HashMap<(u32, String), Served> {
    let mut told = HashMap::new();
    let mut pids: Vec<(u32, u32)> = listed
        .iter()
        .filter(|it| it.is_alive && it.entry.export.is_some())
        .map(|it| (it.entry.pid, it.entry.uid))
        .collect();
    pids.dedup();
    // This user's own first: nobody else's can have them left out.
    let own = rustix::process::geteuid().as_raw();
    pids.sort_by_key(|&(_, uid)| uid != own);
    let start = Instant::now();
    let runtimes = runtime::folders();
    for (pid, uid) in pids {
        let sockets = runtimes.iter().map(|runtime| socket(&folder(runtime), pid));
        // Whoever owns the folder says what is in it.
        let is_theirs = |path: &PathBuf| {
            use std::os::unix::fs::MetadataExt;
            path.parent()
                .and_then(|dir| Path::symlink_metadata(dir).ok())
                .is_some_and(|found| found.uid() == uid)
        };
        let Some(path) = sockets.filter(|path| path.exists()).find(is_theirs) else {
            continue;
        };
        if start.elapsed() > PATIENCE {
            break;
        }
        for served in Server::at(path, Trust::Anybody)
            .status()
            .unwrap_or_default()
        {
            told.insert((pid, served.name.clone()), served);
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_goes_to_another_users_process() {
        for (trust, uid, own, is_allowed) in [
            (Trust::OwnOrRoot, 1000, 1000, true),
            (Trust::OwnOrRoot, 0, 1000, true),
            (Trust::OwnOrRoot, 1001, 1000, false),
            (Trust::OwnOrRoot, 1000, 0, false),
            (Trust::NamedToRoot, 1000, 0, true),
            (Trust::NamedToRoot, 1001, 1000, false),
            (Trust::Anybody, 1001, 1000, true),
        ] {
            assert_eq!(trust.allows(uid, own), is_allowed, "{trust:?} {uid} {own}");
        }
    }
}
