//! Reading secrets from descriptors straight into secret memory.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use xtent_secret::SecretBytes;

use super::FILE_LIMIT;
use crate::failure::{Exit, Failure, Result};

/// Bytes for a first read when the length is not known.
const FIRST_BUFFER: usize = 4096;

/// Reads to the end, skipping `offset` bytes and stopping after `size`, as
/// cryptsetup's `--keyfile-offset` and `--keyfile-size`. Without `size` more
/// than [`FILE_LIMIT`] bytes are refused.
pub(super) fn read_whole(
    fd: BorrowedFd<'_>,
    name: &str,
    offset: u64,
    size: Option<u64>,
) -> Result<SecretBytes> {
    let wanted = match size {
        Some(size) => usize::try_from(size)
            .ok()
            .filter(|size| (1..=FILE_LIMIT).contains(size))
            .ok_or_else(|| {
                Failure::parameters(format!(
                    "--keyfile-size {size}: a passphrase has 1 to {FILE_LIMIT} bytes"
                ))
            })?,
        // One byte more, to notice a file that is too large.
        None => FILE_LIMIT + 1,
    };
    skip(fd, name, offset)?;

    let known = size.map(|_| wanted).or_else(|| remaining(fd, offset));
    let mut secret = SecretBytes::zeroed(known.unwrap_or(FIRST_BUFFER).clamp(1, wanted.max(1)))?;
    let mut filled = 0;
    while filled < wanted {
        if filled == secret.len() {
            let mut larger = SecretBytes::zeroed((secret.len() * 2).min(wanted))?;
            larger[..filled].copy_from_slice(&secret);
            secret = larger;
        }
        let end = secret.len();
        match read_some(fd, name, &mut secret[filled..end])? {
            0 => break,
            n => filled += n,
        }
    }
    if size.is_none() && filled > FILE_LIMIT {
        return Err(too_large(name));
    }
    if filled == 0 && offset > 0 {
        return Err(too_short(name, offset));
    }
    if size.is_some() && filled < wanted {
        return Err(Failure::new(
            Exit::Device,
            format!("{name} ends after {filled} of the {wanted} bytes of --keyfile-size"),
        ));
    }
    if filled == 0 {
        return Err(Failure::new(
            Exit::Parameters,
            format!("{name} holds no passphrase: it is empty"),
        ));
    }
    secret.truncate(filled);
    Ok(secret)
}

fn too_short(name: &str, offset: u64) -> Failure {
    Failure::new(
        Exit::Device,
        format!("{name} has nothing after the {offset} bytes that the key file's offset skips"),
    )
}

/// Reads up to a line end, which is left out, or the end of the input. Reads
/// byte by byte, because the next line belongs to somebody else.
pub(super) fn read_line(fd: BorrowedFd<'_>, limit: usize) -> Result<SecretBytes> {
    let mut secret = SecretBytes::zeroed(limit + 1)?;
    let mut filled = 0;
    loop {
        if filled > limit {
            return Err(Failure::parameters(format!(
                "the passphrase on standard input is longer than {limit} bytes"
            ))
            .advise("Longer ones, and binary ones, need --key-file (`-` for standard input)."));
        }
        match read_some(fd, "standard input", &mut secret[filled..=filled])? {
            0 if filled == 0 => {
                return Err(Failure::parameters("no passphrase on standard input")
                    .advise("Give --key-file FILE, or run it on a terminal."));
            }
            0 => break,
            _ if secret[filled] == b'\n' => break,
            _ => filled += 1,
        }
    }
    secret.truncate(filled);
    Ok(secret)
}

/// One read, restarted when a signal comes in between.
pub(super) fn read_some(fd: BorrowedFd<'_>, name: &str, buf: &mut [u8]) -> Result<usize> {
    loop {
        match rustix::io::read(fd, &mut *buf) {
            Err(Errno::INTR) => {}
            Err(e) => return Err(Failure::system(format!("cannot read {name}"), e)),
            Ok(n) => return Ok(n),
        }
    }
}

/// Seeks where that works, else reads and forgets (pipes).
fn skip(fd: BorrowedFd<'_>, name: &str, offset: u64) -> Result<()> {
    if offset == 0
        || (remaining(fd, 0).is_some()
            && rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(offset)).is_ok())
    {
        return Ok(());
    }
    let mut scratch = SecretBytes::zeroed(FIRST_BUFFER)?;
    let mut left = offset;
    while left > 0 {
        let part = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(scratch.len());
        match read_some(fd, name, &mut scratch[..part])? {
            0 => {
                return Err(too_short(name, offset));
            }
            n => left -= n as u64,
        }
    }
    Ok(())
}

/// Bytes after `offset` in a regular file, one at least so that a growing or
/// lying file is read to its end.
fn remaining(fd: BorrowedFd<'_>, offset: u64) -> Option<usize> {
    let stat = rustix::fs::fstat(fd).ok()?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return None;
    }
    let size = u64::try_from(stat.st_size).ok()?;
    usize::try_from(size.saturating_sub(offset).saturating_add(1)).ok()
}

fn too_large(name: &str) -> Failure {
    Failure::parameters(format!(
        "{name}: a passphrase can have at most {} MiB",
        FILE_LIMIT >> 20
    ))
    .advise("Give --keyfile-size to use the first bytes of it only.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};
    use std::os::fd::AsFd;

    fn file(content: &[u8]) -> std::fs::File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file.rewind().unwrap();
        file
    }

    fn pipe(content: &[u8]) -> std::os::fd::OwnedFd {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&writer, content).unwrap();
        reader
    }

    #[test]
    fn a_key_file_keeps_every_byte() {
        let content = b"line one\nline two\0\n";
        assert_eq!(
            &*read_whole(file(content).as_fd(), "f", 0, None).unwrap(),
            content
        );
        assert_eq!(
            &*read_whole(pipe(content).as_fd(), "f", 0, None).unwrap(),
            content
        );
    }

    #[test]
    fn a_long_pipe_is_read_whole() {
        let content = vec![7; 50_000];
        assert_eq!(
            &*read_whole(pipe(&content).as_fd(), "f", 0, None).unwrap(),
            &content[..]
        );
    }

    #[test]
    fn offset_and_size_cut() {
        for fd in [
            std::os::fd::OwnedFd::from(file(b"0123456789")),
            pipe(b"0123456789"),
        ] {
            assert_eq!(&*read_whole(fd.as_fd(), "f", 3, Some(4)).unwrap(), b"3456");
        }
        assert_eq!(
            &*read_whole(file(b"0123").as_fd(), "f", 3, None).unwrap(),
            b"3"
        );
    }

    #[test]
    fn short_empty_and_too_large_are_refused() {
        for (content, offset, size) in [
            (&b""[..], 0, None),
            (b"0123", 4, None),
            (b"0123", 9, None),
            (b"0123", 2, Some(3)),
            (b"0123", 0, Some(0)),
            (b"0123", 0, Some(9 << 20)),
        ] {
            assert!(read_whole(file(content).as_fd(), "f", offset, size).is_err());
            assert!(read_whole(pipe(content).as_fd(), "f", offset, size).is_err());
        }
        assert!(read_whole(file(&vec![1; FILE_LIMIT + 1]).as_fd(), "f", 0, None).is_err());
        assert_eq!(
            read_whole(file(&vec![1; FILE_LIMIT]).as_fd(), "f", 0, None)
                .unwrap()
                .len(),
            FILE_LIMIT
        );
    }

    #[test]
    fn lines_are_taken_one_at_a_time() {
        let fd = pipe(b"old secret\nnew\n\nlast");
        assert_eq!(&*read_line(fd.as_fd(), 512).unwrap(), b"old secret");
        assert_eq!(&*read_line(fd.as_fd(), 512).unwrap(), b"new");
        assert_eq!(&*read_line(fd.as_fd(), 512).unwrap(), b"");
        assert_eq!(&*read_line(fd.as_fd(), 512).unwrap(), b"last");
        assert!(read_line(fd.as_fd(), 512).is_err());
    }

    #[test]
    fn a_line_may_be_as_long_as_the_limit() {
        let fd = pipe(&[&[b'x'; 512][..], b"\n", &[b'y'; 513], b"\n"].concat());
        assert_eq!(read_line(fd.as_fd(), 512).unwrap().len(), 512);
        assert!(read_line(fd.as_fd(), 512).is_err());
    }
}
