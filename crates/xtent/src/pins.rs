//! What a header is expected to be, from the command line or files.

use std::fs::File;
use std::io::Read;

use xtent_luks::Pin;

/// Bytes that a file of pins may have.
const FILE_LIMIT: u64 = 64 << 10;

/// The pins of one `--expect-header`.
#[derive(Clone, Debug)]
pub(crate) struct Expected(pub(crate) Vec<Pin>);

/// Parses a pin, or `@FILE`: a pin on each line, but for those that are empty or begin with `#`.
pub(crate) fn parse(text: &str) -> Result<Expected, String> {
    let one = |text: &str| text.parse().map_err(|e: xtent_luks::Error| e.message);
    let Some(path) = text.strip_prefix('@') else {
        return one(text).map(|pin| Expected(vec![pin]));
    };
    let failed = |e: std::io::Error| format!("cannot read it: {e}");
    let mut lines = String::new();
    File::open(path)
        .map_err(failed)?
        .take(FILE_LIMIT + 1)
        .read_to_string(&mut lines)
        .map_err(failed)?;
    if lines.len() as u64 > FILE_LIMIT {
        return Err("the file is too large for one of pins".to_owned());
    }
    let pins = lines
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(one)
        .collect::<Result<Vec<_>, _>>()?;
    match pins.is_empty() {
        true => Err("the file has no pin in it".to_owned()),
        false => Ok(Expected(pins)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_or_a_file_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pins");
        let in_file = |text: &str| {
            std::fs::write(&path, text).unwrap();
            parse(&format!("@{}", path.display()))
        };
        let pin = format!("xtent1:volume:sha256:{}", "a".repeat(64));
        assert_eq!(parse(&pin).unwrap().0.len(), 1);
        let text = format!("# of the disk\n\n {pin},sector=512 \r\n{pin}\n");
        assert_eq!(in_file(&text).unwrap().0.len(), 2);
        for bad in [
            "",
            "# nothing\n",
            "x\n",
            &format!("{pin}\nx"),
            &"#\n".repeat(40_000),
        ] {
            assert!(in_file(bad).is_err());
        }
        assert!(parse("@/nonexistent/pins").is_err());
        assert!(parse("pins").is_err());
    }
}
