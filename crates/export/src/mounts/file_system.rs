//! The file system on a block device: mounted, found, unmounted.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use xtent_store::Place;
use xtent_store::loopdev::LoopDevice;
use xtent_volume::DiscardPolicy;

use super::{no_loop_device, refuse};
use crate::fuse::{FuseMount, fail, tool};
use crate::mountinfo::Device;
use crate::{Error, ErrorKind, mountinfo, users};

/// What to mount where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The encrypted device or image: names the mount in `/proc/mounts` and
    /// finds what a killed daemon left behind. Never opened here.
    pub device: Place,
    /// Where the user wants the file system; with `file_only` the FUSE
    /// directory itself.
    pub dir: PathBuf,
    /// Serve [`super::FILE_NAME`] in `dir` and nothing else.
    pub file_only: bool,
    /// `mount -t`; found out by `mount` if absent.
    pub fstype: Option<String>,
    /// `mount -o`, passed through.
    pub mount_options: Option<String>,
}

/// A file system mounted from the block device that a volume has become.
pub(super) struct FileSystem {
    /// Where it is mounted.
    pub(super) dir: PathBuf,
    /// What it is on.
    pub(super) device: Device,
}

/// A loop device on the file of `fuse`.
pub(super) fn attach(fuse: &FuseMount) -> Result<LoopDevice, Error> {
    let volume = fuse.volume();
    let read_only = volume.is_read_only();
    let sector_size = u32::try_from(volume.sector_size().bytes()).unwrap_or(4096);
    let path = fuse.file();
    let file = OpenOptions::new()
        .read(true)
        .write(!read_only)
        .open(&path)
        .map_err(|e| fail(ErrorKind::Io, format!("cannot open {}", path.display()), e))?;
    let attach = || LoopDevice::attach(&file, sector_size, read_only).map_err(no_loop_device);
    // A loop device turns discards and the block layer's "write zeroes"
    // alike into holes of its file, which then cannot be told apart and
    // must read as zeros. Where discards are not to be zeros in writing
    // the device offers neither; the kernel then writes zeros itself.
    match volume.discard_policy() == DiscardPolicy::Zero {
        true => attach(),
        false => fuse.without_discards(attach),
    }
}

impl FileSystem {
    /// Mounts what is on `device` on `dir`.
    pub(super) fn mount(
        device: Device,
        read_only: bool,
        dir: &Path,
        options: &Options,
    ) -> Result<Self, Error> {
        let file_system = Self {
            dir: dir.to_owned(),
            device,
        };
        // `mount` knows every file system, its helpers and its options.
        let mut command = tool("mount");
        let mut mount_options: Vec<&str> = Vec::new();
        if read_only {
            mount_options.push("ro");
        }
        mount_options.extend(options.mount_options.as_deref().filter(|o| !o.is_empty()));
        if !mount_options.is_empty() {
            command.arg("-o").arg(mount_options.join(","));
        }
        if let Some(fstype) = &options.fstype {
            command.arg("-t").arg(fstype);
        }
        let output = command
            .arg("--")
            .arg(&file_system.device.path)
            .arg(dir)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| fail(ErrorKind::Unsupported, "cannot run mount(8)", e))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(refuse(
                ErrorKind::NotMountable,
                format!(
                    "mount could not mount the volume on {}: {}",
                    dir.display(),
                    stderr.trim().trim_end_matches('.')
                ),
            ));
        }
        if !stderr.trim().is_empty() {
            tracing::warn!("mount: {}", stderr.trim());
        }
        if file_system.is_mounted().map_err(mountinfo_failed)? {
            Ok(file_system)
        } else {
            Err(refuse(
                ErrorKind::Argument,
                format!(
                    "mount reported success, but {} is not mounted on {}; check the mount options",
                    file_system.device.path.display(),
                    dir.display()
                ),
            ))
        }
    }

    /// Whether it is what a lookup of its directory ends in.
    pub(super) fn is_mounted(&self) -> io::Result<bool> {
        Ok(mountinfo::at(&self.dir)?.is_some_and(|e| e.is_on(&self.device)))
    }

    /// Unmounts it if it is (still) mounted. [`ErrorKind::Busy`], with the
    /// names of those who use it, unless `lazy`.
    pub(super) fn unmount(&self, lazy: bool) -> Result<(), Error> {
        if lazy {
            // What is in memory now gets to the disk; later there may be none.
            let _ = std::fs::File::open(&self.dir).and_then(|dir| Ok(rustix::fs::syncfs(dir)?));
        }
        let mut patience = users::Patience::default();
        loop {
            if !self.is_mounted().map_err(mountinfo_failed)? {
                return Ok(());
            }
            let mut command = tool("umount");
            if lazy {
                command.arg("-l");
            }
            let output = command
                .arg("--")
                .arg(&self.dir)
                .env("LC_ALL", "C")
                .stdin(Stdio::null())
                .output()
                .map_err(|e| fail(ErrorKind::Unsupported, "cannot run umount(8)", e))?;
            // Somebody else may have been faster.
            if output.status.success() || !self.is_mounted().map_err(mountinfo_failed)? {
                return Ok(());
            }
            let text = String::from_utf8_lossy(&output.stderr);
            if !text.contains("busy") {
                return Err(refuse(
                    ErrorKind::Io,
                    format!("cannot unmount {}: {}", self.dir.display(), text.trim()),
                ));
            }
            if !patience.is_worth_it(&self.dir) {
                return Err(busy(io::ErrorKind::ResourceBusy.into(), &self.dir));
            }
        }
    }
}

/// The error for a `dir` that could not be unmounted.
pub(super) fn busy(error: io::Error, dir: &Path) -> Error {
    if error.kind() != io::ErrorKind::ResourceBusy {
        return fail(
            ErrorKind::Io,
            format!("cannot unmount {}", dir.display()),
            error,
        );
    }
    let users = match users::of(dir) {
        users if users.is_empty() => "somebody".into(),
        users => users,
    };
    refuse(
        ErrorKind::Busy,
        format!("{} is in use by {users}", dir.display()),
    )
}

/// The error where the list of mounts cannot be had.
pub(super) fn mountinfo_failed(e: io::Error) -> Error {
    fail(ErrorKind::Io, "cannot read /proc/self/mountinfo", e)
}
