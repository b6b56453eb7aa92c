//! `xtent open --ublk`: the volume as a block device that a process of this program serves.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use xtent_export::ErrorKind;
use xtent_export::nbd::Shutdown;
use xtent_export::ublk::{Control, Device, Info, Serving, State};
use xtent_mapping::Name;
use xtent_store::Access;
use xtent_upstream::Upstream;
use xtent_volume::{Config, DiscardPolicy, Volume};

use super::{Args, unlock};
use crate::args::{DeviceArgs, DirectArgs, HolesArgs, ThreadsArgs};
use crate::cli::Global;
use crate::daemon::{Ready, Side, split};
use crate::disk::place;
use crate::failure::{Exit, Failure, Result};
use crate::headerless::{Closed, VolumeKey};
use crate::output::{Output, text_of};
use crate::registry::{self, Entry, Kind};
use crate::{sandbox, signals, ublk};

/// How long the last server's files may stay open, and how often that is looked at.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(20);

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
}

pub(super) fn run(args: &Args, global: &Global) -> Result<()> {
    if args.served.foreground {
        return serve(args, global, Ready::in_foreground());
    }
    match split()? {
        Side::Worker(ready) => serve(args, global, ready),
        Side::Front(code) => std::process::exit(i32::from(code)),
    }
}

fn serve(args: &Args, global: &Global, ready: Ready) -> Result<()> {
    let output = global.output();
    let mut control = Control::open()?;
    ublk::refuse_taken(&mut control, &args.name)?;
    let opened = open(args, global, &output)?;
    let volume = &opened.volume;
    let found = ublk::wait_for_end(&mut control, &args.name, &output)?;
    // From here on the device is made or taken over, or everything is as it was.
    signals::hold()?;
    let mut made = Made::get(control, &args.name, &opened, found, &output)?;
    let shutdown = Shutdown::new().map_err(|e| Failure::system("cannot prepare to serve", e))?;
    let device = Device::open(&made.info, volume, &shutdown)?;
    let mut entry = opened.entry(&args.name);
    entry.partition = args.device.partition;
    let registration = Arc::new(registry::register(std::slice::from_ref(&entry)));
    let needs = sandbox::Needs {
        remove_in: registration.folder().into_iter().collect(),
        upstreams: opened.upstreams.clone(),
        has_image: opened.has_image,
        ..sandbox::Needs::default()
    };
    let serving = serve_confined(device, &needs)?;
    made.start()?;
    announce(args, &opened, &made, &output)?;
    ready.ready()?;

    let (in_force, ()) = sandbox::enter(&needs, || Ok(()))?;
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
    upstreams: Vec<Arc<Upstream>>,
    has_image: bool,
}

impl Opened {
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
    let volume = closed.volume_by_key(key, &config)?;
    let volume = Arc::new(volume.with_cipher_threads(args.served.threads.cipher_threads));
    Ok(Opened {
        start: data.window_start(),
        place: named.name().to_owned(),
        found: (keyslot, token),
        volume,
        config,
        uuid,
        upstreams,
        has_image,
    })
}

/// A device that this process is to serve. Dropped before it was started, it is as it was: not there, or
/// waiting.
struct Made<'a> {
    /// Until it is started.
    control: Option<Control>,
    info: Info,
    is_taken_over: bool,
    name: &'a Name,
}

impl<'a> Made<'a> {
    fn get(
        mut control: Control,
        name: &'a Name,
        opened: &Opened,
        found: Option<Info>,
        output: &Output,
    ) -> Result<Self> {
        let identity = ublk::identity(&opened.uuid);
        let waiting = found.filter(|info| info.state == State::Waits);
        if let Some(info) = waiting {
            if info.identity != identity {
                return Err(another_volume(name));
            }
            take_over(&mut control, info.number, &opened.volume, output)?;
            return Ok(Self {
                control: Some(control),
                info,
                is_taken_over: true,
                name,
            });
        }
        ublk::clear(&mut control, name, found.as_ref())?;
        // Without a header nothing says that a passphrase is the right one, and what waits would be
        // written with any.
        let waits = !opened.uuid.is_empty();
        let info = control.add(&opened.volume, identity, waits)?;
        if let Err(failure) = ublk::link(name, info.number) {
            control.delete(info.number)?;
            return Err(failure);
        }
        Ok(Self {
            control: Some(control),
            info,
            is_taken_over: false,
            name,
        })
    }

    fn control(&mut self) -> Result<&mut Control> {
        let started = || Failure::parameters("the device was started before");
        self.control.as_mut().ok_or_else(started)
    }

    /// From now on it is there for everybody.
    fn start(&mut self) -> Result<()> {
        let (number, is_taken_over) = (self.info.number, self.is_taken_over);
        self.control()?.start(number, is_taken_over)?;
        self.control = None;
        Ok(())
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if let Some(control) = &mut self.control
            && !self.is_taken_over
        {
            // Its threads end with it.
            if let Err(error) = control.delete(self.info.number) {
                tracing::warn!(error = %xtent_store::chain(&error), "a device is left");
            }
            ublk::unlink(self.name);
        }
    }
}

fn another_volume(name: &Name) -> Failure {
    Failure::new(
        Exit::Busy,
        format!(
            "{} waits for the server of another volume",
            ublk::path(name).display()
        ),
    )
    .advise(format!(
        "Open that one by this name; or, if it is not used any more, `xtent close {name}`."
    ))
}

/// The driver may have files of the last server's still, which are closed a little after its end.
fn take_over(control: &mut Control, number: u32, volume: &Volume, output: &Output) -> Result<()> {
    let began = Instant::now();
    let mut is_told = false;
    loop {
        match control.take_over(number, volume) {
            Err(error) if error.kind == ErrorKind::Busy && began.elapsed() < PATIENCE => {
                if began.elapsed() > ublk::SILENCE && !is_told {
                    output.note("Waiting for the kernel to close the files of the last server.");
                    is_told = true;
                }
                std::thread::sleep(AGAIN);
            }
            other => return Ok(other?),
        }
    }
}

/// Starts the threads that requests are carried out on in the sandbox, as far as it is a thread's. This
/// one has yet to start the device, which takes privileges.
fn serve_confined(device: Device, needs: &sandbox::Needs) -> Result<Serving> {
    let serve = || {
        sandbox::confine(needs)?;
        Ok(device.serve()?)
    };
    sandbox::before_threads();
    let served = std::thread::scope(|scope| scope.spawn(serve).join());
    served.unwrap_or_else(|_| Err(Failure::parameters("starting to serve panicked")))
}

fn announce(args: &Args, opened: &Opened, made: &Made<'_>, output: &Output) -> Result<()> {
    let path = ublk::path(&args.name);
    if made.is_taken_over {
        output.note(format!(
            "{} has a server again: what waited goes on.",
            path.display()
        ));
    }
    let (keyslot, token) = opened.found;
    output.result(
        &serde_json::json!({
            "name": args.name.to_string(),
            "path": text_of(&path),
            "device": text_of(&ublk::device(made.info.number)),
            "target": "ublk",
            "taken_over": made.is_taken_over,
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
