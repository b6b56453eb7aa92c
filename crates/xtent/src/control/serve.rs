//! The server's side: a thread that accepts, and one for each client. Nothing that a client
//! sends, or does not send, harms the server or those that it serves.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use xtent_control::{ErrorKind, FixedSize, Link, Listener, Reply, Request, Source};

use super::adopt::adopt;
use super::{folder, folder_of_mounts, socket};
use crate::disk::Disk;
use crate::disk::rbd::Opener;
use crate::failure::{Exit, Failure, Result};
use crate::growth::Changes;
use crate::output::Output;
use crate::size::show_size;
use crate::volumes::Volumes;
use crate::{runtime, signals};

/// Clients at a time; more are turned away. A removal takes as long as the disk does.
const CLIENTS: usize = 32;
/// How long a client may take to say what it wants, or to take the answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most characters of what a refusal says.
const LONGEST_REFUSAL: usize = 4096;
/// After a socket that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// What clients may ask for.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// To have the server connect to other servers.
    pub(crate) connects: bool,
    /// That files are read for that.
    pub(crate) reads_files: bool,
    /// The volume is a virtual machine's disk.
    pub(crate) has_machine: bool,
    /// To limit an export to some clients: those that it asks for certificates.
    pub(crate) verifies_clients: bool,
    /// To have images in Ceph clusters.
    pub(crate) opener: Option<Opener>,
    /// Where these tell that they have changed, under the names of their exports.
    pub(crate) changes: Changes<Option<String>>,
}

/// A control socket; its name is removed when dropped. A server that has become another user
/// (`--user`) cannot: the folder is for the one who started it, who may have other servers' sockets
/// there. The next server removes it.
#[derive(Debug)]
pub(crate) struct Control {
    listener: Arc<Listener>,
    path: PathBuf,
    /// Whose it is.
    owner: u32,
}

impl Control {
    /// Makes this process's socket. Call it before the sandbox; what removes it needs
    /// [`Control::folder`] there.
    pub(crate) fn bind() -> Result<Self> {
        Self::bind_in(&folder(&runtime::folder()?))
    }

    /// The same of a mount, or of a block device that a process serves.
    pub(crate) fn bind_mount() -> Result<Self> {
        Self::bind_in(&folder_of_mounts(&runtime::folder()?))
    }

    fn bind_in(folder: &Path) -> Result<Self> {
        runtime::make_private(folder)?;
        remove_stale(folder);
        let path = socket(folder, std::process::id());
        // Of a process that had this number before.
        let _ = std::fs::remove_file(&path);
        Ok(Self {
            listener: Arc::new(Listener::bind(&path)?),
            path,
            owner: rustix::process::geteuid().as_raw(),
        })
    }

    /// The folder in which the socket is removed at the end.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.path.parent()
    }

    /// Begins to answer, on threads of its own that end with the process. Call it in the
    /// sandbox.
    pub(crate) fn start(&self, volumes: &Arc<Volumes>, rules: Rules, output: Output) -> Result<()> {
        let volumes = Arc::clone(volumes);
        self.start_with(move |link| answer(link, &volumes, &rules, output))
    }

    /// The same of a mount: it is asked for its size, as [`Request::Resize`] says, and for nothing else.
    pub(crate) fn start_mount(
        &self,
        resize: impl Fn(Option<&FixedSize>) -> Result<(u64, u64)> + Send + Sync + 'static,
    ) -> Result<()> {
        self.start_with(move |link| answer_of_mount(link, &resize))
    }

    fn start_with(
        &self,
        answer: impl Fn(&Link) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        let listener = Arc::clone(&self.listener);
        let answer: Arc<Answer> = Arc::new(answer);
        let owner = self.owner;
        let clients = Arc::<AtomicUsize>::default();
        let accept = move || loop {
            match listener.accept() {
                Ok(link) => start_client(link, owner, &answer, &clients),
                Err(error) => {
                    tracing::warn!(error = %xtent_store::chain(&error), "control socket");
                    std::thread::sleep(PAUSE);
                }
            }
        };
        signals::held_back(|| {
            std::thread::Builder::new()
                .name("control".to_owned())
                .spawn(accept)
        })?
        .map(drop)
        .map_err(|e| Failure::system("cannot start the control thread", e))
    }
}

/// How long a client of a standby may take, which looks at nothing else meanwhile.
const PATIENCE_OF_STANDBY: Duration = Duration::from_secs(2);

/// As [`Control`], of a standby: answered by the thread that waits.
#[derive(Debug)]
pub(crate) struct StandbyControl(Control);

impl StandbyControl {
    /// Makes this process's socket. Drop it before [`Control::bind`].
    pub(crate) fn bind() -> Result<Self> {
        Control::bind().map(Self)
    }

    /// Waits for `time`, or shorter if a client asks for a takeover meanwhile: it is
    /// answered with what comes of `take_over`.
    pub(crate) fn wait(&self, time: Duration, take_over: impl FnOnce() -> Result<()>) {
        let Control {
            listener, owner, ..
        } = &self.0;
        let mut fds = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
        let time = Timespec::try_from(time).ok();
        if !matches!(poll(&mut fds, time.as_ref()), Ok(1)) {
            return;
        }
        let answered = listener.accept().map_err(Failure::from).and_then(|link| {
            let peer = link.peer()?;
            if peer.uid != 0 && peer.uid != *owner {
                return Err(Failure::new(Exit::Permission, "it is another user's"));
            }
            link.set_patience(PATIENCE_OF_STANDBY)?;
            let message = match link.receive() {
                Err(error) if error.kind == ErrorKind::Closed => return Ok(()),
                received => received?.0,
            };
            let done = match Request::parse(&message)? {
                // It has no exports yet.
                Request::Status => Ok(()),
                Request::Takeover => {
                    tracing::info!(pid = peer.pid, "told to take over");
                    take_over()
                }
                _ => Err(Failure::new(
                    Exit::Busy,
                    "this server stands by, and has no volume yet",
                )),
            };
            let reply = done.map_or_else(|failure| refusal(&failure), |()| self::done());
            send(&link, &reply)
        });
        if let Err(failure) = answered {
            let error = failure.to_string().replace('\n', "; ");
            tracing::warn!(error, "control client");
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes the sockets of servers that were killed.
fn remove_stale(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let pid = entry.path();
        let pid = pid.file_stem().and_then(|stem| stem.to_str());
        let is_there = pid.is_some_and(|pid| Path::new("/proc").join(pid).exists());
        if !is_there {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Answers a client that may ask.
type Answer = dyn Fn(&Link) -> Result<()> + Send + Sync;

fn start_client(link: Link, owner: u32, answer: &Arc<Answer>, clients: &Arc<AtomicUsize>) {
    let peer = match link.peer() {
        Ok(peer) if peer.uid == 0 || peer.uid == owner => peer,
        other => {
            tracing::warn!(peer = ?other.ok(), "control client refused: it is another user's");
            return;
        }
    };
    let seat = Seat(Arc::clone(clients));
    if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS {
        tracing::warn!(pid = peer.pid, "control client refused: there are too many");
        return;
    }
    let answer = Arc::clone(answer);
    let spawned = std::thread::Builder::new()
        .name("control-client".to_owned())
        .spawn(move || {
            let _seat = seat;
            if let Err(failure) = answer(&link) {
                let error = failure.to_string().replace('\n', "; ");
                tracing::warn!(pid = peer.pid, error, "control request failed");
                // Whoever has gone does not need it.
                let _ = send(&link, &refusal(&failure));
            }
        });
    if let Err(error) = spawned {
        tracing::warn!(%error, "cannot start a thread for a control client");
    }
}

/// A client that is counted.
struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn refusal(failure: &Failure) -> Reply {
    let mut message = failure.message.clone();
    for cause in failure.causes() {
        message += &format!(": {cause}");
    }
    // It has to fit into a message, whatever names it has.
    let message = message.chars().take(LONGEST_REFUSAL).collect();
    Reply::Failed {
        exit: failure.exit as u8,
        message,
        advice: failure.advice().map(str::to_owned),
    }
}

fn send(link: &Link, reply: &Reply) -> Result<()> {
    Ok(link.send(&reply.to_bytes()?, &[])?)
}

fn done() -> Reply {
    Reply::Done {
        uris: Vec::new(),
        sizes: None,
    }
}

fn answer(link: &Link, volumes: &Volumes, rules: &Rules, output: Output) -> Result<()> {
    link.set_patience(PATIENCE)?;
    let (message, files) = match link.receive() {
        // Somebody who looked whether there is a server.
        Err(error) if error.kind == ErrorKind::Closed => return Ok(()),
        received => received?,
    };
    let reply = match Request::parse(&message)? {
        Request::Status => {
            for served in volumes.list() {
                send(link, &Reply::Served(served))?;
            }
            done()
        }
        Request::Takeover => {
            return Err(Failure::new(
                Exit::Busy,
                "this server does not stand by: it has its volumes",
            ));
        }
        Request::Attach(_) | Request::Detach { .. } if rules.has_machine => {
            return Err(Failure::new(
                Exit::Busy,
                "this server has the disk of a virtual machine, and that one alone",
            )
            .advise(
                "Start another server for another volume; end this one to take its disk away.",
            ));
        }
        Request::Attach(attach) => {
            let key = link.receive_key(attach.key_length)?;
            let user_key = match attach.source {
                Source::Image { secret_length, .. } if secret_length > 0 => {
                    Some(link.receive_key(secret_length)?)
                }
                _ => None,
            };
            let adopted = adopt(&attach, files, key, user_key, rules)?;
            let size = adopted.volume.size();
            let tells = match (&rules.opener, &adopted.image) {
                (Some(opener), Some(Disk::Image(image))) => {
                    opener.on_change(image, rules.changes.teller(Some(attach.name.clone())));
                    true
                }
                _ => false,
            };
            let uris = volumes.add(adopted)?;
            if tells {
                // It may have grown since it was opened.
                rules.changes.tell(Some(attach.name.clone()));
            }
            tracing::info!(
                export = attach.name,
                device = attach.device,
                size,
                "volume attached"
            );
            output.note(format!("Serving {} ({}).", attach.device, show_size(size)));
            Reply::Done { uris, sizes: None }
        }
        Request::Detach { name } => {
            volumes.remove(&name)?;
            output.note(format!("The export {name:?} is detached."));
            done()
        }
        Request::Resize { name, fixed } => Reply::Done {
            uris: Vec::new(),
            sizes: Some(volumes.look(&name, fixed.as_ref())?),
        },
    };
    finish(link, &reply)
}

fn answer_of_mount(
    link: &Link,
    resize: impl Fn(Option<&FixedSize>) -> Result<(u64, u64)>,
) -> Result<()> {
    link.set_patience(PATIENCE)?;
    let message = match link.receive() {
        Err(error) if error.kind == ErrorKind::Closed => return Ok(()),
        received => received?.0,
    };
    let reply = match Request::parse(&message)? {
        Request::Status => done(),
        Request::Resize { fixed, .. } => Reply::Done {
            uris: Vec::new(),
            sizes: Some(resize(fixed.as_ref())?),
        },
        _ => {
            return Err(Failure::new(
                Exit::Busy,
                "this process has the one volume that it was started with",
            ));
        }
    };
    finish(link, &reply)
}

/// Sends the end of an answer, to whoever is still there.
fn finish(link: &Link, reply: &Reply) -> Result<()> {
    match send(link, reply) {
        Err(failure) if matches!(reply, Reply::Done { .. }) => {
            // It was done all the same.
            tracing::info!(%failure, "a control client has gone before its answer");
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_fits_into_a_message() {
        let failure = Failure::new(Exit::Busy, "ä".repeat(100_000)).advise("Wait.");
        let bytes = refusal(&failure).to_bytes().unwrap();
        let Reply::Failed { exit, advice, .. } = Reply::parse(&bytes).unwrap() else {
            panic!("{bytes:?}");
        };
        assert_eq!((exit, advice.as_deref()), (5, Some("Wait.")));
    }
}
