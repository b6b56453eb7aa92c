//! Partitions of a disk image: which are LUKS volumes, and a store of one.

use std::path::Path;

use xtent_partition::Partition;
use xtent_store::{Access, FileStore};

use crate::failure::{Exit, Failure, Result};
use crate::probe;
#[cfg(feature = "device-mapper")]
use crate::probe::shell_word;
use crate::size::show_size;

/// The partitions of a disk in a file.
fn find(disk: &FileStore) -> Vec<Partition> {
    xtent_partition::find(disk, |partition| is_luks(disk, partition))
}

/// Partition `number` of the disk that `path` names, as a store of its own.
pub(crate) fn open(path: &Path, number: u32, access: Access) -> Result<FileStore> {
    let disk = FileStore::open(path, access)?;
    let partitions = find(&disk);
    let Some(partition) = partitions.iter().find(|p| p.number == number) else {
        let message = format!("{} has no partition {number}", path.display());
        return Err(Failure::new(Exit::Device, message).advise(list(&disk, &partitions)));
    };
    disk.window(partition.start, partition.len).map_err(|_| {
        Failure::new(
            Exit::Device,
            format!(
                "partition {number} ends beyond the end of {}: it was cut off",
                path.display()
            ),
        )
    })
}

/// What to do about a disk that is no LUKS volume but has such partitions.
pub(crate) fn advice(disk: &FileStore) -> Option<String> {
    let partitions = find(disk);
    let has_luks = partitions.iter().any(|p| is_luks(disk, p));
    has_luks.then(|| list(disk, &partitions))
}

/// The refusal of `--partition` for an export of a server.
pub(crate) fn refuse_export(uri: &Path) -> Failure {
    Failure::parameters(format!(
        "--partition is for images and disks of this machine, not for {}",
        uri.display()
    ))
    .advise(
        "Have the server export the partition alone: `nbdkit --filter=partition file IMAGE \
         partition=N`, or `qemu-nbd` with `raw,offset=START,size=BYTES` as its driver.",
    )
}

/// The refusal of `--partition` where the kernel opens the volume.
#[cfg(feature = "device-mapper")]
pub(crate) fn refuse_mapping(path: &Path, number: u32) -> Failure {
    let file = shell_word(path);
    Failure::parameters(
        "--partition works where Xtent itself reads the volume, not with the device mapper",
    )
    .advise(format!(
        "Let the kernel find the partition: `losetup --find --show --partscan {file}` prints \
             /dev/loopN; then open /dev/loopNp{number}. (Of a disk, open its partition's device.)"
    ))
}

fn list(disk: &FileStore, partitions: &[Partition]) -> String {
    let luks: Vec<String> = partitions
        .iter()
        .filter(|p| is_luks(disk, p))
        .map(|p| format!("--partition {} ({})", p.number, show_size(p.len)))
        .collect();
    match luks.as_slice() {
        [] if partitions.is_empty() => "It holds no partition table.".to_owned(),
        [] => format!(
            "None of its {} partitions is a LUKS volume.",
            partitions.len()
        ),
        _ => format!("LUKS volumes in its partitions: {}.", luks.join(", ")),
    }
}

fn is_luks(disk: &FileStore, partition: &Partition) -> bool {
    FileStore::open(disk.path(), Access::ReadOnly)
        .and_then(|file| file.window(partition.start, partition.len))
        .is_ok_and(|part| probe::describe(&part).is_some_and(|what| what.contains("LUKS")))
}
