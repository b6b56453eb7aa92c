//! Which option of `mount -o` a file system does not know, in the kernel's words:
//! mount(8) of many distributions passes on the error's number only.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, fsconfig_set_flag, fsconfig_set_string, fsopen};

/// Options that mount(8) keeps to itself or gives to every file system (mount(8),
/// "Filesystem-independent mount options"). Those that begin with `x-` are more.
const INDEPENDENT: &str = "\
    _netdev async atime auto bind comment defaults dev diratime dirsync exec group helper \
    iversion lazytime loop loud mand noatime noauto nodev nodiratime noexec nofail nogroup \
    noiversion nolazytime nomand noowner norelatime nostrictatime nosuid nosymfollow \
    nouser nousers owner relatime remount ro rw silent strictatime suid symfollow sync \
    uhelper user users";

/// What the kernel's `fstype` says against one of `options`, for instance `ext4:
/// Unknown parameter 'nosuchopt'`. None if it takes them all as they are, which says nothing
/// of whether it would mount with them, or if that cannot be found out: without
/// root, by kernels without that file system, or from before Linux 5.2.
///
/// Nothing is mounted, and no device is looked at.
pub fn refused_option(fstype: &str, options: &str) -> Option<String> {
    // A quoted value may hold commas.
    if options.contains('"') {
        return None;
    }
    let context = fsopen(fstype, FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if INDEPENDENT.split(' ').any(|it| it == name)
            || name.to_ascii_lowercase().starts_with("x-")
        {
            continue;
        }
        let set = match value {
            Some(value) => fsconfig_set_string(&context, name, value),
            None => fsconfig_set_flag(&context, name),
        };
        if set.is_err_and(|errno| errno != Errno::PERM) {
            return Some(message(&context).unwrap_or_else(|| format!("{fstype}: {option}")));
        }
    }
    None
}

/// The next message of the kernel's: a letter for its weight, a blank, the text.
fn message(context: &OwnedFd) -> Option<String> {
    let mut text = [0; 1024];
    let len = rustix::io::read(context, &mut text).ok()?;
    let text = String::from_utf8_lossy(text.get(..len)?).into_owned();
    let text = text.trim();
    Some(
        text.split_once(' ')
            .map_or(text, |(_, text)| text)
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_nothing_where_it_cannot_know() {
        assert_eq!(refused_option("nosuchfs", "nosuchopt"), None);
        assert_eq!(refused_option("tmpfs", "context=\"a,b\",nosuchopt"), None);
    }
}
