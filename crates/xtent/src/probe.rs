//! What is on a device, or inside an open volume: the well-known signatures,
//! enough to save somebody from a typing error.

use std::path::Path;

use xtent_store::Store;
use xtent_volume::Volume;

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

const BITLOCKER: &str = "a BitLocker volume";

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
    sig(BITLOCKER, 3, b"-FVE-FS-"),
    sig("an NTFS file system", 3, b"NTFS    "),
    sig("an exFAT file system", 3, b"EXFAT   "),
    sig("a FAT file system", 54, b"FAT1"),
    sig("a FAT file system", 82, b"FAT32   "),
    sig("a SquashFS image", 0, b"hsqs"),
    sig("an EROFS image", 0x400, b"\xe2\xe1\xf5\xe0"),
    sig("a JFS file system", 0x8000, b"JFS1"),
    sig("a ReiserFS file system", 0x10034, b"ReIsEr"),
    sig("a NILFS2 file system", 0x406, b"\x34\x34"),
    sig("an HFS+ file system", 0x400, b"H+\x00\x04"),
    sig("an ISO 9660 image", 0x8001, b"CD001"),
    sig("a ZFS member", 0x20000, b"\x0c\xb1\xba\x00\x00\x00\x00\x00"),
    sig("an ext2, ext3 or ext4 file system", 0x438, b"\x53\xef"),
    sig("a GPT partition table", 512, b"EFI PART"),
    sig("a GPT partition table", 4096, b"EFI PART"),
    sig("a DOS partition table", 510, b"\x55\xaa"),
];

/// Bytes from the start that show every [`Wrapping`].
pub(crate) const WRAPPING_SHOWS: usize = 512;

/// A format of files that hold a plain image in another form.
pub(crate) struct Wrapping {
    what: &'static str,
    offset: usize,
    magic: &'static [u8],
    tool: Tool,
}

/// What gets the plain image out.
#[derive(Clone, Copy)]
enum Tool {
    /// QEMU, which calls the format so.
    Qemu(&'static str),
    /// A program that writes it to standard output.
    Unpack(&'static str),
}

const fn wrap(what: &'static str, offset: usize, magic: &'static [u8], tool: Tool) -> Wrapping {
    Wrapping {
        what,
        offset,
        magic,
        tool,
    }
}

/// QEMU's names are those of `qemu-img --help`; magic numbers are from its
/// block drivers, and from the formats' specifications.
const WRAPPINGS: &[Wrapping] = &[
    wrap("a QCOW image", 0, b"QFI\xfb\0\0\0\x01", Tool::Qemu("qcow")),
    wrap("a QCOW2 image", 0, b"QFI\xfb", Tool::Qemu("qcow2")),
    wrap("a QED image", 0, b"QED\0", Tool::Qemu("qed")),
    wrap("a VMDK image", 0, b"KDMV", Tool::Qemu("vmdk")),
    wrap("a VMDK image", 0, b"COWD", Tool::Qemu("vmdk")),
    wrap(
        "a VMDK image's description",
        0,
        b"# Disk DescriptorFile",
        Tool::Qemu("vmdk"),
    ),
    wrap("a VHDX image", 0, b"vhdxfile", Tool::Qemu("vhdx")),
    wrap("a VHD image", 0, b"conectix", Tool::Qemu("vpc")),
    wrap("a VDI image", 64, b"\x7f\x10\xda\xbe", Tool::Qemu("vdi")),
    wrap(
        "a Parallels image",
        0,
        b"WithoutFreeSpace",
        Tool::Qemu("parallels"),
    ),
    wrap(
        "a Parallels image",
        0,
        b"WithouFreSpacExt",
        Tool::Qemu("parallels"),
    ),
    wrap(
        "compressed by gzip",
        0,
        b"\x1f\x8b\x08",
        Tool::Unpack("gzip -dc"),
    ),
    wrap("compressed by xz", 0, b"\xfd7zXZ\0", Tool::Unpack("xz -dc")),
    wrap(
        "compressed by zstd",
        0,
        b"\x28\xb5\x2f\xfd",
        Tool::Unpack("zstd -dc"),
    ),
    wrap("compressed by bzip2", 0, b"BZh", Tool::Unpack("bzip2 -dc")),
    wrap(
        "compressed by lz4",
        0,
        b"\x04\x22\x4d\x18",
        Tool::Unpack("lz4 -dc"),
    ),
];

impl Wrapping {
    /// The format that a file begins as, from its first [`WRAPPING_SHOWS`] bytes.
    pub(crate) fn of(start: &[u8]) -> Option<&'static Self> {
        WRAPPINGS.iter().find(|w| {
            start
                .get(w.offset..)
                .is_some_and(|rest| rest.starts_with(w.magic))
        })
    }

    /// The same of a file.
    pub(crate) fn in_store(store: &dyn Store) -> Option<&'static Self> {
        let mut start = [0; WRAPPING_SHOWS];
        let most = usize::try_from(store.size()).unwrap_or(WRAPPING_SHOWS);
        let start = &mut start[..most.min(WRAPPING_SHOWS)];
        store.read_at(start, 0).ok()?;
        Self::of(start)
    }

    /// `a QCOW2 image`, `compressed by zstd`
    pub(crate) fn what(&self) -> &'static str {
        self.what
    }

    /// The shell's words that write the plain image to standard output.
    pub(crate) fn unwrapped(&self, path: &Path) -> String {
        let path = shell_word(path);
        match self.tool {
            Tool::Qemu(format) => format!("nbdcopy -- [ qemu-nbd -r -f {format} {path} ] -"),
            Tool::Unpack(program) => format!("{program} {path}"),
        }
    }

    /// How to have the plain image as a file of its own.
    pub(crate) fn converted(&self, path: &Path) -> String {
        let file = shell_word(path);
        let raw = shell_word(&path.with_extension("raw"));
        match self.tool {
            Tool::Qemu(format) => format!("qemu-img convert -f {format} -O raw {file} {raw}"),
            Tool::Unpack(program) => format!("{program} {file} >{raw}"),
        }
    }
}

/// A path as one word for a shell.
pub(crate) fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        return text;
    }
    let dashed = if text.starts_with('-') { "./" } else { "" };
    format!("'{dashed}{}'", text.replace('\'', r"'\''"))
}

/// Whether there are zeros wherever the header of a volume may be; not if it cannot be read.
pub(crate) fn reads_as_zeros(store: &dyn Store) -> bool {
    let mut piece = [0; 4096];
    let places = std::iter::once(0).chain((14..=22).map(|bits| 1_u64 << bits));
    let mut inside = places
        .take_while(|place| place + 4096 <= store.size())
        .peekable();
    inside.peek().is_some()
        && inside.all(|place| {
            store.read_at(&mut piece, place).is_ok() && piece.iter().all(|byte| *byte == 0)
        })
}

/// Names what the signatures on `store` say, if any.
pub(crate) fn describe(store: &dyn Store) -> Option<&'static str> {
    if let Some(wrapping) = Wrapping::in_store(store) {
        return Some(wrapping.what);
    }
    find(store.size(), |buf, at| store.read_at(buf, at).is_ok())
}

fn find(size: u64, read: impl Fn(&mut [u8], u64) -> bool) -> Option<&'static str> {
    let mut buf = [0; 16];
    SIGNATURES
        .iter()
        .find(|s| {
            let magic = &mut buf[..s.magic.len()];
            s.offset + magic.len() as u64 <= size && read(magic, s.offset) && magic == s.magic
        })
        .map(|s| s.what)
}

/// What a volume's plaintext holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// This, by its signature.
    Known(&'static str),
    /// As far as was looked, nothing was ever written: zeros, in plaintext or on the device.
    Blank,
    /// As far as was looked, noise (and zeros): what a device with old contents shows through a
    /// new header, and what every volume shows through a wrong key, cipher or offset.
    Noise,
    /// Something, but nothing known here.
    Unknown,
}

/// How much of a volume's start is looked at before it is called blank.
const LOOKED_AT: u64 = 1 << 20;

/// Places all over the volume that are looked at besides, and the bytes of each.
const SAMPLES: u64 = 64;
const SAMPLE: u64 = 4096;

/// Looks into an open volume, whose ciphertext is on `device` from `offset` on.
pub(crate) fn look_into(
    volume: &Volume,
    device: &dyn Store,
    offset: u64,
) -> Result<Content, xtent_volume::Error> {
    let size = volume.size();
    let read = |buf: &mut [u8], at| volume.read_at(buf, at).is_ok();
    if let Some(what) = find(size, read) {
        return Ok(Content::Known(what));
    }
    let mut noise = false;
    let step = (size.saturating_sub(SAMPLE) / (SAMPLES - 1)).next_multiple_of(SAMPLE);
    let samples = (1..SAMPLES).map(|n| (n * step).min(size.saturating_sub(SAMPLE)));
    for (at, len) in [(0, LOOKED_AT)]
        .into_iter()
        .chain(samples.map(|at| (at, SAMPLE)))
    {
        let len = usize::try_from(len.min(size - at)).unwrap_or_default();
        let mut plain = vec![0; len];
        volume.read_at(&mut plain, at)?;
        let mut stored = vec![0; len];
        // What cannot be read was not left out by anybody.
        if device.read_at(&mut stored, offset + at).is_err() {
            stored.fill(0xff);
        }
        match look_at(&plain, &stored) {
            Content::Noise => noise = true,
            Content::Blank => {}
            other => return Ok(other),
        }
    }
    Ok(if noise {
        Content::Noise
    } else {
        Content::Blank
    })
}

/// What a piece of plaintext is, by its sectors and what is stored in their places. Noise has no
/// eight equal bytes in a row (in a MiB of it with a chance of one in 10^10); what programs
/// write, and is not compressed or encrypted through and through, has.
fn look_at(plain: &[u8], stored: &[u8]) -> Content {
    let is_zero = |bytes: &[u8]| bytes.iter().all(|b| *b == 0);
    let is_noise = |bytes: &[u8]| !bytes.windows(8).any(|w| w.iter().all(|b| *b == w[0]));
    let mut content = Content::Blank;
    for (plain, stored) in plain.chunks(512).zip(stored.chunks(512)) {
        if is_zero(plain) || is_zero(stored) {
            continue;
        }
        if !is_noise(plain) {
            return Content::Unknown;
        }
        content = Content::Noise;
    }
    content
}

/// Bytes in a block of the ext2, ext3 or ext4 file system on a volume, if it is one.
pub(crate) fn ext_block_size(volume: &Volume) -> Option<u64> {
    let mut superblock = [0; 64];
    volume.read_at(&mut superblock, 0x400).ok()?;
    // s_magic, s_log_block_size: little endian.
    let is_ext = superblock[0x38..0x3a] == [0x53, 0xef];
    let log = u32::from_le_bytes(superblock[0x18..0x1c].try_into().ok()?);
    (is_ext && log <= 6).then(|| 1024 << log)
}

/// What opens an encrypted volume that this program does not, as advice: one of
/// BitLocker, or one whose start is noise, as those of VeraCrypt and plain dm-crypt are.
pub(crate) fn opener(store: &dyn Store) -> Option<&'static str> {
    if describe(store) == Some(BITLOCKER) {
        return Some(
            "BitLocker is not opened here: `cryptsetup bitlkOpen DEVICE NAME` and dislocker do it.",
        );
    }
    is_noise(store).then_some(
        "It starts with noise, as the data of a volume whose header is kept elsewhere does \
         (--header FILE), and as plain dm-crypt (--type plain) and VeraCrypt volumes do; the \
         latter are opened by `cryptsetup tcryptOpen --veracrypt DEVICE NAME` and veracrypt.",
    )
}

/// Whether the first 512 bytes have the many different values of random ones: about 221
/// of 256. Text, code and tables of file systems have far fewer.
fn is_noise(store: &dyn Store) -> bool {
    let mut start = [0; 512];
    if store.size() < start.len() as u64 || store.read_at(&mut start, 0).is_err() {
        return false;
    }
    let mut seen = [false; 256];
    for byte in start {
        seen[usize::from(byte)] = true;
    }
    seen.iter().filter(|seen| **seen).count() > 190
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
    fn zeros_are_blank_and_noise_is_not() {
        // xorshift64.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut noise = Vec::new();
        while noise.len() < 1 << 20 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            noise.extend_from_slice(&state.to_le_bytes());
        }
        let zeros = vec![0; noise.len()];
        // Never written: in the plaintext's zeros, or the device's.
        assert_eq!(look_at(&zeros, &noise), Content::Blank);
        assert_eq!(look_at(&noise, &zeros), Content::Blank);
        assert_eq!(look_at(b"", b""), Content::Blank);
        let mut plain = noise.clone();
        assert_eq!(look_at(&plain, &noise), Content::Noise);
        plain[512..1536].fill(0);
        assert_eq!(look_at(&plain, &noise), Content::Noise);
        plain[700..730].copy_from_slice(b"a text, as a program writes it");
        assert_eq!(look_at(&plain, &noise), Content::Unknown);
        assert_eq!(look_at(&[0xff; 4096], &noise), Content::Unknown);
    }

    #[test]
    fn knows_every_wrapping() {
        for w in WRAPPINGS {
            let (_file, store) = store(4096, w.offset, w.magic);
            assert_eq!(describe(&store), Some(w.what));
        }
    }

    #[test]
    fn paths_are_words_for_a_shell() {
        for (path, word) in [
            ("a/b-1.img", "a/b-1.img"),
            ("-a", "'./-a'"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$x", "'$x'"),
        ] {
            assert_eq!(shell_word(Path::new(path)), word);
        }
    }

    #[test]
    fn names_what_opens_others() {
        let (_file, bitlocker) = store(4096, 3, b"-FVE-FS-");
        assert!(opener(&bitlocker).unwrap().contains("bitlkOpen"));
        let noise: Vec<u8> = (0_u32..512)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0])
            .collect();
        assert!(
            opener(&store(4096, 0, &noise).1)
                .unwrap()
                .contains("VeraCrypt")
        );
        assert_eq!(opener(&store(4096, 0, b"plain text").1), None);
    }

    #[test]
    fn says_nothing_about_zeros_and_short_files() {
        assert_eq!(describe(&store(1 << 18, 0, b"").1), None);
        assert!(reads_as_zeros(&store(1 << 18, 0, b"").1));
        assert!(!reads_as_zeros(&store(1 << 18, 0x8000, b"SKUL").1));
        assert!(!reads_as_zeros(&store(100, 0, b"").1));
        assert_eq!(describe(&store(6, 0, b"LUKS\xba\xbe").1), None);
        assert_eq!(describe(&store(0, 0, b"").1), None);
    }
}
