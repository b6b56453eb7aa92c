//! What to say about a cipher's name that means nothing here.

use sector_cipher::CipherSpec;

use crate::failure::Failure;

/// Ciphers of dm-crypt that there are no plans for.
const UNSUPPORTED: [&str; 9] = [
    "serpent",
    "twofish",
    "camellia",
    "aria",
    "cast",
    "blowfish",
    "anubis",
    "sm4",
    "cipher_null",
];
/// More changes than this make another name, not a mistyped one.
const MOST_TYPOS: usize = 3;

/// The error for a name that is no cipher's, with the one that was likely meant.
pub(crate) fn unknown(name: &str) -> Failure {
    let lower = name.to_ascii_lowercase();
    if let Some(family) = UNSUPPORTED.iter().find(|known| lower.contains(**known)) {
        return Failure::parameters(format!("{name}: {family} is not supported"))
            .advise("`xtent format --help` lists the ciphers; the default is aes-xts-plain64.");
    }
    let failure = Failure::parameters(format!("unknown cipher {name}"));
    match meant(&lower) {
        Some(known) => failure.advise(format!(
            "Did you mean {known}? `xtent format --help` lists them all."
        )),
        None => failure.advise(format!(
            "Known are {}.",
            CipherSpec::all()
                .map(|spec| spec.to_string())
                .collect::<Vec<_>>()
                .join(", ")
        )),
    }
}

/// The first cipher whose name begins so, or the one with the fewest changes.
fn meant(name: &str) -> Option<String> {
    // New volumes have plain64.
    let mut all: Vec<String> = CipherSpec::all().map(|spec| spec.to_string()).collect();
    all.sort_by_key(|spec| !spec.ends_with("-plain64"));
    let known = || all.iter().cloned();
    let begins = |spec: &String| *spec == name || spec.starts_with(&format!("{name}-"));
    known().find(begins).or_else(|| {
        known()
            .map(|spec| (strsim::damerau_levenshtein(&spec, name), spec))
            .filter(|(changes, _)| *changes <= MOST_TYPOS)
            .min_by_key(|(changes, _)| *changes)
            .map(|(_, spec)| spec)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_was_meant() {
        for (name, known) in [
            ("aes-xts", Some("aes-xts-plain64")),
            ("aes", Some("aes-xts-plain64")),
            ("aes-xts-plain65", Some("aes-xts-plain64")),
            ("aes-xst-plain64", Some("aes-xts-plain64")),
            ("aes-xts-plain64", Some("aes-xts-plain64")),
            ("aes-hctr2", Some("aes-hctr2-plain64")),
            ("aes-cbc-essiv:sha265", Some("aes-cbc-essiv:sha256")),
            ("rot13", None),
            ("", None),
        ] {
            assert_eq!(meant(name).as_deref(), known, "{name}");
        }
    }
}
