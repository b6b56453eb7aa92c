//! Why a volume was not mounted, and what to do: by what it holds.

use std::path::Path;

use xtent_export::ErrorKind;
use xtent_export::mounts::{FILE_NAME, refused_option};
use xtent_store::Store;
use xtent_volume::Volume;

use super::Args;
use crate::failure::{Exit, Failure};
use crate::probe::{Content, ext_block_size, look_into, shell_word};

/// The failure of a user who may not mount file systems.
pub(super) fn requires_root(args: &Args) -> Failure {
    let file = args.dir.join(FILE_NAME);
    // No whole command: it would lack options without which it opens something else.
    Failure::new(Exit::Permission, "mounting a file system requires root").advise(format!(
        "Run it as root, or the same command with --file-only{} for the plaintext as the file {}. \
         An ext2, ext3 or ext4 file system in it then needs no root with fuse2fs (Debian package \
         fuse2fs):\n\
         fuse2fs -o {} {} FOLDER",
        instead(args),
        file.display(),
        fuse2fs_options(args.read_only),
        shell_word(&file)
    ))
}

/// Why it is not by ublk, for those who want to know.
#[cfg(feature = "device-mapper")]
pub(super) fn by_fuse(why: &Failure) {
    let why = why.to_string().replace('\n', "; ");
    tracing::info!(why, "mounting by FUSE, not by ublk");
}

/// The failure where a mount waits for a daemon with another volume.
#[cfg(feature = "device-mapper")]
pub(super) fn another_volume(dir: &Path) -> Failure {
    Failure::new(
        Exit::Busy,
        format!(
            "{} waits for the daemon of another volume, or of one in another place",
            dir.display()
        ),
    )
    .advise(format!(
        "Mount that one there, from the device that it was mounted from; or, if it is not used any more, \
         `xtent umount --force {}`.",
        shell_word(dir)
    ))
}

/// The failure where a daemon was lost while it took a mount over.
#[cfg(feature = "device-mapper")]
pub(super) fn lost(dir: &Path, error: xtent_export::Error) -> Failure {
    Failure::new(
        Exit::Device,
        format!(
            "{} cannot be taken over any more: a daemon was lost before the driver knew it",
            dir.display()
        ),
    )
    .because(error)
    .advise(format!(
        "`xtent umount --force {}` gives it up: its users see errors, and what they have written and not \
         synced is lost. What they were told is synced is on the disk.",
        shell_word(dir)
    ))
}

/// The failure where what a killed daemon has left was not mounted any more, and has been brought to its end.
pub(super) fn not_there(dir: &Path) -> Failure {
    Failure::new(
        Exit::Busy,
        format!(
            "nothing is mounted on {}: what was had been unmounted already, and is on the disk now",
            dir.display()
        ),
    )
    .advise("The same command mounts it again.")
}

/// The failure where a mount is to have another size, and cannot.
pub(super) fn keeps_its_size() -> Failure {
    Failure::new(
        Exit::Device,
        "before Linux 6.16 a mount by ublk keeps its size until it is unmounted and mounted again; \
         `xtent mount --by fuse` makes one that grows",
    )
}

/// What to do with the file `volume` in `dir`, where that is known.
pub(super) fn use_of_file(dir: &Path, volume: &Volume) -> Option<String> {
    ext_block_size(volume)?;
    let dir = dir.display();
    let options = fuse2fs_options(volume.is_read_only());
    Some(format!(
        "It holds an ext2, ext3 or ext4 file system. To use that without root (Debian package \
         fuse2fs):\n  fuse2fs -o {options} {dir}/{FILE_NAME} FOLDER\n  fusermount3 -u FOLDER \
         && xtent umount {dir}"
    ))
}

/// What `fuse2fs -o` takes.
fn fuse2fs_options(is_read_only: bool) -> &'static str {
    if is_read_only {
        "ro,fakeroot"
    } else {
        "fakeroot"
    }
}

/// What --file-only does not go with, of the options that were given.
fn instead(args: &Args) -> &'static str {
    match (&args.fstype, &args.options) {
        (None, None) => "",
        (Some(_), None) => " instead of -t",
        (None, Some(_)) => " instead of -o",
        (Some(_), Some(_)) => " instead of -t and -o",
    }
}

/// A volume that was opened, and how it was found.
pub(super) struct Found<'a> {
    pub(super) volume: &'a Volume,
    /// Where its ciphertext is.
    pub(super) device: &'a dyn Store,
    /// First byte of that.
    pub(super) offset: u64,
    /// Whether options took the place of a header.
    pub(super) is_plain: bool,
}

/// Adds to what mount(8) said what the volume holds, and what follows from that.
pub(super) fn not_mounted(error: xtent_export::Error, args: &Args, found: &Found<'_>) -> Failure {
    if error.kind != ErrorKind::NotMountable {
        return error.into();
    }
    let failure = Failure::from(error);
    match look_into(found.volume, found.device, found.offset) {
        Ok(content) => failure.advise(advice(args, found, content)),
        Err(error) => failure.because(error),
    }
}

/// What the kernel has against one of the options.
fn kernel_says(args: &Args, what: &str) -> Option<String> {
    const TYPES: [(&str, &str); 7] = [
        ("ext4", "ext4"),
        ("XFS", "xfs"),
        ("Btrfs", "btrfs"),
        ("F2FS", "f2fs"),
        ("exFAT", "exfat"),
        ("FAT", "vfat"),
        ("NTFS", "ntfs3"),
    ];
    let found = TYPES.iter().find(|(word, _)| what.contains(word));
    let fstype = args
        .fstype
        .as_deref()
        .or(found.map(|(_, fstype)| *fstype))?;
    refused_option(fstype, args.options.as_deref()?)
}

/// The command for the plaintext as a file in DIR: whole, or in words where it takes many options.
fn file_only(args: &Args, is_plain: bool) -> String {
    if is_plain {
        return format!(
            "the same command with --file-only{} and the folder DIR",
            instead(args)
        );
    }
    let mut command = "`xtent mount --file-only".to_owned();
    if let Some(number) = args.device.partition {
        command += &format!(" --partition {number}");
    }
    if let Some(header) = &args.device.detached.header {
        command += &format!(" --header {}", shell_word(header));
    }
    command + &format!(" {} DIR`", shell_word(&args.device.device))
}

/// The text as the start of a sentence.
fn capital(text: &str) -> String {
    match text.strip_prefix("the") {
        Some(rest) => format!("The{rest}"),
        None => text.to_owned(),
    }
}

/// What noise may come from.
fn about_noise(args: &Args, is_plain: bool) -> String {
    let wrong = if is_plain {
        "the passphrase or key file, or an option such as --cipher, --hash, --offset or --skip, is \
         not that of this volume: nothing on it tells"
    } else if args.device.detached.header.is_some() {
        "--header names the header of another volume, or one that another volume's backup was \
         restored to"
    } else {
        "its header was restored from the backup of another volume"
    };
    format!(
        "The volume holds noise. Either nothing was ever written to it, on a device that had been \
         in use before, or {wrong}. Do not write to it, and make no file system on it, before that \
         is clear: that would destroy data which the right way in still reads. If it is new, \
         `xtent mount --help` shows how it gets a file system."
    )
}

fn advice(args: &Args, found: &Found<'_>, content: Content) -> String {
    let volume = found.volume;
    let sector_size = volume.sector_size().bytes() as u64;
    let command = file_only(args, found.is_plain);
    let as_file = format!(
        "{} offers it as the file DIR/{FILE_NAME}",
        capital(&command)
    );
    match content {
        Content::Known(what) if what.contains("partition table") => format!(
            "The volume holds {what}, whose partitions mount cannot see. {as_file}; `losetup \
             --find --show --partscan DIR/{FILE_NAME}` makes devices of them."
        ),
        Content::Known(what) if !what.contains("file system") && !what.contains("image") => {
            format!("The volume holds {what}, which is no file system. {as_file}.")
        }
        Content::Known(what) => {
            let mut text = format!("The volume holds {what}");
            if let Some(block) = ext_block_size(volume).filter(|block| *block < sector_size) {
                text += &format!(
                    " with blocks of {block} bytes, smaller than the volume's sectors of \
                     {sector_size}: the kernel cannot mount that. {as_file}, and `fuse2fs -o \
                     {} DIR/{FILE_NAME} FOLDER` (Debian package fuse2fs) mounts that file.",
                    fuse2fs_options(args.read_only)
                );
                return text;
            }
            let refused: Vec<String> = [("-t", &args.fstype), ("-o", &args.options)]
                .into_iter()
                .filter_map(|(option, value)| Some(format!("{option} {}", value.as_ref()?)))
                .collect();
            if refused.is_empty() {
                text += ". The kernel's log (`dmesg`) says why it refused it; it may be damaged, \
                         or the kernel may lack support for it.";
            } else if let Some(said) = kernel_says(args, what) {
                text += &format!(": it is there, and an option was refused ({said}).");
                return text;
            } else {
                text += &format!(
                    ": it is there, and {} may be what was refused. The kernel's log (`dmesg`) \
                     says which; try without.",
                    refused.join(" ")
                );
            }
            if args.read_only && args.options.is_none() && ext_block_size(volume).is_some() {
                text += "\nIf it was not unmounted in good order, a read-only mount cannot bring it \
                         up to date from its journal: `-o noload` mounts it as it is.";
            }
            if sector_size > 512 {
                text += &format!(
                    "\nThe volume has {sector_size}-byte sectors: a file system with smaller \
                     blocks cannot be mounted."
                );
            }
            text
        }
        Content::Blank => format!(
            "Nothing is on the volume yet, as far as can be seen. A new one gets its file system \
             in three steps:\n\
             1. {command}\n\
             2. `mkfs.ext4 -b {} DIR/{FILE_NAME}`\n\
             3. `xtent umount DIR`\n\
             The blocks of a file system must not be smaller than the volume's sectors of \
             {sector_size} bytes (mkfs.xfs: -s size={sector_size}).",
            sector_size.max(4096)
        ),
        Content::Noise => about_noise(args, found.is_plain),
        Content::Unknown => format!(
            "There is data on the volume, but no file system that is known here. {as_file}; \
             `blkid --probe` and `file` may tell what it is."
        ),
    }
}
