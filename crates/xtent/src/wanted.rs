//! A volume that a server is to have: from options or a configuration file to the open volume,
//! or to what another process needs to open it.

mod hand_over;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Arg, Args, Id, ValueEnum};
use sector_cipher::Backend;
use xtent_secret::SecretBytes;
use xtent_store::Access;
use xtent_upstream::Upstream;
use xtent_volume::{Config, DiscardPolicy, Volume};

use crate::args::{DeviceArgs, DirectArgs, EngineArgs, HolesArgs, ThreadsArgs, UnlockArgs};
use crate::disk::{Disk, rbd};
use crate::engine::{self, Engine};
use crate::failure::{Failure, Result};
use crate::growth::Growth;
use crate::headerless::{Closed, PlainArgs, VolumeKey};
use crate::output::Output;
use crate::probe;
use crate::registry::{Entry, Kind};

pub(crate) use hand_over::HandedOver;

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

/// One volume: what it is opened by, and how it is served.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct VolumeArgs {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Refuse writes, and open the device read-only
    #[arg(short = 'r', long)]
    pub(crate) read_only: bool,
    /// Serve a plain image encrypted, under a detached header made for it; read-only
    #[arg(long, requires = "header", conflicts_with_all = ["discard", "holes", "partition"])]
    pub(crate) encrypt: bool,
    /// What a client's discards (trim) do [default: never, or as the header says]
    #[arg(long, value_name = "POLICY")]
    discard: Option<Discard>,
    #[command(flatten)]
    holes: HolesArgs,
    #[command(flatten)]
    direct: DirectArgs,
    #[command(flatten)]
    threads: ThreadsArgs,
    #[command(flatten)]
    pub(crate) unlock: UnlockArgs,
    #[command(flatten)]
    plain: PlainArgs,
    /// Offer the export only to clients whose certificate has this name (repeatable)
    ///
    /// One of the certificate's DNS names and URIs (subject alternative names), or, where it has
    /// neither, its subject's common name; letter by letter. To others the export does not exist.
    /// The server has to ask for certificates (--tls-verify-peer).
    #[arg(long = "tls-client", value_name = "NAME", help_heading = "TLS", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) clients: Vec<String>,
}

/// Makes options of a volume contradict `--config`, whose file has them for each volume.
pub(crate) fn not_beside_config() -> impl Fn(Arg) -> Arg {
    let volume = VolumeArgs::augment_args(clap::Command::new("volume"));
    let volume = EngineArgs::augment_args(volume);
    let names: Vec<Id> = volume.get_arguments().map(Arg::get_id).cloned().collect();
    move |arg| match names.contains(arg.get_id()) {
        true => arg.conflicts_with("config"),
        false => arg,
    }
}

/// Makes DEVICE the first argument of a command that has `--config` in its place.
pub(crate) fn device_or_config(device: Arg) -> Arg {
    device
        .index(1)
        .required(false)
        .required_unless_present("config")
        .conflicts_with("config")
        .default_value("-")
        .hide_default_value(true)
}

impl VolumeArgs {
    /// An option that is given, and can be meant for one volume only.
    pub(crate) fn option_of_one(&self) -> Option<&'static str> {
        let unlock = &self.unlock;
        let given = [
            ("--header", self.device.detached.header.is_some()),
            ("--partition", self.device.partition.is_some()),
            ("--encrypt", self.encrypt),
            ("--expect-header", !self.device.expect_header.is_empty()),
            ("--key-fd", unlock.key.key_fd.is_some()),
            ("--key-slot", unlock.key_slot.is_some()),
            ("--volume-key-file", unlock.volume_key_file.is_some()),
            ("--token-id", unlock.tokens.token_id.is_some()),
            ("--type plain", self.plain.is_plain()),
        ];
        given
            .into_iter()
            .find_map(|(name, given)| given.then_some(name))
    }

    /// Whether the volume has no header.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain.is_plain()
    }

    /// The same for another device.
    pub(crate) fn of(&self, device: PathBuf) -> Self {
        let mut args = self.clone();
        args.device.device = device;
        args
    }
}

/// A volume, under the name of its export.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) name: String,
    pub(crate) args: VolumeArgs,
    pub(crate) backend: Option<Backend>,
    pub(crate) engine: EngineArgs,
}

/// A volume whose device is open and locked, and whose header has been read.
pub(crate) struct Prepared<'a> {
    wanted: &'a Wanted,
    closed: Closed,
    config: Config,
    engine: Option<Engine>,
}

/// An open volume and what is told of it.
pub(crate) struct Opened {
    pub(crate) name: String,
    pub(crate) volume: Arc<Volume>,
    pub(crate) growth: Growth,
    /// For `xtent status`; no URIs yet.
    pub(crate) entry: Entry,
    /// What it is made of, as far as that is on servers.
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    /// Whether any of it is in a Ceph cluster.
    pub(crate) has_image: bool,
    /// The image with its data, if that is in a Ceph cluster.
    pub(crate) image: Option<Disk>,
    /// What has its key, too.
    pub(crate) engine: Option<Engine>,
    /// Names in certificates, of the clients that may have it; everybody if empty.
    pub(crate) allowed: Vec<String>,
}

/// What is known of a volume that somebody else has: all that it takes to open it.
pub(crate) struct Known {
    key: SecretBytes,
    config: Config,
    /// For `xtent status`.
    pub(crate) entry: Entry,
}

impl Wanted {
    /// Opens and locks the device, this process's alone unless read-only; asks for nothing yet.
    pub(crate) fn prepare(&self, output: &Output) -> Result<Prepared<'_>> {
        self.try_prepare(self.access(), output)
            .map_err(|e| self.name_in(e))
    }

    /// The same for a server that is handed the volume; an image in a Ceph cluster is opened for
    /// reading only, since it is that server which takes the lock.
    pub(crate) fn prepare_to_hand_over(&self, output: &Output) -> Result<Prepared<'_>> {
        let access = match rbd::is_image(&self.args.device.device) {
            true => Access::ReadOnly,
            false => self.access(),
        };
        self.try_prepare(access, output)
            .map_err(|e| self.name_in(e))
    }

    fn is_read_only(&self) -> bool {
        self.args.read_only || self.args.encrypt
    }

    fn access(&self) -> Access {
        match self.is_read_only() {
            true => Access::ReadOnly,
            false => Access::ReadWrite,
        }
    }

    /// Looks at all that can be looked at without a passphrase, in use or not; the size of the
    /// volume.
    pub(crate) fn look(&self, output: &Output) -> Result<u64> {
        let args = &self.args;
        let look = || {
            args.unlock.key.source().check()?;
            let closed = Closed::look(&args.device, &args.plain, &args.unlock, output)?;
            let discard = closed.stored_discard_policy();
            let config = closed.plan(true, discard, self.backend)?;
            if args.encrypt {
                refuse_part(&closed, &config)?;
            }
            Ok(config.length)
        };
        look().map_err(|e| self.name_in(e))
    }

    /// Reads the header and asks for the passphrase, whoever has the device: it is neither locked
    /// nor written to.
    pub(crate) fn get_to_know(&self, output: &Output) -> Result<Known> {
        let args = &self.args;
        let know = || {
            args.unlock.key.source().check()?;
            let closed = Closed::look(&args.device, &args.plain, &args.unlock, output)?;
            let config = closed.plan(false, closed.stored_discard_policy(), self.backend)?;
            let VolumeKey { key, .. } = closed.key(&args.unlock, output)?;
            let entry = Entry {
                partition: args.device.partition,
                start: closed.data().window_start(),
                ..Entry::of(
                    Kind::Standby,
                    closed.data().path(),
                    uuid_of(&closed),
                    config.cipher.to_string(),
                    config.length,
                    config.sector_size.bytes() as u64,
                )
            };
            Ok(Known { key, config, entry })
        };
        know().map_err(|e| self.name_in(e))
    }

    fn try_prepare(&self, access: Access, output: &Output) -> Result<Prepared<'_>> {
        let args = &self.args;
        args.unlock.key.source().check()?;
        let engine = self.engine.open()?;
        let device = args.direct.device(&args.device);
        let closed = Closed::open(&device, &args.plain, &args.unlock, access, output)?;
        if !self.is_read_only() {
            closed.refuse_waited_for()?;
        }
        let discard = match args.discard {
            None => closed.stored_discard_policy(),
            Some(Discard::Never) => DiscardPolicy::Never,
            Some(Discard::Allow) => DiscardPolicy::Allow,
            Some(Discard::Zero) => DiscardPolicy::Zero,
        };
        let mut config = closed.plan(self.is_read_only(), discard, self.backend)?;
        config.holes = args.holes.holes();
        if args.encrypt {
            refuse_part(&closed, &config)?;
        }
        Ok(Prepared {
            wanted: self,
            closed,
            config,
            engine,
        })
    }

    /// The failure, with the device's name if it does not say it.
    fn name_in(&self, mut failure: Failure) -> Failure {
        let device = self.args.device.device.display().to_string();
        if !failure.message.contains(&device) && !failure.is_interruption() {
            failure.message = format!("{device}: {}", failure.message);
        }
        failure
    }
}

impl Prepared<'_> {
    /// Asks for the passphrase and opens the volume.
    pub(crate) fn open(self, output: &Output) -> Result<Opened> {
        let wanted = self.wanted;
        let unlock = &wanted.args.unlock;
        let threads = wanted.args.threads.cipher_threads;
        self.try_open(|closed, config, engine| {
            let opened =
                engine::volume_and_keyslot(engine, closed, unlock, config, threads, output);
            opened.map(|(volume, _)| volume)
        })
        .map_err(|e| wanted.name_in(e))
    }

    /// Opens the volume by the key that it had when `before` was found; refuses another volume, and
    /// one that was encrypted anew since.
    pub(crate) fn open_by(self, before: Known) -> Result<Opened> {
        let wanted = self.wanted;
        let Known { key, config, .. } = before;
        if !is_same_volume(&config, &self.config) {
            return Err(wanted.name_in(another_volume()));
        }
        let threads = wanted.args.threads.cipher_threads;
        self.try_open(|closed, config, engine| {
            engine::volume_by_key(engine, closed, key, config, threads)
        })
        .map_err(|e| match e.is_wrong_passphrase {
            true => wanted.name_in(another_volume()),
            false => wanted.name_in(e),
        })
    }

    fn try_open(
        self,
        open: impl FnOnce(Closed, &Config, Option<&Engine>) -> Result<Volume>,
    ) -> Result<Opened> {
        let Self {
            wanted: Wanted { name, args, .. },
            closed,
            config,
            engine,
        } = self;
        let uuid = uuid_of(&closed);
        let (data, header) = (closed.data(), closed.header().cloned());
        let (upstreams, has_image) = (closed.upstreams(), closed.has_image());
        let volume = open(closed, &config, engine.as_ref())?;
        let volume = Arc::new(match args.encrypt {
            true => volume.turned(),
            false => volume,
        });
        let cipher = config.cipher.to_string();
        let mut entry = Entry::new(Kind::Server, data.path(), uuid, cipher, &volume);
        (entry.partition, entry.start) = (args.device.partition, data.window_start());
        entry.export = Some(name.clone());
        entry.engine = engine.as_ref().map(Engine::address);
        Ok(Opened {
            name: name.clone(),
            growth: Growth::new(&data, header.as_ref(), &volume),
            volume,
            entry,
            upstreams,
            has_image,
            image: data.is_image().then_some(data),
            engine,
            allowed: args.clients.clone(),
        })
    }
}

/// Whether both headers lay the volume out alike; it may have grown.
fn is_same_volume(a: &Config, b: &Config) -> bool {
    let layout = |it: &Config| {
        (
            it.cipher.to_string(),
            it.sector_size,
            it.offset,
            it.iv_offset,
        )
    };
    layout(a) == layout(b)
}

fn another_volume() -> Failure {
    Failure::new(
        crate::failure::Exit::Device,
        "this is not the volume any more whose passphrase was given: its key or layout is another",
    )
    .advise("It was formatted or encrypted anew meanwhile. Start this server again.")
}

fn uuid_of(closed: &Closed) -> Option<String> {
    Some(closed.uuid().to_owned()).filter(|uuid| !uuid.is_empty())
}

/// Refuses to encrypt less than the whole image, and what is a volume already.
fn refuse_part(closed: &Closed, config: &Config) -> Result<()> {
    let data = closed.data();
    let (image, size) = (data.path().display(), data.size());
    if config.offset != 0 || config.length != size {
        return Err(Failure::parameters(format!(
            "--encrypt needs a header for all of {image}: it has {size} bytes, the header is for {} \
             from byte {} on, in sectors of {}",
            config.length,
            config.offset,
            config.sector_size.bytes()
        ))
        .advise(
            "Make one with `xtent format --header FILE`, with --sector-size 512 where the image's \
             size is no multiple of 4096.",
        ));
    }
    match probe::describe(&*data) {
        Some(what) if what.contains("LUKS") => Err(Failure::parameters(format!(
            "{image} holds {what}: it is encrypted already"
        ))),
        _ => Ok(()),
    }
}
