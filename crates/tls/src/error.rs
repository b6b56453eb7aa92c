//! What can go wrong, in words for people.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustls::{AlertDescription, CertificateError, Error as Tls, InvalidMessage, PeerIncompatible};

/// What kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file of certificates or keys is missing or cannot be read.
    File,
    /// A file says something that cannot be used: no certificate, a wrong key, one that has expired.
    Unusable,
    /// The name of the peer is none that a certificate can have.
    Name,
    /// The peer's certificate is missing, or not to be trusted.
    Untrusted,
    /// The peer does not want this side's certificate, or wants one.
    Refused,
    /// The peer does not speak TLS, none that is known here, or not as it should.
    Protocol,
}

/// A failure of TLS.
#[derive(Debug)]
pub struct Error {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// The file, if it is one's.
    pub place: Option<PathBuf>,
    /// What happened.
    pub message: String,
    /// What to do, where the message does not say.
    pub advice: Option<&'static str>,
    /// The cause.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            place: None,
            message: message.into(),
            advice: None,
            source: None,
        }
    }

    /// About a file.
    pub(crate) fn of_file(kind: ErrorKind, path: &Path, what: &str) -> Self {
        Self {
            place: Some(path.to_owned()),
            ..Self::new(kind, format!("{}: {what}", path.display()))
        }
    }

    pub(crate) fn because(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    pub(crate) fn advise(mut self, advice: &'static str) -> Self {
        self.advice = Some(advice);
        self
    }

    /// What ended a handshake or a channel. The text of an alert is one of a fixed list, so
    /// nothing here is the peer's words.
    pub(crate) fn of_peer(error: &Tls) -> Self {
        match error {
            Tls::NoCertificatesPresented => Self::new(
                ErrorKind::Untrusted,
                "the peer showed no certificate, and one is required",
            ),
            Tls::InvalidCertificate(error) => Self::untrusted(error),
            Tls::AlertReceived(alert) => Self::alert(*alert),
            Tls::InvalidMessage(InvalidMessage::InvalidContentType) => {
                Self::new(ErrorKind::Protocol, "what the peer sent is no TLS")
            }
            Tls::PeerIncompatible(
                PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::Tls13RequiredForQuic
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::Tls12NotOffered,
            ) => Self::new(ErrorKind::Protocol, "the peer does not offer TLS 1.3"),
            other => Self::new(ErrorKind::Protocol, "TLS failed").because(other.clone()),
        }
    }

    fn untrusted(error: &CertificateError) -> Self {
        use CertificateError as E;
        let (message, advice) = match error {
            E::Expired | E::ExpiredContext { .. } => (
                "the peer's certificate has expired",
                Some("It needs a new one, or this machine's clock is wrong."),
            ),
            E::NotValidYet | E::NotValidYetContext { .. } => (
                "the peer's certificate is not valid yet",
                Some("Is this machine's clock right?"),
            ),
            E::Revoked => (
                "the peer's certificate has been revoked",
                Some("It needs a new one, or ca-crl.pem is of another authority."),
            ),
            E::UnknownIssuer | E::BadSignature => (
                "the peer's certificate was not signed by an authority that is trusted here",
                Some(
                    "Give the ca-cert.pem of the authority that has signed it, in the folder of \
                     tls-certificates=DIR in the URI; without that the system's authorities are trusted.",
                ),
            ),
            E::NotValidForName | E::NotValidForNameContext { .. } => (
                "the peer's certificate is for another host",
                Some(
                    "The name has to be among the certificate's subject alternative names; \
                     tls-hostname=NAME in the URI says which one to expect.",
                ),
            ),
            E::InvalidPurpose | E::InvalidPurposeContext { .. } => (
                "the peer's certificate is for another purpose: clients' and servers' differ",
                None,
            ),
            E::BadEncoding => ("the peer's certificate is damaged", None),
            _ => ("the peer's certificate cannot be trusted", None),
        };
        let mut failure = Self::new(ErrorKind::Untrusted, message);
        failure.advice = advice;
        failure.because(Tls::InvalidCertificate(error.clone()))
    }

    fn alert(alert: AlertDescription) -> Self {
        use AlertDescription as A;
        let what = match alert {
            A::CertificateRequired => "the peer wants a certificate of this side, which has none",
            A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::UnknownCA
            | A::AccessDenied
            | A::DecryptError => "the peer does not accept this side's certificate",
            A::ProtocolVersion | A::HandshakeFailure | A::InsufficientSecurity => {
                "the peer knows no version of TLS, or no cipher of it, that is known here"
            }
            _ => "the peer ended TLS",
        };
        let kind = match alert {
            A::ProtocolVersion | A::HandshakeFailure | A::InsufficientSecurity => {
                ErrorKind::Protocol
            }
            _ => ErrorKind::Refused,
        };
        Self::new(kind, what).because(Tls::AlertReceived(alert))
    }
}

/// The message alone; the cause is the source.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.source {
            Some(source) => Some(&**source),
            None => None,
        }
    }
}

/// For those who know I/O errors only.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::Untrusted | ErrorKind::Refused => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
