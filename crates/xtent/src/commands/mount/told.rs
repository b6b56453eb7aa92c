//! Why a volume was not mounted, and what to do: by what it holds.

use std::path::Path;

use xtent_export::ErrorKind;
use xtent_export::fuse::{FILE_NAME, refused_option};
use xtent_volume::Volume;

use super::Args;
use crate::failure::{Exit, Failure};
use crate::probe::{Content, ext_block_size, look_into};

/// Of a user who may not mount file systems.
pub(super) fn takes_root(args: &Args) -> Failure {
    let (device, dir) = (args.device.device.display(), args.dir.display());
    Failure::new(Exit::Permission, "mounting a file system takes root").advise(format!(
        "Run it as root, or give --file-only for the plaintext as the file {dir}/{FILE_NAME}. An \
         ext2, ext3 or ext4 file system in it needs no root with fuse2fs (Debian package fuse2fs):\n\
         xtent mount --file-only {device} {dir} && fuse2fs -o fakeroot {dir}/{FILE_NAME} FOLDER"
    ))
}

/// What to do with the file `volume` in `dir`, where that is known.
pub(super) fn use_of_file(dir: &Path, volume: &Volume) -> Option<String> {
    ext_block_size(volume)?;
    let dir = dir.display();
    Some(format!(
        "It holds an ext2, ext3 or ext4 file system. To use that without root (Debian package \
         fuse2fs):\n  fuse2fs -o fakeroot {dir}/{FILE_NAME} FOLDER\n  fusermount3 -u FOLDER \
         && xtent umount {dir}"
    ))
}

/// Adds to what mount(8) said what the volume holds, and what follows from that.
pub(super) fn not_mounted(error: xtent_export::Error, args: &Args, volume: &Volume) -> Failure {
    if error.kind != ErrorKind::NotMountable {
        return error.into();
    }
    let failure = Failure::from(error);
    match look_into(volume) {
        Ok(content) => failure.advise(advice(args, volume, content)),
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

fn advice(args: &Args, volume: &Volume, content: Content) -> String {
    let device = args.device.device.display();
    let sector_size = volume.sector_size().bytes() as u64;
    let as_file =
        format!("`xtent mount --file-only {device} DIR` offers it as the file DIR/{FILE_NAME}");
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
                     fakeroot DIR/{FILE_NAME} FOLDER` (Debian package fuse2fs) mounts that file."
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
             so:\n\
             xtent mount --file-only {device} DIR && mkfs.ext4 -b {} DIR/{FILE_NAME} && xtent \
             umount DIR\n\
             The blocks of a file system must not be smaller than the volume's sectors of \
             {sector_size} bytes (mkfs.xfs: -s size={sector_size}).",
            sector_size.max(4096)
        ),
        Content::Unknown => format!(
            "There is data on the volume, but no file system that is known here. {as_file}; \
             `blkid --probe` and `file` may tell what it is."
        ),
    }
}
