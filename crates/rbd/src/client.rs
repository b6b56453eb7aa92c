//! Being a client of a cluster in a process that reads no files.

use std::net::{IpAddr, SocketAddr};

use xtent_secret::SecretBytes;
use xtent_store::ErrorKind;

use crate::Name;
use crate::ffi::Cluster;
use crate::image::Trouble;
use crate::{keyring, settings};

/// Who a client of a cluster is and how it gets there: what is in files otherwise. One process finds
/// it ([`Image::client`](crate::Image::client)) for another that has no files
/// ([`Image::open_as`](crate::Image::open_as)).
#[derive(Debug)]
pub struct Client {
    /// `USER` of `client.USER`.
    pub user: String,
    /// Options of Ceph, of [`Client::SETTINGS`] only: those that are not as they are without a file.
    pub settings: Vec<(String, String)>,
    /// The user's key as Ceph writes it; none where the cluster asks for none.
    pub key: Option<SecretBytes>,
}

impl Client {
    /// The options that a client can be given: how the cluster is reached, and how long is waited.
    /// None that names a file, a socket, a plugin or a place for messages.
    pub const SETTINGS: &'static [&'static str] = &[
        "mon_host",
        "auth_client_required",
        "auth_supported",
        "cephx_require_signatures",
        "cephx_require_version",
        "cephx_service_require_signatures",
        "cephx_service_require_version",
        "cephx_sign_messages",
        "client_mount_timeout",
        "ms_async_op_threads",
        "ms_bind_ipv4",
        "ms_bind_ipv6",
        "ms_client_mode",
        "ms_connection_ready_timeout",
        "ms_crc_data",
        "ms_crc_header",
        "ms_initial_backoff",
        "ms_max_backoff",
        "ms_mon_client_mode",
        "ms_tcp_nodelay",
        "ms_tcp_rcvbuf",
        "objecter_inflight_op_bytes",
        "objecter_inflight_ops",
        "objecter_tick_interval",
        "objecter_timeout",
        "rados_mon_op_timeout",
        "rados_osd_op_timeout",
        "rbd_discard_granularity_bytes",
        "rbd_op_threads",
        "rbd_read_from_replica_policy",
        "rbd_skip_partial_discard",
    ];

    /// That of an image which is open: its settings as they are, and the key from where librados
    /// has it.
    pub(crate) fn of(cluster: &Cluster, name: &Name) -> Result<Self, Trouble> {
        let options = name.options.iter().map(|(option, _)| option);
        if let Some(other) = options
            .clone()
            .find(|option| !is_handed_over(option) && !is_of_keyring(option))
        {
            return Err(Trouble::said(
                ErrorKind::Unsupported,
                format!("a server that runs does not take the option {other}"),
            ));
        }
        let failed = |error| Trouble::new("cannot look at Ceph's settings", error);
        let without = Cluster::new(None).map_err(failed)?;
        let mut found = Vec::new();
        for &option in Self::SETTINGS {
            // An older or newer library may not know it.
            let Ok(value) = cluster.get(option) else {
                continue;
            };
            if without.get(option).is_ok_and(|usual| usual == value) {
                continue;
            }
            let value = match option {
                "mon_host" => addresses(&value, look_up)?,
                _ => value,
            };
            found.push((option.to_owned(), value));
        }
        if !found.iter().any(|(option, _)| option == "mon_host") {
            return Err(Trouble::said(
                ErrorKind::Unsupported,
                "its monitors are in no mon_host, and a server that runs has no other way to find them",
            ));
        }
        Ok(Self {
            user: cluster.user().to_owned(),
            settings: found,
            key: keyring::key(cluster)?,
        })
    }

    /// A cluster's client of these settings, not connected yet.
    pub(crate) fn cluster(&self) -> Result<Cluster, Trouble> {
        let what = "cannot make a client of Ceph";
        let failed = |error| Trouble::new(what, error);
        let cluster = Cluster::new(Some(&self.user)).map_err(failed)?;
        settings::set_ours(&cluster);
        // It would be looked for in files.
        cluster.set("keyring", "").map_err(failed)?;
        for (option, value) in &self.settings {
            if !is_handed_over(option) {
                let text = format!("the option {option} is none that a client can be given");
                return Err(Trouble::said(ErrorKind::Unsupported, text));
            }
            // Another library may not know it. A value that is none is told.
            match cluster.set(option, value) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    tracing::debug!(option, "librados does not know a setting");
                }
                other => other.map_err(|error| {
                    Trouble::new(format!("Ceph does not take {option}={value}"), error)
                })?,
            }
        }
        settings::bound_waits(&cluster);
        if let Some(key) = &self.key {
            cluster
                .set_secret("key", key)
                .map_err(|error| Trouble::new("Ceph does not take the user's key", error))?;
        }
        Ok(cluster)
    }
}

fn is_handed_over(option: &str) -> bool {
    Client::SETTINGS.contains(&option)
}

/// What says where the key is: the key itself is what is handed over.
fn is_of_keyring(option: &str) -> bool {
    matches!(option, "keyring" | "keyfile")
}

fn look_up(host: &str) -> std::io::Result<Vec<IpAddr>> {
    use std::net::ToSocketAddrs;
    Ok((host, 0).to_socket_addrs()?.map(|it| it.ip()).collect())
}

/// What ends an address in `mon_host`.
const BETWEEN: &[char] = &['[', ']', ',', ';', ' ', '\t'];

/// Monitors with addresses in place of names, as `mon_host` has them: addresses with or without a
/// protocol (`v2:`), port and nonce (`/0`), in brackets where they are one monitor's.
fn addresses(
    monitors: &str,
    look_up: impl Fn(&str) -> std::io::Result<Vec<IpAddr>>,
) -> Result<String, Trouble> {
    let mut found = String::new();
    let mut rest = monitors;
    while !rest.is_empty() {
        let (one, after) = rest.split_at(rest.find(BETWEEN).unwrap_or(rest.len()));
        found += &address(one, &look_up)?;
        let mut after = after.chars();
        found.extend(after.next());
        rest = after.as_str();
    }
    Ok(found)
}

fn address(
    one: &str,
    look_up: impl Fn(&str) -> std::io::Result<Vec<IpAddr>>,
) -> Result<String, Trouble> {
    let protocols = ["v1:", "v2:", "any:", "msgr2:"];
    let protocol = protocols.into_iter().find(|it| one.starts_with(it));
    let protocol = protocol.unwrap_or_default();
    let bare = &one[protocol.len()..];
    let (bare, nonce) = bare.split_at(bare.find('/').unwrap_or(bare.len()));
    let is_address = bare.parse::<IpAddr>().is_ok() || bare.parse::<SocketAddr>().is_ok();
    // The port behind an address in brackets.
    if is_address || bare.is_empty() || bare.starts_with(':') {
        return Ok(one.to_owned());
    }
    let (host, port) = bare.split_at(bare.find(':').unwrap_or(bare.len()));
    let found = look_up(host)
        .map_err(|error| Trouble::new(format!("cannot find the monitor {host}"), error))?;
    let found = found.into_iter().map(|ip| match ip {
        IpAddr::V4(ip) => format!("{protocol}{ip}{port}{nonce}"),
        IpAddr::V6(ip) => format!("{protocol}[{ip}]{port}{nonce}"),
    });
    Ok(found.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_addresses(monitors: &str) -> Option<String> {
        let look_up = |host: &str| match host {
            "one" => Ok(vec!["10.0.0.1".parse().unwrap()]),
            "both" => Ok(vec![
                "10.0.0.2".parse().unwrap(),
                "fe80::2".parse().unwrap(),
            ]),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        };
        addresses(monitors, look_up).ok()
    }

    #[test]
    fn monitors_are_found_by_their_names_and_addresses_stay() {
        for same in [
            "",
            "10.0.0.1",
            "10.0.0.1:6789, 10.0.0.2;10.0.0.3",
            "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0] [v2:10.0.0.2:3300/0,v1:10.0.0.2:6789/0]",
            "[fe80::1]:6789,[fe80::2]",
            "[v2:[fe80::1]:3300/0,v1:[fe80::1]:6789/0]",
        ] {
            assert_eq!(with_addresses(same).as_deref(), Some(same));
        }
        for (names, found) in [
            ("one", "10.0.0.1"),
            ("one:3300,both", "10.0.0.1:3300,10.0.0.2,[fe80::2]"),
            (
                "[v2:one:3300/0,v1:one:6789/0]",
                "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]",
            ),
        ] {
            assert_eq!(with_addresses(names).as_deref(), Some(found));
        }
        assert_eq!(with_addresses("10.0.0.1,nowhere"), None);
    }

    #[test]
    fn no_setting_leads_to_a_file_a_socket_or_code() {
        for &option in Client::SETTINGS {
            for part in [
                "path", "file", "dir", "plugin", "socket", "log", "key", "debug",
            ] {
                assert!(!option.contains(part), "{option}");
            }
        }
    }

    #[test]
    fn what_no_client_may_have_is_refused() {
        for option in ["admin_socket", "log_file", "plugin_dir", "keyring", "key"] {
            let client = Client {
                user: "x".into(),
                settings: vec![(option.into(), "/x".into())],
                key: None,
            };
            match client.cluster() {
                Err(trouble) => {
                    let text = format!("{trouble:?}");
                    // Without the library nothing gets so far.
                    assert!(
                        text.contains(option) || text.contains("library"),
                        "{option}: {text}"
                    );
                }
                Ok(_) => panic!("{option} was taken"),
            }
        }
    }
}
