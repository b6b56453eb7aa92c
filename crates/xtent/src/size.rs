//! Sizes as people write them: `10G`, `512MiB`, `4096`; always binary units.

/// Parses a size in bytes. Suffixes K, M, G, T (also `KiB`, `kib` and so on)
/// are powers of 1024; decimal suffixes (`KB`) are refused, because people
/// mean different things by them.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("`{text}` is not a size; write for example 512M or 10G"))?;
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        "kb" | "mb" | "gb" | "tb" => {
            return Err(format!(
                "`{suffix}` is ambiguous; write K, M, G or T for powers of 1024"
            ));
        }
        _ => return Err(format!("unknown unit `{suffix}`; write K, M, G or T")),
    };
    number
        .checked_mul(1 << shift)
        .filter(|&size| i64::try_from(size).is_ok())
        .ok_or_else(|| format!("`{text}` is larger than any file can be"))
}

/// A size for people: `10.0 GiB`.
pub(crate) fn show_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} bytes")
    } else if value.fract() == 0.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_binary_units() {
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            ("1k", 1 << 10),
            ("512M", 512 << 20),
            ("10G", 10 << 30),
            ("10GiB", 10 << 30),
            ("2t", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_size() {
        for text in [
            "",
            "G",
            "-1",
            "1.5G",
            "10 G",
            "1GB",
            "1X",
            "0x10",
            "9223372036854775808",
            "8388608T",
            "99999999999999999999",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shows_sizes() {
        assert_eq!(show_size(512), "512 bytes");
        assert_eq!(show_size(16 << 20), "16 MiB");
        assert_eq!(show_size(3 << 29), "1.5 GiB");
    }
}
