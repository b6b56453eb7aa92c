//! `xtent serve`: the volume over NBD.

use std::sync::Arc;

use clap::ValueEnum;
use nix::unistd::User;
use xtent_export::nbd::{self, Export, Shutdown};
use xtent_store::Access;
use xtent_volume::{DiscardPolicy, Volume};

use crate::args::{DeviceArgs, ThreadsArgs, UnlockArgs};
use crate::cli::Global;
use crate::failure::{Failure, Result};
use crate::listen::{self, Bound, Spec};
use crate::notify::Notifier;
use crate::open::Container;
use crate::output::Output;
use crate::registry::{self, Entry, Kind};
use crate::size::show_size;
use crate::{sandbox, signals};

const MANUAL: &str = "\
EXAMPLES:
  Serve on the default socket; the URI to give to clients is printed:
    xtent serve disk.img
  In the background of a shell, where no passphrase can be asked for:
    xtent serve --nbd unix:/tmp/disk.sock --key-file key disk.img &
  Serve read-only on a TCP port of this machine, with a key file:
    xtent serve --read-only --nbd tcp:localhost:10809 --key-file key disk.img
  Use it, with libnbd, QEMU or the kernel's client (as root):
    nbdinfo 'nbd+unix:///?socket=/tmp/disk.sock'
    qemu-img convert -p 'nbd+unix:///?socket=/tmp/disk.sock' copy.raw
    nbd-client -unix /tmp/disk.sock /dev/nbd0 && mount /dev/nbd0 /mnt
  As a systemd service with socket activation, the passphrase a credential
  (disk.socket, disk.service, and how the credential is made):
    [Socket]
    ListenStream=/run/disk.sock
    SocketMode=0600

    [Service]
    Type=notify
    LoadCredentialEncrypted=xtent.passphrase:/etc/xtent/disk.cred
    ExecStart=/usr/local/bin/xtent serve /var/lib/disk.img

    systemd-creds encrypt --name=xtent.passphrase key /etc/xtent/disk.cred

NOTES:
  It runs in the foreground until SIGINT or SIGTERM, then finishes the requests
  under way, flushes, and ends with exit code 0 if everything is on the disk. A
  second signal ends it at once.

  Once the volume is open it gives up all capabilities and confines itself
  (Landlock, seccomp) to the open volume and its clients; with -v it says what
  the kernel had to offer.

  Keys can be changed with `xtent key` or cryptsetup while it serves.

  With --discard allow, holes in the image show which sectors are in use, and
  discarded sectors read back as noise. LUKS2's persistent flag allow-discards
  counts as --discard allow, unless the option says otherwise.

FILES:
  /run/xtent/NAME.sock, $XDG_RUNTIME_DIR/xtent/NAME.sock
      The default socket, for root and for users. Whoever can connect can read
      and write the plaintext; sockets are made for their owner only. Without
      $XDG_RUNTIME_DIR, as under su or cron, the folder is /run/user/UID/xtent,
      or /tmp/xtent-UID where that is not there either.";

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
    /// What a client's discards (trim) do [default: never, or as the header says]
    #[arg(long, value_name = "POLICY")]
    discard: Option<Discard>,
    /// Listen on addresses that other machines can reach, without encryption
    #[arg(long)]
    allow_remote: bool,
    /// Clients connected at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Become this user once the volume is open (needs root, and --nbd or systemd sockets)
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Keep privileges and system calls, to find out what the sandbox forbids
    #[arg(long)]
    no_sandbox: bool,
    #[command(flatten)]
    threads: ThreadsArgs,
    #[command(flatten)]
    unlock: UnlockArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    args.unlock.key.source().check()?;
    let user = args.user.as_deref().map(look_up).transpose()?;
    let mut bound = listen::activated(args.allow_remote)?;
    if user.is_some() && bound.is_empty() && args.nbd.is_empty() {
        return Err(Failure::parameters(
            "--user needs --nbd: the default socket lies where only root gets at it",
        )
        .advise("Give --nbd unix:PATH in a folder that the user can enter."));
    }
    let Opened {
        volume,
        cipher,
        uuid,
    } = open(args, global, &output)?;
    bind_all(args, &mut bound, user.as_ref())?;
    let uris = bound
        .iter()
        .map(|b| b.listener.uri(&args.export))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(|e| Failure::system("cannot find a socket's address", e))?;
    let notifier = Notifier::from_env();
    let shutdown = Shutdown::new().map_err(|e| Failure::system("cannot prepare to serve", e))?;

    let device = &args.device.device;
    let mut entry = Entry::new(Kind::Server, device, uuid, cipher, &volume);
    entry.uris.clone_from(&uris);
    let registration = registry::register(&entry);

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
                .chain(registration.folder())
                .map(Into::into)
                .collect(),
            user,
        })?
    };
    on_ending(&shutdown)?;
    announce(args, &uris, &volume, &in_force, &output)?;
    notifier.tell("READY=1");

    let exports = vec![Export {
        name: args.export.clone(),
        description: String::new(),
        volume,
    }];
    let options = nbd::Options {
        connections: usize::from(args.connections),
        ..nbd::Options::default()
    };
    let result = nbd::serve(listeners, exports, options, &shutdown);
    notifier.tell("STOPPING=1");
    drop((made, registration));
    result?;
    tracing::info!("everything is on the disk");
    Ok(())
}

/// An open volume and what its header says of it.
struct Opened {
    volume: Arc<Volume>,
    cipher: String,
    uuid: Option<String>,
}

/// The open volume; this process's alone unless read-only.
fn open(args: &Args, global: &Global, output: &Output) -> Result<Opened> {
    let access = if args.read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    let container = Container::open(&args.device, access, true, output)?;
    let discard = match args.discard {
        None => container.stored_discard_policy(),
        Some(Discard::Never) => DiscardPolicy::Never,
        Some(Discard::Allow) => DiscardPolicy::Allow,
        Some(Discard::Zero) => DiscardPolicy::Zero,
    };
    let config = container.plan(args.read_only, discard, global.cpu)?;
    let uuid = Some(container.header.uuid().to_owned()).filter(|uuid| !uuid.is_empty());
    let volume = container.volume(&args.unlock, &config, output)?;
    Ok(Opened {
        volume: Arc::new(volume.with_cipher_threads(args.threads.cipher_threads)),
        cipher: config.cipher.to_string(),
        uuid,
    })
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
        bound.push(listen::bind(spec, args.allow_remote)?);
    }
    if bound.is_empty() {
        let spec = listen::default_socket(&args.device.device)?;
        bound.push(listen::bind(&spec, args.allow_remote)?);
    }
    let Some(user) = user else {
        return Ok(());
    };
    for (_, path) in bound.iter().filter_map(|b| b.made.as_ref()) {
        std::os::unix::fs::chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).map_err(
            |e| {
                Failure::system(
                    format!("cannot give {} to {}", path.display(), user.name),
                    e,
                )
            },
        )?;
    }
    Ok(())
}

fn on_ending(shutdown: &Shutdown) -> Result<()> {
    let shutdown = shutdown.clone();
    signals::on_ending(move |signal| {
        tracing::info!(%signal, "ending: finishing requests and flushing");
        shutdown.trigger();
    })
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
            "discard": format!("{:?}", volume.discard_policy()).to_lowercase(),
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
