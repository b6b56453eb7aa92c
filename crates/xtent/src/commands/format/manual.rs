//! What `xtent format --help` says beside its options.

pub(super) const MANUAL: &str = "\
EXAMPLES:
  A volume of 10 GiB in a new image file:
    xtent format --size 10G disk.img
  With a file system in it, ready to be mounted:
    xtent format --size 10G --mkfs ext4 disk.img
  On a disk, with a label; asks before anything is lost:
    xtent format --label backup /dev/sdX
  For scripts: no questions, the passphrase from a file:
    xtent format --batch-mode --key-file key --size 1G disk.img
  LUKS1, for old systems:
    xtent format --type luks1 --size 1G disk.img
  With a header of 1 MiB, room for three keys, instead of 16 MiB:
    xtent format --offset 2048 --size 10M small.img
  The header in a file of its own, kept elsewhere:
    xtent format --header disk.header /dev/sdX
  With a wide-block cipher, under which a sector is one block:
    xtent format --cipher 'capi:fast(aes)-plain64' --size 10G disk.img

DEFAULTS:
  LUKS2, aes-xts-plain64 with a key of 512 bits, argon2id at 2 seconds with at
  most 1 GiB of memory, sha256, data from 16 MiB on (LUKS1: pbkdf2, from 2 MiB on).

  The sector size is 4096 if the target is an image file, or a disk whose
  physical blocks are that large, and its size is a multiple; else 512. Do not
  choose it above what the disk writes atomically: a sector torn by a power
  failure loses the 16-byte blocks at the tear, and under a wide-block cipher
  all of itself.

CIPHERS:
  Names as in dm-crypt, with the bits of key that each takes. Where it says
  \"wide-block\" every bit of a sector's ciphertext depends on every bit of the
  sector; these need LUKS2. docs/volumes.md says how to choose.

    aes-xts-plain64                 256, 512       XTS: the default
    aes-xts-plain                   256, 512       XTS, numbers wrap at 2^32
    aes-xts-plain64be               256, 512       XTS, numbers big endian
    aes-cbc-essiv:sha256            128, 192, 256  CBC, for old containers
    aes-cbc-plain64                 128, 192, 256  CBC with predictable IVs
    aes-cbc-plain                   128, 192, 256  CBC, the same, wraps at 2^32
    aes-cbc-plain64be               128, 192, 256  CBC, the same, big endian
    capi:fast(aes)-plain64          128, 256       FAST, BRW hash; wide-block
    capi:fast_horner(aes)-plain64   128, 256       FAST, Horner hash; wide-block
    aes-hctr2-plain64               128, 256       HCTR2; wide-block
    xchacha12,aes-adiantum-plain64  256            Adiantum; wide-block
    xchacha20,aes-adiantum-plain64  256            Adiantum, 20 rounds; wide-block
    capi:eme2(aes)-plain64          384, 512       EME2; wide-block
    capi:aez10(aes)-plain64         128, 256       AEZ10; wide-block
    capi:xcb(aes)-plain64           128, 256       XCB; wide-block, BROKEN

  HCTR2 and Adiantum are the kernel's own. Volumes with names that begin with
  \"capi:\" are opened by Xtent alone; cryptsetup still manages their keys and
  headers. FAST and AEZ10 are specified for keys of 128 bits; with 256 bits
  they use AES-256 in the same place.

NOTES:
  Nothing is written before everything has been checked and the passphrase is
  known. Of an existing device only the header is written: what else was on it
  stays readable until it is overwritten. To hide which sectors are in use,
  fill the volume with zeros once.

  Save the header: without it the data is lost for good. `xtent header backup`.";

#[cfg(test)]
mod tests {
    use sector_cipher::CipherSpec;

    use super::*;

    #[test]
    fn the_manual_lists_every_cipher_with_its_keys() {
        for spec in CipherSpec::all() {
            let line = MANUAL
                .lines()
                .find(|line| line.split_whitespace().next() == Some(&spec.to_string()))
                .unwrap_or_else(|| panic!("no {spec}"));
            let bits: Vec<String> = spec
                .key_lengths()
                .iter()
                .map(|bytes| (bytes * 8).to_string())
                .collect();
            assert!(line.contains(&bits.join(", ")), "{line}");
            assert_eq!(line.contains("BROKEN"), spec.mode().is_broken(), "{line}");
            assert_eq!(
                line.contains("wide-block"),
                spec.mode().is_wide_block(),
                "{line}"
            );
        }
    }
}
