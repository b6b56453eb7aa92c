//! `xtent attach` and `detach`: the volumes of a running server.

use std::path::PathBuf;

use serde_json::json;
use xtent_control::Served;
use xtent_store::Place;

use crate::args::EngineArgs;
use crate::cli::Global;
use crate::config;
use crate::control::Server;
use crate::disk::place;
use crate::failure::{Exit, Failure, Result};
use crate::output::{Output, text_of};
use crate::wanted::{VolumeArgs, Wanted, device_or_config, not_beside_config};

use super::serve::export_name;

const MANUAL: &str = "\
EXAMPLES:
  One more volume for the server that runs; its URI is printed:
    xtent attach disk.img
  For one of several servers, under another name, read-only:
    xtent attach --server 4711 --export backup --read-only disk.img
  Bring a server to what its configuration file says by now:
    xtent attach --config /etc/xtent/gateway.toml --prune

NOTES:
  The device is opened, locked and unlocked by this command; the server gets the open files,
  what the header says, and the key, over its control socket. Its sandbox stays as it is.
  A server answers its owner and root.

  With --config the volumes that the server does not have under their names are attached;
  with --prune those that the file does not name are detached. One that is there under its
  name, of the same device, stays as it is, whatever else the file says of it. A volume with a
  cipher engine is refused: a sandbox opens none, so it has to be there from the start. What is
  there under its name, or of its device, stays.

  A volume behind an NBD server (a URI) is connected to by the server that gets it, which has
  to be started with --allow-connect. So is an image in a Ceph cluster, by a server that was
  started with one or with --allow-connect: this command reads ceph.conf and the keyring, and
  sends the monitors and the user's key along. The server takes the image's lock. With --direct-io a few threads of the server wait for
  the disk: the kernel's way without them (io_uring) is there for volumes named at the start.

FILES:
  /run/xtent/control/PID.sock, $XDG_RUNTIME_DIR/xtent/control/PID.sock
      The control socket of each server, for its owner only (mode 0600).";

/// Add a volume to a running server
///
/// Asks for the passphrase, and returns when clients can connect.
#[derive(clap::Args, Debug)]
#[command(
    after_long_help = MANUAL,
    override_usage = "xtent attach [OPTIONS] <DEVICE>\n       xtent attach [OPTIONS] --config <FILE>"
)]
#[command(mut_arg("device", device_or_config))]
#[command(mut_args(not_beside_config()))]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Name of the export that clients ask for [default: the file's name]
    #[arg(long, value_name = "NAME")]
    export: Option<String>,
    /// Attach what this file says and the server does not have, see `xtent serve`
    #[arg(long, value_name = "FILE", conflicts_with = "export")]
    config: Option<PathBuf>,
    /// Detach what the file does not name
    #[arg(long, requires = "config")]
    prune: bool,
    // Last: the headings of its options would count for those that come after it.
    #[command(flatten)]
    volume: VolumeArgs,
}

/// Which server.
#[derive(clap::Args, Debug)]
pub(crate) struct ServerArgs {
    /// Process id or control socket of the server [default: the only one there is]
    #[arg(long, value_name = "PID|SOCKET", visible_alias = "to")]
    server: Option<String>,
}

impl ServerArgs {
    pub(super) fn is_named(&self) -> bool {
        self.server.is_some()
    }

    pub(super) fn find(&self) -> Result<Server> {
        Server::find(self.server.as_deref())
    }
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    let server = args.server.find()?;
    if let Some(path) = &args.config {
        let wanted = config::read(path, global.cpu, &output)?.wanted;
        return reconcile(&server, &wanted, args.prune, &output);
    }
    let name = args.export.clone();
    let wanted = Wanted {
        name: name.unwrap_or_else(|| export_name(&args.volume.device.device)),
        args: args.volume.clone(),
        backend: global.cpu,
        engine: EngineArgs::default(),
    };
    // Before anybody types a passphrase.
    refuse_taken(&wanted, &server.status()?)?;
    let uris = attach(&server, &wanted, &output)?;
    let result = json!({ "export": wanted.name, "uris": uris });
    output.result(&result, uris.join("\n"))
}

fn refuse_taken(wanted: &Wanted, served: &[Served]) -> Result<()> {
    match served.iter().find(|it| it.name == wanted.name) {
        Some(other) => Err(Failure::new(
            Exit::Busy,
            format!(
                "the server has an export named {:?} already: {}",
                wanted.name, other.device
            ),
        )
        .advise("Give this one another name: --export NAME.")),
        None => Ok(()),
    }
}

/// Why a server that runs does not take a volume with a cipher engine.
fn no_engine(wanted: &Wanted) -> Failure {
    Failure::parameters(format!(
        "{}: a server that runs takes no volume with a cipher engine",
        wanted.args.device.device.display()
    ))
    .advise(
        "Its sandbox opens none: restart it, with the volume in its file or on its command line.",
    )
}

/// Where clients find it.
fn attach(server: &Server, wanted: &Wanted, output: &Output) -> Result<Vec<String>> {
    let handed_over = wanted.prepare_to_hand_over(output)?.hand_over(output)?;
    Ok(server.attach(&handed_over)?.uris)
}

/// Whether it is the same device.
fn is_of_device(wanted: &Wanted, served: &Served) -> bool {
    let device = &wanted.args.device.device;
    let place = match place(device) {
        // In the one form that all have which mean the same.
        Ok(Place::Uri(name) | Place::Image(name)) => name.into(),
        _ => text_of(&std::fs::canonicalize(device).unwrap_or_else(|_| device.clone())),
    };
    served.device == place && served.partition == wanted.args.device.partition
}

/// Whether there is nothing where its device should be. Of others' servers nobody is asked.
fn is_away(wanted: &Wanted) -> bool {
    let device = &wanted.args.device.device;
    let is_file = !matches!(place(device), Ok(Place::Uri(_) | Place::Image(_)));
    is_file && std::fs::metadata(device).is_err()
}

/// Whether it is the same device under the same name.
fn is_there(wanted: &Wanted, served: &Served) -> bool {
    served.name == wanted.name && is_of_device(wanted, served)
}

/// Detaches first: what has moved to another name is free then. Whatever fails, the rest is
/// done, and the first failure told.
fn reconcile(server: &Server, wanted: &[Wanted], prune: bool, output: &Output) -> Result<()> {
    let served = server.status()?;
    let (mut attached, mut detached) = (Vec::new(), Vec::new());
    let (refused, missing): (Vec<&Wanted>, Vec<_>) = wanted
        .iter()
        .filter(|it| !served.iter().any(|other| is_there(it, other)))
        .partition(|it| it.engine.choice.engine.is_some());
    let mut failures: Vec<Failure> = refused.iter().map(|it| no_engine(it)).collect();
    // Nobody is served better without what a refused one was to replace, or one that is not there, which may be
    // the same under a name that has gone.
    let stays = |it: &Served| {
        let mut refused = refused.iter();
        let mut away = missing.iter().filter(|other| is_away(other));
        wanted.iter().any(|other| is_there(other, it))
            || refused.any(|other| other.name == it.name || is_of_device(other, it))
            || away.any(|other| other.name == it.name || is_of_device(other, it))
    };
    let gone = served.iter().filter(|it| prune && !stays(it));
    for it in gone {
        match server.detach(&it.name) {
            Ok(()) => detached.push(it.name.clone()),
            Err(failure) => failures.push(failure),
        }
    }
    for it in &missing {
        match attach(server, it, output) {
            Ok(_) => attached.push(it.name.clone()),
            Err(failure) if failure.is_interruption() => return Err(failure),
            Err(failure) => failures.push(failure),
        }
    }
    let text = format!(
        "{} attached, {} detached, {} in all",
        attached.len(),
        detached.len(),
        wanted.len()
    );
    output.done(&json!({ "attached": attached, "detached": detached }), text)?;
    let mut failures = failures.into_iter();
    let first = failures.next();
    for failure in failures {
        output.warn(failure.to_string());
    }
    first.map_or(Ok(()), Err)
}

const DETACH: &str = "\
EXAMPLES:
  By the export's name, or by the device:
    xtent detach disk.img

NOTES:
  No client can choose the export any more; those that are connected have their requests
  finished and are parted from, as at the end of a server. Then the volume is flushed and
  closed. It takes as long as its disk does; ended early, it goes on in the server.

EXIT STATUS:
  0  everything is on the disk, and the device free
  4  there is no such volume, or it could not be flushed: what was written since the
     last flush may be lost. It is detached all the same";

/// Take a volume away from a running server, after a flush
#[derive(clap::Args, Debug)]
#[command(after_long_help = DETACH)]
pub(crate) struct Detach {
    /// Name of the export, or its device or UUID
    #[arg(value_name = "NAME|DEVICE")]
    volume: String,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn detach(args: &Detach, global: &Global) -> Result<()> {
    let output = global.output();
    let server = args.server.find()?;
    let name = server.export(&args.volume)?;
    server.detach(&name)?;
    if output.json {
        output.object(&json!({ "export": name }))?;
    }
    Ok(())
}
