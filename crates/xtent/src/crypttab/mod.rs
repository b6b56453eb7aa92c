//! Lines of crypttab(5) with the option `x-xtent`: which volumes `xtent open` opens when
//! the machine starts.

mod names;
mod unit;

use std::path::Path;

pub(crate) use unit::{Programs, Unit, unit_of};
use xtent_mapping::Name;

/// The option that makes a line Xtent's. Every other program is to ignore options that begin with `x-`.
const MARK: &str = "x-xtent";
/// Where key files are looked for that the line does not name, as systemd does.
const KEY_FOLDERS: [&str; 2] = ["/etc/cryptsetup-keys.d", "/run/cryptsetup-keys.d"];

/// One line that Xtent carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Of /dev/mapper/NAME.
    pub(crate) name: String,
    /// The block device or image file, an absolute path.
    pub(crate) device: String,
    /// The key file; none is asked for or unlocked by a token.
    pub(crate) key: Option<String>,
    /// The detached header.
    pub(crate) header: Option<String>,
    /// Further options of `xtent open`.
    options: Vec<String>,
    /// Seconds or a span of time, as systemd-ask-password takes it.
    pub(crate) timeout: Option<String>,
    /// Not opened at boot, only when something asks for it.
    pub(crate) noauto: bool,
    /// The machine starts without it.
    pub(crate) nofail: bool,
    /// It takes the network.
    pub(crate) netdev: bool,
    /// Opened before the root file system is there.
    pub(crate) in_initrd: bool,
    /// Nobody is to be asked.
    pub(crate) headless: bool,
    /// What else the line says, and why it does not count.
    pub(crate) remarks: Vec<String>,
}

/// Xtent's lines, in order: understood, or the line's name and why not.
pub(crate) fn parse(text: &str) -> Vec<Result<Entry, String>> {
    let mut entries: Vec<Result<Entry, String>> = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        let Some(options) = fields.get(3).map(|&text| split_options(text)) else {
            continue;
        };
        if !options.iter().any(|option| option == MARK) {
            continue;
        }
        let name = fields[0];
        let is_twice = entries.iter().flatten().any(|entry| entry.name == name);
        entries.push(if is_twice {
            Err(format!("{name}: it is there twice; the first line counts"))
        } else {
            entry(name, fields[1], fields[2], &options).map_err(|why| format!("{name}: {why}"))
        });
    }
    entries
}

/// At commas; `\,` is one that belongs to the option.
fn split_options(text: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some(',')) => {
                chars.next();
                add(&mut options, ',');
            }
            (',', _) => options.push(String::new()),
            (c, _) => add(&mut options, c),
        }
    }
    options.retain(|option| !option.is_empty());
    options
}

fn add(options: &mut [String], c: char) {
    if let Some(last) = options.last_mut() {
        last.push(c);
    }
}

fn entry(name: &str, device: &str, key: &str, options: &[String]) -> Result<Entry, String> {
    name.parse::<Name>()?;
    let device = names::device_path(device);
    if !device.starts_with('/') {
        return Err(format!(
            "`{device}` is neither an absolute path nor UUID= and the like"
        ));
    }
    let key = match key {
        "none" | "-" => KEY_FOLDERS
            .iter()
            .map(|folder| format!("{folder}/{name}.key"))
            .find(|path| Path::new(path).is_file()),
        key => Some(own_path("key file", key)?),
    };
    let mut entry = Entry {
        name: name.to_owned(),
        device,
        key,
        header: None,
        options: Vec::new(),
        timeout: None,
        noauto: false,
        nofail: false,
        netdev: false,
        in_initrd: false,
        headless: false,
        remarks: Vec::new(),
    };
    for option in options {
        entry.take(option)?;
    }
    Ok(entry)
}

/// A path that does not need another device mounted first.
fn own_path(what: &str, path: &str) -> Result<String, String> {
    if !path.starts_with('/') {
        return Err(format!("the {what} `{path}` is no absolute path"));
    }
    if path.contains(':') {
        return Err(format!(
            "a {what} on a device of its own (`{path}`) is not supported"
        ));
    }
    Ok(path.to_owned())
}

impl Entry {
    fn take(&mut self, option: &str) -> Result<(), String> {
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (option, None),
        };
        let mut pass = |flag: &str, value: &str| {
            self.options.push(format!("{flag}={value}"));
        };
        match (key, value) {
            (MARK | "luks", None) => {}
            ("discard", None) => self.options.push("--allow-discards".to_owned()),
            ("read-only" | "readonly", None) => self.options.push("--read-only".to_owned()),
            ("same-cpu-crypt", None) => self.options.push("--perf-same_cpu_crypt".to_owned()),
            ("submit-from-crypt-cpus", None) => {
                self.options
                    .push("--perf-submit_from_crypt_cpus".to_owned());
            }
            ("no-read-workqueue", None) => self.options.push("--perf-no_read_workqueue".to_owned()),
            ("no-write-workqueue", None) => {
                self.options.push("--perf-no_write_workqueue".to_owned());
            }
            ("header", Some(path)) => self.header = Some(own_path("header", path)?),
            ("key-slot" | "keyslot", Some(n)) => pass("--key-slot", number(key, n)?),
            ("keyfile-offset", Some(n)) => pass("--keyfile-offset", number(key, n)?),
            ("keyfile-size", Some(n)) => pass("--keyfile-size", number(key, n)?),
            // 0: as often as it takes.
            ("tries", Some("0")) => pass("--tries", "4294967295"),
            ("tries", Some(n)) => pass("--tries", number(key, n)?),
            ("timeout", Some("0")) => {}
            ("timeout", Some(span)) if is_span(span) => self.timeout = Some(span.to_owned()),
            ("timeout", Some(span)) => return Err(format!("`timeout={span}` is no time")),
            ("noauto", None) => self.noauto = true,
            ("auto", None) => self.noauto = false,
            ("nofail", None) => self.nofail = true,
            ("fail", None) => self.nofail = false,
            ("_netdev", None) => self.netdev = true,
            ("x-initrd.attach" | "initramfs", None) => self.in_initrd = true,
            ("headless", None | Some("1" | "yes" | "true" | "on")) => self.headless = true,
            ("headless", Some(_)) => self.headless = false,
            // Tokens are tried by themselves; the header says which there are.
            ("tpm2-device" | "fido2-device", Some("auto")) => {}
            ("tpm2-device", Some(path)) if path.starts_with('/') => {
                pass("--tpm2-device", &format!("device:{path}"));
            }
            ("token-timeout", Some(n)) if n.parse::<u32>().is_ok_and(|n| n > 0) => {
                pass("--token-timeout", n);
            }
            // Another program's, or what has no meaning without a keyscript.
            ("loud" | "quiet" | "verify", None) => {}
            _ if is_other_kind(key) => {
                return Err(format!("`{option}` is not for volumes that Xtent opens"));
            }
            _ if key.starts_with("x-") => {}
            _ => self
                .remarks
                .push(format!("`{option}` is not known and does not count")),
        }
        Ok(())
    }

    /// The command line after `xtent`, but for how to ask.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["open".to_owned()];
        if let Some(key) = &self.key {
            arguments.push(format!("--key-file={key}"));
        }
        if let Some(header) = &self.header {
            arguments.push(format!("--header={header}"));
        }
        if self.key.is_none() && self.headless {
            arguments.push("--token-only".to_owned());
        }
        arguments.extend(self.options.iter().cloned());
        arguments.extend(["--".to_owned(), self.name.clone(), self.device.clone()]);
        arguments
    }

    /// Whether a person is asked.
    pub(crate) fn asks(&self) -> bool {
        self.key.is_none() && !self.headless
    }
}

/// Options that make another kind of volume of it, or another way to its key.
fn is_other_kind(key: &str) -> bool {
    const KINDS: [&str; 9] = [
        "plain",
        "swap",
        "tmp",
        "bitlk",
        "tcrypt",
        "keyscript",
        "decrypt_keyctl",
        "skip",
        "offset",
    ];
    KINDS.contains(&key) || key.starts_with("tcrypt-") || key.starts_with("veracrypt-")
}

fn number<'a>(key: &str, text: &'a str) -> Result<&'a str, String> {
    match text.parse::<u32>() {
        Ok(_) => Ok(text),
        Err(_) => Err(format!("`{key}={text}` is no number")),
    }
}

/// Numbers with units, as systemd writes spans of time.
fn is_span(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Entry {
        let mut entries = parse(line);
        assert_eq!(entries.len(), 1, "{line}");
        entries.remove(0).unwrap()
    }

    #[test]
    fn only_marked_lines_count() {
        let text = "# x UUID=1 none x-xtent\n\n plain /dev/sda2 none luks\nold /dev/sda3\n\
                    three /dev/sda4 none\nours\t/dev/sda5  none   luks,x-xtent\n\
                    not /dev/sda6 none x-xtentions\n";
        let names: Vec<_> = parse(text).into_iter().map(|e| e.unwrap().name).collect();
        assert_eq!(names, ["ours"]);
    }

    #[test]
    fn a_line_becomes_a_command_line() {
        let entry = one(
            "data UUID=ab-CD /etc/keys/d.key x-xtent,luks,discard,read-only,header=/h\\,1,key-slot=3,\
             tries=0,keyfile-size=32,timeout=1min30s,nofail,tpm2-device=auto,x-systemd.device-timeout=5",
        );
        assert_eq!(
            entry.arguments(),
            [
                "open",
                "--key-file=/etc/keys/d.key",
                "--header=/h,1",
                "--allow-discards",
                "--read-only",
                "--key-slot=3",
                "--tries=4294967295",
                "--keyfile-size=32",
                "--",
                "data",
                "/dev/disk/by-uuid/ab-CD",
            ]
        );
        assert!(entry.nofail && !entry.noauto && !entry.asks());
        assert_eq!(entry.timeout.as_deref(), Some("1min30s"));
        assert!(entry.remarks.is_empty());
    }

    #[test]
    fn without_a_key_file_somebody_is_asked_unless_headless() {
        assert!(one("d /dev/sda none x-xtent").asks());
        assert!(one("d /dev/sda - x-xtent").asks());
        let headless = one("d /dev/sda - x-xtent,headless=1,tpm2-device=/dev/tpmrm1");
        assert!(!headless.asks());
        assert_eq!(
            headless.arguments(),
            [
                "open",
                "--token-only",
                "--tpm2-device=device:/dev/tpmrm1",
                "--",
                "d",
                "/dev/sda"
            ]
        );
    }

    #[test]
    fn what_would_be_another_volume_is_refused() {
        for line in [
            "d /dev/sda none x-xtent,plain",
            "d /dev/sda /dev/urandom x-xtent,swap",
            "d /dev/sda none x-xtent,tcrypt-hidden",
            "d /dev/sda none x-xtent,keyscript=/bin/cat",
            "d /dev/sda /key:UUID=1 x-xtent",
            "d /dev/sda key x-xtent",
            "d sda none x-xtent",
            "d/e /dev/sda none x-xtent",
            "d /dev/sda none x-xtent,tries=many",
            "d /dev/sda none x-xtent,timeout=$(reboot)",
            "d /dev/sda none x-xtent,header=/h:LABEL=boot",
        ] {
            let found = parse(line);
            assert!(matches!(&found[..], [Err(_)]), "{line}: {found:?}");
        }
        let twice = parse("d /dev/sda none x-xtent\nd /dev/sdb none x-xtent\n");
        assert!(twice[0].is_ok() && twice[1].is_err());
    }

    #[test]
    fn unknown_options_are_remarked() {
        assert_eq!(one("d /dev/sda - x-xtent,colour=red").remarks.len(), 1);
    }
}
