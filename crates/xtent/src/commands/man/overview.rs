//! xtent(7): what there is to know before the first command, and the examples of a
//! first day.

use roff::{Roff, roman};

use super::sections;

const OVERVIEW: &str = "\
DESCRIPTION:
  Xtent opens, makes and serves encrypted volumes in the LUKS1 and LUKS2 formats
  of cryptsetup. A volume is a block device or an image file: a header, which holds the
  random key of the volume once for each passphrase, and the encrypted data. Whoever
  loses the header, or all passphrases, loses the data: keep a backup of the first.

  There are three ways to the plaintext of a volume, and each can be undone:

  xtent serve gives it to any NBD client, without root and without the kernel: to
  virtual machines, nbdcopy, qemu-img and others.

  xtent mount mounts the file system on it (root), or with --file-only offers the plaintext
  as one file (anybody).

  xtent open makes it a block device of the kernel, as cryptsetup open does (root).

  A volume that is used in one way for writing is refused in every other until that ends. Its
  passphrases can be changed at any time.

EXAMPLES:
  A volume in a file, its file system, a file in that, as root:
    xtent format --size 10G disk.img
    xtent mount --file-only disk.img /mnt
    mkfs.ext4 -b 4096 /mnt/volume
    xtent umount /mnt
    xtent mount disk.img /mnt
    cp letter.txt /mnt/
    xtent umount /mnt

  The header where the volume is not, and what brings it back:
    xtent header backup disk.img disk.header
    xtent header restore disk.img disk.header

  A second passphrase, its test, the list, and its end:
    xtent key add disk.img
    xtent key test disk.img
    xtent key list disk.img
    xtent key remove disk.img

  A virtual machine with the volume as its disk, as any user:
    xtent serve --nbd unix:/tmp/disk.sock disk.img
    qemu-system-x86_64 -drive 'file=nbd+unix:///?socket=/tmp/disk.sock,format=raw'

  A plain image into a new volume, and out again:
    xtent format --size 10G disk.img
    xtent encrypt plain.img disk.img
    xtent decrypt disk.img copy.img

  What is in use, and what this machine is capable of:
    xtent status
    xtent bench

  For a script the passphrase is in a file, all of it and nothing else, no line end
  either, and results are JSON:
    xtent key test --key-file secret --json disk.img

NOTES:
  Every command tells its options with --help, and has a page of its own, xtent-serve(8)
  for instance. Exit codes, and which passphrase is taken from where, are cryptsetup's.
";

/// The page as roff.
pub(super) fn page() -> std::io::Result<Vec<u8>> {
    let mut roff = Roff::new();
    roff.control(
        "TH",
        [
            "XTENT",
            "7",
            "",
            concat!("Xtent ", env!("CARGO_PKG_VERSION")),
            "Disk encryption",
        ],
    );
    roff.control("SH", ["NAME"]);
    roff.text([roman("xtent - encrypted volumes: overview and examples")]);
    sections(&mut roff, OVERVIEW);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("xtent(8), cryptsetup(8), crypttab(5)")]);
    let mut page = Vec::new();
    roff.to_writer(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn its_examples_are_command_lines() {
        let mut seen = 0;
        for line in OVERVIEW
            .lines()
            .filter_map(|l| l.strip_prefix("    xtent "))
        {
            let words = std::iter::once("xtent").chain(line.split_whitespace());
            if let Err(error) = Cli::try_parse_from(words) {
                // Left out of a build without the device mapper.
                panic!("xtent {line}: {error}");
            }
            seen += 1;
        }
        assert!(seen > 15, "{seen}");
    }
}
