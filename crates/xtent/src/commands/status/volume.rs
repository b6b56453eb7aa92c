//! One volume of the list.

#[cfg(feature = "device-mapper")]
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::unistd::{Uid, User};
use serde::Serialize;

use crate::output::in_one_line;
#[cfg(feature = "device-mapper")]
use crate::output::text_of;
use crate::registry::{Kind, Listed};
use crate::size::show_size;

/// One line of the list; what is not known, or is not the kind's, is null.
#[derive(Debug, Serialize)]
pub(super) struct Volume {
    pub(super) kind: &'static str,
    /// A mapping's name, or a block device's that a process serves.
    pub(super) name: Option<String>,
    pub(super) device: Option<String>,
    /// Number of the image's partition.
    pub(super) partition: Option<u32>,
    pub(super) uuid: Option<String>,
    /// Name of a server's export, and its clients, where the server can be asked.
    pub(super) export: Option<String>,
    pub(super) clients: Option<usize>,
    /// What it has done, where the server can be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metrics: Option<serde_json::Value>,
    pub(super) uris: Vec<String>,
    pub(super) mount_point: Option<String>,
    pub(super) loop_device: Option<String>,
    /// Of a mount by ublk.
    pub(super) ublk_device: Option<String>,
    pub(super) cipher: Option<String>,
    /// The engine that does some of the work, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) engine: Option<String>,
    pub(super) sector_size: Option<u64>,
    pub(super) size: u64,
    pub(super) read_only: bool,
    /// Of a mapping: whether who uses it waits for `xtent resume`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) suspended: Option<bool>,
    pub(super) pid: Option<u32>,
    pub(super) uid: Option<u32>,
    /// Seconds since 1970.
    pub(super) since: Option<u64>,
    /// Of the process; a mapping has none.
    pub(super) alive: Option<bool>,
}

impl Volume {
    pub(super) fn of(listed: Listed) -> Self {
        let Listed { entry, is_alive } = listed;
        Self {
            kind: match entry.kind {
                Kind::Server => "server",
                Kind::Standby => "standby",
                Kind::Mount => "mount",
                Kind::Ublk => "ublk",
            },
            name: entry.name,
            device: Some(entry.device),
            partition: entry.partition,
            uuid: entry.uuid,
            export: entry.export,
            clients: None,
            metrics: None,
            uris: entry.uris,
            mount_point: entry.mount_point,
            loop_device: entry.loop_device,
            ublk_device: entry.ublk_device,
            cipher: Some(entry.cipher),
            engine: entry.engine,
            sector_size: Some(entry.sector_size),
            size: entry.size,
            read_only: entry.read_only,
            suspended: None,
            pid: Some(entry.pid),
            uid: Some(entry.uid),
            since: Some(entry.since),
            alive: Some(is_alive),
        }
    }

    #[cfg(feature = "device-mapper")]
    pub(super) fn of_mapping(mapped: xtent_mapping::Mapped) -> Self {
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
            ublk_device: None,
            cipher,
            engine: None,
            sector_size,
            size: mapped.size,
            read_only: mapped.is_read_only,
            suspended: Some(mapped.is_suspended),
            name: Some(mapped.name),
            pid: None,
            uid: None,
            since: None,
            alive: None,
        }
    }

    pub(super) fn is(&self, name: &str) -> bool {
        [
            &self.name,
            &self.device,
            &self.uuid,
            &self.mount_point,
            &self.loop_device,
            &self.ublk_device,
            &self.export,
        ]
        .into_iter()
        .flatten()
        .chain(&self.uris)
        .any(|it| it == name)
    }

    /// What the engine has done, where the server can be asked.
    fn done_in_engine(&self) -> String {
        let engine = self.metrics.as_ref().and_then(|it| it.get("engine"));
        let number = |name: &str| engine?.get(name)?.as_u64();
        let mut text = String::new();
        if let (Some(bytes), Some(runs)) = (number("bytes"), number("runs")) {
            text += &format!(", {} in {runs} runs", show_size(bytes));
        }
        let by_cpu = || engine?.get("cpu_runs")?.get("failure")?.as_u64();
        let rest = [
            (number("errors"), "failed"),
            (by_cpu(), "failed and done by the CPU"),
        ];
        for (count, what) in rest {
            if let Some(count) = count.filter(|count| *count > 0) {
                text += &format!(", {count} {what}");
            }
        }
        if let Some(reason) = engine.and_then(|it| it.get("out_of_service")?.as_str()) {
            text += &format!("; out of service: {reason}");
        }
        text
    }

    pub(super) fn text(&self) -> String {
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
            ("ublk", _) => format!("{device} is a block device"),
            _ if self.suspended == Some(true) => format!("{device} is mapped, and suspended"),
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
            let folder = match self.kind {
                "ublk" => "/dev/xtent",
                _ => "/dev/mapper",
            };
            line("as", format!("{folder}/{name}"));
        }
        for device in [&self.loop_device, &self.ublk_device].into_iter().flatten() {
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
        if let Some(engine) = &self.engine {
            line("engine", format!("{engine}{}", self.done_in_engine()));
        }
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
fn user_name(uid: u32) -> String {
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
    use crate::registry;

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
                "name": flags[1].then(|| text(1)),
                "uris": [text(2)],
                "mount_point": flags[2].then(|| text(3)),
                "loop_device": text(4),
                "ublk_device": text(4),
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
                proptest::prop_assert!(shown.lines().count() <= 13, "{shown}");
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
            ublk_device: hostile(),
            cipher: hostile(),
            engine: hostile(),
            sector_size: None,
            size: 0,
            read_only: false,
            suspended: None,
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
}
