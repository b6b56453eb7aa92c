//! Mounting and unmounting FUSE itself: `mount(2)` where that is allowed,
//! the setuid helper `fusermount3` otherwise.
//!
//! Done here and not by `fuser`, whose unmount at the end of a session goes by
//! path alone: after somebody else's `umount` it would unmount whatever else
//! is mounted there by then.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use super::fail;
use super::tool;
use crate::{Error, ErrorKind, mountinfo, users};

/// File system type in `/proc/mounts`.
pub(crate) const FSTYPE: &str = "fuse.xtent";

/// Mounts FUSE on `dir`, for this user alone. `source` is what `/proc/mounts` shows.
pub(super) fn mount(dir: &Path, source: &Path, read_only: bool) -> Result<OwnedFd, Error> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(|e| {
            let (kind, hint) = match e.kind() {
                io::ErrorKind::PermissionDenied => (
                    ErrorKind::Permission,
                    "ask the administrator for access to it",
                ),
                _ => (ErrorKind::Unsupported, "`modprobe fuse` as root may help"),
            };
            fail(kind, format!("cannot open /dev/fuse: {hint}"), e)
        })?;
    match mount_directly(&device, dir, source, read_only) {
        Ok(()) => Ok(device.into()),
        Err(Errno::PERM) => mount_by_helper(dir, source, read_only),
        Err(e) => Err(fail(
            if e == Errno::NODEV {
                ErrorKind::Unsupported
            } else {
                ErrorKind::Io
            },
            format!("cannot mount FUSE on {}", dir.display()),
            e.into(),
        )),
    }
}

fn mount_directly(
    device: &File,
    dir: &Path,
    source: &Path,
    read_only: bool,
) -> rustix::io::Result<()> {
    // rootmode is the type of the root only: a directory.
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let mut flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
    if read_only {
        flags |= MountFlags::RDONLY;
    }
    rustix::mount::mount(source, dir, FSTYPE, flags, data.as_c_str())
}

/// `fusermount3` mounts and sends the open `/dev/fuse` back over a socket,
/// which it gets as its standard input.
fn mount_by_helper(dir: &Path, source: &Path, read_only: bool) -> Result<OwnedFd, Error> {
    let io_error = |e: io::Error| {
        let hint = match e.kind() {
            io::ErrorKind::NotFound => "; install the package fuse3, or use root",
            _ => "",
        };
        fail(
            ErrorKind::Permission,
            format!("cannot run fusermount3{hint}"),
            e,
        )
    };
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(io_error)?;
    // Commas and backslashes separate options.
    let mut name = Vec::new();
    for &byte in source.as_os_str().as_bytes() {
        if matches!(byte, b',' | b'\\') {
            name.push(b'\\');
        }
        name.push(byte);
    }
    let access = if read_only { "ro" } else { "rw" };
    let mut options =
        format!("{access},nosuid,nodev,noexec,default_permissions,subtype=xtent,fsname=")
            .into_bytes();
    options.extend(name);
    let child = tool("fusermount3")
        .arg("-o")
        .arg(OsStr::from_bytes(&options))
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(io_error)?;
    let device = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(io_error)?;
    match device {
        Ok(Some(device)) if output.status.success() => Ok(device),
        Err(e) => Err(io_error(e.into())),
        Ok(_) => Err(Error {
            kind: ErrorKind::Permission,
            message: format!(
                "cannot mount FUSE on {}: {}",
                dir.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            ),
            source: None,
        }),
    }
}

fn receive_descriptor(
    socket: &std::os::unix::net::UnixStream,
) -> rustix::io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

/// Whether what a lookup of `dir` ends in is a FUSE mount of `source`'s.
pub(crate) fn is_mounted(dir: &Path, source: &Path) -> io::Result<bool> {
    Ok(mountinfo::at(dir)?.is_some_and(|e| e.fstype == FSTYPE && e.source == source.as_os_str()))
}

/// Unmounts the FUSE mount on `dir`. [`io::ErrorKind::ResourceBusy`] if its
/// file is in use, unless `lazy`.
pub(crate) fn unmount(dir: &Path, lazy: bool) -> io::Result<()> {
    let mut patience = users::Patience::default();
    loop {
        match unmount_once(dir, lazy) {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && patience.is_worth_it(dir) => {}
            other => return other,
        }
    }
}

/// As [`unmount`], impatient with those who only look in.
pub(super) fn unmount_once(dir: &Path, lazy: bool) -> io::Result<()> {
    let mut flags = UnmountFlags::NOFOLLOW;
    if lazy {
        flags |= UnmountFlags::DETACH;
    }
    match rustix::mount::unmount(dir, flags) {
        Err(Errno::PERM) => {}
        other => return Ok(other?),
    }
    let output = tool("fusermount3")
        .args(if lazy {
            ["-u", "-z"].iter()
        } else {
            ["-u"].iter()
        })
        .arg("--")
        .arg(dir)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(if text.contains("busy") {
        io::ErrorKind::ResourceBusy.into()
    } else {
        io::Error::other(text.trim().to_owned())
    })
}
