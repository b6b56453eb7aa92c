//! Names of devices and units by systemd's rules.

/// `UUID=` and the like as paths that udev makes; others as they are. What a link's name
/// cannot hold is escaped as udev does it (libudev, `udev_util_encode_string`).
pub(super) fn device_path(spec: &str) -> String {
    for (tag, folder) in [
        ("UUID=", "by-uuid"),
        ("LABEL=", "by-label"),
        ("PARTUUID=", "by-partuuid"),
        ("PARTLABEL=", "by-partlabel"),
    ] {
        if let Some(value) = spec.strip_prefix(tag) {
            let value = value.trim_matches('"');
            return format!("/dev/disk/{folder}/{}", encode_link(value));
        }
    }
    spec.to_owned()
}

fn encode_link(text: &str) -> String {
    let mut encoded = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c) || !c.is_ascii() {
            encoded.push(c);
        } else {
            encoded.push_str(&format!("\\x{:02x}", u32::from(c)));
        }
    }
    encoded
}

/// A text as part of a unit's name, as systemd-escape(1) does it.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for (i, b) in text.bytes().enumerate() {
        match b {
            b'/' => escaped.push('-'),
            b'.' if i == 0 => escaped.push_str("\\x2e"),
            b if b.is_ascii_alphanumeric() || b":_.".contains(&b) => escaped.push(b.into()),
            b => escaped.push_str(&format!("\\x{b:02x}")),
        }
    }
    escaped
}

/// An absolute path as part of a unit's name, as `systemd-escape --path`.
pub(super) fn escape_path(path: &str) -> String {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    match parts.len() {
        0 => "-".to_owned(),
        _ => escape(&parts.join("/")),
    }
}

/// The unit that opens the mapping NAME: the one that systemd's own generator makes of
/// the line, so that all that waits for that one waits for ours.
pub(super) fn unit_name(name: &str) -> String {
    format!("systemd-cryptsetup@{}.service", escape(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The right sides are what systemd 252 prints, or its generator writes.
    #[test]
    fn names_are_those_of_systemd() {
        assert_eq!(escape("da-ta"), "da\\x2dta");
        assert_eq!(escape(".x"), "\\x2ex");
        assert_eq!(escape("a%b@c"), "a\\x25b\\x40c");
        assert_eq!(escape("ä"), "\\xc3\\xa4");
        assert_eq!(
            escape_path("/dev/disk//by-label/my disk/"),
            "dev-disk-by\\x2dlabel-my\\x20disk"
        );
        assert_eq!(escape_path("/"), "-");
        assert_eq!(
            device_path("LABEL=my\\x20disk"),
            "/dev/disk/by-label/my\\x5cx20disk"
        );
        assert_eq!(device_path("LABEL=a/b"), "/dev/disk/by-label/a\\x2fb");
        assert_eq!(device_path("PARTUUID=\"1-2\""), "/dev/disk/by-partuuid/1-2");
        assert_eq!(device_path("/dev/sda1"), "/dev/sda1");
    }
}
