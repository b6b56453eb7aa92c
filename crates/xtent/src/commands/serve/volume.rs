//! The volume that is served, opened as the options say.

use std::path::PathBuf;
use std::sync::Arc;

use xtent_store::Access;
use xtent_upstream::Upstream;
use xtent_volume::{Config, DiscardPolicy, Volume};

use super::{Args, Discard};
use crate::cli::Global;
use crate::failure::{Failure, Result};
use crate::growth::Growth;
use crate::headerless::Closed;
use crate::output::Output;
use crate::probe;

/// An open volume and what its header says of it.
pub(super) struct Opened {
    pub(super) volume: Arc<Volume>,
    pub(super) growth: Growth,
    pub(super) cipher: String,
    pub(super) uuid: Option<String>,
    /// First byte of the partition in the image.
    pub(super) start: u64,
    /// What it is made of, as far as that is on servers.
    pub(super) upstreams: Vec<Arc<Upstream>>,
    /// Whether any of it is in a Ceph cluster.
    pub(super) has_image: bool,
    /// The device by its name.
    pub(super) device: PathBuf,
}

/// The open volume; this process's alone unless read-only.
pub(super) fn open(args: &Args, global: &Global, output: &Output) -> Result<Opened> {
    let read_only = args.read_only || args.encrypt;
    let access = if read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    let device = args.direct.device(&args.device);
    let container = Closed::open(&device, &args.plain, &args.unlock, access, output)?;
    let discard = match args.discard {
        None => container.stored_discard_policy(),
        Some(Discard::Never) => DiscardPolicy::Never,
        Some(Discard::Allow) => DiscardPolicy::Allow,
        Some(Discard::Zero) => DiscardPolicy::Zero,
    };
    let config = container.plan(read_only, discard, global.cpu)?;
    if args.encrypt {
        refuse_part(&container, &config)?;
    }
    let uuid = Some(container.uuid().to_owned()).filter(|uuid| !uuid.is_empty());
    let (data, header) = (container.data(), container.header().cloned());
    let (upstreams, has_image) = (container.upstreams(), container.has_image());
    let volume = container.volume(&args.unlock, &config, output)?;
    let volume = volume.with_cipher_threads(args.threads.cipher_threads);
    let volume = Arc::new(if args.encrypt {
        volume.turned()
    } else {
        volume
    });
    Ok(Opened {
        uuid,
        start: data.window_start(),
        growth: Growth::new(&data, header, &volume),
        volume,
        cipher: config.cipher.to_string(),
        upstreams,
        has_image,
        device: data.path().to_owned(),
    })
}

/// Refuses to encrypt less than the whole image, and what is a volume already.
fn refuse_part(container: &Closed, config: &Config) -> Result<()> {
    let data = container.data();
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
