//! Signatures of other things that may have been put over a LUKS2 header.
//! Asked only when a copy of the header is damaged: then the device may hold
//! something else by now, and writing the copy anew would destroy it.

use xtent_store::Store;

/// Where and what (from the on-disk formats of each).
const SIGNATURES: [(&str, u64, &[u8]); 21] = [
    ("ext2/ext3/ext4", 0x438, b"\x53\xef"),
    ("XFS", 0, b"XFSB"),
    ("btrfs", 0x1_0040, b"_BHRfS_M"),
    ("F2FS", 0x400, b"\x10\x20\xf5\xf2"),
    ("EROFS", 0x400, b"\xe2\xe1\xf5\xe0"),
    ("squashfs", 0, b"hsqs"),
    ("bcachefs", 0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9"),
    ("bcache", 0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    ("LVM2", 0x000, b"LABELONE"),
    ("LVM2", 0x200, b"LABELONE"),
    ("LVM2", 0x400, b"LABELONE"),
    ("LVM2", 0x600, b"LABELONE"),
    ("Linux RAID", 0, b"\xfc\x4e\x2b\xa9"),
    ("Linux RAID", 0x1000, b"\xfc\x4e\x2b\xa9"),
    ("swap", 0xff6, b"SWAPSPACE2"),
    ("GPT", 0x200, b"EFI PART"),
    ("MBR, FAT or NTFS", 0x1fe, b"\x55\xaa"),
    ("ISO 9660", 0x8001, b"CD001"),
    ("UDF", 0x8001, b"BEA01"),
    ("JFS", 0x8000, b"JFS1"),
    ("ReiserFS", 0x1_0034, b"ReIsEr"),
];

/// The first signature found, by name.
pub(crate) fn find(store: &dyn Store) -> Option<&'static str> {
    SIGNATURES
        .into_iter()
        .find(|(_, offset, magic)| {
            let mut there = vec![0; magic.len()];
            // A place that cannot be read holds nothing that is in use.
            offset + magic.len() as u64 <= store.size()
                && store.read_at(&mut there, *offset).is_ok()
                && there == *magic
        })
        .map(|(name, ..)| name)
}
