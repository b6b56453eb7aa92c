//! Mappings of encrypted volumes that there are, by what the kernel shows of them in
//! `/sys/block`: no root is needed to read that, and it has no key in it.

use std::io;
use std::path::{Path, PathBuf};

use crate::name::OURS;

/// A mapping of an encrypted volume, by xtent or cryptsetup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Of `/dev/mapper/NAME`.
    pub name: String,
    /// What made it and of what, `CRYPT-LUKS2-<32 digits>-NAME` for instance.
    pub mapper_uuid: String,
    /// The device below, or the image where that is a loop device; none if it is gone.
    pub device: Option<PathBuf>,
    /// The loop device between.
    pub loop_device: Option<PathBuf>,
    /// Size in bytes.
    pub size: u64,
    /// Whether writes are refused.
    pub is_read_only: bool,
    /// Whether who reads or writes waits until it is resumed.
    pub is_suspended: bool,
}

impl Mapped {
    /// `LUKS1`, `LUKS2`, `PLAIN`, `BITLK`, ...: what cryptsetup calls the format.
    pub fn format(&self) -> &str {
        self.mapper_uuid.split('-').nth(1).unwrap_or_default()
    }

    /// The UUID of the header, with its hyphens, where the format has one.
    pub fn uuid(&self) -> Option<String> {
        let digits = self.mapper_uuid.split('-').nth(2)?;
        if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
        Some(format!(
            "{}-{}-{}-{}-{}",
            part(0, 8),
            part(8, 12),
            part(12, 16),
            part(16, 20),
            part(20, 32)
        ))
    }
}

/// All of them, by name; none where the kernel has no device mapper.
pub fn listed() -> io::Result<Vec<Mapped>> {
    listed_in(Path::new("/sys/block"))
}

fn listed_in(blocks: &Path) -> io::Result<Vec<Mapped>> {
    let entries = match std::fs::read_dir(blocks) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_mapping = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("dm-"));
        // One that goes meanwhile is not listed.
        if is_mapping && let Some(mapped) = look_at(&path, blocks) {
            found.push(mapped);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn look_at(path: &Path, blocks: &Path) -> Option<Mapped> {
    let mapper_uuid = attribute(path, "dm/uuid")?;
    if !mapper_uuid.starts_with(OURS) {
        return None;
    }
    let below = std::fs::read_dir(path.join("slaves"))
        .ok()
        .and_then(|mut slaves| slaves.next()?.ok())
        .map(|slave| slave.file_name());
    let node = below.as_ref().map(|name| Path::new("/dev").join(name));
    let image = below
        .as_ref()
        .and_then(|name| attribute(&blocks.join(name), "loop/backing_file"))
        .map(PathBuf::from);
    let (device, loop_device) = match image {
        Some(image) => (Some(image), node),
        None => (node, None),
    };
    Some(Mapped {
        name: attribute(path, "dm/name")?,
        mapper_uuid,
        device,
        loop_device,
        // In 512 bytes, whatever the device's sectors are.
        size: attribute(path, "size")?
            .parse::<u64>()
            .ok()?
            .checked_mul(512)?,
        is_read_only: attribute(path, "ro")? == "1",
        is_suspended: attribute(path, "dm/suspended")? == "1",
    })
}

fn attribute(device: &Path, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(device.join(name)).ok()?;
    Some(text.trim_end_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(blocks: &Path, name: &str, attributes: &[(&str, &str)], below: Option<&str>) {
        let device = blocks.join(name);
        for (attribute, value) in attributes {
            let path = device.join(attribute);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{value}\n")).unwrap();
        }
        if let Some(below) = below {
            std::fs::create_dir_all(device.join("slaves").join(below)).unwrap();
        }
    }

    #[test]
    fn mappings_of_volumes_are_listed_and_no_others() {
        let blocks = std::env::temp_dir().join(format!("xtent-blocks-{}", std::process::id()));
        let uuid = "CRYPT-LUKS2-2c2e6a3c6f1d4f6e9d8b7a54a52d1c11-v-1";
        let mapping = |name, uuid| {
            [
                ("dm/name", name),
                ("dm/uuid", uuid),
                ("size", "8"),
                ("ro", "0"),
                ("dm/suspended", if name == "p" { "1" } else { "0" }),
            ]
        };
        make(&blocks, "dm-0", &mapping("v-1", uuid), Some("loop3"));
        make(&blocks, "dm-1", &mapping("vg-lv", "LVM-abc"), Some("sda1"));
        make(&blocks, "dm-2", &mapping("p", "CRYPT-PLAIN-p"), Some("sdb"));
        make(&blocks, "dm-3", &[("dm/uuid", uuid)], None);
        make(
            &blocks,
            "loop3",
            &[("loop/backing_file", "/a disk.img")],
            None,
        );
        make(&blocks, "sda", &[("size", "8")], None);
        let found = listed_in(&blocks);
        std::fs::remove_dir_all(&blocks).unwrap();
        let [plain, luks] = &found.unwrap()[..] else {
            panic!("not two")
        };
        assert_eq!((plain.format(), plain.uuid()), ("PLAIN", None));
        assert!(plain.is_suspended && !luks.is_suspended);
        assert_eq!(plain.device.as_deref(), Some(Path::new("/dev/sdb")));
        assert_eq!(luks.format(), "LUKS2");
        assert_eq!(
            luks.uuid().as_deref(),
            Some("2c2e6a3c-6f1d-4f6e-9d8b-7a54a52d1c11")
        );
        assert_eq!(luks.device.as_deref(), Some(Path::new("/a disk.img")));
        assert_eq!(luks.loop_device.as_deref(), Some(Path::new("/dev/loop3")));
        assert_eq!((luks.size, luks.is_read_only), (4096, false));
    }

    #[test]
    fn a_kernel_without_block_devices_has_none() {
        assert_eq!(listed_in(Path::new("/nowhere")).unwrap(), []);
    }
}
