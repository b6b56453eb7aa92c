//! Users, groups and capabilities.

use nix::unistd::{User, getgroups, setgid, setgroups, setuid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::failure::{Exit, Failure, Result};

/// Becomes `user`, if there is one, and gives up every capability.
pub(super) fn drop_all(user: Option<&User>) -> Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    match user {
        Some(user) if is_root => {
            let fail = |e| Failure::system(format!("cannot become user {}", user.name), e);
            setgroups(&[user.gid]).map_err(fail)?;
            setgid(user.gid).map_err(fail)?;
            setuid(user.uid).map_err(fail)?;
        }
        Some(user) if user.uid.as_raw() != rustix::process::geteuid().as_raw() => {
            return Err(Failure::new(
                Exit::Permission,
                format!("only root can become user {}", user.name),
            ));
        }
        _ if is_root => leave_groups(),
        _ => {}
    }
    drop_capabilities()
}

/// Gives up root's supplementary groups. It is an act of all threads, and ends the process if one of them
/// has given up the privilege: before that, and not twice.
pub(super) fn leave_groups() {
    if getgroups().is_ok_and(|groups| groups.is_empty()) {
        return;
    }
    // A container may forbid it; the capabilities go all the same.
    if let Err(error) = setgroups(&[]) {
        tracing::info!(%error, "supplementary groups kept");
    }
}

/// Gives up every capability of this thread.
pub(super) fn drop_capabilities() -> Result<()> {
    keep(CapabilitySet::empty())
}

/// The same for threads that begin before this process has read its last file and become its last
/// user: a change of user is one of all threads, and ends the process if not all can.
#[cfg(feature = "rbd")]
pub(super) fn keep_what_comes_before() -> Result<()> {
    let has = rustix::thread::capabilities(None)
        .map_err(|e| Failure::system("cannot look at capabilities", e))?;
    let needed = CapabilitySet::DAC_READ_SEARCH | CapabilitySet::SETUID | CapabilitySet::SETGID;
    keep(has.permitted & needed)
}

fn keep(kept: CapabilitySet) -> Result<()> {
    // First the bounding set, which needs a capability to shrink.
    for number in 0..CapabilitySet::all().bits().count_ones().max(64) {
        let Some(bit) = 1_u64.checked_shl(number) else {
            break;
        };
        let one = CapabilitySet::from_bits_retain(bit);
        if rustix::thread::capability_is_in_bounding_set(one).unwrap_or(false) {
            // Without CAP_SETPCAP it stays, and is of no use: no new privileges.
            let _ = rustix::thread::remove_capability_from_bounding_set(one);
        }
    }
    let _ = rustix::thread::clear_ambient_capability_set();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )
    .map_err(|e| Failure::system("cannot give up capabilities", e))
}
