//! `xtent open --ublk`: the volume as a block device that a process of this program serves.

mod made;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use xtent_control::FixedSize;
use xtent_export::Shutdown;
use xtent_export::ublk::{Control, MOST_QUEUES, Server};
use xtent_mapping::Name;
use xtent_store::Access;
use xtent_upstream::Upstream;
use xtent_volume::{Config, DiscardPolicy, Volume};

use super::{Args, unlock};
use crate::args::{DeviceArgs, DirectArgs, EngineArgs, HolesArgs, ThreadsArgs};
use crate::cli::Global;
use crate::control::Control as ResizeControl;
use crate::daemon::{self, Ready};
use crate::disk::{Disk, place};
use crate::engine::{self, Engine};
use crate::failure::{Exit, Failure, Result};
use crate::growth::{Changes, Growth, follow_one, resizing};
use crate::headerless::{Closed, VolumeKey};
use crate::open::can_wait;
use crate::output::{Output, text_of};
use crate::registry::{self, Entry, Kind, Registration};
use crate::turn::{self, Turn};
use crate::{sandbox, signals, ublk};
use made::{Made, lost, waiting};

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
    #[command(flatten, next_help_heading = "Served by a process")]
    engine: EngineArgs,
}

pub(super) fn run(args: &Args, global: &Global) -> Result<()> {
    daemon::run(args.served.foreground, |ready| serve(args, global, ready))
}

fn serve(args: &Args, global: &Global, ready: Ready) -> Result<()> {
    let output = global.output();
    // Those of the store, too, which start when it is opened.
    xtent_export::expect_writeback();
    let mut control = Control::open()?;
    if let Some(queues) = args.served.queues {
        control.set_queues(queues);
    }
    ublk::refuse_taken(&mut control, &args.name)?;
    let opened = open(args, global, &output)?;
    let volume = &opened.volume;
    let turn = Turn::wait_for(&args.name, turn::Kind::Served, &output)?;
    // Somebody may have made it while the passphrase was asked for.
    ublk::refuse_taken(&mut control, &args.name)?;
    let found = ublk::wait_for_end(&mut control, &args.name, &output)?;
    let waiting = waiting(&mut control, &args.name, &opened, found.as_ref())?;
    ublk::refuse_waited_for(
        &mut control,
        opened.identity,
        waiting.map(|info| info.number),
    )?;
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
    let resizer = ResizeControl::bind_mount()
        .inspect_err(
            |e| tracing::info!(error = %e, "only SIGHUP has this process look at its size"),
        )
        .ok();
    let folder = resizer
        .as_ref()
        .and_then(|it| Some(it.folder()?.to_owned()));
    let needs = sandbox::Needs {
        remove_in: registration.folder().into_iter().chain(folder).collect(),
        upstreams: opened.upstreams.clone(),
        has_image: opened.has_image,
        engines: opened.engine.clone().into_iter().collect(),
        ..sandbox::Needs::default()
    };
    let server = ublk::spawn_confined(server, &needs)?;
    let serving = made.serve(server, &turn, &output)?;
    let is_lost = ublk::stop_at_loss(&opened.data, &made.info)?;
    let device_growth = made.growth();
    announce(args, &opened, &made, &output)?;
    ready.ready()?;

    let (in_force, ()) = sandbox::enter(&needs, || Ok(()))?;
    let is_taken_over = made.is_taken_over;
    made.keep();
    drop(turn);
    tracing::info!(in_force = in_force.join(", "), "serving");
    let (changes, told) = Changes::new();
    if device_growth.is_some() {
        changes.of(&opened.data, ());
    }
    if device_growth.is_some() && is_taken_over {
        // It may have the size of before.
        changes.tell(());
    }
    let can_grow = device_growth.is_some();
    let growth = Arc::new(opened.growth);
    let resize = resize(&growth, device_growth, &registration, entry);
    signals::on_ending_of_server(
        move |signal| {
            tracing::info!(%signal, "ending: finishing requests and flushing");
            shutdown.trigger();
            engine::hurry();
        },
        move || changes.tell(()),
    )?;
    let look = Arc::clone(&resize);
    let followed = Arc::clone(&growth);
    let has_changed = move || can_grow && followed.has_changed();
    follow_one(told, has_changed, move || look(None))?;
    if let Some(resizer) = &resizer {
        resizer.start_mount(move |fixed| resize(fixed))?;
    }
    let place = text_of(&opened.place);
    drop(opened.data);
    drop(opened.volume);
    let result = serving.wait();
    engine::hurry();
    growth.end();
    registration.end();
    drop(resizer);
    if is_lost.load(Ordering::Acquire) {
        return Err(Failure::fenced(&place));
    }
    result?;
    tracing::info!("everything is on the disk");
    Ok(())
}

/// Has the volume and the device grow, where the kernel lets it.
fn resize(
    growth: &Arc<Growth>,
    of_device: Option<xtent_export::ublk::Growth>,
    registration: &Arc<Registration>,
    entry: Entry,
) -> Arc<impl Fn(Option<&FixedSize>) -> Result<(u64, u64)> + Send + Sync + 'static> {
    let can_grow = of_device.is_some();
    let tell = move |size| match &of_device {
        Some(device) => Ok(device.tell(size)?),
        None => Ok(()),
    };
    let resize = resizing(growth, Arc::clone(registration), entry, tell);
    Arc::new(move |fixed: Option<&FixedSize>| match can_grow {
        true => resize(fixed),
        false => Err(Failure::new(Exit::Device, KEEPS_ITS_SIZE).advise(WHEN_IT_IS_NEW)),
    })
}

const KEEPS_ITS_SIZE: &str = "the size of the block device cannot be changed while it is served: \
                              that takes Linux 6.16 or newer";
const WHEN_IT_IS_NEW: &str = "The device has the new size once it is closed and opened again.";

/// A volume that is open, and what is told of it.
struct Opened {
    volume: Arc<Volume>,
    data: Disk,
    growth: Growth,
    config: Config,
    uuid: String,
    found: (Option<u32>, Option<u32>),
    start: u64,
    place: PathBuf,
    identity: u64,
    upstreams: Vec<Arc<Upstream>>,
    has_image: bool,
    engine: Option<Engine>,
}

impl Opened {
    /// Whether the device waits for its next server.
    fn can_be_taken_over(&self) -> bool {
        can_wait(&self.uuid, !self.upstreams.is_empty())
    }

    /// For `xtent status`.
    fn entry(&self, name: &Name) -> Entry {
        let uuid = Some(self.uuid.clone()).filter(|uuid| !uuid.is_empty());
        let cipher = self.config.cipher.to_string();
        Entry {
            name: Some(name.to_string()),
            start: self.start,
            engine: self.engine.as_ref().map(Engine::address),
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
    let engine = args.served.engine.open()?;
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
    let (data, header) = (closed.data(), closed.header().cloned());
    let (upstreams, has_image) = (closed.upstreams(), closed.has_image());
    let uuid = closed.uuid().to_owned();
    let identity = ublk::identity(&ublk::path(&args.name), &uuid, &data.told_apart()?);
    let threads = args.served.threads.cipher_threads;
    let volume = engine::volume_by_key(engine.as_ref(), closed, key, &config, threads)?;
    let volume = Arc::new(volume);
    Ok(Opened {
        growth: Growth::new(&data, header.as_ref(), &volume),
        start: data.window_start(),
        data,
        place: named.name().to_owned(),
        identity,
        found: (keyslot, token),
        volume,
        config,
        uuid,
        upstreams,
        has_image,
        engine,
    })
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
