//! TLS for the clients of a server.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use xtent_export::nbd;
use xtent_server_config::Server;

use crate::failure::{Failure, Result};
use crate::listen::Bound;
use crate::output::Output;

/// What becomes of clients without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// They are refused
    Require,
    /// They are served like others
    Allow,
    /// There is no TLS
    Off,
}

/// Whether clients have TLS, and which of them are served.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArgs {
    /// Serve with TLS, by server-cert.pem and server-key.pem in this folder
    ///
    /// With --tls-verify-peer also ca-cert.pem, and ca-crl.pem if it is there. They are
    /// read once: a new certificate takes a restart.
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    /// What becomes of clients without TLS [default: require, with --tls-certificates]
    #[arg(long, value_name = "POLICY")]
    tls: Option<Policy>,
    /// Serve only clients with a certificate that was signed by an authority in ca-cert.pem
    ///
    /// This takes --tls require: a client without TLS shows no certificate.
    #[arg(long)]
    tls_verify_peer: bool,
}

impl TlsArgs {
    fn policy(&self) -> Policy {
        match self.tls_certificates {
            None => Policy::Off,
            Some(_) => self.tls.unwrap_or(Policy::Require),
        }
    }

    /// Whether there is TLS at all.
    pub(crate) fn is_on(&self) -> bool {
        self.policy() != Policy::Off
    }

    /// Whether nothing is sent in the clear.
    pub(crate) fn is_required(&self) -> bool {
        self.policy() == Policy::Require
    }

    /// For programs.
    pub(crate) fn name(&self) -> &'static str {
        match self.policy() {
            Policy::Require => "require",
            Policy::Allow => "allow",
            Policy::Off => "off",
        }
    }

    /// Whether clients are asked for certificates.
    pub(crate) fn verifies_clients(&self) -> bool {
        self.is_on() && self.tls_verify_peer
    }

    /// The same, and what the configuration file says where no option is given.
    pub(crate) fn or(&self, server: &Server) -> Result<Self> {
        let policy = server.tls.as_deref().map(|text| {
            let parsed = Policy::from_str(text, false);
            parsed.map_err(|e| Failure::parameters(format!("`tls` {text:?}: {e}")))
        });
        let policy = policy.transpose()?;
        let tls = Self {
            tls_certificates: self
                .tls_certificates
                .clone()
                .or_else(|| server.tls_certificates.clone()),
            // Whoever gives certificates wants them used.
            tls: match (self.tls, &self.tls_certificates) {
                (None, None) => policy,
                (given, _) => given,
            },
            tls_verify_peer: self.tls_verify_peer || server.tls_verify_peer == Some(true),
        };
        match (&tls.tls_certificates, tls.tls, tls.tls_verify_peer) {
            (None, Some(_), _) | (None, _, true) => Err(Failure::parameters(
                "TLS needs certificates: --tls-certificates, or `tls-certificates` in the file, names their folder",
            )),
            _ => Ok(tls),
        }
    }

    /// Reads certificates and key.
    pub(crate) fn open(&self) -> Result<Option<nbd::Tls>> {
        if self.tls_verify_peer && !self.is_required() {
            return Err(Failure::parameters(
                "--tls-verify-peer keeps nobody out without --tls require: clients without TLS show no \
                 certificate",
            ));
        }
        match &self.tls_certificates {
            Some(folder) if self.is_on() => Ok(Some(nbd::Tls {
                server: xtent_tls::Server::open(folder, self.tls_verify_peer)?,
                required: self.is_required(),
            })),
            _ => Ok(None),
        }
    }

    /// Says so where TLS keeps nobody out.
    pub(crate) fn warn_of_anybody(&self, bound: &[Bound], output: &Output) {
        let is_remote = |bound: &Bound| {
            let address = bound.listener.tcp_address();
            address.is_some_and(|it| !it.ip().to_canonical().is_loopback())
        };
        if self.is_required() && !self.tls_verify_peer && bound.iter().any(is_remote) {
            output.warn(
                "every machine that can reach the server is served: TLS without --tls-verify-peer asks \
                 clients for nothing",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_counts_in_place_of_the_files_key_and_leaves_the_others() {
        let server = Server {
            tls_certificates: Some("/file".into()),
            tls: Some("allow".into()),
            tls_verify_peer: Some(true),
            ..Server::default()
        };
        let given = |tls_certificates: Option<&str>, tls, tls_verify_peer| TlsArgs {
            tls_certificates: tls_certificates.map(Into::into),
            tls,
            tls_verify_peer,
        };
        let merged = |args: TlsArgs| {
            let tls = args.or(&server).unwrap();
            (tls.tls_certificates.unwrap(), tls.tls, tls.tls_verify_peer)
        };
        let (file, other) = (PathBuf::from("/file"), PathBuf::from("/given"));
        let allow = Some(Policy::Allow);
        assert_eq!(merged(given(None, None, false)), (file, allow, true));
        assert_eq!(
            merged(given(Some("/given"), None, false)),
            (other.clone(), None, true),
            "required, whatever the file has"
        );
        let off = Some(Policy::Off);
        assert_eq!(
            merged(given(None, off, false)),
            (PathBuf::from("/file"), off, true)
        );
        let require = Some(Policy::Require);
        assert_eq!(
            merged(given(Some("/given"), require, true)),
            (other, require, true)
        );
    }
}
