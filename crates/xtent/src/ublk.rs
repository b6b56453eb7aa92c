//! The kernel's ublk devices, and the names of those that `xtent open --ublk` makes: links in /dev/xtent.

mod closing;
mod serving;

use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use xtent_export::ublk::{Control, Info, State};
use xtent_mapping::Name;
use xtent_upstream::Upstream;

use crate::disk::number_of;
use crate::failure::{Exit, Failure, Result};
use crate::output::Output;

pub(crate) use closing::{close, users};
pub(crate) use serving::{hand_over, spawn_confined};

/// Where the links are. It goes with the system, as the devices do.
pub(crate) const FOLDER: &str = "/dev/xtent";
/// What the devices of this program are known by: the upper 16 bits of what the driver keeps for
/// whoever made a device.
const OURS: u64 = 0x7874;
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

/// What a device is known by again: whose it is, and 48 bits for the header's UUID and the place of the
/// data, since a copy, and whatever else is opened with the same detached header, have the UUID too.
pub(crate) fn identity(uuid: &str, place: &str) -> u64 {
    OURS << 48 | number_of(&format!("{uuid} {place}")) & 0xffff_ffff_ffff
}

/// Whether a volume's device waits for its next server. Without a header nothing says that a passphrase is
/// the right one, and what waits would be written with any. A server's export is not this process's
/// alone, so that a killed one's last words may reach it after what the next one has written; and
/// what it had not been told to flush was known to that process only.
pub(crate) fn can_wait(uuid: &str, upstreams: &[Arc<Upstream>]) -> bool {
    !uuid.is_empty() && upstreams.is_empty()
}

/// The number in a name's link, if it has one, of ours or not any more.
pub(crate) fn number(name: &Name) -> Option<u32> {
    let target = std::fs::read_link(path(name)).ok()?;
    target.to_str()?.strip_prefix("../ublkb")?.parse().ok()
}

/// The device of a name, as far as the driver has it and it is one of this program's: numbers are
/// given again.
pub(crate) fn find(control: &mut Control, name: &Name) -> Result<Option<Info>> {
    let Some(number) = number(name) else {
        return Ok(None);
    };
    let info = control.info(number)?;
    Ok(info.filter(|info| info.identity >> 48 == OURS))
}

/// Gives a device its name; somebody else's device keeps it.
pub(crate) fn link(name: &Name, number: u32) -> Result<()> {
    let path = path(name);
    let failed = |error| Failure::system(format!("cannot make {}", path.display()), error);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(FOLDER)
        .map_err(failed)?;
    let folder = Path::new(FOLDER).symlink_metadata().map_err(failed)?;
    if !folder.is_dir() || folder.uid() != 0 || folder.permissions().mode() & 0o022 != 0 {
        return Err(Failure::new(
            Exit::Permission,
            format!("{FOLDER} is not a folder that only root can change"),
        ));
    }
    symlink(format!("../ublkb{number}"), &path).map_err(failed)
}

/// Takes a name away.
pub(crate) fn unlink(name: &Name) {
    // It may be gone, and names nothing.
    let _ = std::fs::remove_file(path(name));
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

/// Takes a device away, and says what that waits for.
fn delete(mut control: Control, number: u32, output: &Output) -> Result<Control> {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // It is waited for below.
        let _ = tell.send(control.delete(number).map(|()| control));
    });
    let ended = told.recv_timeout(SILENCE).or_else(|_| {
        output.note(format!(
            "Waiting for those who have {} open.",
            device(number).display()
        ));
        told.recv()
    });
    match ended {
        Ok(ended) => Ok(ended?),
        Err(_) => Err(Failure::parameters("removing the device panicked")),
    }
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

    #[test]
    fn a_device_is_known_by_its_volume() {
        let a = identity("2c2e6a3c-6f1d", "device 2049 from 0");
        let others = [
            identity("2c2e6a3c-6f1e", "device 2049 from 0"),
            identity("2c2e6a3c-6f1d", "device 2050 from 0"),
            identity("2c2e6a3c-6f1d", "device 2049 from 1048576"),
        ];
        assert!(others.iter().all(|b| *b != a && b >> 48 == OURS));
        // Of the next version of this program, too.
        assert_eq!(identity("", ""), 0x7874_9d4c_8601_817f);
    }
}
