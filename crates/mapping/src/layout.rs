//! What the line of a table says of the volume that is encrypted by it.

use crate::Target;

/// What the table of a mapping says of its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// dm-crypt's cipher name.
    pub cipher: String,
    /// Bytes of key, where the table tells.
    pub key_length: Option<usize>,
    /// Added to every sector number, in 512-byte units.
    pub iv_offset: u64,
    /// Number of the device with the ciphertext.
    pub device: u64,
    /// First byte on it.
    pub offset: u64,
    /// Bytes per sector.
    pub sector_size: u32,
    /// Whether sector numbers count sectors of that size, and not of 512 bytes.
    pub iv_large_sectors: bool,
}

/// What a line says: cipher, key, IV offset, device, first 512-byte unit, and options. `None` if it is not understood,
/// or has more to it than a header of LUKS without integrity protection says. With
/// it goes whether a key is there for all to see.
pub(crate) fn layout(target: Target, line: &[u8]) -> Option<(Layout, bool)> {
    let mut parts = line.split(|&byte| byte == b' ');
    let cipher = text(parts.next()?)?.to_owned();
    let (shows_key, key_length) = key(target, parts.next()?)?;
    let mut words = parts.map(text);
    let iv_offset = words.next()??.parse().ok()?;
    let (major, minor) = words.next()??.split_once(':')?;
    let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let offset = words.next()??.parse::<u64>().ok()?.checked_mul(512)?;
    let mut layout = Layout {
        cipher,
        key_length,
        iv_offset,
        device,
        offset,
        sector_size: 512,
        iv_large_sectors: false,
    };
    // The first of them is their number.
    for option in words.skip(1) {
        let option = option?;
        if let Some(size) = option.strip_prefix("sector_size:") {
            layout.sector_size = size.parse().ok()?;
        } else if option == "iv_large_sectors" {
            layout.iv_large_sectors = true;
        } else if option.starts_with("integrity:") {
            return None;
        }
    }
    Some((layout, shows_key))
}

fn text(word: &[u8]) -> Option<&str> {
    std::str::from_utf8(word).ok()
}

/// Whether the word in the key's place shows that there is one, and its bytes. Of digits nothing but that they are
/// zeros is told: then there is none.
fn key(target: Target, word: &[u8]) -> Option<(bool, Option<usize>)> {
    if let Some(place) = word.strip_prefix(b":") {
        let (bytes, _) = text(place)?.split_once(':')?;
        return Some((true, Some(bytes.parse().ok()?)));
    }
    match (target, word) {
        // As it shows a key that was given in digits, too.
        (Target::Xtent, b"-") => Some((false, None)),
        (Target::Crypt, digits) if digits.len() >= 2 && digits.len().is_multiple_of(2) => {
            // All of them are looked at, whatever they are.
            let set = digits.iter().fold(0, |set, digit| set | (digit ^ b'0'));
            Some((set != 0, Some(digits.len() / 2)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const XTS: &str = ":64:logon:cryptsetup:2c2e-d0";

    fn of(target: Target, line: &str) -> Option<(Layout, bool)> {
        layout(target, line.as_bytes())
    }

    #[test]
    fn a_line_says_what_a_header_has_to_say() {
        let line = format!(
            "aes-xts-plain64 {XTS} 8 98:32 32768 3 allow_discards sector_size:4096 iv_large_sectors"
        );
        for target in [Target::Crypt, Target::Xtent] {
            let expected = Layout {
                cipher: "aes-xts-plain64".to_owned(),
                key_length: Some(64),
                iv_offset: 8,
                device: rustix::fs::makedev(98, 32),
                offset: 16 << 20,
                sector_size: 4096,
                iv_large_sectors: true,
            };
            assert_eq!(of(target, &line), Some((expected, true)));
        }
        let short = of(Target::Crypt, "aes-xts-plain64 00ff 0 7:0 8").unwrap().0;
        assert_eq!((short.sector_size, short.iv_large_sectors), (512, false));
    }

    #[test]
    fn a_table_shows_whether_a_key_is_there() {
        let zeros = "0".repeat(128);
        let digits = format!("{}8", "0".repeat(127));
        for (target, word, expected) in [
            (Target::Crypt, XTS, (true, Some(64))),
            (Target::Xtent, XTS, (true, Some(64))),
            (Target::Crypt, &*zeros, (false, Some(64))),
            (Target::Crypt, &*digits, (true, Some(64))),
            (Target::Xtent, "-", (false, None)),
        ] {
            let line = format!("aes-xts-plain64 {word} 0 98:32 8");
            let (layout, shows_key) = of(target, &line).unwrap();
            assert_eq!(
                (shows_key, layout.key_length),
                expected,
                "{target:?} {word}"
            );
        }
    }

    #[test]
    fn what_no_header_says_is_refused() {
        for line in [
            "",
            "aes-xts-plain64",
            "cipher_null-ecb - 0 98:32 8",
            "aes-xts-plain64 00ff 0 98:32",
            "aes-xts-plain64 00ff x 98:32 8",
            "aes-xts-plain64 00ff 0 /dev/sda 8",
            "aes-xts-plain64 00ff 0 98:32 18446744073709551615",
            "aes-xts-plain64 000 0 98:32 8",
            "aes-xts-plain64 :x:logon:name 0 98:32 8",
            "aes-xts-plain64 00ff 0 98:32 8 1 sector_size:x",
            "capi:authenc(hmac(sha256),xts(aes))-plain64 00ff 0 253:0 0 1 integrity:32:aead",
        ] {
            assert_eq!(of(Target::Crypt, line), None, "{line}");
        }
    }
}
