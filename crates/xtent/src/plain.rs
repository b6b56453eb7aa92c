//! The plaintext's side of a copy: a file, a disk, or what can only be read or
//! written in order, as standard input, a pipe or a FIFO.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{IsTerminal, Seek, SeekFrom};
use std::os::fd::RawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::failure::{Failure, Result};
use crate::fds::inherited;

/// Bytes that a pipe should hold, for fewer changes between two programs. What
/// an unprivileged user may ask for.
const PIPE_SIZE: usize = 1 << 20;

/// A place for plaintext as the command line names it: `-` is standard input
/// or output; `/dev/stdin`, `/dev/fd/3` and the like are that descriptor
/// itself, from where it stands; everything else is a path.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    path: PathBuf,
    descriptor: Option<(RawFd, Arc<File>)>,
}

impl Place {
    /// Parses SOURCE.
    pub(crate) fn source(path: PathBuf) -> std::result::Result<Self, String> {
        Self::new(path, 0)
    }

    /// Parses TARGET.
    pub(crate) fn target(path: PathBuf) -> std::result::Result<Self, String> {
        Self::new(path, 1)
    }

    fn new(path: PathBuf, dash: RawFd) -> std::result::Result<Self, String> {
        let descriptor = match descriptor(&path, dash) {
            None => None,
            Some(number) => {
                let fd = inherited(number)?
                    .take()
                    .ok_or_else(|| format!("descriptor {number} is named twice"))?;
                Some((number, Arc::new(File::from(fd))))
            }
        };
        Ok(Self { path, descriptor })
    }

    /// The path; of a descriptor only a name for it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its name for messages.
    pub(crate) fn name(&self) -> String {
        match self.descriptor {
            Some((0, _)) => "standard input".to_owned(),
            Some((1, _)) => "standard output".to_owned(),
            _ => self.path.display().to_string(),
        }
    }

    /// Whether it is this process's standard input.
    pub(crate) fn is_stdin(&self) -> bool {
        matches!(self.descriptor, Some((0, _)))
    }

    /// What it is, unless it does not exist.
    pub(crate) fn metadata(&self) -> Option<Metadata> {
        match &self.descriptor {
            Some((_, file)) => file.metadata().ok(),
            None => self.path.metadata().ok(),
        }
    }

    /// Whether it is read or written in order, at whatever position it is.
    pub(crate) fn is_stream(&self) -> bool {
        let in_order = |m: Metadata| m.file_type().is_fifo() || m.file_type().is_char_device();
        self.descriptor.is_some() || self.metadata().is_some_and(in_order)
    }

    /// Whether it is standard output, by any name: that may be `/dev/null`.
    pub(crate) fn is_standard_output(&self) -> bool {
        matches!(self.descriptor, Some((1, _)))
    }

    /// Opens a stream to read. Of a FIFO this waits for a writer.
    pub(crate) fn open_source(&self) -> Result<Stream> {
        let stream = self.open(OpenOptions::new().read(true))?;
        if stream.file.is_terminal() {
            return Err(Failure::parameters(format!(
                "{} is a terminal, not an image",
                stream.name
            ))
            .advise(
                "Send the image there, as in `PROGRAM | xtent encrypt - DEVICE`, or name a file.",
            ));
        }
        Ok(stream)
    }

    /// Opens a stream to write. Of a FIFO this waits for a reader. Refuses
    /// terminals, and what gets the messages too.
    pub(crate) fn open_target(&self) -> Result<Stream> {
        let stream = self.open(OpenOptions::new().write(true))?;
        if stream.file.is_terminal() {
            return Err(Failure::parameters(format!(
                "{} is a terminal: plaintext is not written there",
                stream.name
            ))
            .advise(
                "Send it to a program, as in `xtent decrypt DEVICE - | PROGRAM`, or name a file.",
            ));
        }
        if stream.is_also(rustix::stdio::stderr()) {
            return Err(Failure::parameters(format!(
                "{} is standard error as well: messages would be mixed with the data",
                stream.name
            ))
            .advise("Leave out `2>&1`, or send standard error elsewhere."));
        }
        Ok(stream)
    }

    fn open(&self, options: &OpenOptions) -> Result<Stream> {
        let file = match &self.descriptor {
            Some((_, file)) => Arc::clone(file),
            None => options
                .open(&self.path)
                .map(Arc::new)
                .map_err(|e| Failure::system(format!("cannot open {}", self.path.display()), e))?,
        };
        // Only pipes have it, and not everybody may: as good as it gets.
        let _ = rustix::pipe::fcntl_setpipe_size(&file, PIPE_SIZE);
        Ok(Stream {
            file,
            name: self.name(),
        })
    }
}

/// The number of the open descriptor that a path names; `-` is `dash`.
pub(crate) fn descriptor(path: &Path, dash: RawFd) -> Option<RawFd> {
    match path.to_str()? {
        "-" => Some(dash),
        "/dev/stdin" => Some(0),
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        text => {
            let number = text
                .strip_prefix("/dev/fd/")
                .or_else(|| text.strip_prefix("/proc/self/fd/"))?;
            number.parse().ok().filter(|&fd: &RawFd| fd >= 0)
        }
    }
}

/// An open stream.
pub(crate) struct Stream {
    file: Arc<File>,
    name: String,
}

impl Stream {
    /// Bytes from here to the end, where that is known: of a file or disk.
    pub(crate) fn remaining(&self) -> Option<u64> {
        let kind = self.file.metadata().ok()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return None;
        }
        let mut file = &*self.file;
        let here = file.stream_position().ok()?;
        let end = file.seek(SeekFrom::End(0)).ok()?;
        file.seek(SeekFrom::Start(here)).ok()?;
        Some(end.saturating_sub(here))
    }

    /// Whether it is what this descriptor is, too: a pipe, socket or file.
    /// (`/dev/null` may well be both.)
    pub(crate) fn is_also(&self, other: rustix::fd::BorrowedFd<'_>) -> bool {
        let (Ok(this), Ok(other)) = (rustix::fs::fstat(&self.file), rustix::fs::fstat(other))
        else {
            return false;
        };
        let is_character_device =
            rustix::fs::FileType::from_raw_mode(this.st_mode).is_char_device();
        !is_character_device && (this.st_dev, this.st_ino) == (other.st_dev, other.st_ino)
    }

    /// Fills the buffer, less far only at the end of the stream.
    pub(crate) fn fill(&self, buf: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            match rustix::io::read(&self.file, &mut buf[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) => self
                    .wait(e, PollFlags::IN)
                    .map_err(|e| Failure::system(format!("reading {} failed", self.name), e))?,
            }
        }
        Ok(filled)
    }

    /// Writes all of it.
    pub(crate) fn write(&self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            match rustix::io::write(&self.file, data) {
                Ok(n) => data = &data[n..],
                Err(Errno::PIPE) => {
                    return Err(Failure::system(
                        format!("whoever reads {} has gone", self.name),
                        Errno::PIPE,
                    ));
                }
                Err(e) => self
                    .wait(e, PollFlags::OUT)
                    .map_err(|e| Failure::system(format!("writing {} failed", self.name), e))?,
            }
        }
        Ok(())
    }

    /// Makes what was written to a file or disk durable.
    pub(crate) fn finish(&self) -> Result<()> {
        match rustix::fs::fdatasync(&self.file) {
            // What pipes, sockets and terminals say.
            Ok(()) | Err(Errno::INVAL | Errno::ROFS | Errno::NOTSUP) => Ok(()),
            Err(e) => Err(Failure::system(format!("writing {} failed", self.name), e)),
        }
    }

    /// Waits if the error says that it is not time yet: who made the
    /// descriptor may have made it one that does not wait.
    fn wait(&self, error: Errno, what: PollFlags) -> std::result::Result<(), Errno> {
        match error {
            Errno::INTR => Ok(()),
            Errno::AGAIN => {
                let mut ready = [PollFd::new(&*self.file, what)];
                match rustix::event::poll(&mut ready, None) {
                    Ok(_) | Err(Errno::INTR) => Ok(()),
                    Err(e) => Err(e),
                }
            }
            other => Err(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_descriptors() {
        for (path, fd) in [
            ("-", Some(7)),
            ("/dev/stdin", Some(0)),
            ("/dev/stdout", Some(1)),
            ("/dev/fd/63", Some(63)),
            ("/proc/self/fd/3", Some(3)),
            ("./-", None),
            ("/dev/fd/-1", None),
            ("/dev/fd/", None),
            ("stdin", None),
        ] {
            assert_eq!(descriptor(Path::new(path), 7), fd, "{path}");
        }
    }

    #[test]
    fn a_descriptor_that_does_not_wait_is_waited_for() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let stream = |fd| Stream {
            file: Arc::new(File::from(fd)),
            name: "pipe".to_owned(),
        };
        let (reader, writer) = (stream(reader), stream(writer));
        let data: Vec<u8> = (0..1 << 18)
            .map(|i: u32| (i / 256).to_le_bytes()[0])
            .collect();
        let mut got = vec![0; data.len() + 1];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                writer.write(&data).unwrap();
                drop(writer);
            });
            assert_eq!(reader.fill(&mut got).unwrap(), data.len());
        });
        assert!(got[..data.len()] == data);
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        assert!(
            stream(writer)
                .write(b"x")
                .unwrap_err()
                .message
                .contains("has gone")
        );
    }
}
