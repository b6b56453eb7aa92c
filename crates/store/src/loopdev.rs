//! Loop devices: attach one to a file, detach it again.
//!
//! The `ioctl`s are ours because `LOOP_CONFIGURE` (Linux 5.8) is what makes
//! the device appear in one step with its block size, direct I/O and
//! self-clearing; the crates for loop devices do not have it.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::makedev;
use rustix::io::Errno;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl};

use crate::{Act, Error, ErrorKind, block};

/// The kernel's number for loop devices.
const MAJOR: u32 = 7;

// linux/loop.h
const LOOP_CLR_FD: Opcode = 0x4C01;
const LOOP_SET_CAPACITY: Opcode = 0x4C07;
const LOOP_GET_STATUS64: Opcode = 0x4C05;
const LOOP_CONFIGURE: Opcode = 0x4C0A;
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}
const _: () = assert!(size_of::<LoopConfig>() == 304);

/// `LOOP_CTL_GET_FREE`: the number comes as the call's return value.
struct GetFree;

// SAFETY: the opcode takes no argument, and neither reads nor writes memory of
// this process.
unsafe impl Ioctl for GetFree {
    type Output = u32;
    const IS_MUTATING: bool = false;
    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }
    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::null_mut()
    }
    unsafe fn output_from_ptr(
        output: IoctlOutput,
        _: *mut std::ffi::c_void,
    ) -> rustix::io::Result<u32> {
        u32::try_from(output).map_err(|_| Errno::RANGE)
    }
}

/// An attached loop device, held open. It detaches itself when its last user
/// (this value, a mounted file system) is gone.
#[derive(Debug)]
pub struct LoopDevice {
    open: File,
    number: u32,
}

impl LoopDevice {
    /// Attaches a free loop device to `backing`, with direct I/O: a page cache
    /// of its own below the user's would hold everything twice. `block_size`
    /// becomes the logical block size.
    ///
    /// # Errors
    /// [`ErrorKind::Permission`] without root; [`ErrorKind::NotFound`] if
    /// `/dev/loop-control` is missing; [`ErrorKind::Unsupported`] by kernels
    /// before Linux 5.8.
    pub fn attach(backing: &File, block_size: u32, read_only: bool) -> Result<Self, Error> {
        let control = Path::new("/dev/loop-control");
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .open(control)
            .map_err(|e| Error::from_io(e, Act::Open, control, None))?;
        // Others look for a free device as well, and it is ours only once it
        // is configured.
        let mut last = Errno::BUSY;
        for _ in 0..100 {
            // SAFETY: `open` is the loop control device, whose opcode this is.
            let number = unsafe { ioctl(&open, GetFree) }
                .map_err(|e| Error::from_io(e, Act::FindFree, control, None))?;
            let path = device_path(number);
            let file = match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(file) => file,
                // A new device's node comes a moment later.
                Err(e)
                    if [Errno::NOENT, Errno::NXIO]
                        .contains(&Errno::from_io_error(&e).unwrap_or(Errno::IO)) =>
                {
                    last = Errno::NOENT;
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                Err(e) => return Err(Error::from_io(e, Act::Open, &path, None)),
            };
            match configure(&file, backing, block_size, read_only) {
                Ok(()) => {
                    return Ok(Self { open: file, number });
                }
                Err(Errno::BUSY) => last = Errno::BUSY,
                // Not known to the kernel: it cannot do it in one step.
                Err(e @ (Errno::NOTTY | Errno::INVAL)) => {
                    return Err(Error {
                        kind: ErrorKind::Unsupported,
                        act: Act::Attach,
                        place: (&path).into(),
                        offset: None,
                        source: Some(e.into()),
                    });
                }
                Err(e) => return Err(Error::from_io(e, Act::Attach, &path, None)),
            }
        }
        Err(Error::from_io(last, Act::Attach, control, None))
    }

    /// The open device.
    pub fn file(&self) -> &File {
        &self.open
    }

    /// `/dev/loopN`.
    pub fn path(&self) -> PathBuf {
        device_path(self.number)
    }

    /// N.
    pub fn number(&self) -> u32 {
        self.number
    }
}

fn configure(
    device: &File,
    backing: &File,
    block_size: u32,
    read_only: bool,
) -> rustix::io::Result<()> {
    let read_only = if read_only { LO_FLAGS_READ_ONLY } else { 0 };
    let config = LoopConfig {
        fd: u32::try_from(backing.as_raw_fd()).map_err(|_| Errno::BADF)?,
        block_size,
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            sizelimit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO | read_only,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: `LOOP_CONFIGURE` reads one `struct loop_config`, which
    // `LoopConfig` is; the file behind `fd` stays open during the call, after
    // which the kernel has a reference of its own.
    unsafe { ioctl(device, Setter::<LOOP_CONFIGURE, LoopConfig>::new(config)) }
}

fn device_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

/// The file that loop device `number` is attached to; `None` if it is free.
pub fn backing_file(number: u32) -> io::Result<Option<PathBuf>> {
    match std::fs::read(format!("/sys/block/loop{number}/loop/backing_file")) {
        Ok(mut text) => {
            if text.last() == Some(&b'\n') {
                text.pop();
            }
            Ok(Some(PathBuf::from(std::ffi::OsString::from_vec(text))))
        }
        // The device has no backing file, or goes away just now.
        Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::NXIO | Errno::NODEV)) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// A loop device that is attached to something.
#[derive(Clone, Debug)]
pub struct Attached {
    /// Its number.
    pub number: u32,
    /// The file, as the kernel names it: that name may have gone, or lead elsewhere.
    pub backing: PathBuf,
    /// The bytes of the file that it has.
    pub bytes: Range<u64>,
}

impl Attached {
    fn of(number: u32, backing: PathBuf) -> Self {
        // All of it, where that cannot be told.
        let (start, len) =
            block::backing(makedev(MAJOR, number)).map_or((0, None), |it| (it.start, it.len));
        Self {
            number,
            backing,
            bytes: start..len.map_or(u64::MAX, |len| start.saturating_add(len)),
        }
    }

    /// The numbers of the file's device and of the file, by whatever name.
    ///
    /// # Errors
    /// If this user may not open the loop device, above all.
    pub fn file(&self) -> io::Result<(u64, u64)> {
        let device = File::open(device_path(self.number))?;
        // SAFETY: `LOOP_GET_STATUS64` fills a `struct loop_info64`.
        let info = unsafe { ioctl(&device, Getter::<LOOP_GET_STATUS64, LoopInfo>::new()) }?;
        Ok((info.device, info.inode))
    }
}

/// The loop devices that are attached to something.
pub fn attached() -> io::Result<Vec<Attached>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/sys/block")? {
        let name = entry?.file_name();
        let number = name
            .to_str()
            .and_then(|n| n.strip_prefix("loop"))
            .and_then(|n| n.parse().ok());
        if let Some(number) = number
            && let Some(backing) = backing_file(number)?
        {
            found.push(Attached::of(number, backing));
        }
    }
    found.sort_unstable_by_key(|it| it.number);
    Ok(found)
}

/// The loop devices attached to `backing`.
pub fn attached_to(backing: &Path) -> io::Result<Vec<u32>> {
    let mut found = attached()?;
    found.retain(|it| it.backing == backing);
    Ok(found.into_iter().map(|it| it.number).collect())
}

/// Lets loop device `number` have the size that its file has by now, as the kernel
/// knows it, if it is still attached to `backing`.
pub fn take_size(number: u32, backing: &Path) -> io::Result<()> {
    let device = File::open(device_path(number))?;
    // Asked while it is open: from now on it cannot become another's.
    if backing_file(number)?.as_deref() != Some(backing) {
        return Err(Errno::NXIO.into());
    }
    // SAFETY: `LOOP_SET_CAPACITY` takes no argument.
    unsafe { ioctl(&device, NoArg::<LOOP_SET_CAPACITY>::new()) }?;
    Ok(())
}

/// Detaches loop device `number` if it is still attached to `backing`: a
/// number that somebody else has got meanwhile is left alone. With users left
/// (a mounted file system) it detaches itself when they are gone.
pub fn detach(number: u32, backing: &Path) -> io::Result<()> {
    let device = match File::open(device_path(number)) {
        Ok(device) => device,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    // Asked while it is open: from now on it cannot become another's.
    if backing_file(number)?.as_deref() != Some(backing) {
        return Ok(());
    }
    // SAFETY: `LOOP_CLR_FD` takes no argument.
    match unsafe { ioctl(&device, NoArg::<LOOP_CLR_FD>::new()) } {
        Ok(()) | Err(Errno::NXIO) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
