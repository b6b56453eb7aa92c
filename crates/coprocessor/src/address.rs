//! Where an engine is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{Error, ErrorKind};

/// Where an engine is: `vfio-user:PATH` or `vfio:0000:03:00.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A process that is the device, at the other end of a socket. It sees keys and data, so it is trusted as this process is.
    VfioUser(PathBuf),
    /// A PCI device that is bound to the kernel's driver `vfio-pci`, by its domain, bus, slot and function.
    Vfio(String),
}

/// Hexadecimal digits between the punctuation of a PCI address.
fn is_pci(address: &str) -> bool {
    let hex = |part: &str, len| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit());
    let Some((rest, function)) = address.split_once('.') else {
        return false;
    };
    let parts: Vec<_> = rest.split(':').collect();
    let [domain, bus, slot] = parts[..] else {
        return false;
    };
    hex(domain, 4) && hex(bus, 2) && hex(slot, 2) && matches!(function.as_bytes(), [b'0'..=b'7'])
}

impl FromStr for Address {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some(("vfio-user", path)) if !path.is_empty() && !path.contains('\0') => {
                Ok(Self::VfioUser(path.into()))
            }
            Some(("vfio", device)) if is_pci(device) => Ok(Self::Vfio(device.to_ascii_lowercase())),
            _ => Err(Error::new(
                ErrorKind::Address,
                format!("{text:?} is no engine's address"),
            )),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Self::Vfio(device) => write!(f, "vfio:{device}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_out_as_they_went_in() {
        for text in [
            "vfio-user:/run/engine.sock",
            "vfio-user:a:b",
            "vfio:0000:03:00.0",
            "vfio:abcd:ef:1f.7",
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        assert_eq!(
            "vfio:0000:AF:00.0".parse::<Address>().unwrap().to_string(),
            "vfio:0000:af:00.0"
        );
    }

    #[test]
    fn anything_else_is_refused_with_what_to_write() {
        for text in [
            "",
            "vfio-user:",
            "vfio-user",
            "vfio",
            "vfio:",
            "vfio:03:00.0",
            "vfio:0000:03:00",
            "vfio:0000:03:00.8",
            "vfio:0000:03:00.0.0",
            "vfio:0000:03:0:0.0",
            "vfio:../../x",
            "vfio-user:a\0b",
            "pci:0000:03:00.0",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Address, "{text:?}");
            assert!(error.advice().unwrap().contains("vfio-user:PATH"));
        }
    }
}
