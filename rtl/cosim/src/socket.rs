//! The socket that clients connect to.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod, stat};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

/// Clients that wait to be accepted.
const BACKLOG: i32 = 16;

/// A socket's name, which goes away with it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode: if another is there, it stays.
    identity: (u64, u64),
}

impl SocketFile {
    /// Removes the name.
    pub fn remove(&self) {
        if stat(&self.path).is_ok_and(|it| (it.st_dev, it.st_ino) == self.identity) {
            // It goes away now, or somebody was quicker.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Listens on a socket that only this user can connect to (mode 0600).
///
/// # Errors
/// Something is there already, or the system's.
pub fn listen_at(path: &Path) -> io::Result<(OwnedFd, SocketFile)> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // The kernel makes the file with the mode of the socket, less the umask.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &address)?;
    let identity = stat(path).map(|it| (it.st_dev, it.st_ino))?;
    let file = SocketFile {
        path: path.to_owned(),
        identity,
    };
    listen(&socket, BACKLOG)?;
    Ok((socket, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_private_replaces_nothing_and_goes_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (_socket, file) = listen_at(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            listen_at(&path).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        std::fs::write(&path, "another's").unwrap();
        file.remove();
        assert!(path.exists(), "another's file was removed");
        std::fs::rename(folder.path().join("elsewhere"), &path).unwrap();
        file.remove();
        assert!(!path.exists());
    }
}
