//! Spans of time as systemd writes them (systemd.time(7)).

/// Numbers with units, as far as characters go: for programs that know more of it.
pub(super) fn is_span(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
}

/// In whole seconds, one at least: `90`, `90s`, `1min30s`.
pub(super) fn seconds(text: &str) -> Option<u32> {
    let mut rest = text;
    let mut milliseconds: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit());
        let (number, behind) = rest.split_at(digits.unwrap_or(rest.len()));
        let letters = behind.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, behind) = behind.split_at(letters.unwrap_or(behind.len()));
        let factor = match unit {
            "ms" | "msec" => 1,
            "" | "s" | "sec" | "second" | "seconds" => 1000,
            "m" | "min" | "minute" | "minutes" => 60_000,
            "h" | "hr" | "hour" | "hours" => 3_600_000,
            _ => return None,
        };
        let part = number.parse::<u64>().ok()?.checked_mul(factor)?;
        milliseconds = milliseconds.checked_add(part)?;
        rest = behind;
    }
    let seconds = u32::try_from(milliseconds.div_ceil(1000)).ok()?;
    (seconds > 0).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_those_of_systemd() {
        for (text, value) in [
            ("90", Some(90)),
            ("90s", Some(90)),
            ("1min30s", Some(90)),
            ("2h", Some(7200)),
            ("1500ms", Some(2)),
            ("", None),
            ("s", None),
            ("soon", None),
            ("1.5s", None),
            ("99999999999h", None),
        ] {
            assert_eq!(seconds(text), value, "{text}");
        }
        assert!(is_span("1.5min") && !is_span("$(reboot)") && !is_span(""));
    }
}
