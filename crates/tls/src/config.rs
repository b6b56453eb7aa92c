//! What either side is set up with.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::certificate::{Validity, validity};
use crate::files::{Folder, Own};
use crate::{Error, ErrorKind};

/// A server's side: its certificate, and whom it asks for one. Clones are the same one.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<ServerConfig>);

/// A client's side: the authorities it trusts, the name it expects, and its certificate if it has
/// one. Clones are the same one.
#[derive(Clone)]
pub struct Client {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

impl Server {
    /// Of `server-cert.pem` and `server-key.pem` in a folder. With `verify_peer` a client must have
    /// a certificate that is signed by an authority in `ca-cert.pem` and not in `ca-crl.pem`, if there
    /// is one.
    ///
    /// # Errors
    /// Files that are missing, unreadable or of no use, a certificate that is not valid now among them.
    /// One that ends soon is warned of in the log.
    pub fn open(folder: &Path, verify_peer: bool) -> Result<Self, Error> {
        let folder = Folder(folder);
        let own = folder.own("server")?;
        check(&own)?;
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(unsupported)?;
        let builder = match verify_peer {
            false => builder.with_no_client_auth(),
            true => {
                let (found, path) = folder.authorities()?;
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(store(found, &path)?, provider)
                        .with_crls(folder.revocations()?)
                        // An authority without a list has revoked nothing.
                        .allow_unknown_revocation_status()
                        .build()
                        .map_err(|error| {
                            let what = "its authorities cannot be used";
                            Error::of_file(ErrorKind::Unusable, &path, what).because(error)
                        })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let Own { chain, key, path } = own;
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| mismatch(&path, error))?;
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self(Arc::new(config)))
    }
}

impl Client {
    /// For a server of this name or address. The authorities are in `ca-cert.pem` of the folder, what
    /// they have revoked in `ca-crl.pem` if it is there; without a folder the system's are
    /// trusted. `client-cert.pem` and `client-key.pem` are shown to servers that ask.
    ///
    /// # Errors
    /// As [`Server::open`].
    pub fn open(folder: Option<&Path>, name: &str) -> Result<Self, Error> {
        let name = match name.parse::<IpAddr>() {
            Ok(address) => ServerName::IpAddress(address.into()),
            Err(_) => ServerName::try_from(name.to_owned()).map_err(|_| {
                let what = format!("no certificate can be for a host named {name:?}");
                Error::new(ErrorKind::Name, what)
            })?,
        };
        let provider = provider();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(unsupported)?;
        let folder = folder.map(Folder);
        let (roots, revoked) = match &folder {
            Some(folder) => {
                let (found, path) = folder.authorities()?;
                (store(found, &path)?, folder.revocations()?)
            }
            None => (system()?, Vec::new()),
        };
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
            .with_crls(revoked)
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| {
                Error::new(ErrorKind::Unusable, "the authorities cannot be used").because(error)
            })?;
        let builder = builder.with_webpki_verifier(verifier);
        let mut config = match folder.filter(|it| it.has("client-cert.pem")) {
            None => builder.with_no_client_auth(),
            Some(folder) => {
                let own = folder.own("client")?;
                check(&own)?;
                builder
                    .with_client_auth_cert(own.chain, own.key)
                    .map_err(|error| mismatch(&own.path, error))?
            }
        };
        config.resumption = Resumption::disabled();
        Ok(Self {
            config: Arc::new(config),
            name,
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unsupported(error: rustls::Error) -> Error {
    Error::new(ErrorKind::Unusable, "there is no TLS 1.3 here").because(error)
}

fn mismatch(path: &Path, error: rustls::Error) -> Error {
    let what = "it and its key cannot be used together";
    Error::of_file(ErrorKind::Unusable, path, what).because(error)
}

/// Authorities of a file, of which each has to be one.
fn store(found: Vec<CertificateDer<'static>>, path: &Path) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in found {
        roots.add(certificate).map_err(|error| {
            let what = "a certificate in it is that of no authority";
            Error::of_file(ErrorKind::Unusable, path, what).because(error)
        })?;
    }
    Ok(Arc::new(roots))
}

/// The system's authorities. Some of them may be odd; none at all is an error.
fn system() -> Result<Arc<RootCertStore>, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let what = "this system has no certificates of authorities";
        let failure = Error::new(ErrorKind::File, what).advise(
            "Debian's are in the package ca-certificates; an authority of one's own is \
             DIR/ca-cert.pem, with tls-certificates=DIR in the URI.",
        );
        return Err(match found.errors.into_iter().next() {
            Some(error) => failure.because(error),
            None => failure,
        });
    }
    Ok(Arc::new(roots))
}

/// Refuses a certificate of one's own that every peer would refuse.
fn check(own: &Own) -> Result<(), Error> {
    let unusable = |what| Err(Error::of_file(ErrorKind::Unusable, &own.path, what));
    match own
        .chain
        .first()
        .map(|first| validity(first, SystemTime::now()))
    {
        Some(Validity::Good) => Ok(()),
        Some(Validity::EndsSoon(days)) => {
            tracing::warn!(
                "{}: the certificate ends in {days} days; no peer accepts it after that",
                own.path.display()
            );
            Ok(())
        }
        Some(Validity::Expired) => unusable("the certificate has expired"),
        Some(Validity::NotYet) => unusable("the certificate is not valid yet"),
        Some(Validity::Unreadable) | None => unusable("the certificate cannot be read"),
    }
}
