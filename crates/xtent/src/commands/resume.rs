//! `xtent resume`: gives a suspended mapping its key back.

use std::path::{Path, PathBuf};

use sector_cipher::CipherSpec;
use serde_json::json;
use xtent_luks::Segment;
use xtent_mapping::{Layout, Mapper, Name, Seen, listed, uuid};
use xtent_store::Access;

use super::suspend::{luks_format, refuse_ublk};
use crate::args::{DeviceArgs, HeaderArgs, RECONNECT, UnlockArgs};
use crate::cli::Global;
use crate::failure::{Exit, Failure, Result};
use crate::open::{Container, unlock_with_retries};
use crate::output::Output;
use crate::pins::{self, Expected};
use crate::same;
use crate::signals::Held;
use crate::turn::{self, Turn};

const MANUAL: &str = "\
EXAMPLES:
  Go on with what `xtent suspend secret` has suspended:
    xtent resume secret
  Its header is kept elsewhere:
    xtent resume --header disk.header secret

NOTES:
  Unlocks the volume as `xtent open` does, by a token, a passphrase, a key file or the volume key, sets the key in
  the target, and resumes. Who waits goes on.

  The key is the one that the header's digest stands for, and is set only if the mapping is of that
  volume: UUID, device, place, cipher, sector size and size of the key have to be those of its table. A
  passphrase that opens nothing, and every other failure, leaves it suspended and without a key.
  A header of that UUID with the key of another time, which was put back from a backup or is of a copy that was
  reencrypted, cannot be told from the right one: what is read is noise then, and what is written is lost.
  --expect-header tells them apart by a pin of `xtent header pin`.

  The device is the one that the mapping's table names; of an image, the loop device. CONTAINER names it
  where it goes by no name that is found. Mappings of dm-crypt that `cryptsetup luksSuspend` or `dmsetup
  suspend` has suspended are resumed too; a passphrase is asked for in any case.

  The key gets to the kernel as with `xtent open`, through this thread's keyring, and is taken out
  of it again: no table shows it, also where cryptsetup has had it in the table (LUKS1).";

/// Give a suspended mapping its key back; who waits goes on (root)
///
/// What `xtent suspend` or `cryptsetup luksSuspend` has suspended.
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    /// Of /dev/mapper/NAME
    name: Name,
    /// Block device or image with the encrypted data [default: what the mapping lies on]
    container: Option<PathBuf>,
    #[command(flatten)]
    detached: HeaderArgs,
    /// Refuse a header that is not the one that was pinned: PIN or @FILE (repeatable)
    #[arg(long, value_name = "PIN", value_parser = pins::parse)]
    expect_header: Vec<Expected>,
    #[command(flatten)]
    unlock: UnlockArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    args.unlock.key.source().check()?;
    let name = &args.name;
    refuse_ublk(name)?;
    let mapper = Mapper::connect()?;
    let seen = mapper.suspended(name)?;
    let container = container_of(args, &seen, &output)?;
    let path = container.data.path();
    let found = unlock_with_retries(&container.metadata, path, &args.unlock, &output)?;
    let key = &found.unlocked.key;
    let _turn = Turn::wait_for(name, turn::Kind::Mapping, &output)?;
    // From here on a signal leaves it suspended or has it run.
    let held = Held::all()?;
    if held.ended() {
        return Err(Failure::parameters(format!(
            "interrupted; {name} stays suspended"
        )));
    }
    mapper.resume(&seen, container.header.uuid(), key)?;
    output.note(format!("{name} has its key again, and goes on."));
    if output.json {
        output.object(&json!({
            "name": name.to_string(),
            "suspended": false,
            "keyslot": found.unlocked.keyslot,
            "token": found.token,
        }))?;
    }
    Ok(())
}

/// The volume of the mapping, by its header and by where it is.
fn container_of(args: &Args, seen: &Seen, output: &Output) -> Result<Container> {
    let name = seen.name();
    let format = luks_format(seen)?;
    let device = DeviceArgs {
        device: match &args.container {
            Some(container) => container.clone(),
            None => below(name)?,
        },
        partition: None,
        detached: args.detached.clone(),
        expect_header: args.expect_header.clone(),
        reconnect: RECONNECT,
        direct_io: false,
    };
    let container = Container::open(&device, Access::ReadOnly, false, output)?;
    let path = container.data.path();
    let differs = |what: &str| {
        Failure::new(
            Exit::Device,
            format!(
                "{name} is no mapping of the volume on {}: {what} differs. It stays suspended",
                path.display()
            ),
        )
        .advise("Where the header is elsewhere: --header FILE.")
    };
    if !same::is_device(path, seen.layout().device) {
        return Err(Failure::new(
            Exit::Device,
            format!(
                "{name} does not lie on {}. It stays suspended",
                path.display()
            ),
        )
        .advise(format!(
            "`dmsetup deps {name}` tells the device; without one given, it is found by itself."
        )));
    }
    if seen.uuid() != uuid(format, container.header.uuid(), name) {
        return Err(differs("the UUID"));
    }
    let segment = container.header.segment(container.data.size())?;
    match difference(seen.layout(), &segment, container.header.key_length()) {
        Some(what) => Err(differs(what)),
        None => Ok(container),
    }
}

/// What the header says otherwise than the table of the mapping.
fn difference(
    layout: &Layout,
    segment: &Segment,
    key_length: Option<usize>,
) -> Option<&'static str> {
    // One cipher may go by two names.
    let ciphers = [&layout.cipher, &segment.encryption].map(|it| it.parse::<CipherSpec>());
    let is_same_cipher = matches!(ciphers, [Ok(table), Ok(header)] if table == header);
    let has_other_key = matches!(
        (layout.key_length, key_length),
        (Some(table), Some(header)) if table != header
    );
    [
        (!is_same_cipher, "the cipher"),
        (has_other_key, "the size of the key"),
        (layout.offset != segment.offset, "the first sector"),
        (
            layout.iv_offset != segment.iv_tweak,
            "the number of the first sector",
        ),
        (
            layout.sector_size != segment.sector_size || layout.iv_large_sectors,
            "the size of the sectors",
        ),
    ]
    .into_iter()
    .find_map(|(differs, what)| differs.then_some(what))
}

/// The block device that the mapping lies on.
fn below(name: &Name) -> Result<PathBuf> {
    let all = listed().map_err(|e| Failure::system("cannot look for mappings in /sys/block", e))?;
    let wanted = name.to_string();
    let mapped = all.into_iter().find(|it| it.name == wanted);
    let device = mapped.and_then(|it| it.loop_device.or(it.device));
    device.filter(|it| Path::exists(it)).ok_or_else(|| {
        Failure::new(
            Exit::Device,
            format!("the device that {name} lies on is not found"),
        )
        .advise(format!(
            "Name it: `xtent resume {name} CONTAINER`; `dmsetup deps {name}` tells its number."
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_to_the_volume_that_it_is_of() {
        let layout = Layout {
            cipher: "aes-xts-plain64".to_owned(),
            key_length: Some(64),
            iv_offset: 8,
            device: 1,
            offset: 16 << 20,
            sector_size: 4096,
            iv_large_sectors: false,
        };
        let segment = Segment {
            encryption: "aes-xts-plain64".to_owned(),
            sector_size: 4096,
            offset: 16 << 20,
            length: 1 << 20,
            iv_tweak: 8,
        };
        assert_eq!(difference(&layout, &segment, Some(64)), None);
        assert_eq!(difference(&layout, &segment, None), None);
        let hidden = Layout {
            key_length: None,
            ..layout.clone()
        };
        assert_eq!(difference(&hidden, &segment, Some(32)), None);
        assert!(difference(&layout, &segment, Some(32)).is_some());
        let others = [
            Layout {
                cipher: "aes-cbc-essiv:sha256".to_owned(),
                ..layout.clone()
            },
            Layout {
                iv_offset: 0,
                ..layout.clone()
            },
            Layout {
                offset: 4096,
                ..layout.clone()
            },
            Layout {
                sector_size: 512,
                ..layout.clone()
            },
            Layout {
                iv_large_sectors: true,
                ..layout.clone()
            },
        ];
        for other in others {
            assert!(
                difference(&other, &segment, Some(64)).is_some(),
                "{other:?}"
            );
        }
    }
}
