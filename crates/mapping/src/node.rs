//! `/dev/mapper/NAME`. It is udev's, which has made or removed it when the device
//! mapper returns; where there is no udev (an initramfs, a container) it is made and
//! removed here, as libdevmapper does it.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode};

/// Whether udev runs.
pub(crate) fn has_udev() -> bool {
    Path::new("/run/udev/control").exists()
}

/// Makes `path` the block device `number` unless it is that already.
pub(crate) fn provide(path: &Path, number: u64) -> io::Result<()> {
    match path.metadata() {
        Ok(found) if is(&found, number) => return Ok(()),
        // Of a mapping that has gone.
        Ok(_) => std::fs::remove_file(path)?,
        // A link to nothing would be in the way.
        Err(_) if path.is_symlink() => std::fs::remove_file(path)?,
        Err(_) => {}
    }
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::mknodat(CWD, path, FileType::BlockDevice, mode, number) {
        // udev, late.
        Err(rustix::io::Errno::EXIST) if path.metadata().is_ok_and(|m| is(&m, number)) => Ok(()),
        other => other.map_err(Into::into),
    }
}

/// Removes `path` if it is still there and leads to the block device `number`, or to
/// nothing.
pub(crate) fn remove(path: &Path, number: u64) -> io::Result<()> {
    let stale = match path.metadata() {
        Ok(found) => is(&found, number),
        Err(_) => path.is_symlink(),
    };
    if !stale {
        return Ok(());
    }
    match std::fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn is(found: &Metadata, number: u64) -> bool {
    found.file_type().is_block_device() && found.rdev() == number
}
