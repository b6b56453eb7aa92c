//! `xtent open --ublk`: the volume as a block device that a process of this program serves.

use std::path::PathBuf;
use std::sync::Arc;

use xtent_export::nbd::Shutdown;
use xtent_export::ublk::{
    Control, Info, MOST_QUEUES, Ready as ReadyServer, Server, Serving, State, expect_writeback,
};
use xtent_mapping::Name;
use xtent_store::Access;
use xtent_upstream::Upstream;
use xtent_volume::{Config, DiscardPolicy, Volume};

use super::{Args, unlock};
use crate::args::{DeviceArgs, DirectArgs, HolesArgs, ThreadsArgs};
use crate::cli::Global;
use crate::daemon::{self, Ready};
use crate::disk::place;
use crate::failure::{Exit, Failure, Result};
use crate::headerless::{Closed, VolumeKey};
use crate::output::{Output, text_of};
use crate::registry::{self, Entry, Kind};
use crate::{sandbox, signals, ublk};

/// How the process serves the device.
#[derive(clap::Args, Debug)]
pub(super) struct ServedArgs {
    /// Serve the device by a process of this program, as /dev/xtent/NAME, by the kernel's ublk
    ///
    /// Without this the kernel encrypts. With it the ciphers are this program's, all of them, and the device may
    /// be whatever `xtent serve` takes: an NBD server's export, an image in a Ceph cluster, a partition of an image.
    #[arg(long, help_heading = "Served by a process")]
    pub(super) ublk: bool,
    /// Stay in the foreground
    #[arg(
        short = 'f',
        long,
        requires = "ublk",
        help_heading = "Served by a process"
    )]
    foreground: bool,
    #[command(flatten, next_help_heading = "Served by a process")]
    holes: HolesArgs,
    #[command(flatten, next_help_heading = "Served by a process")]
    direct: DirectArgs,
    #[command(flatten, next_help_heading = "Served by a process")]
    threads: ThreadsArgs,
    /// Queues of the device, each with a thread [default: one for each CPU, up to 4]
    ///
    /// There are no more of them than CPUs. A device that is taken over keeps those that it has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(MOST_QUEUES)),
          requires = "ublk", help_heading = "Served by a process")]
    queues: Option<u16>,
}

pub(super) fn run(args: &Args, global: &Global) -> Result<()> {
    daemon::run(args.served.foreground, |ready| serve(args, global, ready))
}

fn serve(args: &Args, global: &Global, ready: Ready) -> Result<()> {
    let output = global.output();
    // Those of the store, too, which start when it is opened.
    expect_writeback();
    let mut control = Control::open()?;
    if let Some(queues) = args.served.queues {
        control.set_queues(queues);
    }
    ublk::refuse_taken(&mut control, &args.name)?;
    let opened = open(args, global, &output)?;
    let volume = &opened.volume;
    let turn = ublk::Turn::wait_for(&args.name, &output)?;
    // Somebody may have made it while the passphrase was asked for.
    ublk::refuse_taken(&mut control, &args.name)?;
    let found = ublk::wait_for_end(&mut control, &args.name, &output)?;
    let waiting = waiting(&mut control, &args.name, &opened, found.as_ref())?;
    if waiting.is_some() && turn.has_half_a_takeover() {
        return Err(lost(&args.name));
    }
    if waiting.is_none() {
        control = ublk::clear(control, &args.name, found.as_ref(), &output)?;
    }
    // From here on the device is made or taken over, or everything is as it was.
    signals::hold()?;
    if waiting.is_none() {
        turn.end_takeover()?;
    }
    let mut made = Made::get(control, &args.name, &opened, waiting)?;
    let shutdown = Shutdown::new().map_err(|e| Failure::system("cannot prepare to serve", e))?;
    let server = Server::new(&made.info, volume, &shutdown)?;
    let mut entry = opened.entry(&args.name);
    entry.partition = args.device.partition;
    let registration = Arc::new(registry::register(std::slice::from_ref(&entry)));
    let needs = sandbox::Needs {
        remove_in: registration.folder().into_iter().collect(),
        upstreams: opened.upstreams.clone(),
        has_image: opened.has_image,
        ..sandbox::Needs::default()
    };
    let server = ublk::spawn_confined(server, &needs)?;
    let serving = made.serve(server, &turn, &output)?;
    announce(args, &opened, &made, &output)?;
    ready.ready()?;

    let (in_force, ()) = sandbox::enter(&needs, || Ok(()))?;
    made.keep();
    drop(turn);
    tracing::info!(in_force = in_force.join(", "), "serving");
    signals::on_ending_of_server(
        move |signal| {
            tracing::info!(%signal, "ending: finishing requests and flushing");
            shutdown.trigger();
        },
        || tracing::info!("the block device keeps its size until it is closed and opened again"),
    )?;
    drop(opened.volume);
    let result = serving.wait();
    registration.end();
    result?;
    tracing::info!("everything is on the disk");
    Ok(())
}

/// A volume that is open, and what is told of it.
struct Opened {
    volume: Arc<Volume>,
    config: Config,
    uuid: String,
    found: (Option<u32>, Option<u32>),
    start: u64,
    place: PathBuf,
    identity: u64,
    upstreams: Vec<Arc<Upstream>>,
    has_image: bool,
}

impl Opened {
    /// Whether the device waits for its next server.
    fn can_be_taken_over(&self) -> bool {
        ublk::can_wait(&self.uuid, &self.upstreams)
    }

    /// For `xtent status`.
    fn entry(&self, name: &Name) -> Entry {
        let uuid = Some(self.uuid.clone()).filter(|uuid| !uuid.is_empty());
        let cipher = self.config.cipher.to_string();
        Entry {
            name: Some(name.to_string()),
            start: self.start,
            ..Entry::new(Kind::Ublk, &self.place, uuid, cipher, &self.volume)
        }
    }
}

fn open(args: &Args, global: &Global, output: &Output) -> Result<Opened> {
    let access = match args.read_only {
        true => Access::ReadOnly,
        false => Access::ReadWrite,
    };
    // The process leaves its folder.
    let named = place(&args.device.device)?;
    let device: DeviceArgs = args.served.direct.device(&args.device);
    let closed = Closed::open(&device, &args.plain, &args.unlock, access, output)?;
    super::refuse_asking_for_plain(args, &closed)?;
    let discard = match args.allow_discards {
        true => DiscardPolicy::Allow,
        false => closed.stored_discard_policy(),
    };
    let mut config = closed.plan(args.read_only, discard, global.cpu)?;
    config.holes = args.served.holes.holes();
    if config.length == 0 {
        return Err(super::no_room(closed.data().path()));
    }
    let VolumeKey {
        key,
        keyslot,
        token,
    } = unlock(args, &closed, output)?;
    let data = closed.data();
    let (upstreams, has_image) = (closed.upstreams(), closed.has_image());
    let uuid = closed.uuid().to_owned();
    let identity = ublk::identity(&ublk::path(&args.name), &uuid, &data.told_apart()?);
    let volume = closed.volume_by_key(key, &config)?;
    let volume = Arc::new(volume.with_cipher_threads(args.served.threads.cipher_threads));
    Ok(Opened {
        start: data.window_start(),
        place: named.name().to_owned(),
        identity,
        found: (keyslot, token),
        volume,
        config,
        uuid,
        upstreams,
        has_image,
    })
}

/// The device, if it waits for this volume's server.
fn waiting(
    control: &mut Control,
    name: &Name,
    opened: &Opened,
    found: Option<&Info>,
) -> Result<Option<Info>> {
    let Some(info) = found.filter(|info| info.state == State::Waits) else {
        return Ok(None);
    };
    if info.identity != opened.identity || !opened.can_be_taken_over() {
        return Err(another_volume(name));
    }
    control.check(info, &opened.volume)?;
    Ok(Some(*info))
}

/// A device that this process is to serve. Dropped before it is [kept](Made::keep), it is gone again if it
/// is new, else it waits.
struct Made<'a> {
    control: Control,
    info: Info,
    is_taken_over: bool,
    /// Whether it has a server.
    is_started: bool,
    is_kept: bool,
    name: &'a Name,
}

impl<'a> Made<'a> {
    /// The device that waits, untouched as yet, or a new one.
    fn get(
        mut control: Control,
        name: &'a Name,
        opened: &Opened,
        waiting: Option<Info>,
    ) -> Result<Self> {
        let info = match waiting {
            Some(info) => info,
            None => {
                let waits = opened.can_be_taken_over();
                let info = control.add(&opened.volume, opened.identity, waits)?;
                if let Err(failure) = ublk::link(name, info.number) {
                    control.delete(info.number)?;
                    return Err(failure);
                }
                info
            }
        };
        Ok(Self {
            control,
            info,
            is_taken_over: waiting.is_some(),
            is_started: false,
            is_kept: false,
            name,
        })
    }

    /// Has the threads serve it. From then on it is there for everybody.
    fn serve(
        &mut self,
        server: ReadyServer,
        turn: &ublk::Turn,
        output: &Output,
    ) -> Result<Serving> {
        let (name, number) = (self.name, self.info.number);
        if !self.is_taken_over {
            let serving = server.serve(&self.info)?;
            self.control.start(number, false)?;
            self.is_started = true;
            return Ok(serving);
        }
        turn.begin_takeover()?;
        if let Err(error) = ublk::hand_over(&mut self.control, number, output) {
            // The driver has all of the last server's still.
            turn.end_takeover()?;
            return Err(lost(name).because(error));
        }
        let served = server.serve(&self.info);
        let serving = served.map_err(|error| lost(name).because(error))?;
        // It has heard of all of this one's queues: the next one could have it again.
        turn.end_takeover()?;
        let started = self.control.start(number, true);
        started.map_err(|error| lost(name).because(error))?;
        self.is_started = true;
        Ok(serving)
    }

    /// Leaves it to `xtent close`.
    fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let path = ublk::path(self.name);
        match (self.is_kept, self.is_taken_over) {
            (true, _) => {}
            (false, true) if self.is_started => {
                tracing::warn!("{} waits for a server again", path.display());
            }
            (false, true) => {}
            (false, false) => match self.control.delete(self.info.number) {
                // Its threads end with it.
                Ok(()) => ublk::unlink(self.name, self.info.number),
                Err(error) => tracing::warn!(
                    error = %xtent_store::chain(&error),
                    "{} is left without a server: `xtent close {}` removes it",
                    path.display(),
                    self.name
                ),
            },
        }
    }
}

fn another_volume(name: &Name) -> Failure {
    Failure::new(
        Exit::Busy,
        format!(
            "{} waits for the server of another volume, or of one in another place",
            ublk::path(name).display()
        ),
    )
    .advise(format!(
        "Open that one by this name, from the device that it was opened from; or, if it is not used any \
         more, `xtent close {name}`."
    ))
}

/// A device whose last server, or this one, was lost while it took it over.
fn lost(name: &Name) -> Failure {
    Failure::new(
        Exit::Device,
        format!(
            "{} cannot be taken over any more: a server was lost before the driver knew it",
            ublk::path(name).display()
        ),
    )
    .advise(format!(
        "`xtent close --force {name}` gives it up: its users see errors, and what they have written and \
         not flushed is lost. What they were told is flushed is on the disk."
    ))
}

fn announce(args: &Args, opened: &Opened, made: &Made<'_>, output: &Output) -> Result<()> {
    let path = ublk::path(&args.name);
    if made.is_taken_over {
        output.note(format!(
            "{} has a server again: what waited goes on.",
            path.display()
        ));
    }
    let queues = made.info.queues;
    if args.served.queues.is_some_and(|wanted| wanted != queues) {
        output.note(match made.is_taken_over {
            true => format!("It keeps its queues: {queues}."),
            false => format!("It has as many queues as there are CPUs: {queues}."),
        });
    }
    let (keyslot, token) = opened.found;
    output.result(
        &serde_json::json!({
            "name": args.name.to_string(),
            "path": text_of(&path),
            "device": text_of(&ublk::device(made.info.number)),
            "target": "ublk",
            "taken_over": made.is_taken_over,
            "queues": queues,
            "keyslot": keyslot,
            "token": token,
            "cipher": opened.config.cipher.to_string(),
            "sector_size": opened.volume.sector_size().bytes(),
            "size": opened.volume.size(),
            "read_only": args.read_only,
            "allow_discards": opened.config.discard == DiscardPolicy::Allow,
            "pid": std::process::id(),
        }),
        path.display().to_string(),
    )
}
