//! The key of a cluster's user, where Ceph has it: for a process that reads no files.

use std::fs::File;
use std::io::{self, Read};

use xtent_secret::SecretBytes;
use xtent_store::ErrorKind;

use crate::ffi::Cluster;
use crate::image::Trouble;

/// Far more than a key has, and a keyring.
const LONGEST_KEY: usize = 256;
const LONGEST_FILE: u64 = 1 << 20;

/// The key of a client's user, as librados finds it: in the option `key`, the file `keyfile`, or the
/// first of the files `keyring` that is there. None if no option says where it would be and the
/// cluster may do without.
pub(crate) fn key(cluster: &Cluster) -> Result<Option<SecretBytes>, Trouble> {
    let failed = |error| Trouble::new("cannot look for the user's key", error);
    let mut key = secret(LONGEST_KEY)?;
    let len = cluster.get_into("key", &mut key).map_err(failed)?;
    if len > 0 {
        key.truncate(len);
        return Ok(Some(key));
    }
    let keyfile = cluster.get("keyfile").unwrap_or_default();
    if !keyfile.is_empty() {
        let content = read(&keyfile).map_err(|error| unreadable(&keyfile, error))?;
        return only_key(content.trim_ascii(), &keyfile).map(Some);
    }
    let keyrings = cluster.get("keyring").unwrap_or_default();
    let files = keyrings.split([';', ',', '=', ' ', '\t']);
    let mut closed = None;
    for file in files.filter(|file| !file.is_empty()) {
        // The first that can be read, as librados does it.
        let content = match read(file) {
            Ok(content) => content,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    closed.get_or_insert_with(|| unreadable(file, error));
                }
                continue;
            }
        };
        let name = format!("client.{}", cluster.user());
        return match key_of(&content, &name) {
            Some(key) => only_key(key, file).map(Some),
            None => Err(Trouble::said(
                ErrorKind::NotFound,
                format!("{file} has no key of {name}"),
            )),
        };
    }
    closed.map_or(Ok(None), Err)
}

fn unreadable(file: &str, error: io::Error) -> Trouble {
    Trouble::new(format!("cannot read the user's key from {file}"), error)
}

fn secret(len: usize) -> Result<SecretBytes, Trouble> {
    SecretBytes::zeroed(len)
        .map_err(|error| Trouble::new("no memory for the user's key", io::Error::other(error)))
}

fn only_key(bytes: &[u8], file: &str) -> Result<SecretBytes, Trouble> {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    if bytes.is_empty() || bytes.len() > LONGEST_KEY || !bytes.iter().all(is_base64) {
        let text = format!("what {file} has for the user's key is none");
        return Err(Trouble::said(ErrorKind::Io, text));
    }
    let mut key = secret(bytes.len())?;
    key.copy_from_slice(bytes);
    Ok(key)
}

/// A file's content, in memory for secrets.
fn read(path: &str) -> io::Result<SecretBytes> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    if len > LONGEST_FILE {
        return Err(io::Error::other("the file is too long for a keyring"));
    }
    let len = usize::try_from(len).map_err(io::Error::other)?;
    let mut content = SecretBytes::zeroed(len).map_err(io::Error::other)?;
    file.read_exact(&mut content)?;
    Ok(content)
}

/// The value of `key` in the section of this name.
fn key_of<'a>(keyring: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut is_ours = false;
    let mut found = None;
    for line in keyring.split(|byte| *byte == b'\n') {
        // What follows is a comment.
        let end = line.iter().position(|byte| b"#;".contains(byte));
        let line = line[..end.unwrap_or(line.len())].trim_ascii();
        if let Some(section) = line.strip_prefix(b"[") {
            let section = section.strip_suffix(b"]").unwrap_or(section);
            is_ours = section.trim_ascii() == name.as_bytes();
        } else if is_ours
            && let Some(at) = line.iter().position(|byte| *byte == b'=')
            && line[..at].trim_ascii() == b"key"
        {
            let value = line[at + 1..].trim_ascii();
            let bare = value.strip_prefix(b"\"");
            found = bare.and_then(|it| it.strip_suffix(b"\"")).or(Some(value));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_that_of_the_user() {
        let keyring =
            b"# all of them\n[client.admin]\n\tkey = AQAadmin==\n\tcaps mon = \"allow *\"\n\
            [client.one]\n  key=AQAone== ; old\n[client.two]\nkey = \"AQAtwo==\"\n[client.none]\n";
        let of = |name: &str| key_of(keyring, name).map(|key| String::from_utf8_lossy(key));
        assert_eq!(of("client.admin").as_deref(), Some("AQAadmin=="));
        assert_eq!(of("client.one").as_deref(), Some("AQAone=="));
        assert_eq!(of("client.two").as_deref(), Some("AQAtwo=="));
        assert_eq!(of("client.none"), None);
        assert_eq!(of("client.three"), None);
    }

    #[test]
    fn only_a_key_is_one() {
        assert!(only_key(b"AQBv+/x==", "f").is_ok());
        for none in [&b""[..], b"two words", b"\0", &[b'A'; LONGEST_KEY + 1]] {
            assert!(only_key(none, "f").is_err());
        }
    }
}
