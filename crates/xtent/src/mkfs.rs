//! A new file system in a new volume: the system's mkfs, on the volume as a file
//! by way of FUSE.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use clap::ValueEnum;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use sector_cipher::SectorSize;
use xtent_export::mounts::{self, FILE_NAME, Mount};
use xtent_volume::Volume;

use crate::disk::place;
use crate::failure::{Exit, Failure, Result};
use crate::output::complain;
use crate::probe::shell_word;

/// File systems for which it is known how to make their blocks as large as the
/// volume's sectors, without which they could not be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileSystem {
    Ext2,
    Ext3,
    Ext4,
    Xfs,
    Btrfs,
    Vfat,
}

impl FileSystem {
    /// Its name, as for mount(8).
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Vfat => "vfat",
        }
    }

    fn program(self) -> String {
        format!("mkfs.{}", self.name())
    }

    /// Debian's package with the program.
    fn package(self) -> &'static str {
        match self {
            Self::Ext2 | Self::Ext3 | Self::Ext4 => "e2fsprogs",
            Self::Xfs => "xfsprogs",
            Self::Btrfs => "btrfs-progs",
            Self::Vfat => "dosfstools",
        }
    }

    /// Options for a volume with sectors of so many bytes.
    fn options(self, sector: SectorSize) -> Vec<String> {
        let words = match self {
            // Asks nothing, whatever noise the volume begins with.
            Self::Ext2 | Self::Ext3 | Self::Ext4 => "-q -F -b 4096".to_owned(),
            Self::Xfs => format!("-q -f -s size={}", sector.bytes()),
            Self::Btrfs => "-q -f --sectorsize 4096".to_owned(),
            Self::Vfat => format!("-S {}", sector.bytes()),
        };
        words.split(' ').map(str::to_owned).collect()
    }

    /// The program's path. Looks where administrators' programs are, too, which
    /// a user's path may leave out.
    pub(crate) fn find(self) -> Result<PathBuf> {
        let name = self.program();
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
            .map(|dir| dir.join(&name))
            .find(|file| file.is_file())
            .ok_or_else(|| {
                Failure::new(Exit::Device, format!("{name} was not found"))
                    .advise(format!("It is in the package {}.", self.package()))
            })
    }
}

/// Makes the file system with `program` (of [`FileSystem::find`]) on an open
/// volume of `device`, whose header may be elsewhere. `run` runs the command to its end; the volume is on the
/// disk when this returns, whatever became of the file system.
pub(crate) fn make(
    kind: FileSystem,
    program: &Path,
    (volume, sector): (Volume, SectorSize),
    (device, header): (&Path, Option<&Path>),
    dir: &Folder,
    run: impl FnOnce(&mut Command) -> std::io::Result<Output>,
) -> Result<()> {
    let place = place(device)?;
    let device = place.name().to_owned();
    let options = mounts::Options {
        device: place,
        dir: dir.0.clone(),
        file_only: true,
        fstype: None,
        mount_options: None,
    };
    let words = kind.options(sector);
    let again = || {
        let (device, command) = (shell_word(&device), words.join(" "));
        let header = header.map_or(String::new(), |h| format!("--header {} ", shell_word(h)));
        format!(
            "The volume itself is made, and empty. To try again by hand:\n\
             mkdir dir && xtent mount --file-only {header}{device} dir\n\
             {} {command} dir/{FILE_NAME}\n\
             xtent umount dir",
            program.display()
        )
    };
    let mount =
        Mount::new(Arc::new(volume), &options).map_err(|e| Failure::from(e).advise(again()))?;
    let mut command = Command::new(program);
    command
        .args(&words)
        .arg(dir.0.join(FILE_NAME))
        .stdin(Stdio::null());
    let ran = run(&mut command);
    // The program has closed the file: nothing is in use.
    mount.stop().request();
    mount.wait().map_err(|e| Failure::from(e).advise(again()))?;
    let output = ran.map_err(|e| {
        Failure::system(format!("cannot run {}", program.display()), e).advise(again())
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::new(
        Exit::Device,
        format!("{} failed ({}): {said}", kind.program(), output.status),
    )
    .advise(again()))
}

/// Takes away the mount on the folder, whoever uses it, and the folder: what is served there ends with
/// this process.
pub(crate) fn abandon(folder: &Path) {
    let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
    if rustix::mount::unmount(folder, flags) == Err(Errno::PERM) {
        // It is said of the folder if this fails.
        let _ = Command::new("fusermount3")
            .args(["-u", "-z", "--"])
            .arg(folder)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
    if let Err(e) = std::fs::remove_dir(folder) {
        complain(&format!("xtent: {} stays behind: {e}", folder.display()));
    }
}

/// A new folder for the mount, removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn new() -> Result<Self> {
        let path = std::env::temp_dir().join("xtent-mkfs-XXXXXX");
        // Mode 0700, by a name that nobody can have taken before.
        nix::unistd::mkdtemp(&path)
            .map(Self)
            .map_err(|e| Failure::system(format!("cannot make {}", path.display()), e))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Never what is in it: it may still be a mount point.
        let _ = std::fs::remove_dir(&self.0);
    }
}
