//! Lines of crypttab(5) with the option `x-xtent`: which volumes `xtent open` opens when
//! the machine starts, and the systemd units that do so. Those run as root: a crate of its
//! own, so that a fuzz target can check that no line puts anything else into them.

mod names;
mod options;
mod span;
mod unit;

use std::path::Path;

pub use unit::{Programs, Unit, unit_of};
use xtent_mapping::Name;

/// The option that makes a line Xtent's. Every other program is to ignore options that begin with `x-`.
const MARK: &str = "x-xtent";
/// Where key files are looked for that the line does not name, as systemd does.
const KEY_FOLDERS: [&str; 2] = ["/etc/cryptsetup-keys.d", "/run/cryptsetup-keys.d"];

/// One line that Xtent carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Of /dev/mapper/NAME.
    pub name: String,
    /// The block device or image file, an absolute path.
    pub device: String,
    /// The key file; none is asked for or unlocked by a token.
    pub key: Option<String>,
    /// The detached header.
    pub header: Option<String>,
    /// Further options of `xtent open`.
    options: Vec<String>,
    /// Seconds or a span of time, as systemd-ask-password takes it.
    pub timeout: Option<String>,
    /// How long systemd waits for the device, in its own words.
    pub device_timeout: Option<String>,
    /// What a header would say, of a volume without one.
    plain: Option<Plain>,
    /// Not opened at boot, only when something asks for it.
    pub noauto: bool,
    /// The machine starts without it.
    pub nofail: bool,
    /// It takes the network.
    pub netdev: bool,
    /// Opened before the root file system is there.
    pub in_initrd: bool,
    /// Nobody is to be asked.
    pub headless: bool,
    /// What else the line says, and why it does not count.
    pub remarks: Vec<String>,
}

/// Options of plain dm-crypt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Plain {
    cipher: Option<String>,
    key_size: Option<String>,
    hash: Option<String>,
}

/// Xtent's lines, in order: understood, or the line's name and why not.
pub fn parse(text: &str) -> Vec<Result<Entry, String>> {
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
        // What the bytes were nobody could tell.
        if line.contains(char::REPLACEMENT_CHARACTER) {
            entries.push(Err(format!(
                "{}: the line is not UTF-8",
                name.escape_debug()
            )));
            continue;
        }
        // To systemd a NUL ends a line of a unit, and it ignores settings with others.
        if line
            .split_whitespace()
            .any(|field| field.contains(char::is_control))
        {
            entries.push(Err(format!(
                "{}: the line has control characters",
                name.escape_debug()
            )));
            continue;
        }
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
        device_timeout: None,
        plain: options
            .iter()
            .any(|option| option == "plain")
            .then(Plain::default),
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
    entry.settle()?;
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
    /// The command line after `xtent`. Somebody who is to be asked is asked by `program`,
    /// else on the terminal: without a key file, or if that does not open the volume.
    pub fn arguments(&self, program: Option<&str>) -> Vec<String> {
        let mut arguments = vec!["open".to_owned()];
        match (self.key.is_some(), program) {
            _ if self.headless => {}
            (false, Some(program)) => arguments.push(format!("--ask-with={program}")),
            (false, None) => {}
            // Of a volume that cannot tell a wrong key, the file is the only one.
            (true, _) if self.plain.is_some() => {}
            (true, Some(program)) => arguments.push(format!("--or-ask={program}")),
            (true, None) => arguments.push("--or-ask".to_owned()),
        }
        if let Some(key) = &self.key {
            arguments.push(format!("--key-file={key}"));
        }
        if let Some(header) = &self.header {
            arguments.push(format!("--header={header}"));
        }
        if self.key.is_none() && self.headless && self.plain.is_none() {
            arguments.push("--token-only".to_owned());
        }
        arguments.extend(self.options.iter().cloned());
        arguments.extend(["--".to_owned(), self.name.clone(), self.device.clone()]);
        arguments
    }
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
             tries=0,keyfile-size=32,timeout=1min30s,nofail,x-systemd.device-timeout=5",
        );
        assert_eq!(
            entry.arguments(None),
            [
                "open",
                "--or-ask",
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
        assert!(entry.nofail && !entry.noauto);
        assert_eq!(entry.device_timeout.as_deref(), Some("5"));
        assert_eq!(entry.timeout.as_deref(), Some("1min30s"));
        assert!(entry.remarks.is_empty());
    }

    #[test]
    fn somebody_is_asked_unless_headless() {
        let by = |line: &str| one(line).arguments(Some("/ask"))[1].clone();
        assert_eq!(by("d /dev/sda none x-xtent"), "--ask-with=/ask");
        assert_eq!(by("d /dev/sda - x-xtent"), "--ask-with=/ask");
        assert_eq!(by("d /dev/sda /k x-xtent"), "--or-ask=/ask");
        assert_eq!(by("d /dev/sda /k x-xtent,headless"), "--key-file=/k");
        let headless = one("d /dev/sda - x-xtent,headless=1,tpm2-device=/dev/tpmrm1");
        assert_eq!(
            headless.arguments(Some("/ask")),
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
    fn a_plain_volume_says_what_a_header_would() {
        let plain =
            "x-xtent,plain,cipher=aes-xts-plain64,size=512,sector-size=4096,offset=8,skip=16";
        assert_eq!(
            one(&format!("d /dev/sda /k {plain}")).arguments(Some("/ask")),
            [
                "open",
                "--key-file=/k",
                "--sector-size=4096",
                "--offset=8",
                "--skip=16",
                "--type=plain",
                "--cipher=aes-xts-plain64",
                "--key-size=512",
                "--",
                "d",
                "/dev/sda"
            ]
        );
        let asked = one(&format!("d /dev/sda none {plain},hash=sha256")).arguments(Some("/ask"));
        assert_eq!(asked[1], "--ask-with=/ask");
        assert!(asked.contains(&"--hash=sha256".to_owned()), "{asked:?}");
        for line in [
            // Nothing but the options tells, and systemd's defaults are not everybody's.
            "d /dev/sda /k x-xtent,plain",
            "d /dev/sda /k x-xtent,plain,cipher=aes-xts-plain64",
            "d /dev/sda none x-xtent,plain,cipher=aes-xts-plain64,size=512",
            // systemd hashes what is in the file, cryptsetup does not.
            "d /dev/sda /k x-xtent,plain,cipher=aes-xts-plain64,size=512,hash=sha256",
            "d /dev/sda /k x-xtent,plain,cipher=aes-xts-plain64,size=512,header=/h",
            "d /dev/sda /k x-xtent,plain,cipher=aes-xts-plain64,size=512,key-slot=1",
            "d /dev/urandom /k x-xtent,plain,swap,cipher=aes-xts-plain64,size=512",
        ] {
            let found = parse(line);
            assert!(matches!(&found[..], [Err(_)]), "{line}: {found:?}");
        }
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
            "d /dev/sda none x-xtent,veracrypt",
            "d /dev/sda none x-xtent,tcrypthidden",
            "d /dev/sda none x-xtent,tmp=xfs",
            "d /dev/sda /k x-xtent,keyfile-erase",
            // The key file would be what the TPM or the security key decrypts.
            "d /dev/sda /k x-xtent,tpm2-device=auto",
            "d /dev/sda /k x-xtent,fido2-device=auto",
            "d /dev/sda none x-xtent,fido2-cid=AAAA",
            "d /dev/sda none x-xtent,pkcs11-uri=pkcs11:token=x",
            "d /dev/sda none x-xtent,token-timeout=soon",
        ] {
            let found = parse(line);
            assert!(matches!(&found[..], [Err(_)]), "{line}: {found:?}");
        }
        let twice = parse("d /dev/sda none x-xtent\nd /dev/sdb none x-xtent\n");
        assert!(twice[0].is_ok() && twice[1].is_err());
    }

    #[test]
    fn a_line_that_is_not_utf8_is_refused_alone() {
        let table = b"# Schl\xfcssel\n\
            one /dev/a none x-xtent\n\
            two /dev/\xfc none x-xtent\n\
            other /dev/\xfc none luks\n";
        let found = parse(&String::from_utf8_lossy(table));
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].as_ref().unwrap().name, "one");
        assert!(found[1].as_ref().unwrap_err().contains("two"));
    }

    #[test]
    fn control_characters_are_refused() {
        for line in [
            "d /srv/a\0ExecStartPre=/bin/true\0 none x-xtent",
            "d /dev/sda none x-xtent,header=/h\x1b",
            "d\x07 /dev/sda none x-xtent",
            "d /dev/sda none x-xtent,x-a\0b",
        ] {
            let found = parse(line);
            let [Err(why)] = &found[..] else {
                panic!("{line:?}: {found:?}");
            };
            assert!(!why.contains(char::is_control), "{why:?}");
        }
    }

    #[test]
    fn what_does_not_count_is_remarked() {
        for option in [
            "colour=red",
            "fido2-device=/dev/hidraw1",
            "tpm2-pcrs=7",
            "tpm2-signature=/s",
            "tpm2-pin=yes",
            "try-empty-password",
            "password-echo=no",
            "verify",
            "check=blkid",
            "noearly",
        ] {
            let entry = one(&format!("d /dev/sda - x-xtent,{option}"));
            assert_eq!(entry.remarks.len(), 1, "{option}");
        }
        // What a header says, or another program takes, is no news: so it is with systemd.
        for option in [
            "cipher=aes",
            "size=256",
            "hash=sha1",
            "keyfile-timeout=5",
            "keyfile-erase=no",
            "x-other",
            "loud",
        ] {
            let entry = one(&format!("d /dev/sda - x-xtent,{option}"));
            assert!(entry.remarks.is_empty(), "{:?}", entry.remarks);
        }
    }

    #[test]
    fn a_tpm_is_named_as_to_systemd() {
        for (named, passed) in [
            ("/dev/tpmrm1", "device:/dev/tpmrm1"),
            ("device:/dev/tpmrm1", "device:/dev/tpmrm1"),
            (
                "swtpm:host=localhost\\,port=1",
                "swtpm:host=localhost,port=1",
            ),
        ] {
            let entry = one(&format!("d /dev/sda - x-xtent,tpm2-device={named}"));
            let wanted = format!("--tpm2-device={passed}");
            assert!(entry.arguments(None).contains(&wanted), "{named}");
        }
        let entry = one("d /dev/sda - x-xtent,allow-discards,token-timeout=1min30s");
        assert_eq!(
            entry.arguments(None)[1..3],
            ["--allow-discards", "--token-timeout=90"]
        );
        let forever = one("d /dev/sda - x-xtent,token-timeout=0").arguments(None);
        assert_eq!(forever[1], "--token-timeout=4294967295");
    }
}
