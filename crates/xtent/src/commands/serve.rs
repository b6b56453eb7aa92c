//! `xtent serve`: volumes over NBD.

mod announce;
mod fenced;
mod grown;
mod machine;
mod manual;
mod plan;
mod standby;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use nix::sys::signal::Signal;
use nix::unistd::User;
use xtent_export::Shutdown;
use xtent_export::metrics;
use xtent_export::nbd::{self, Listener};

use announce::{announce, announce_check};
use machine::Machine;
use manual::MANUAL;
pub(super) use plan::export_name;
use plan::{Plan, plan};
use standby::Addresses;

use crate::args::{EngineArgs, TlsArgs};
use crate::cli::Global;
use crate::client::Client;
use crate::control::{Control, Rules};
use crate::disk::rbd;
use crate::engine;
use crate::failure::{Exit, Failure, Result};
use crate::growth::Changes;
use crate::listen::{self, Bound, Spec};
use crate::notify::Notifier;
use crate::output::Output;
use crate::pid_file::PidFile;
use crate::volumes::Volumes;
use crate::wanted::{Opened, VolumeArgs, Wanted, device_or_config, not_beside_config};
use crate::{sandbox, signals};

/// Serve volumes over NBD
///
/// Asks for the passphrase of each, opens the volumes, prints the URIs of the exports on
/// standard output, and serves them until told to end. A second server for the
/// same device is refused; several read-only ones are allowed.
#[derive(clap::Args, Debug)]
#[command(
    after_long_help = MANUAL,
    override_usage = "xtent serve [OPTIONS] <DEVICE>...\n       xtent serve [OPTIONS] --config <FILE>"
)]
#[command(mut_arg("device", device_or_config))]
#[command(mut_args(not_beside_config()))]
pub(crate) struct Args {
    /// More of them, each an export under its file's name
    #[arg(value_name = "DEVICE", index = 2, conflicts_with = "config")]
    more: Vec<PathBuf>,
    /// Serve the volumes of this file (TOML), see CONFIGURATION
    #[arg(long, value_name = "FILE", conflicts_with_all = ["export", "run"])]
    config: Option<PathBuf>,
    /// Open the devices and read the headers, and end without serving
    #[arg(long, conflicts_with_all = ["run", "pid_file"])]
    check: bool,
    /// Wait while another server has the volume, and serve it when that is gone
    ///
    /// The passphrase is asked for at once. Nothing is listened on before. For one DEVICE: a file or
    /// block device that this machine or the file system locks, or an image in a Ceph cluster.
    #[arg(long, conflicts_with_all = ["check", "run", "config", "read_only", "encrypt"])]
    standby: bool,
    /// Listen here: unix:PATH or tcp:HOST:PORT, IPv6 in brackets (repeatable)
    ///
    /// The port can be left out (10809) or be 0 (any free one). Without this
    /// option it listens on the sockets that systemd passes, if it passes any,
    /// else on a default socket (see FILES).
    #[arg(long, value_name = "ADDRESS")]
    nbd: Vec<Spec>,
    /// Be the disk of a virtual machine that connects to this socket (virtio-blk over vhost-user)
    ///
    /// Of one DEVICE. NBD clients are served beside only with --nbd: nothing keeps the two from
    /// writing to the same file system.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["config", "more", "check", "run", "exit_with_last"])]
    vhost_user: Option<PathBuf>,
    /// Name of the export that clients ask for [default: the empty name; of several, the file's]
    #[arg(long, value_name = "NAME")]
    export: Option<String>,
    /// Listen on addresses that other machines can reach, without TLS
    #[arg(long)]
    allow_remote: bool,
    /// Let `xtent attach` have the server connect to others, for NBD URIs and images in Ceph clusters
    ///
    /// The sandbox allows connections to any address then; without, to the servers of the
    /// volumes that it was started with.
    #[arg(long)]
    allow_connect: bool,
    /// Clients connected at a time; more are refused [default: 64]
    ///
    /// Each takes about half a MiB of memory while it is connected.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: Option<u16>,
    /// Serve for this command alone, run by a shell, and end with its exit code
    ///
    /// It finds the URI in $uri, the export's name in $exportname and the path of
    /// a Unix socket in $unixsocket. Nothing is printed on standard output. It runs
    /// outside of the sandbox. It is asked to
    /// end (SIGTERM) when the server ends first.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["json", "user", "exit_with_last"], value_parser = clap::builder::NonEmptyStringValueParser::new())]
    run: Option<String>,
    /// End when the last client has gone that had chosen an export
    #[arg(long)]
    exit_with_last: bool,
    /// Write the process id to this file when clients can connect; removed at the end
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Become this user once the volumes are open (needs root, and --nbd or systemd sockets)
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Keep privileges and system calls, to find out what the sandbox forbids
    #[arg(long)]
    no_sandbox: bool,
    /// Offer metrics over HTTP, for Prometheus: unix:PATH or tcp:HOST:PORT (repeatable)
    ///
    /// At /metrics, to whoever can connect, without TLS: what each export was asked for, how long
    /// it took and what that was spent on. Other machines only with --allow-remote.
    #[arg(long, value_name = "ADDRESS", value_parser = listen::parse_metrics)]
    metrics: Vec<Spec>,
    // Last: the headings of its options would count for those that come after it.
    #[command(flatten)]
    volume: VolumeArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    let plan = plan(args, global, &output)?;
    if args.check {
        return check(&plan, &output);
    }
    let tls = plan.tls.open()?;
    let mut bound = listen::activated(plan.allow_remote)?;
    let has_place = !bound.is_empty() || args.vhost_user.is_some();
    if plan.user.is_some() && !has_place && plan.nbd.is_empty() {
        return Err(Failure::parameters(
            "--user needs --nbd: the default socket lies where only root gets at it",
        )
        .advise("Give --nbd unix:PATH in a folder that the user can enter."));
    }
    let notifier = Notifier::from_env();
    let opened = match (&plan.wanted[..], args.standby) {
        ([wanted], true) => vec![standby::wait(wanted, &notifier, &output)?],
        _ => open_all(&plan.wanted, &output)?,
    };
    let addresses = Addresses {
        waits: args.standby,
        notifier: &notifier,
        output: &output,
    };
    bind_all(args, &plan, &mut bound, &addresses)?;
    plan.tls.warn_of_anybody(&bound, &output);
    let machine = args.vhost_user.as_deref();
    let machine = machine.map(|path| addresses.bind(|| machine::bind(path)));
    let machine = machine.transpose()?;
    give_to(machine.as_slice(), plan.user.as_ref())?;
    let mut scraped = Vec::new();
    for spec in &plan.metrics {
        scraped.push(addresses.bind(|| listen::bind_metrics(spec, plan.allow_remote_clear))?);
    }
    give_to(&scraped, plan.user.as_ref())?;
    let pages: Vec<String> = scraped.iter().filter_map(page).collect();
    let addresses = bound
        .iter()
        .map(|b| b.listener.address(plan.tls.is_on()))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(|e| Failure::system("cannot find a socket's address", e))?;
    let shutdown = Shutdown::new().map_err(|e| Failure::system("cannot prepare to serve", e))?;

    let upstreams: Vec<_> = opened.iter().flat_map(|it| it.upstreams.clone()).collect();
    let is_far = !upstreams.is_empty();
    let engines: Vec<_> = opened.iter().filter_map(|it| it.engine.clone()).collect();
    let has_image = opened.iter().any(|it| it.has_image) || args.allow_connect && rbd::load();
    let (lose, losses) = fenced::Losses::new(has_image);
    let (changes, told) = grown::changes(&opened);
    let volumes = Arc::new(Volumes::new(opened, addresses, lose)?);
    let control = Control::bind()
        .inspect_err(|e| tracing::info!(error = %e, "no volume can be attached to this server"))
        .ok();
    let pid_file = plan.pid_file.as_deref().map(PidFile::write).transpose()?;
    let mut client = args
        .run
        .as_deref()
        .map(|command| start(command, args, &volumes, &bound))
        .transpose()?;
    raise_limit_of_files();

    signals::hold()?;
    let (listeners, made): (Vec<_>, Vec<_>) =
        bound.into_iter().map(|b| (b.listener, b.made)).unzip();
    let (scraped, made_for_metrics): (Vec<_>, Vec<_>) =
        scraped.into_iter().map(|b| (b.listener, b.made)).unzip();
    let (machine, made_for_machine) = machine.map(|b| (b.listener, b.made)).unzip();
    let made: Vec<_> = made
        .into_iter()
        .chain(made_for_metrics)
        .chain(made_for_machine)
        .flatten()
        .collect();
    let opener = || has_image.then(rbd::Opener::start).transpose();
    let (in_force, opener) = if args.no_sandbox {
        output.warn("serving without a sandbox (--no-sandbox)");
        // Held by whoever uses them, as behind a sandbox.
        drop((upstreams, engines));
        (Vec::new(), opener()?)
    } else {
        let needs = sandbox::Needs {
            remove_in: made
                .iter()
                .filter_map(|(_, path)| path.parent())
                .chain(pid_file.as_ref().and_then(PidFile::folder))
                .chain(control.as_ref().and_then(Control::folder))
                .map(Into::into)
                .chain(volumes.registration().folder())
                .collect(),
            signals_child: client.is_some(),
            user: plan.user.clone(),
            upstreams,
            engines,
            has_image,
            connects: args.allow_connect,
            makes_memory: machine.is_some(),
        };
        sandbox::enter(&needs, opener)?
    };
    let ended_by = on_signals(&shutdown, changes.clone())?;
    grown::follow(told, &volumes, output)?;
    let taken_over = losses.act(&volumes, &shutdown)?;
    if let Some(control) = &control {
        let rules = Rules {
            connects: args.allow_connect,
            reads_files: args.no_sandbox,
            verifies_clients: plan.tls.verifies_clients(),
            has_machine: machine.is_some(),
            opener,
            changes,
        };
        control.start(&volumes, rules, output)?;
    }
    offer_metrics(scraped, &volumes, &shutdown)?;
    let machine = machine.map(|listener| Machine::start(listener, &volumes, is_far, &shutdown));
    let machine = machine.transpose()?.flatten();
    match &mut client {
        Some(client) => client.watch(shutdown.clone())?,
        None => announce(
            is_one(args),
            args.vhost_user.as_deref(),
            &plan.tls,
            &pages,
            &volumes,
            &in_force,
            &output,
        )?,
    }
    notifier.tell("READY=1");
    // A socket that can send to any other is nothing to keep beside clients.
    drop(notifier);

    let options = options(args, &plan, tls);
    let result = nbd::serve(listeners, volumes.exports(), options, &shutdown);
    engine::hurry();
    let flushed = machine.map_or(Ok(()), Machine::end);
    volumes.end_looking();
    volumes.registration().end();
    drop((made, pid_file, control));
    if let Some(device) = taken_over.get() {
        // Of the volumes that nobody has taken, too, there is to be heard what was not written.
        for failure in [result.map_err(Failure::from), flushed]
            .into_iter()
            .filter_map(Result::err)
        {
            tracing::error!(%failure, "not everything is on the disk");
        }
        return Err(Failure::fenced(device));
    }
    result?;
    flushed?;
    tracing::info!("everything is on the disk");
    let Some(mut client) = client else {
        return Ok(());
    };
    // Whatever the command makes of it, it was cut short.
    if let Some(&signal) = ended_by.get() {
        return Err(Failure::interrupted(signal));
    }
    match client.exit_code() {
        None | Some(0) => Ok(()),
        Some(code) => std::process::exit(code),
    }
}

/// Whether it was started for one volume, as its output says it.
fn is_one(args: &Args) -> bool {
    args.config.is_none() && args.more.is_empty()
}

/// Looks at everything that can be looked at without a passphrase.
fn check(plan: &Plan, output: &Output) -> Result<()> {
    let mut found = Vec::new();
    for wanted in &plan.wanted {
        found.push((wanted.name.clone(), wanted.look(output)?));
    }
    announce_check(&found, output)
}

/// Opens all of them, or none: devices and headers first, then the passphrases one by one.
fn open_all(wanted: &[Wanted], output: &Output) -> Result<Vec<Opened>> {
    let prepared = wanted
        .iter()
        .map(|wanted| wanted.prepare(output))
        .collect::<Result<Vec<_>>>()?;
    prepared
        .into_iter()
        .map(|prepared| prepared.open(output))
        .collect()
}

/// As many open files as the system allows: each client has two, each volume at least one.
fn raise_limit_of_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, wanted)
    {
        tracing::info!(%error, "the limit of open files stays");
    }
}

fn options(args: &Args, plan: &Plan, tls: Option<nbd::Tls>) -> nbd::Options {
    let default = nbd::Options::default();
    let connections = usize::from(plan.connections);
    nbd::Options {
        connections,
        // Half of it is for what every connection owns.
        memory: default
            .memory
            .max(2 * connections * nbd::Options::memory_per_connection(tls.is_some())),
        exit_with_last: args.exit_with_last,
        tls,
        ..default
    }
}

/// The command of `--run`, with the first socket, and the first Unix one.
fn start(command: &str, args: &Args, volumes: &Volumes, bound: &[Bound]) -> Result<Client> {
    let export = args.export.as_deref().unwrap_or_default();
    let uris = volumes.uris(export);
    let uri = uris.first().map_or("", String::as_str);
    let socket = bound.iter().find_map(|bound| bound.made.as_ref());
    let socket = socket.map(|(_, path)| path.as_path());
    Client::start(command, uri, export, socket)
}

/// Listens where the options say, or on the default socket if there is nothing
/// else, and lets the user that the server becomes own the sockets it makes.
fn bind_all(
    args: &Args,
    plan: &Plan,
    bound: &mut Vec<Bound>,
    addresses: &Addresses<'_>,
) -> Result<()> {
    for spec in &plan.nbd {
        bound.push(addresses.bind(|| listen::bind(spec, plan.allow_remote))?);
    }
    if bound.is_empty() && args.vhost_user.is_none() {
        let spec = listen::default_socket(&plan.socket_name, args.run.is_some())?;
        let listening = addresses.bind(|| listen::bind(&spec, plan.allow_remote));
        // Of a device with the same name in another folder, perhaps.
        bound.push(listening.map_err(|failure| match failure.exit {
            Exit::Busy => failure.advise("Or give this server its own place: --nbd unix:PATH."),
            _ => failure,
        })?);
    }
    give_to(bound, plan.user.as_ref())
}

/// Lets the user that the server becomes own the sockets that it made.
fn give_to(bound: &[Bound], user: Option<&User>) -> Result<()> {
    let Some(user) = user else {
        return Ok(());
    };
    for (file, _) in bound.iter().filter_map(|b| b.made.as_ref()) {
        file.give_to(user.uid.as_raw(), user.gid.as_raw())?;
    }
    Ok(())
}

/// Where metrics are: the URL of a page, or the socket that has it.
fn page(bound: &Bound) -> Option<String> {
    match (&bound.made, bound.listener.tcp_address()) {
        (Some((_, path)), _) => Some(format!("unix:{}", path.display())),
        (None, address) => address.map(|address| format!("http://{address}/metrics")),
    }
}

/// Answers scrapers on a thread of its own, until the server ends.
fn offer_metrics(
    listeners: Vec<Listener>,
    volumes: &Arc<Volumes>,
    shutdown: &Shutdown,
) -> Result<()> {
    if listeners.is_empty() {
        return Ok(());
    }
    let (volumes, shutdown) = (Arc::clone(volumes), shutdown.clone());
    let serve = move || {
        let page = || metrics::text(&volumes.exports().exported());
        if let Err(error) = metrics::serve(&listeners, &page, &shutdown) {
            tracing::error!(error = %xtent_store::chain(&error), "no metrics any more");
        }
    };
    std::thread::Builder::new()
        .name("metrics".into())
        .spawn(serve)
        .map_err(|e| Failure::system("cannot start a thread for metrics", e))?;
    Ok(())
}

/// Has signals end the server, or look at its devices; what ended it before its command did.
fn on_signals(
    shutdown: &Shutdown,
    changes: Changes<grown::Which>,
) -> Result<Arc<OnceLock<Signal>>> {
    let shutdown = shutdown.clone();
    let ended_by = Arc::<OnceLock<Signal>>::default();
    let first = Arc::clone(&ended_by);
    signals::on_ending_of_server(
        move |signal| {
            tracing::info!(%signal, "ending: finishing requests and flushing");
            if !shutdown.is_triggered() {
                let _ = first.set(signal);
            }
            shutdown.trigger();
            engine::hurry();
        },
        move || changes.tell(None),
    )?;
    Ok(ended_by)
}
