//! Names of images: `rbd:POOL/[NAMESPACE/]IMAGE[@SNAPSHOT][:OPTION=VALUE]...`, as QEMU has them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// What names begin with.
const SCHEME: &str = "rbd:";
/// Characters that a backslash makes ordinary ones.
const SPECIAL: [char; 5] = ['\\', '/', '@', ':', '='];
/// Far more than any name needs.
const LONGEST: usize = 4096;
/// Options whose values would be secrets in the command line, which everybody can read.
const SECRET: [&str; 1] = ["key"];

/// Where an image is. Its [`Display`](fmt::Display) is a name that means the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub(crate) pool: String,
    pub(crate) namespace: Option<String>,
    pub(crate) image: String,
    pub(crate) snapshot: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) conf: Option<PathBuf>,
    /// Options of Ceph, in the order in which they were given.
    pub(crate) options: Vec<(String, String)>,
}

/// Why a text names no image, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError(String);

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NameError {}

fn wrong<T>(message: impl Into<String>) -> Result<T, NameError> {
    Err(NameError(message.into()))
}

impl Name {
    /// Whether an argument is meant as an image's name, be it a right one or not.
    pub fn looks_like(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Whether it is of a snapshot, which never changes.
    pub fn is_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Whether both are the same image, or the same snapshot of one, whatever else they say of
    /// how to get there.
    pub fn is_same_image(&self, other: &Self) -> bool {
        (&self.pool, &self.namespace, &self.image, &self.snapshot)
            == (&other.pool, &other.namespace, &other.image, &other.snapshot)
    }

    /// The image alone, without how to get there.
    pub fn bare(&self) -> Self {
        Self {
            id: None,
            conf: None,
            options: Vec::new(),
            ..self.clone()
        }
    }

    /// The same, whatever folder the process is in later.
    ///
    /// # Errors
    /// If the folder that this process is in has no name.
    pub fn absolute(self) -> std::io::Result<Self> {
        let conf = self.conf.map(std::path::absolute).transpose()?;
        Ok(Self { conf, ..self })
    }

    /// As Ceph's own commands take it.
    pub(crate) fn spec(&self) -> String {
        let mut spec = format!("{}/", self.pool);
        if let Some(namespace) = &self.namespace {
            spec += &format!("{namespace}/");
        }
        spec + &self.image
    }
}

/// Splits at the first of `ends` that has no backslash before it: what is before it, with its
/// backslashes taken away, the character, and the rest.
fn cut<'a>(text: &'a str, ends: &[char]) -> (String, Option<char>, &'a str) {
    let mut token = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            token.extend(characters.next().map(|(_, next)| next));
        } else if ends.contains(&character) {
            return (token, Some(character), &text[at + character.len_utf8()..]);
        } else {
            token.push(character);
        }
    }
    (token, None, "")
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.chars().any(char::is_control) {
            return wrong("the name has control characters");
        }
        if text.len() > LONGEST {
            return wrong("the name is too long");
        }
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return wrong("it does not begin with rbd:");
        };
        let (pool, end, rest) = cut(rest, &['/', '@', ':']);
        if end != Some('/') {
            return wrong("the pool is missing: rbd:POOL/IMAGE");
        }
        let (first, mut end, mut rest) = cut(rest, &['/', '@', ':']);
        let (mut namespace, mut image) = (None, first);
        if end == Some('/') {
            namespace = Some(image);
            (image, end, rest) = cut(rest, &['/', '@', ':']);
        }
        let mut snapshot = None;
        if end == Some('@') {
            let token;
            (token, end, rest) = cut(rest, &['/', '@', ':']);
            snapshot = Some(token);
        }
        if let Some(end @ ('/' | '@')) = end {
            return wrong(format!(
                "there is a `{end}` too many; a part of a name is `\\{end}`"
            ));
        }
        let parts = [
            ("pool", Some(&pool)),
            ("namespace", namespace.as_ref()),
            ("image", Some(&image)),
            ("snapshot", snapshot.as_ref()),
        ];
        for (what, part) in parts {
            if part.is_some_and(String::is_empty) {
                return wrong(format!("the name of the {what} is empty"));
            }
        }
        let mut name = Self {
            pool,
            namespace,
            image,
            snapshot,
            id: None,
            conf: None,
            options: Vec::new(),
        };
        while end == Some(':') {
            let token;
            (token, end, rest) = cut(rest, &['=', ':']);
            if end != Some('=') {
                return wrong(format!("option {token:?} has no value: {token}=VALUE"));
            }
            let value;
            (value, end, rest) = cut(rest, &[':']);
            name.add_option(token, value)?;
        }
        Ok(name)
    }
}

impl Name {
    fn add_option(&mut self, option: String, value: String) -> Result<(), NameError> {
        let given = match option.as_str() {
            "id" => self.id.is_some(),
            "conf" => self.conf.is_some(),
            _ => self.options.iter().any(|(other, _)| *other == option),
        };
        if given {
            return wrong(format!("option {option} is there twice"));
        }
        if value.is_empty() {
            return wrong(format!("option {option} has no value"));
        }
        match option.as_str() {
            "id" => self.id = Some(value),
            "conf" => self.conf = Some(value.into()),
            secret if SECRET.contains(&secret) => {
                return wrong(
                    "option key would show the key to everybody on this machine: put it into a \
                     file, and give :keyring=FILE",
                );
            }
            known if is_option_name(known) => self.options.push((option, value)),
            _ => return wrong(format!("{option:?} is no option's name")),
        }
        Ok(())
    }
}

fn is_option_name(text: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ');
    !text.is_empty() && text.chars().all(is_of_name)
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/", Escaped(&self.pool))?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{}/", Escaped(namespace))?;
        }
        write!(f, "{}", Escaped(&self.image))?;
        if let Some(snapshot) = &self.snapshot {
            write!(f, "@{}", Escaped(snapshot))?;
        }
        if let Some(id) = &self.id {
            write!(f, ":id={}", EscapedValue(id))?;
        }
        if let Some(conf) = &self.conf {
            // It came from text.
            write!(f, ":conf={}", EscapedValue(&conf.to_string_lossy()))?;
        }
        for (option, value) in &self.options {
            write!(f, ":{option}={}", EscapedValue(value))?;
        }
        Ok(())
    }
}

/// A part of a name with backslashes where it needs them.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(f, self.0, &SPECIAL)
    }
}

/// The same of an option's value, which only a colon ends.
struct EscapedValue<'a>(&'a str);

impl fmt::Display for EscapedValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(f, self.0, &['\\', ':'])
    }
}

fn escape(f: &mut fmt::Formatter<'_>, text: &str, special: &[char]) -> fmt::Result {
    for character in text.chars() {
        if special.contains(&character) {
            f.write_str("\\")?;
        }
        fmt::Write::write_char(f, character)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn names_of_every_form_are_understood() {
        let plain = name("rbd:pool/disk");
        assert_eq!((&*plain.pool, &*plain.image), ("pool", "disk"));
        assert_eq!(plain.snapshot, None);
        let full =
            name("rbd:p/ns/disk@before:id=backup:conf=/etc/ceph/other.conf:mon_host=h\\:3300");
        assert_eq!(full.namespace.as_deref(), Some("ns"));
        assert_eq!(full.snapshot.as_deref(), Some("before"));
        assert_eq!(full.id.as_deref(), Some("backup"));
        assert_eq!(full.conf, Some("/etc/ceph/other.conf".into()));
        assert_eq!(full.options, [("mon_host".into(), "h:3300".into())]);
        assert_eq!(full.spec(), "p/ns/disk");
        let odd = name(r"rbd:a\/b/c\@d\:e");
        assert_eq!((&*odd.pool, &*odd.image), ("a/b", "c@d:e"));
        for same in [plain, full, odd] {
            assert_eq!(name(&same.to_string()), same, "{same}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused_by_name() {
        for (text, why) in [
            ("rbd:disk", "pool is missing"),
            ("rbd:", "pool is missing"),
            ("rbd:pool/", "image is empty"),
            ("rbd:/disk", "pool is empty"),
            ("rbd:pool//disk", "namespace is empty"),
            ("rbd:pool/disk@", "snapshot is empty"),
            ("rbd:a/b/c/d", "`/` too many"),
            ("rbd:a/b@c@d", "`@` too many"),
            ("rbd:a/b:id", "\"id\" has no value"),
            ("rbd:a/b:id=", "id has no value"),
            ("rbd:a/b:id=x:id=y", "id is there twice"),
            (
                "rbd:a/b:rbd_cache=1:rbd_cache=0",
                "rbd_cache is there twice",
            ),
            ("rbd:a/b:key=AQAsecret==", "show the key"),
            ("rbd:a/b:a;b=c", "no option's name"),
            ("rbd:a/b\n", "control characters"),
        ] {
            let error = text.parse::<Name>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
            assert!(!error.contains("AQA"), "{error}");
        }
    }

    #[test]
    fn the_same_image_is_known_by_any_name_and_a_snapshot_is_another() {
        assert!(name("rbd:p/a").is_same_image(&name("rbd:p/a:id=x")));
        assert!(!name("rbd:p/a").is_same_image(&name("rbd:p/a@s")));
        assert!(!name("rbd:p/a").is_same_image(&name("rbd:p/n/a")));
    }

    proptest::proptest! {
        #[test]
        fn what_is_shown_means_the_same(text in "rbd:[a-c/@:=\\\\]{0,24}") {
            if let Ok(name) = text.parse::<Name>() {
                proptest::prop_assert_eq!(name.to_string().parse::<Name>(), Ok(name));
            }
        }
    }
}
