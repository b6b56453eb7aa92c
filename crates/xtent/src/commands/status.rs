//! `xtent status`: what is served, mounted and mapped.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::unistd::{Uid, User};
use serde::Serialize;

use crate::cli::Global;
use crate::control;
use crate::failure::{Exit, Failure, Result};
use crate::output::{in_one_line, text_of};
use crate::probe::shell_word;
use crate::registry::{self, Kind, Listed};
use crate::size::show_size;

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
  or cryptsetup. Their cipher is read from the header, where this user may.

  A standby (`xtent serve --standby`) is shown as one that waits for its volume.

  A process that was killed is shown as such until the next one of its user
  starts; `xtent umount` undoes what a killed mount left.

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

/// One line of the list; what is not known, or is not the kind's, is null.
#[derive(Debug, Serialize)]
struct Volume {
    kind: &'static str,
    /// A mapping's name.
    name: Option<String>,
    device: Option<String>,
    /// Number of the image's partition.
    partition: Option<u32>,
    uuid: Option<String>,
    /// Name of a server's export, and its clients, where the server can be asked.
    export: Option<String>,
    clients: Option<usize>,
    /// What it has done, where the server can be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<serde_json::Value>,
    uris: Vec<String>,
    mount_point: Option<String>,
    loop_device: Option<String>,
    cipher: Option<String>,
    sector_size: Option<u64>,
    size: u64,
    read_only: bool,
    pid: Option<u32>,
    uid: Option<u32>,
    /// Seconds since 1970.
    since: Option<u64>,
    /// Of the process; a mapping has none.
    alive: Option<bool>,
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
    let mounts = volumes.iter().filter_map(|v| v.mount_point.as_deref());
    let advice: Vec<String> = mounts
        .map(|dir| {
            let dir = shell_word(Path::new(dir));
            format!("`xtent umount {dir}` undoes what it left.")
        })
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
    /// Mappings.
    Mappings,
    /// Exports of servers.
    Exports,
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
    if let Ok(name) = wanted.strip_prefix("/dev/mapper") {
        names.push(text_of(name));
    }
    names
}

impl Volume {
    fn of(listed: Listed) -> Self {
        let Listed { entry, is_alive } = listed;
        Self {
            kind: match entry.kind {
                Kind::Server => "server",
                Kind::Standby => "standby",
                Kind::Mount => "mount",
            },
            name: None,
            device: Some(entry.device),
            partition: entry.partition,
            uuid: entry.uuid,
            export: entry.export,
            clients: None,
            metrics: None,
            uris: entry.uris,
            mount_point: entry.mount_point,
            loop_device: entry.loop_device,
            cipher: Some(entry.cipher),
            sector_size: Some(entry.sector_size),
            size: entry.size,
            read_only: entry.read_only,
            pid: Some(entry.pid),
            uid: Some(entry.uid),
            since: Some(entry.since),
            alive: Some(is_alive),
        }
    }

    #[cfg(feature = "device-mapper")]
    fn of_mapping(mapped: xtent_mapping::Mapped) -> Self {
        let segment = mapped.device.as_deref().and_then(segment_of);
        let (cipher, sector_size) = segment.unzip();
        Self {
            kind: "mapping",
            uuid: mapped.uuid(),
            device: mapped.device.as_deref().map(text_of),
            partition: None,
            export: None,
            clients: None,
            metrics: None,
            uris: Vec::new(),
            mount_point: None,
            loop_device: mapped.loop_device.as_deref().map(text_of),
            cipher,
            sector_size,
            size: mapped.size,
            read_only: mapped.is_read_only,
            name: Some(mapped.name),
            pid: None,
            uid: None,
            since: None,
            alive: None,
        }
    }

    fn is(&self, name: &str) -> bool {
        [
            &self.name,
            &self.device,
            &self.uuid,
            &self.mount_point,
            &self.loop_device,
            &self.export,
        ]
        .into_iter()
        .flatten()
        .chain(&self.uris)
        .any(|it| it == name)
    }

    fn text(&self) -> String {
        let unknown = || "?".to_owned();
        let device = self.device.as_deref().map_or_else(unknown, in_one_line);
        let device = match self.partition {
            Some(number) => format!("Partition {number} of {device}"),
            None => device,
        };
        let mut text = match (self.kind, self.alive) {
            (_, Some(false)) => format!("{device}: its process was killed"),
            ("server", _) => format!("{device} is served"),
            ("standby", _) => format!("{device} is waited for, to be served"),
            ("mount", _) => format!("{device} is mounted"),
            _ => format!("{device} is mapped"),
        };
        let mut line =
            |name: &str, value: String| text += &format!("\n  {name:<9}{}", in_one_line(&value));
        for uri in &self.uris {
            line("at", uri.clone());
        }
        if let Some(dir) = &self.mount_point {
            line("on", dir.clone());
        }
        if let Some(name) = &self.name {
            line("as", format!("/dev/mapper/{name}"));
        }
        if let Some(device) = &self.loop_device {
            line("through", device.clone());
        }
        if let Some(clients) = self.clients {
            line("clients", clients.to_string());
        }
        line("UUID", self.uuid.clone().unwrap_or_else(unknown));
        let sectors = self
            .sector_size
            .map(|size| format!(", {size}-byte sectors"))
            .unwrap_or_default();
        let cipher = self.cipher.clone().unwrap_or_else(unknown);
        line("cipher", format!("{cipher}{sectors}"));
        let access = if self.read_only { ", read-only" } else { "" };
        line("size", format!("{}{access}", show_size(self.size)));
        if let (Some(pid), Some(uid)) = (self.pid, self.uid) {
            line("process", format!("{pid}, of user {}", user_name(uid)));
        }
        if let Some(since) = self.since {
            line("since", format!("{} ago", show_age(since)));
        }
        text
    }
}

/// Cipher and sector size by the header on `device`, where it is there and may be read.
#[cfg(feature = "device-mapper")]
fn segment_of(device: &Path) -> Option<(String, u64)> {
    let file = xtent_store::FileStore::open(device, xtent_store::Access::ReadOnly).ok()?;
    let size = xtent_store::Store::size(&file);
    let header = xtent_luks::Device::new(std::sync::Arc::new(file))
        .read()
        .ok()?;
    let segment = header.segment(size).ok()?;
    Some((segment.encryption, u64::from(segment.sector_size)))
}

/// The user's name, or number where nobody knows one.
pub(crate) fn user_name(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

/// How long ago that was, in the two largest units; of what is yet to come, no time at all.
fn show_age(since: u64) -> String {
    let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(since));
    let elapsed = since.and_then(|since| since.elapsed().ok());
    let age = elapsed.unwrap_or_default().as_secs();
    let (minutes, hours, days) = (age / 60, age / 3600, age / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{age} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read_at_a_glance() {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs();
        // The clock goes on: not at the edge of a unit.
        for (age, text) in [
            (90, "1 min"),
            (2 * 3600 + 5 * 60 + 30, "2 h 5 min"),
            (3 * 86_400 + 3600 + 60, "3 d 1 h"),
        ] {
            assert_eq!(show_age(now - age), text);
        }
        // A clock that was set back, and what another user has written.
        assert_eq!(show_age(now + 500), "0 s");
        assert_eq!(show_age(u64::MAX), "0 s");
    }

    proptest::proptest! {
        /// Root reads the registries of all users: what they wrote is listed as a few lines
        /// about one volume, or not at all.
        #[test]
        fn any_entry_is_shown_as_one(
            texts in proptest::collection::vec(".{0,20}", 6),
            numbers in proptest::array::uniform5(proptest::num::u64::ANY),
            flags in proptest::array::uniform4(proptest::bool::ANY),
        ) {
            let text = |at: usize| texts[at].clone();
            let [size, sector_size, since, pid, uid] = numbers;
            let json = serde_json::json!({
                "kind": if flags[0] { "server" } else { "mount" },
                "device": text(0),
                "uuid": flags[1].then(|| text(1)),
                "uris": [text(2)],
                "mount_point": flags[2].then(|| text(3)),
                "loop_device": text(4),
                "size": size,
                "sector_size": sector_size,
                "cipher": text(5),
                "read_only": flags[3],
                "since": since,
                "pid": pid >> 32,
                "uid": uid >> 32,
            });
            let parsed = registry::parse(serde_json::json!([json]).to_string().as_bytes());
            let entry = parsed.expect("a list").pop();
            if let Some(entry) = entry {
                let volume = Volume::of(Listed { entry, is_alive: flags[3] });
                let shown = volume.text();
                proptest::prop_assert!(shown.lines().count() <= 11, "{shown}");
                proptest::prop_assert!(!shown.replace('\n', "").contains(char::is_control));
            } else {
                proptest::prop_assert!(texts.iter().any(|text| text.contains(char::is_control)));
            }
        }

        #[test]
        fn no_bytes_hurt(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            proptest::prop_assert!(registry::parse(&bytes).is_none_or(|found| found.is_empty()));
        }
    }

    #[test]
    fn names_that_others_chose_stay_in_their_lines() {
        let hostile = || Some("/a\n/b is served\u{1b}[31m".to_owned());
        let volume = Volume {
            kind: "server",
            name: hostile(),
            device: hostile(),
            partition: Some(3),
            uuid: hostile(),
            export: hostile(),
            clients: Some(3),
            metrics: None,
            uris: hostile().into_iter().collect(),
            mount_point: hostile(),
            loop_device: hostile(),
            cipher: hostile(),
            sector_size: None,
            size: 0,
            read_only: false,
            pid: None,
            uid: None,
            since: None,
            alive: Some(true),
        };
        let text = volume.text();
        assert!(!text.contains('\u{1b}'), "{text}");
        let mut lines = text.lines();
        assert!(
            lines
                .next()
                .unwrap()
                .starts_with("Partition 3 of /a\\u000a/b")
        );
        assert!(lines.all(|line| line.starts_with("  ")), "{text}");
    }

    #[test]
    fn a_thing_goes_by_all_its_names() {
        let names = names_of(Path::new("/dev/mapper/secret"));
        assert!(names.contains(&"secret".to_owned()));
        assert!(names.contains(&"/dev/mapper/secret".to_owned()));
        let here = std::env::current_dir().unwrap().join("x");
        assert!(names_of(Path::new("x")).contains(&text_of(&here)));
    }
}
