//! What is on a device now, for the question before it is overwritten: the
//! well-known signatures, enough to save somebody from a typing error.

use xtent_store::Store;

struct Signature {
    what: &'static str,
    offset: u64,
    magic: &'static [u8],
}

const fn sig(what: &'static str, offset: u64, magic: &'static [u8]) -> Signature {
    Signature {
        what,
        offset,
        magic,
    }
}

/// Most telling first: a partition table's 55 AA is last, because boot
/// sectors of file systems end so too.
const SIGNATURES: &[Signature] = &[
    sig("a LUKS1 volume", 0, b"LUKS\xba\xbe\x00\x01"),
    sig("a LUKS2 volume", 0, b"LUKS\xba\xbe\x00\x02"),
    sig(
        "a LUKS2 volume with a damaged first header",
        0x4000,
        b"SKUL\xba\xbe\x00\x02",
    ),
    sig("an XFS file system", 0, b"XFSB"),
    sig("a Btrfs file system", 0x10040, b"_BHRfS_M"),
    sig(
        "a Bcachefs file system",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    sig("an F2FS file system", 0x400, b"\x10\x20\xf5\xf2"),
    sig("an LVM physical volume", 512, b"LABELONE"),
    sig("swap space", 4096 - 10, b"SWAPSPACE2"),
    sig("a Linux RAID member", 0x1000, b"\xfc\x4e\x2b\xa9"),
    sig("a BitLocker volume", 3, b"-FVE-FS-"),
    sig("an NTFS file system", 3, b"NTFS    "),
    sig("an exFAT file system", 3, b"EXFAT   "),
    sig("a FAT file system", 54, b"FAT1"),
    sig("a FAT file system", 82, b"FAT32   "),
    sig("a SquashFS image", 0, b"hsqs"),
    sig("an ISO 9660 image", 0x8001, b"CD001"),
    sig("a QCOW2 image", 0, b"QFI\xfb"),
    sig("a ZFS member", 0x20000, b"\x0c\xb1\xba\x00\x00\x00\x00\x00"),
    sig("an ext2, ext3 or ext4 file system", 0x438, b"\x53\xef"),
    sig("a GPT partition table", 512, b"EFI PART"),
    sig("a GPT partition table", 4096, b"EFI PART"),
    sig("a DOS partition table", 510, b"\x55\xaa"),
];

/// Names what the signatures on `store` say, if any.
pub(crate) fn describe(store: &dyn Store) -> Option<&'static str> {
    let mut buf = [0; 16];
    SIGNATURES
        .iter()
        .find(|s| {
            let magic = &mut buf[..s.magic.len()];
            s.offset + magic.len() as u64 <= store.size()
                && store.read_at(magic, s.offset).is_ok()
                && magic == s.magic
        })
        .map(|s| s.what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use xtent_store::{Access, FileStore};

    fn store(size: usize, offset: usize, magic: &[u8]) -> (tempfile::NamedTempFile, FileStore) {
        let mut content = vec![0; size];
        content[offset..offset + magic.len()].copy_from_slice(magic);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&content).unwrap();
        let store = FileStore::open(file.path(), Access::ReadOnly).unwrap();
        (file, store)
    }

    #[test]
    fn knows_every_signature() {
        for s in SIGNATURES {
            let at = usize::try_from(s.offset).unwrap();
            let (_file, store) = store(at + 512, at, s.magic);
            assert_eq!(describe(&store), Some(s.what));
        }
    }

    #[test]
    fn says_nothing_about_zeros_and_short_files() {
        assert_eq!(describe(&store(1 << 18, 0, b"").1), None);
        assert_eq!(describe(&store(6, 0, b"LUKS\xba\xbe").1), None);
        assert_eq!(describe(&store(0, 0, b"").1), None);
    }
}
