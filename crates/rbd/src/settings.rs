//! Where a cluster is and how this client behaves: Ceph's own files and variables, what has to be
//! as it is here, and what the name says.

use std::io;

use xtent_store::ErrorKind;

use crate::Name;
use crate::ffi::Cluster;
use crate::image::{LONGEST_OPEN, Trouble};

/// Settings of librados for a client that is a part of another program, and of librbd for one
/// that writes what must not be lost. The name can change them.
const OURS: &[(&str, &str)] = &[
    // Messages come as errors. With `:log_file=FILE` they are there as well.
    ("log_to_stderr", "false"),
    ("err_to_stderr", "false"),
    ("log_file", ""),
    // A socket for commands is nothing that a sandbox should have.
    ("admin_socket", ""),
    // What is written is encrypted: nobody reads it from a cache, and a flush would have to wait.
    ("rbd_cache", "false"),
    // Memory that is written from is not changed until the write has ended.
    ("rbd_disable_zero_copy_writes", "false"),
    // Whoever breaks a lock can be sure that its owner writes no more. Before Ceph 16 it has the other name.
    ("rbd_blocklist_on_break_lock", "true"),
    ("rbd_blacklist_on_break_lock", "true"),
];

/// What librados waits for without end, or five minutes, unless something else is set.
const WAITS: [(&str, &str); 2] = [
    ("client_mount_timeout", "300"),
    ("rados_mon_op_timeout", "0"),
];

/// The setting for operations on objects.
pub(crate) const OBJECTS: &str = "rados_osd_op_timeout";

/// A client with its settings, not connected yet.
pub(crate) fn client(name: &Name) -> Result<Cluster, Trouble> {
    let environment = std::env::var("CEPH_ARGS").unwrap_or_default();
    let id = name.id.clone().or_else(|| user_in(&environment));
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error| Trouble::new(what, error)
    };
    let cluster = Cluster::new(id.as_deref()).map_err(failed("cannot make a client of Ceph"))?;
    let read = cluster.read_conf(name.conf.as_deref());
    match (read, &name.conf) {
        (Err(error), Some(file)) => {
            let what = format!("cannot read {}", file.display());
            return Err(Trouble::new(what, error));
        }
        // Without a file all there is to know may be in the name or the environment.
        (Err(error), None) if !is_not_found(&error) => {
            return Err(Trouble::new("cannot read ceph.conf", error));
        }
        _ => {}
    }
    cluster
        .read_environment()
        .map_err(failed("cannot make use of CEPH_ARGS"))?;
    set_ours(&cluster);
    bound_waits(&cluster);
    for (option, value) in &name.options {
        cluster
            .set(option, value)
            .map_err(|error| match is_not_found(&error) {
                true => Trouble::said(
                    ErrorKind::Unsupported,
                    format!("Ceph has no option {option}; known besides are id and conf"),
                ),
                false => Trouble::new(format!("Ceph does not take {option}={value}"), error),
            })?;
    }
    Ok(cluster)
}

/// Sets what has to be as it is here.
pub(crate) fn set_ours(cluster: &Cluster) {
    for (option, value) in OURS {
        // An older library may not know it yet.
        if let Err(error) = cluster.set(option, value) {
            tracing::debug!(option, %error, "librados does not take a setting");
        }
    }
}

/// Bounds what opening waits for.
pub(crate) fn bound_waits(cluster: &Cluster) {
    for (option, endless) in WAITS {
        bound(cluster, option, endless);
    }
}

/// Bounds a wait that would be endless.
pub(crate) fn bound(cluster: &Cluster, option: &str, endless: &str) {
    if cluster
        .get(option)
        .is_ok_and(|value| is_number(&value, endless))
    {
        let seconds = LONGEST_OPEN.as_secs().to_string();
        // The setting is there, and takes numbers.
        let _ = cluster.set(option, &seconds);
    }
}

/// Whether both say the same number; Ceph has its own ways to write some.
fn is_number(a: &str, b: &str) -> bool {
    let number = |text: &str| text.trim_end_matches('s').parse::<f64>().ok();
    number(a).is_some() && number(a) == number(b)
}

fn is_not_found(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// The user that `CEPH_ARGS` names: librados itself looks at the other arguments only.
fn user_in(arguments: &str) -> Option<String> {
    let mut words = arguments.split_whitespace();
    let mut found = None;
    while let Some(word) = words.next() {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word, None),
        };
        let mut value = || value.or_else(|| words.next());
        match option {
            "--id" | "--user" => found = value().map(str::to_owned),
            "--name" | "-n" => {
                found = value()
                    .and_then(|name| name.strip_prefix("client."))
                    .map(str::to_owned);
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_found_among_other_arguments() {
        let user = |text: &str| user_in(text);
        assert_eq!(user("--id me").as_deref(), Some("me"));
        assert_eq!(user("--keyring k --id=me -m host").as_deref(), Some("me"));
        assert_eq!(user("-n client.me").as_deref(), Some("me"));
        assert_eq!(user("--name=client.me --debug_ms 1").as_deref(), Some("me"));
        for none in ["", "--id", "-n osd.0", "--idle 5"] {
            assert_eq!(user(none), None, "{none}");
        }
    }

    #[test]
    fn numbers_are_the_same_however_they_are_written() {
        assert!(is_number("300", "300") && is_number("0.000000", "0") && is_number("0s", "0"));
        assert!(!is_number("30", "300") && !is_number("", "0"));
    }
}
