//! What is to be served: by options, or by a configuration file.

use std::path::{Path, PathBuf};

use nix::unistd::User;
use xtent_server_config::Server;

use super::Args;
use crate::args::TlsArgs;
use crate::cli::Global;
use crate::config;
use crate::disk::is_uri;
use crate::failure::{Failure, Result};
use crate::listen::{self, Spec};
use crate::output::Output;
use crate::wanted::Wanted;

/// Clients at a time, where nothing says how many.
const CONNECTIONS: u16 = 64;

/// What is to be served, and how, wherever it was said.
pub(super) struct Plan {
    pub(super) wanted: Vec<Wanted>,
    pub(super) nbd: Vec<Spec>,
    pub(super) metrics: Vec<Spec>,
    pub(super) allow_remote: bool,
    /// Without TLS, which is not asked for here.
    pub(super) allow_remote_clear: bool,
    pub(super) connections: u16,
    pub(super) user: Option<User>,
    pub(super) pid_file: Option<PathBuf>,
    pub(super) tls: TlsArgs,
    /// What the default socket is named after.
    pub(super) socket_name: PathBuf,
}

pub(super) fn plan(args: &Args, global: &Global, output: &Output) -> Result<Plan> {
    let (server, wanted) = match &args.config {
        Some(path) => {
            let configured = config::read(path, global.cpu, output)?;
            (configured.server, configured.wanted)
        }
        None => (Server::default(), of_devices(args, global)?),
    };
    let nbd = specs("nbd", &args.nbd, &server.nbd, str::parse)?;
    let metrics = specs(
        "metrics",
        &args.metrics,
        &server.metrics,
        listen::parse_metrics,
    )?;
    let user = args.user.as_ref().or(server.user.as_ref());
    if args.no_sandbox && user.is_some() {
        return Err(
            Failure::parameters("without a sandbox the server cannot become another user").advise(
                "Leave out --no-sandbox, or --user, which may be in the configuration file.",
            ),
        );
    }
    let tls = args.tls.or(&server)?;
    let named = wanted.iter().find(|it| !it.args.clients.is_empty());
    if let (Some(wanted), false) = (named, tls.verifies_clients()) {
        return Err(Failure::parameters(format!(
            "only some clients may have {}, and nothing asks them who they are",
            wanted.args.device.device.display()
        ))
        .advise("Ask them for certificates: --tls-certificates DIR --tls-verify-peer."));
    }
    let connections = args.connections.or(server.connections);
    let allow_remote_clear = args.allow_remote || server.allow_remote == Some(true);
    Ok(Plan {
        socket_name: match &args.config {
            Some(path) => path.with_extension(""),
            None => args.volume.device.device.clone(),
        },
        wanted,
        nbd,
        metrics,
        allow_remote: allow_remote_clear || tls.is_required(),
        allow_remote_clear,
        tls,
        connections: connections.unwrap_or(CONNECTIONS),
        user: user.map(|name| look_up(name)).transpose()?,
        pid_file: args.pid_file.clone().or(server.pid_file),
    })
}

/// The addresses of the options, or those of the file if there are none.
fn specs(
    key: &str,
    options: &[Spec],
    file: &[String],
    parse: impl Fn(&str) -> std::result::Result<Spec, String>,
) -> Result<Vec<Spec>> {
    if !options.is_empty() {
        return Ok(options.to_vec());
    }
    file.iter()
        .map(|text| parse(text).map_err(|e| Failure::parameters(format!("`{key}` {text:?}: {e}"))))
        .collect()
}

/// One under the name that was asked for; several each under its own.
fn of_devices(args: &Args, global: &Global) -> Result<Vec<Wanted>> {
    let first = &args.volume.device.device;
    if args.more.is_empty() {
        return Ok(vec![Wanted {
            name: args.export.clone().unwrap_or_default(),
            args: args.volume.clone(),
            backend: global.cpu,
            engine: args.engine.clone(),
        }]);
    }
    let of_one = [("--standby", args.standby), ("--run", args.run.is_some())];
    if let Some((option, _)) = of_one.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::parameters(format!(
            "{option} is for one DEVICE, and there are {}",
            1 + args.more.len()
        ))
        .advise("Start a server for each."));
    }
    let export = args.export.as_ref().map(|_| "--export");
    if let Some(option) = export.or(args.volume.option_of_one()) {
        return Err(Failure::parameters(format!(
            "{option} is for one DEVICE, and there are {}",
            1 + args.more.len()
        ))
        .advise("A configuration file has options for each volume: --config FILE."));
    }
    let devices = std::iter::once(first).chain(&args.more);
    let mut wanted = Vec::<Wanted>::new();
    for device in devices {
        let name = export_name(device);
        if let Some(other) = wanted.iter().find(|it| it.name == name) {
            return Err(Failure::parameters(format!(
                "{} and {} would both be exported as {name:?}",
                other.args.device.device.display(),
                device.display()
            ))
            .advise("A configuration file gives each its own name: --config FILE."));
        }
        wanted.push(Wanted {
            name,
            args: args.volume.of(device.clone()),
            backend: global.cpu,
            engine: args.engine.clone(),
        });
    }
    Ok(wanted)
}

/// The export's name of a device that nobody has given one.
pub(in crate::commands) fn export_name(device: &Path) -> String {
    let text = device.to_string_lossy();
    let name = xtent_control::export_name(&text);
    match name.is_empty() && !is_uri(device) {
        true => text.into_owned(),
        false => name.to_owned(),
    }
}

fn look_up(name: &str) -> Result<User> {
    User::from_name(name)
        .map_err(|e| Failure::system(format!("cannot look up user {name}"), e))?
        .ok_or_else(|| Failure::parameters(format!("there is no user {name}")))
}
