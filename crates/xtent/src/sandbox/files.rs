//! The file system and the network, by Landlock.

use landlock::{
    ABI, Access, AccessFs, AccessNet, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::{Missing, Needs};

/// The newest interface whose rights are named here; older kernels enforce
/// those that they know.
const NEWEST: ABI = ABI::V6;

/// What forbids to open, make, rename and remove anything, to bind and connect TCP
/// sockets, to reach abstract Unix sockets and to signal processes outside.
/// Files in `remove_in` and below can be removed, by Landlock's granularity:
/// a folder of its own for them confines that. What is open stays usable. TCP connections to the
/// ports of `needs.upstreams` can be made again; Unix sockets are not Landlock's affair.
pub(super) fn rules(needs: &Needs) -> Result<RulesetCreated, Missing> {
    let mut scope = Scope::from_all(NEWEST);
    if needs.signals_child {
        scope.remove(Scope::Signal);
    }
    let mut net = AccessNet::from_all(NEWEST);
    if needs.connects {
        net.remove(AccessNet::ConnectTcp);
    }
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(net)?
        .scope(scope)?
        .create()?;
    for dir in &needs.remove_in {
        ruleset = ruleset.add_rule(PathBeneath::new(PathFd::new(dir)?, AccessFs::RemoveFile))?;
    }
    let upstreams = needs.upstreams.iter().filter(|_| !needs.connects);
    for port in upstreams.filter_map(|u| u.uri().port()) {
        ruleset = ruleset.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    Ok(ruleset)
}

/// Puts the rules in force.
pub(super) fn close(rules: RulesetCreated) -> Result<&'static str, Missing> {
    match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Ok("landlock"),
        RulesetStatus::PartiallyEnforced => Ok("landlock (what this kernel has of it)"),
        RulesetStatus::NotEnforced => Err("landlock is not enabled in this kernel".into()),
    }
}
