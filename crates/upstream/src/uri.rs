//! Where an export is: NBD URIs, the forms that are supported here.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use xtent_nbd::constants::{DEFAULT_PORT, MAX_STRING};

/// What is not written as it is.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');
/// Longest path of a Unix socket on Linux, in bytes.
const MAX_SOCKET_PATH: usize = 107;
/// Every scheme that NBD has.
const SCHEMES: [&str; 6] = [
    "nbd",
    "nbds",
    "nbd+unix",
    "nbds+unix",
    "nbd+vsock",
    "nbds+vsock",
];

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// What the URI of a server with TLS says beside its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    /// The folder of certificates; the system's authorities, and none of one's own, without.
    pub(crate) certificates: Option<PathBuf>,
    /// The name that the server's certificate is for, if it is not the host.
    pub(crate) hostname: Option<String>,
}

/// An export of an NBD server: `nbd://HOST[:PORT]/EXPORT` or
/// `nbd+unix:///EXPORT?socket=PATH`; with TLS the schemes are `nbds` and `nbds+unix`, and
/// `tls-certificates=DIR` and `tls-hostname=NAME` can be among the parameters. Its
/// [`Display`](fmt::Display) is a URI that means the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    pub(crate) place: Place,
    pub(crate) export: String,
    /// TLS, which is had then or nothing is.
    pub(crate) tls: Option<Tls>,
}

/// Why a text is no URI that can be used, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UriError(String);

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UriError {}

fn wrong<T>(message: impl Into<String>) -> Result<T, UriError> {
    Err(UriError(message.into()))
}

impl Uri {
    /// Whether an argument is meant as a URI of NBD, be it a right one or not.
    pub fn looks_like(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| {
            SCHEMES
                .iter()
                .any(|known| scheme.eq_ignore_ascii_case(known))
        })
    }

    /// The name of the export; empty is the server's default.
    pub fn export(&self) -> &str {
        &self.export
    }

    /// The TCP port, if it is one.
    pub fn port(&self) -> Option<u16> {
        match &self.place {
            Place::Tcp { port, .. } => Some(*port),
            Place::Unix(_) => None,
        }
    }

    /// The same, whatever folder the process is in later: a Unix socket by its absolute path.
    pub fn absolute(self) -> std::io::Result<Self> {
        let place = match self.place {
            Place::Unix(path) => Place::Unix(std::path::absolute(path)?),
            tcp => tcp,
        };
        let mut tls = self.tls;
        if let Some(folder) = tls.as_mut().and_then(|tls| tls.certificates.as_mut()) {
            *folder = std::path::absolute(&folder)?;
        }
        Ok(Self { place, tls, ..self })
    }

    /// What all URIs of the same export have in common, however it is connected to.
    pub fn without_tls(&self) -> Self {
        Self {
            tls: None,
            ..self.clone()
        }
    }

    /// Whether it is by TLS, with certificates that are read from files.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The Unix socket, if it is one.
    pub fn socket(&self) -> Option<&Path> {
        match &self.place {
            Place::Unix(path) => Some(path),
            Place::Tcp { .. } => None,
        }
    }
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        if text.chars().any(char::is_control) {
            return wrong("the URI has control characters");
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return wrong("it is no URI");
        };
        if rest.contains('#') {
            return wrong("a URI of NBD has no fragment (#)");
        }
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return wrong("a user name is not supported in a URI of NBD");
        }
        let export = decoded(path)?;
        if export.len() > MAX_STRING {
            return wrong("the name of the export is longer than 4096 bytes");
        }
        let scheme = scheme.to_ascii_lowercase();
        let mut parameters = Parameters::read(query.unwrap_or(""))?;
        let tls = match scheme.as_str() {
            "nbds" | "nbds+unix" => Some(Tls {
                certificates: parameters.take("tls-certificates").map(Into::into),
                hostname: parameters.take("tls-hostname"),
            }),
            _ => None,
        };
        let place = match scheme.as_str() {
            "nbd" | "nbds" => tcp(authority)?,
            "nbd+unix" | "nbds+unix" => unix(authority, parameters.take("socket"))?,
            "nbd+vsock" | "nbds+vsock" => return wrong("vsock is not supported"),
            _ => return wrong("it is no URI of NBD"),
        };
        parameters.end()?;
        Ok(Self { place, export, tls })
    }
}

/// The parameters of a URI that are not used yet.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn read(query: &str) -> Result<Self, UriError> {
        let mut all = Vec::new();
        for parameter in query.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let name: String = name.chars().take(40).collect();
            if all.iter().any(|(known, _)| *known == name) {
                return wrong(format!("the URI has two parameters named \"{name}\""));
            }
            let value = decoded(value)?;
            if value.is_empty() {
                return wrong(format!("the URI's parameter \"{name}\" is empty"));
            }
            all.push((name, value));
        }
        Ok(Self(all))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Refuses what nobody has taken.
    fn end(self) -> Result<(), UriError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) if name == "tls-psk-file" || name == "tls-username" => {
                wrong("pre-shared keys are not supported; TLS is had with certificates")
            }
            Some((name, _)) if name == "tls-verify-peer" => {
                wrong("the server's certificate is always verified")
            }
            Some((name, _)) => wrong(format!("the URI's parameter \"{name}\" is not supported")),
        }
    }
}

fn tcp(authority: &str) -> Result<Place, UriError> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let Some((host, port)) = rest.split_once(']') else {
                return wrong("the address lacks its closing bracket");
            };
            let Ok(address) = host.parse::<Ipv6Addr>() else {
                return wrong("what is in brackets is no IPv6 address");
            };
            match port.strip_prefix(':') {
                Some(port) => (address.to_string(), Some(port)),
                None if port.is_empty() => (address.to_string(), None),
                None => return wrong("the port follows a colon"),
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host.to_owned(), Some(port)),
            None => (authority.to_owned(), None),
        },
    };
    if host.is_empty() {
        return wrong("the URI names no host");
    }
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if !host.chars().all(known) {
        return wrong("the host has characters that no host has");
    }
    let port = match port {
        None | Some("") => DEFAULT_PORT,
        Some(port) => match port.parse() {
            // Rust's numbers may have a sign.
            Ok(port) if port != 0 && !authority.contains('+') => port,
            _ => return wrong("the port is no number from 1 to 65535"),
        },
    };
    // As its name is written has no meaning, and locks go by it.
    let host = host.to_ascii_lowercase();
    Ok(Place::Tcp { host, port })
}

fn unix(authority: &str, socket: Option<String>) -> Result<Place, UriError> {
    if !authority.is_empty() {
        return wrong("nbd+unix has three slashes: nbd+unix:///EXPORT?socket=PATH");
    }
    match socket {
        None => wrong("nbd+unix needs its socket: nbd+unix:///EXPORT?socket=PATH"),
        Some(path) if path.len() > MAX_SOCKET_PATH => {
            wrong("the path of the socket is longer than 107 bytes")
        }
        Some(path) => Ok(Place::Unix(path.into())),
    }
}

fn decoded(text: &str) -> Result<String, UriError> {
    let Ok(decoded) = percent_decode_str(text).decode_utf8() else {
        return wrong("the URI is not UTF-8");
    };
    if decoded.chars().any(char::is_control) {
        return wrong("the URI has control characters");
    }
    Ok(decoded.into_owned())
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = utf8_percent_encode(&self.export, ESCAPED);
        let scheme = if self.tls.is_some() { "nbds" } else { "nbd" };
        let mut parameters = Vec::new();
        match &self.place {
            Place::Tcp { host, port } => {
                match host.contains(':') {
                    true => write!(f, "{scheme}://[{host}]")?,
                    false => write!(f, "{scheme}://{host}")?,
                }
                if *port != DEFAULT_PORT {
                    write!(f, ":{port}")?;
                }
                write!(f, "/{export}")?;
            }
            Place::Unix(path) => {
                write!(f, "{scheme}+unix:///{export}")?;
                parameters.push(("socket", path.to_string_lossy()));
            }
        }
        if let Some(tls) = &self.tls {
            let folder = tls.certificates.as_ref();
            parameters.extend(folder.map(|it| ("tls-certificates", it.to_string_lossy())));
            let name = tls.hostname.as_ref();
            parameters.extend(name.map(|it| ("tls-hostname", it.as_str().into())));
        }
        for (at, (name, value)) in parameters.iter().enumerate() {
            let separator = if at == 0 { '?' } else { '&' };
            write!(
                f,
                "{separator}{name}={}",
                utf8_percent_encode(value, ESCAPED)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
