//! Which sockets to serve on: `--nbd` options, systemd's, and the default one.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use xtent_export::nbd::{self, Listener, SocketFile};

use crate::failure::{Failure, Result};
use crate::runtime;

/// The port IANA gave to NBD.
const NBD_PORT: u16 = 10809;

/// Where `--nbd` wants the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    /// A Unix socket's path.
    Unix(PathBuf),
    /// Host and port, `[host]:port` for IPv6.
    Tcp(String),
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Self::parse(text, Some(NBD_PORT))
    }
}

/// Parses where `--metrics` wants them: a port has to be said.
pub(crate) fn parse_metrics(text: &str) -> std::result::Result<Spec, String> {
    Spec::parse(text, None)
}

impl Spec {
    fn parse(text: &str, default_port: Option<u16>) -> std::result::Result<Self, String> {
        let expected = || "write unix:PATH, tcp:HOST:PORT or tcp:[IPv6]:PORT".to_owned();
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Spec::Unix(PathBuf::from(path))),
            Some(("tcp", rest)) => {
                // The host ends at the first colon, or at the bracket.
                let host_end = match rest.find(']') {
                    Some(bracket) if rest.starts_with('[') && bracket > 1 => bracket + 1,
                    _ if rest.starts_with('[') => return Err(expected()),
                    _ => rest.find(':').unwrap_or(rest.len()),
                };
                let (host, port) = rest.split_at(host_end);
                let port = match port.strip_prefix(':') {
                    None if port.is_empty() => default_port.ok_or_else(expected)?,
                    None => return Err(expected()),
                    Some(port) if port.contains(':') => return Err(expected()),
                    Some(port) => port
                        .parse()
                        .map_err(|_| format!("`{port}` is not a port"))?,
                };
                if host.is_empty() {
                    return Err(expected());
                }
                Ok(Spec::Tcp(format!("{host}:{port}")))
            }
            _ => Err(expected()),
        }
    }
}

/// A socket that listens.
pub(crate) struct Bound {
    pub(crate) listener: Listener,
    /// What this process made and removes at the end, and where.
    pub(crate) made: Option<(SocketFile, PathBuf)>,
}

/// Listens on `spec` for NBD.
pub(crate) fn bind(spec: &Spec, allow_remote: bool) -> Result<Bound> {
    bind_for(spec, allow_remote, NBD_IN_THE_CLEAR, INSIST)
}

/// Listens on `spec` for those who read the metrics.
pub(crate) fn bind_metrics(spec: &Spec, allow_remote: bool) -> Result<Bound> {
    bind_for(spec, allow_remote, METRICS_IN_THE_CLEAR, INSIST_ON_METRICS)
}

/// What other machines can reach is refused with what they would have of it.
fn bind_for(spec: &Spec, allow_remote: bool, what: &str, advice: &str) -> Result<Bound> {
    match spec {
        Spec::Unix(path) => {
            let path = std::path::absolute(path)
                .map_err(|e| Failure::system(format!("cannot resolve {}", path.display()), e))?;
            let (listener, file) = nbd::bind_unix(&path)?;
            Ok(Bound {
                listener,
                made: Some((file, path)),
            })
        }
        Spec::Tcp(address) => match nbd::bind_tcp(address, allow_remote) {
            Err(e) if e.kind == xtent_export::ErrorKind::Permission && !allow_remote => {
                // The options forbid it: no permission of the system's is missing.
                let message = format!("{}, and {what}", e.message);
                Err(Failure::parameters(message).advise(advice))
            }
            other => Ok(Bound {
                listener: other?,
                made: None,
            }),
        },
    }
}

const NBD_IN_THE_CLEAR: &str = "NBD without TLS sends the decrypted data in the clear";
const INSIST: &str = "Listen on 127.0.0.1 or a Unix socket; or give --tls-certificates DIR, with --tls require; or, if \
     every machine on the way is trusted, --allow-remote.";

const METRICS_IN_THE_CLEAR: &str =
    "metrics, which have no TLS, tell everybody there what exports there are and how they are used";
const INSIST_ON_METRICS: &str = "Listen on 127.0.0.1 or a Unix socket; or, if everybody there may read them, give --allow-remote.";

/// The sockets that systemd passes.
pub(crate) fn activated(allow_remote: bool) -> Result<Vec<Bound>> {
    let listeners = nbd::activated_listeners()?;
    for listener in &listeners {
        if let Some(address) = listener.tcp_address()
            && !address.ip().to_canonical().is_loopback()
            && !allow_remote
        {
            return Err(Failure::parameters(format!(
                "the socket at {address}, passed by the service manager, can be reached from other machines, \
                 and {NBD_IN_THE_CLEAR}"
            ))
            .advise(INSIST));
        }
    }
    Ok(listeners
        .into_iter()
        .map(|listener| Bound {
            listener,
            made: None,
        })
        .collect())
}

/// The default socket of a device, in this user's runtime folder; with `is_own` one of
/// this process alone.
pub(crate) fn default_socket(device: &Path, is_own: bool) -> Result<Spec> {
    let dir = runtime::folder().map_err(|failure| match failure.advice {
        Some(_) => failure,
        None => failure.advise("Give another place with --nbd unix:PATH."),
    })?;
    let mut file = device.file_name().unwrap_or(device.as_os_str()).to_owned();
    if is_own {
        file.push(format!(".{}", std::process::id()));
    }
    file.push(".sock");
    Ok(Spec::Unix(dir.join(file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_specs() {
        let tcp = |address: &str| Spec::Tcp(address.to_owned());
        for (text, spec) in [
            ("unix:/a b:c", Spec::Unix("/a b:c".into())),
            ("unix:rel", Spec::Unix("rel".into())),
            ("tcp:localhost:1", tcp("localhost:1")),
            ("tcp:127.0.0.1", tcp("127.0.0.1:10809")),
            ("tcp:[::1]:0", tcp("[::1]:0")),
            ("tcp:[::1]", tcp("[::1]:10809")),
        ] {
            assert_eq!(text.parse(), Ok(spec), "{text}");
        }
    }

    #[test]
    fn refuses_other_specs() {
        for text in [
            "",
            "unix",
            "unix:",
            "tcp",
            "tcp:",
            "tcp::1",
            "tcp:::1",
            "tcp:::1:10809",
            "tcp:h:65536",
            "tcp:h:",
            "tcp:h:-1",
            "tcp:[::1",
            "tcp:[::1]x",
            "tcp:[]:1",
            "/path",
            "udp:h:1",
        ] {
            assert!(text.parse::<Spec>().is_err(), "{text}");
        }
    }
}
