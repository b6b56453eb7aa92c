//! `xtent status`: what is served, mounted and mapped.

mod volume;

use std::path::{Path, PathBuf};

use crate::cli::Global;
use crate::control;
use crate::failure::{Exit, Failure, Result};
use crate::output::text_of;
use crate::probe::shell_word;
use crate::registry::{self, Kind, Listed};

use volume::Volume;

const MANUAL: &str = "\
EXAMPLES:
  Everything that this user (root: anybody) serves and mounts, and all mappings:
    xtent status
  One volume, by its device, image, mount point, mapping or UUID:
    xtent status disk.img
  For programs, the images that are served:
    xtent status --json | jq -r '.volumes[] | select(.kind == \"server\") | .device'

NOTES:
  Mappings are those of the kernel's device mapper, whoever made them, `xtent open`
  or cryptsetup. Their cipher is read from the header, where this user may. Who uses one that is suspended waits
  for `xtent resume`.

  A standby (`xtent serve --standby`) is shown as one that waits for its volume.

  A process that was killed is shown as such until the next one of its user
  starts; `xtent umount` undoes what a killed mount left, and `xtent open --ublk`
  takes over what a killed process has left of a block device, as `xtent mount` does
  of a mount by ublk.

EXIT STATUS:
  With an argument, otherwise 0:
  0  it is served, waited for, mounted or mapped
  4  nothing is under that name, or the process that did it was killed";

/// Show what is served, mounted and mapped
///
/// By which process and user, since when, with which cipher and size. Root sees all
/// users' servers and mounts, others their own.
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    /// Only this: a device, image, mount point, mapping or UUID
    #[arg(value_name = "DEVICE|DIR|NAME")]
    wanted: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    let mut volumes = all()?;
    if let Some(wanted) = &args.wanted {
        let names = names_of(wanted);
        volumes.retain(|volume| names.iter().any(|name| volume.is(name)));
        if volumes.is_empty() {
            return Err(Failure::new(
                Exit::Device,
                format!("{} is neither served, mounted nor mapped", wanted.display()),
            )
            .advise(if rustix::process::geteuid().is_root() {
                "`xtent status` lists what is."
            } else {
                "`xtent status` lists what is; as root, what other users serve and mount too."
            }));
        }
    }
    if output.json {
        output.object(&serde_json::json!({ "volumes": volumes }))?;
    } else if volumes.is_empty() {
        output.note("Nothing is served, mounted or mapped.");
    } else {
        let texts: Vec<String> = volumes.iter().map(Volume::text).collect();
        output.line(texts.join("\n\n"))?;
    }
    match &args.wanted {
        Some(wanted) if volumes.iter().all(|volume| volume.alive == Some(false)) => {
            Err(killed(wanted, &volumes))
        }
        _ => Ok(()),
    }
}

/// The error where nobody is left who uses what was asked about.
fn killed(wanted: &Path, volumes: &[Volume]) -> Failure {
    let message = format!(
        "{} is in use no more: its process was killed",
        wanted.display()
    );
    let devices = volumes.iter().filter_map(|v| v.name.as_deref());
    let mounts = volumes
        .iter()
        .filter_map(|v| Some((v, v.mount_point.as_deref()?)));
    let advice: Vec<String> = mounts
        .map(|(volume, dir)| {
            let dir = shell_word(Path::new(dir));
            match volume.ublk_device {
                None => format!("`xtent umount {dir}` undoes what it left."),
                Some(_) => format!(
                    "What is mounted there waits: `xtent mount` of the same device on {dir} goes on with it, \
                     and `xtent umount --force {dir}` gives it up."
                ),
            }
        })
        .chain(devices.map(|name| {
            format!(
                "/dev/xtent/{name} waits: `xtent open --ublk {name}` with the same device takes it \
                 over, and `xtent close {name}` takes it away."
            )
        }))
        .collect();
    let failure = Failure::new(Exit::Device, message);
    match advice.is_empty() {
        true => failure,
        false => failure.advise(advice.join("\n")),
    }
}

fn all() -> Result<Vec<Volume>> {
    let listed = registry::list();
    let mut told = control::told_of(&listed);
    let with_told = |listed: Listed| {
        let mut volume = Volume::of(listed);
        if let (Some(pid), Some(export)) = (volume.pid, &volume.export)
            && let Some(served) = told.remove(&(pid, export.clone()))
        {
            volume.clients = Some(served.clients);
            volume.metrics = Some(served.metrics);
        }
        volume
    };
    // A standby that was killed leaves nothing behind.
    let is_there = |it: &Listed| it.is_alive || it.entry.kind != Kind::Standby;
    let listed = listed.into_iter().filter(is_there);
    let mut volumes: Vec<Volume> = listed.map(with_told).collect();
    volumes.extend(mapped()?);
    Ok(volumes)
}

#[cfg(feature = "device-mapper")]
fn mapped() -> Result<Vec<Volume>> {
    let listed = xtent_mapping::listed()
        .map_err(|e| Failure::system("cannot look for mappings in /sys/block", e))?;
    Ok(listed.into_iter().map(Volume::of_mapping).collect())
}

#[cfg(not(feature = "device-mapper"))]
fn mapped() -> Result<Vec<Volume>> {
    Ok(Vec::new())
}

/// What completions offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Names {
    /// Mount points.
    Mounts,
    /// Mappings, and block devices that a process serves.
    Mappings,
    /// Exports of servers.
    Exports,
    /// What becomes larger with its device: exports, mounts and mappings.
    Growing,
    /// Everything that `xtent status` takes.
    All,
}

/// Names for completions. What cannot be found out is left out.
pub(crate) fn names(which: Names) -> Vec<String> {
    let mut names: Vec<String> = all()
        .unwrap_or_default()
        .into_iter()
        .flat_map(|volume| match which {
            Names::Mounts => vec![volume.mount_point],
            Names::Mappings => vec![volume.name],
            Names::Exports => vec![volume.export.filter(|name| !name.is_empty())],
            Names::Growing => vec![
                volume.export.filter(|name| !name.is_empty()),
                volume.mount_point,
                volume.name,
            ],
            Names::All => vec![volume.mount_point, volume.name, volume.device],
        })
        .flatten()
        // A line each.
        .filter(|name| !name.contains(char::is_control))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// What a person may have meant by it.
fn names_of(wanted: &Path) -> Vec<String> {
    let mut names = vec![text_of(wanted)];
    // A dead mount cannot be looked into, nor a device that is gone.
    for path in [wanted.canonicalize(), std::path::absolute(wanted)] {
        names.extend(path.ok().map(|path| text_of(&path)));
    }
    for folder in ["/dev/mapper", "/dev/xtent"] {
        names.extend(wanted.strip_prefix(folder).map(text_of));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_goes_by_all_its_names() {
        let names = names_of(Path::new("/dev/mapper/secret"));
        assert!(names.contains(&"secret".to_owned()));
        assert!(names.contains(&"/dev/mapper/secret".to_owned()));
        let here = std::env::current_dir().unwrap().join("x");
        assert!(names_of(Path::new("x")).contains(&text_of(&here)));
    }
}
