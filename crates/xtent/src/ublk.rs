//! The kernel's ublk devices, and the names of those that `xtent open --ublk` makes: links in /dev/xtent.

mod closing;
mod loss;
mod serving;

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use xtent_export::ublk::{Control, Info, State};
use xtent_mapping::Name;

use crate::disk::number_of;
use crate::failure::{Exit, Failure, Result};
use crate::headerless::Closed;
use crate::output::Output;
use crate::registry::BLOCK_DEVICES as FOLDER;

pub(crate) use closing::{close, users};
pub(crate) use loss::stop_at_loss;
pub(crate) use serving::{hand_over, spawn_confined};

/// How long it takes until a person is told what is waited for.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);

/// `/dev/xtent/NAME`.
pub(crate) fn path(name: &Name) -> PathBuf {
    Path::new(FOLDER).join(name.to_string())
}

/// `/dev/ublkbN`.
pub(crate) fn device(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

/// What a device is known by again, which the driver keeps for whoever made it. 32 bits are for whose it
/// is, by its link or by the folder where it is mounted: numbers are given again, so a link that was left may lead to
/// another's device. The others are for the volume, by the header's UUID and the place of the data, since a copy, and
/// whatever else is opened with the same detached header, have the UUID too.
pub(crate) fn identity(path: &Path, uuid: &str, place: &str) -> u64 {
    u64::from(whose(path)) << 32 | of_volume(uuid, place)
}

/// The lower half of a device's identity: the volume's.
fn of_volume(uuid: &str, place: &str) -> u64 {
    u64::from(folded(&format!("{uuid} {place}")))
}

/// The upper half of a device's identity: this program's, with this link.
fn whose(path: &Path) -> u32 {
    folded(&path.display().to_string())
}

fn folded(text: &str) -> u32 {
    let [a, b, c, d, e, f, g, h] = number_of(text).to_be_bytes();
    u32::from_be_bytes([a ^ e, b ^ f, c ^ g, d ^ h])
}

/// Fails if a device of the same volume waits for its server, other than `own`: what waits there would be written
/// over what is written meanwhile, by a file system that knows nothing of it. The volume's lock is free then.
pub(crate) fn refuse_waited_for(
    control: &mut Control,
    identity: u64,
    own: Option<u32>,
) -> Result<()> {
    let volume = |identity: u64| identity & u64::from(u32::MAX);
    for found in std::fs::read_dir("/sys/class/ublk-char")
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = found.file_name();
        let number = name
            .to_str()
            .and_then(|it| it.strip_prefix("ublkc")?.parse().ok());
        let Some(number) = number.filter(|number| Some(*number) != own) else {
            continue;
        };
        let Some(info) = control.info(number)? else {
            continue;
        };
        let waits = info.state == State::Waits || info.state == State::Live && !is_served(&info);
        if waits && volume(info.identity) == volume(identity) {
            return Err(Failure::new(
                Exit::Busy,
                format!("the volume is that of {}, which waits for its server", device(number).display()),
            )
            .advise(
                "What was written there would destroy what is written here. Go on with it, by the command that \
                 made it, and close that; or give it up, by `xtent close --force NAME` or `xtent umount --force DIR`.",
            ));
        }
    }
    Ok(())
}

/// As [`refuse_waited_for`], for whoever makes no such device and may not be allowed to ask for them: a process that is not
/// is told nothing.
pub(crate) fn refuse_waited_for_by_any(closed: &Closed) -> Result<()> {
    let any =
        std::fs::read_dir("/sys/class/ublk-char").is_ok_and(|mut found| found.next().is_some());
    // Without a header none waits.
    if !any || closed.uuid().is_empty() {
        return Ok(());
    }
    let Ok(mut control) = Control::open() else {
        return Ok(());
    };
    let place = closed.data().told_apart()?;
    refuse_waited_for(&mut control, of_volume(closed.uuid(), &place), None)
}

/// The number in a name's link, if it has one, of ours or not any more.
pub(crate) fn number(name: &Name) -> Option<u32> {
    let target = std::fs::read_link(path(name)).ok()?;
    target.to_str()?.strip_prefix("../ublkb")?.parse().ok()
}

/// The device of a name, as far as the driver has it and it was made by this program for this name.
pub(crate) fn find(control: &mut Control, name: &Name) -> Result<Option<Info>> {
    let Some(number) = number(name) else {
        return Ok(None);
    };
    let info = control.info(number)?;
    Ok(info.filter(|info| info.identity >> 32 == u64::from(whose(&path(name)))))
}

/// Gives a device its name; somebody else's device keeps it.
pub(crate) fn link(name: &Name, number: u32) -> Result<()> {
    let path = path(name);
    let failed = |error| Failure::system(format!("cannot make {}", path.display()), error);
    make_folder(Path::new(FOLDER)).map_err(failed)?;
    let folder = Path::new(FOLDER).symlink_metadata().map_err(failed)?;
    if !folder.is_dir() || folder.uid() != 0 || folder.permissions().mode() & 0o022 != 0 {
        return Err(Failure::new(
            Exit::Permission,
            format!("{FOLDER} is not a folder that only root can change"),
        ));
    }
    symlink(format!("../ublkb{number}"), &path).map_err(failed)
}

/// Makes the folder, where it is not there, for all to look into, whatever the umask: who may use a device
/// is the device's to say.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| std::fs::set_permissions(folder, Permissions::from_mode(0o755))),
    }
}

/// Takes a name away from a device.
pub(crate) fn unlink(name: &Name, number: u32) {
    if self::number(name) == Some(number) {
        // It may be gone, and names nothing.
        let _ = std::fs::remove_file(path(name));
    }
}

/// Whether the server of a device still runs.
pub(crate) fn is_served(info: &Info) -> bool {
    info.state == State::Live && info.pid.and_then(process).is_some()
}

/// The process, if it has not ended.
fn process(pid: u32) -> Option<std::os::fd::OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // One that nobody has waited for yet has ended all the same.
    (!has_ended(&process, Duration::ZERO)).then_some(process)
}

fn has_ended(process: &std::os::fd::OwnedFd, patience: Duration) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let patience = Timespec::try_from(patience).ok();
    matches!(poll(&mut fds, patience.as_ref()), Ok(1..))
}

/// Fails if the name is a device's that is in use, or of the device mapper.
pub(crate) fn refuse_taken(control: &mut Control, name: &Name) -> Result<()> {
    if name.path().exists() {
        return Err(Failure::new(
            Exit::Busy,
            format!("{} is there already", name.path().display()),
        )
        .advise("Choose another name, or close it: `xtent close` takes it by its name alone."));
    }
    match find(control, name)? {
        Some(info) if is_served(&info) => Err(Failure::new(
            Exit::Busy,
            format!(
                "{} is there already: {}, by process {}",
                path(name).display(),
                device(info.number).display(),
                info.pid.unwrap_or_default()
            ),
        )
        .advise(format!("`xtent close {name}` closes it."))),
        _ => Ok(()),
    }
}

/// Waits until the driver has seen that a device's server is gone, which takes Linux 6.1 five seconds;
/// what there is then.
pub(crate) fn wait_for_end(
    control: &mut Control,
    name: &Name,
    output: &Output,
) -> Result<Option<Info>> {
    let began = std::time::Instant::now();
    let mut is_told = false;
    loop {
        match find(control, name)? {
            Some(info) if info.state == State::Live => refuse_taken(control, name)?,
            other => return Ok(other),
        }
        if began.elapsed() > SILENCE && !is_told {
            output.note("Waiting for the kernel to see that the last server has been killed.");
            is_told = true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Has the driver do something that may take as long as others like; says what is waited for when that
/// takes long. A signal ends this process meanwhile, as far as the kernel lets it: what is done goes on.
fn waited_for<T: Send + 'static>(
    output: &Output,
    what: impl std::fmt::Display,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // It is waited for below.
        let _ = tell.send(work());
    });
    let ended = told.recv_timeout(SILENCE).or_else(|error| {
        if error == RecvTimeoutError::Timeout {
            output.note(format!("Waiting for {what}."));
        }
        told.recv()
    });
    ended.map_err(|_| Failure::parameters(format!("waiting for {what} panicked")))
}

/// Takes a device away, and says what that waits for.
fn delete(mut control: Control, number: u32, output: &Output) -> Result<Control> {
    let who = format!("those who have {} open", device(number).display());
    let deleted = waited_for(output, who, move || {
        control.delete(number).map(|()| control)
    })?;
    Ok(deleted?)
}

/// Takes away what a name still has of a device that nobody serves, nor can, and waits for those who have it
/// open; not what somebody has made meanwhile.
pub(crate) fn clear(
    mut control: Control,
    name: &Name,
    found: Option<&Info>,
    output: &Output,
) -> Result<Control> {
    match found {
        Some(info) => control = delete(control, info.number, output)?,
        None if find(&mut control, name)?.is_some() => return Ok(control),
        None => {}
    }
    match std::fs::remove_file(path(name)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure::system(
            format!("cannot remove {}", path(name).display()),
            error,
        )),
        _ => Ok(control),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn a_device_is_known_by_its_volume_and_its_name() {
        let a = identity(&path(&name("a")), "2c2e6a3c-6f1d", "device 2049 from 0");
        let others = [
            identity(&path(&name("a")), "2c2e6a3c-6f1e", "device 2049 from 0"),
            identity(&path(&name("a")), "2c2e6a3c-6f1d", "device 2050 from 0"),
            identity(
                &path(&name("a")),
                "2c2e6a3c-6f1d",
                "device 2049 from 1048576",
            ),
        ];
        let is_of = |identity: u64, name: &Name| identity >> 32 == u64::from(whose(&path(name)));
        assert!(others.iter().all(|b| *b != a && is_of(*b, &name("a"))));
        let of_another = identity(&path(&name("b")), "2c2e6a3c-6f1d", "device 2049 from 0");
        assert!(!is_of(of_another, &name("a")) && is_of(of_another, &name("b")));
        // Nor what other programs have there, which is nothing.
        assert!(!is_of(0, &name("a")));
        // Of the next version of this program, too.
        assert_eq!(identity(&path(&name("a")), "", ""), 0x2123_f9e4_2962_1c33);
    }

    #[test]
    fn the_folder_is_for_all_to_look_into() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("xtent");
        make_folder(&folder).unwrap();
        let mode = || folder.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o755);
        // One that is there keeps what its owner has given it.
        std::fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        make_folder(&folder).unwrap();
        assert_eq!(mode(), 0o700);
    }
}
