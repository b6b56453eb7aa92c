//! The folder of certificates and keys, with the names that libnbd, nbdkit and QEMU use.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use xtent_secret::SecretBytes;

use crate::{Error, ErrorKind};

/// Longest file that is read, in bytes: a system's authorities take a quarter of it.
const MAX_FILE: u64 = 1 << 20;

/// Such a folder.
pub(crate) struct Folder<'a>(pub(crate) &'a Path);

/// Certificates and the key of the first of them.
pub(crate) struct Own {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    /// Where the certificates were.
    pub(crate) path: PathBuf,
}

impl Folder<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        // What is there and cannot be read fails when it is.
        self.path(name).symlink_metadata().is_ok()
    }

    /// The authorities.
    pub(crate) fn authorities(&self) -> Result<(Vec<CertificateDer<'static>>, PathBuf), Error> {
        let path = self.path("ca-cert.pem");
        Ok((certificates(&path)?, path))
    }

    /// What the authorities have revoked, if there is such a file.
    pub(crate) fn revocations(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, Error> {
        let path = self.path("ca-crl.pem");
        if !self.has("ca-crl.pem") {
            return Ok(Vec::new());
        }
        let text = read(&path)?;
        let found: Result<Vec<_>, _> =
            CertificateRevocationListDer::pem_slice_iter(&text).collect();
        match found {
            Ok(lists) if !lists.is_empty() => Ok(lists),
            Ok(_) => Err(unusable(&path, "it has no revocation list")),
            Err(error) => Err(unusable(&path, "it is no PEM file").because(error)),
        }
    }

    /// The certificate and key of `whom`: `server` or `client`.
    pub(crate) fn own(&self, whom: &str) -> Result<Own, Error> {
        let path = self.path(&format!("{whom}-cert.pem"));
        Ok(Own {
            chain: certificates(&path)?,
            key: key(&self.path(&format!("{whom}-key.pem")))?,
            path,
        })
    }
}

fn unusable(path: &Path, what: &str) -> Error {
    Error::of_file(ErrorKind::Unusable, path, what)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(unusable(path, "it has no certificate")),
        Err(error) => Err(unusable(path, "it is no PEM file").because(error)),
    }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let text = read(path)?;
    let error = match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => return Ok(key),
        Err(error) => error,
    };
    // Not the error itself: it can quote a line.
    drop(error);
    let has = |what: &str| text.windows(what.len()).any(|at| at == what.as_bytes());
    Err(match has("ENCRYPTED") {
        true => unusable(path, "the key is encrypted with a passphrase").advise(
            "Give a key without one, in a file that its owner alone can read \
             (`openssl pkey -in OLD -out NEW`).",
        ),
        false => unusable(path, "it has no private key"),
    })
}

/// A whole file; secrets may be in it.
fn read(path: &Path) -> Result<SecretBytes, Error> {
    let failed = |error: io::Error| {
        Error::of_file(ErrorKind::File, path, "it cannot be read").because(error)
    };
    let mut file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(Error::of_file(ErrorKind::File, path, "it is no file"));
    }
    if found.len() > MAX_FILE {
        return Err(unusable(path, "it is longer than 1 MiB"));
    }
    if path.to_string_lossy().ends_with("-key.pem") && found.mode() & 0o007 != 0 {
        tracing::warn!("{}: every user may read this key", path.display());
    }
    let len = usize::try_from(found.len()).unwrap_or(0);
    let mut text = SecretBytes::zeroed(len.max(1)).map_err(|error| {
        Error::of_file(ErrorKind::File, path, "there is no memory for it").because(error)
    })?;
    let mut filled = 0;
    while filled < len {
        match file.read(&mut text[filled..len]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    text.truncate(filled);
    Ok(text)
}
