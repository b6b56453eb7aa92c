//! `xtent serve`: the volume over NBD.

mod manual;
mod volume;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use clap::ValueEnum;
use nix::sys::signal::Signal;
use nix::unistd::User;
use xtent_export::nbd::{self, Export, Exports, Shutdown};
use xtent_volume::{DiscardPolicy, Volume};

use manual::MANUAL;
use volume::{Opened, open};

use crate::args::{DeviceArgs, DirectArgs, ThreadsArgs, TlsArgs, UnlockArgs};
use crate::cli::Global;
use crate::client::Client;
use crate::failure::{Exit, Failure, Result};
use crate::growth::{Grown, Growth};
use crate::headerless::PlainArgs;
use crate::listen::{self, Bound, Spec};
use crate::notify::Notifier;
use crate::output::Output;
use crate::pid_file::PidFile;
use crate::registry::{self, Entry, Kind, Registration};
use crate::size::show_size;
use crate::{sandbox, signals};

/// What discards do, on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Discard {
    /// Accepted and ignored
    Never,
    /// Passed down to the file or device
    Allow,
    /// Written as encrypted zeros
    Zero,
}

/// Serve a volume over NBD
///
/// Asks for the passphrase, opens the volume, prints the URI of the export on
/// standard output, and serves it until told to end. A second server for the
/// same device is refused; several read-only ones are allowed.
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    #[command(flatten)]
    device: DeviceArgs,
    /// Listen here: unix:PATH or tcp:HOST:PORT, IPv6 in brackets (repeatable)
    ///
    /// The port can be left out (10809) or be 0 (any free one). Without this
    /// option it listens on the sockets that systemd passes, if it passes any,
    /// else on a default socket (see FILES).
    #[arg(long, value_name = "ADDRESS")]
    nbd: Vec<Spec>,
    /// Name of the export that clients ask for [default: the empty name]
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    export: String,
    /// Refuse writes, and open the device read-only
    #[arg(short = 'r', long)]
    read_only: bool,
    /// Serve a plain image encrypted, under a detached header made for it; read-only
    #[arg(long, requires = "header", conflicts_with_all = ["discard", "partition"])]
    encrypt: bool,
    /// What a client's discards (trim) do [default: never, or as the header says]
    #[arg(long, value_name = "POLICY")]
    discard: Option<Discard>,
    /// Listen on addresses that other machines can reach, without TLS
    #[arg(long)]
    allow_remote: bool,
    /// Clients connected at a time; more are refused
    ///
    /// Each takes about half a MiB of memory while it is connected.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Serve for this command alone, run by a shell, and end with its exit code
    ///
    /// It finds the URI in $uri, the export's name in $exportname and the path of
    /// a Unix socket in $unixsocket. Nothing is printed on standard output. It runs
    /// outside of the sandbox. It is asked to
    /// end (SIGTERM) when the server ends first.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["json", "user", "exit_with_last"], value_parser = clap::builder::NonEmptyStringValueParser::new())]
    run: Option<String>,
    /// End when the last client has gone that had chosen the export
    #[arg(long)]
    exit_with_last: bool,
    /// Write the process id to this file when clients can connect; removed at the end
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Become this user once the volume is open (needs root, and --nbd or systemd sockets)
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Keep privileges and system calls, to find out what the sandbox forbids
    #[arg(long)]
    no_sandbox: bool,
    #[command(flatten)]
    direct: DirectArgs,
    #[command(flatten)]
    threads: ThreadsArgs,
    #[command(flatten)]
    unlock: UnlockArgs,
    #[command(flatten)]
    plain: PlainArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

impl Args {
    /// Whether other machines may reach the server.
    fn allows_remote(&self) -> bool {
        self.allow_remote || self.tls.is_required()
    }
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    args.unlock.key.source().check()?;
    let user = args.user.as_deref().map(look_up).transpose()?;
    let tls = args.tls.open()?;
    let mut bound = listen::activated(args.allows_remote())?;
    if user.is_some() && bound.is_empty() && args.nbd.is_empty() {
        return Err(Failure::parameters(
            "--user needs --nbd: the default socket lies where only root gets at it",
        )
        .advise("Give --nbd unix:PATH in a folder that the user can enter."));
    }
    let Opened {
        volume,
        growth,
        cipher,
        uuid,
        start: first_byte,
        upstreams,
        has_image,
        device,
    } = open(args, global, &output)?;
    bind_all(args, &mut bound, user.as_ref())?;
    args.tls.warn_of_anybody(&bound, &output);
    let uris = bound
        .iter()
        .map(|b| b.listener.uri(&args.export, args.tls.is_on()))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(|e| Failure::system("cannot find a socket's address", e))?;
    let notifier = Notifier::from_env();
    let shutdown = Shutdown::new().map_err(|e| Failure::system("cannot prepare to serve", e))?;

    let mut entry = Entry::new(Kind::Server, &device, uuid, cipher, &volume);
    entry.uris.clone_from(&uris);
    (entry.partition, entry.start) = (args.device.partition, first_byte);
    let registration = Arc::new(registry::register(&entry));
    let pid_file = args.pid_file.as_deref().map(PidFile::write).transpose()?;
    let mut client = args
        .run
        .as_deref()
        .map(|command| start(command, args, &uris, &bound))
        .transpose()?;

    signals::hold()?;
    let (listeners, made): (Vec<_>, Vec<_>) =
        bound.into_iter().map(|b| (b.listener, b.made)).unzip();
    let made: Vec<_> = made.into_iter().flatten().collect();
    let in_force = if args.no_sandbox {
        output.warn("serving without a sandbox (--no-sandbox)");
        Vec::new()
    } else {
        sandbox::enter(&sandbox::Needs {
            remove_in: made
                .iter()
                .filter_map(|(_, path)| path.parent())
                .chain(pid_file.as_ref().and_then(PidFile::folder))
                .map(Into::into)
                .chain(registration.folder())
                .collect(),
            signals_child: client.is_some(),
            user,
            upstreams,
            has_image,
        })?
    };
    let ended_by = on_signals(&shutdown, growth, Arc::clone(&registration), entry, output)?;
    match &mut client {
        Some(client) => client.watch(shutdown.clone())?,
        None => announce(args, &uris, &volume, &in_force, &output)?,
    }
    notifier.tell("READY=1");
    // A socket that can send to any other is nothing to keep beside clients.
    drop(notifier);

    let exports = Exports::new();
    exports.add(Export {
        name: args.export.clone(),
        description: String::new(),
        volume,
        allowed: args.tls.allowed(),
    })?;
    let result = nbd::serve(listeners, &exports, options(args, tls), &shutdown);
    registration.end();
    drop((made, pid_file));
    result?;
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

fn options(args: &Args, tls: Option<nbd::Tls>) -> nbd::Options {
    let default = nbd::Options::default();
    let connections = usize::from(args.connections);
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
fn start(command: &str, args: &Args, uris: &[String], bound: &[Bound]) -> Result<Client> {
    let uri = uris.first().map_or("", String::as_str);
    let socket = bound.iter().find_map(|bound| bound.made.as_ref());
    let socket = socket.map(|(_, path)| path.as_path());
    Client::start(command, uri, &args.export, socket)
}

fn look_up(name: &str) -> Result<User> {
    User::from_name(name)
        .map_err(|e| Failure::system(format!("cannot look up user {name}"), e))?
        .ok_or_else(|| Failure::parameters(format!("there is no user {name}")))
}

/// Listens where the options say, or on the default socket if there is nothing
/// else, and lets the user that the server becomes own the sockets it makes.
fn bind_all(args: &Args, bound: &mut Vec<Bound>, user: Option<&User>) -> Result<()> {
    for spec in &args.nbd {
        bound.push(listen::bind(spec, args.allows_remote())?);
    }
    if bound.is_empty() {
        let spec = listen::default_socket(&args.device.device, args.run.is_some())?;
        let listening = listen::bind(&spec, args.allows_remote());
        // Of a device with the same name in another folder, perhaps.
        bound.push(listening.map_err(|failure| match failure.exit {
            Exit::Busy => failure.advise("Or give this server its own place: --nbd unix:PATH."),
            _ => failure,
        })?);
    }
    let Some(user) = user else {
        return Ok(());
    };
    for (file, _) in bound.iter().filter_map(|b| b.made.as_ref()) {
        file.give_to(user.uid.as_raw(), user.gid.as_raw())?;
    }
    Ok(())
}

/// Has signals end the server, or look at its device; what ended it before its command did.
fn on_signals(
    shutdown: &Shutdown,
    growth: Growth,
    registration: Arc<Registration>,
    entry: Entry,
    output: Output,
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
        },
        move || {
            if let Some(Grown { before, now }) = growth.look() {
                // First, so that who was told finds what is true.
                registration.update(&Entry {
                    size: now,
                    ..entry.clone()
                });
                output.note(format!(
                    "The volume has grown from {} to {}. Clients that connect from now on see that; \
                     NBD has no way to tell the others.",
                    show_size(before),
                    show_size(now)
                ));
            }
        },
    )?;
    Ok(ended_by)
}

/// For programs.
fn name(policy: DiscardPolicy) -> &'static str {
    match policy {
        DiscardPolicy::Never => "never",
        DiscardPolicy::Allow => "allow",
        DiscardPolicy::Zero => "zero",
    }
}

/// Prints the URIs, ready to paste, and for people how to use them.
fn announce(
    args: &Args,
    uris: &[String],
    volume: &Volume,
    in_force: &[&str],
    output: &Output,
) -> Result<()> {
    output.result(
        &serde_json::json!({
            "uris": uris,
            "export": args.export,
            "size": volume.size(),
            "sector_size": volume.sector_size().bytes(),
            "read_only": volume.is_read_only(),
            "discard": name(volume.discard_policy()),
            "tls": args.tls.name(),
            "sandbox": in_force,
            "pid": std::process::id(),
        }),
        uris.join("\n"),
    )?;
    if output.has_viewer()
        && let Some(uri) = uris.first()
    {
        output.note(format!(
            "Serving {} ({}{}). Try:\n  nbdinfo '{uri}'\n  nbdcopy -p '{uri}' copy.raw\n\
             Ctrl-C ends it, after a flush.",
            args.device.device.display(),
            show_size(volume.size()),
            if volume.is_read_only() {
                ", read-only"
            } else {
                ""
            },
        ));
    }
    Ok(())
}
