//! A mapping of the kernel's device mapper takes the size that its device has.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::json;
use xtent_luks::ErrorKind;
use xtent_mapping::{Active, Format, Mapped, Mapper, Name, listed, uuid};
use xtent_secret::SecretBytes;
use xtent_store::{Access, loopdev};
use xtent_volume::DiscardPolicy;

use super::{Args, change};
use crate::args::DeviceArgs;
use crate::cli::Global;
use crate::failure::{Exit, Failure, Result};
use crate::open::{Container, unlock_with_retries};
use crate::output::{Output, text_of};
use crate::probe::shell_word;
use crate::same::share_storage;
use crate::signals::Held;
use crate::size::show_size;
use crate::turn::{self, Turn};

/// The mapping that a person means by its name, its UUID or its device, if there is one.
pub(super) fn find(wanted: &Path) -> Result<Option<Mapped>> {
    let text = text_of(wanted);
    let name = wanted.strip_prefix("/dev/mapper").map_or(text, text_of);
    let all = listed().map_err(|e| Failure::system("cannot look for mappings in /sys/block", e))?;
    let (mut named, others): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|it| it.name == name || it.uuid().as_ref() == Some(&name));
    if named.is_empty() {
        let lies_there = |it: &Mapped| {
            let device = it.device.as_deref();
            device.is_some_and(|device| share_storage(device, wanted))
        };
        named = others.into_iter().filter(lies_there).collect();
    }
    match named.len() {
        0 | 1 => Ok(named.pop()),
        _ => Err(Failure::parameters(format!(
            "several mappings lie on {}: give the name of one (`xtent status` shows them)",
            text_of(wanted)
        ))),
    }
}

pub(super) fn resize(args: &Args, mapped: &Mapped, global: &Global, output: &Output) -> Result<()> {
    args.unlock.key.source().check()?;
    let name: Name = mapped.name.parse().map_err(Failure::parameters)?;
    let mapper = Mapper::connect()?;
    let active = mapper.active(&name)?;
    let (container, mut now) = look(args, mapped, &active, global, output)?;
    let before = active.length();
    if now > before {
        let key = key(args, &active, &container, output)?;
        let _turn = Turn::wait_for(&name, turn::Kind::Mapping, output)?;
        // From here on a signal leaves the one size or the other.
        let held = Held::all()?;
        if held.ended() {
            return Err(Failure::new(
                Exit::Device,
                format!("interrupted; {name} has the size that it had"),
            ));
        }
        // A passphrase takes a person's time, in which all may have changed. What lies below is open since the
        // first look: no other has its number.
        (_, now) = look(args, mapped, &active, global, output)?;
        mapper.grow(&active, now, &key)?;
        let path = shell_word(&name.path());
        output.note(format!(
            "The file system grows by its own tool: `resize2fs {path}`, or of XFS `xfs_growfs DIR`."
        ));
    }
    let result = json!({ "mapping": mapped.name, "before": before, "size": now });
    output.result(&result, change(before, now))
}

/// The volume below the mapping, and the bytes that it has by its header and device, which are no fewer.
fn look(
    args: &Args,
    mapped: &Mapped,
    active: &Active,
    global: &Global,
    output: &Output,
) -> Result<(Container, u64)> {
    let name = active.name();
    let format = match mapped.format() {
        "LUKS1" => Format::Luks1,
        "LUKS2" => Format::Luks2,
        other => {
            return Err(Failure::new(
                Exit::Device,
                format!(
                    "{name} is a mapping of the type {other}: no header says what its size may be"
                ),
            )
            .advise(format!("`cryptsetup resize {name}` gives it one.")));
        }
    };
    let device = DeviceArgs {
        device: below(mapped)?,
        ..args.device.clone()
    };
    let container = Container::open(&device, Access::ReadOnly, false, output)?;
    let config = container.plan(true, DiscardPolicy::Never, global.cpu)?;
    let header = container.header.uuid();
    if active.uuid() != uuid(format, header, name) || active.offset() != config.offset {
        return Err(Failure::new(
            Exit::Device,
            format!("the mapping {name} is of another volume than the header is"),
        )
        .advise("Where the header is elsewhere: --header FILE."));
    }
    let (before, now) = (active.length(), config.length);
    if now < before {
        return Err(Failure::new(
            Exit::Device,
            format!(
                "{name} has {}, and by its header and device {}; it becomes no smaller while it is open",
                show_size(before),
                show_size(now)
            ),
        ));
    }
    Ok((container, now))
}

/// The volume key: the one in the table, if it is the header's, or by the passphrase.
fn key(
    args: &Args,
    active: &Active,
    container: &Container,
    output: &Output,
) -> Result<SecretBytes> {
    let metadata = &container.metadata;
    let Some(key) = active.key()? else {
        return Ok(
            unlock_with_retries(metadata, container.data.path(), &args.unlock, output)?
                .unlocked
                .key,
        );
    };
    let unlocked = metadata.unlock_with_volume_key(key, &args.unlock.limits());
    let unlocked = unlocked.map_err(|error| match error.kind {
        ErrorKind::WrongPassphrase => Failure::new(
            Exit::Device,
            "the key in the mapping's table is not the key of the header",
        )
        .advise("Where the header is elsewhere: --header FILE."),
        _ => error.into(),
    })?;
    Ok(unlocked.key)
}

/// The block device below, which has the size that its image has by now.
fn below(mapped: &Mapped) -> Result<PathBuf> {
    let (Some(device), loop_device) = (&mapped.device, &mapped.loop_device) else {
        return Err(Failure::new(
            Exit::Device,
            format!("what {} lies on is gone", mapped.name),
        ));
    };
    let Some(loop_device) = loop_device else {
        return Ok(device.clone());
    };
    let failed = |e| {
        let (below, image) = (loop_device.display(), device.display());
        Failure::system(format!("{below} cannot have the size of {image}"), e)
    };
    let end = |path: &Path| File::open(path).and_then(|mut it| it.seek(SeekFrom::End(0)));
    let (has, image) = (
        end(loop_device).map_err(failed)?,
        end(device).map_err(failed)?,
    );
    if image < has {
        return Err(Failure::new(
            Exit::Device,
            format!(
                "{} has become smaller: what is missing fails",
                device.display()
            ),
        ));
    }
    let number = text_of(loop_device);
    let number = number.strip_prefix("/dev/loop");
    if let Some(number) = number
        .and_then(|it| it.parse().ok())
        .filter(|_| image > has)
    {
        loopdev::take_size(number, device).map_err(failed)?;
    }
    Ok(loop_device.clone())
}
