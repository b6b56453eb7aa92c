//! The systemd unit that opens a volume, ordered as systemd's own for encrypted volumes.

use std::fmt::Write;
use std::path::Path;

use super::Entry;
use super::names::{escape, escape_path, unit_name};

/// Files and links for one volume, relative to the folder that systemd gives a generator.
#[derive(Debug, PartialEq, Eq)]
pub struct Unit {
    /// Name and text of every file.
    pub files: Vec<(String, String)>,
    /// Path and target of every link.
    pub links: Vec<(String, String)>,
}

/// Programs that the unit runs.
#[derive(Debug)]
pub struct Programs<'a> {
    /// The command.
    pub xtent: &'a str,
    /// Asks a person, through systemd.
    pub ask: &'a str,
}

/// The unit for `entry`, which stands in `crypttab`.
pub fn unit_of(entry: &Entry, crypttab: &Path, programs: &Programs<'_>) -> Unit {
    let name = unit_name(&entry.name);
    let mapped = format!("dev-mapper-{}.device", escape(&entry.name));
    let target = if entry.netdev {
        "remote-cryptsetup.target"
    } else {
        "cryptsetup.target"
    };
    let bond = if entry.nofail { "wants" } else { "requires" };

    let mut files = vec![(name.clone(), service(entry, crypttab, programs, target))];
    let mut links = vec![(format!("{mapped}.requires/{name}"), format!("../{name}"))];
    if !entry.noauto {
        links.push((format!("{target}.{bond}/{name}"), format!("../{name}")));
        if !entry.nofail {
            // As long as it takes a person to type.
            files.push((
                format!("{mapped}.d/40-device-timeout.conf"),
                "[Unit]\nJobTimeoutSec=infinity\n".to_owned(),
            ));
        }
    }
    if let Some(span) = entry
        .device_timeout
        .as_ref()
        .filter(|_| is_device(&entry.device))
    {
        let device = format!("{}.device", escape_path(&entry.device));
        files.push((
            format!("{device}.d/50-device-timeout.conf"),
            format!("[Unit]\nJobRunningTimeoutSec={span}\n"),
        ));
    }
    Unit { files, links }
}

fn service(entry: &Entry, crypttab: &Path, programs: &Programs<'_>, target: &str) -> String {
    let mut unit = String::new();
    let mut line = |text: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(unit, "{text}");
    };
    line("# Made by xtent-generator".to_owned());
    line("[Unit]".to_owned());
    line(format!(
        "Description=Encrypted volume {} (Xtent)",
        entry.name
    ));
    line("Documentation=man:xtent-open(8)".to_owned());
    line(format!(
        "SourcePath={}",
        value(&crypttab.display().to_string())
    ));
    line("DefaultDependencies=no".to_owned());
    line("IgnoreOnIsolate=true".to_owned());
    // What the initramfs has opened stays as it is.
    line(format!("ConditionPathExists=!/dev/mapper/{}", entry.name));
    line("After=cryptsetup-pre.target systemd-udevd-kernel.socket".to_owned());
    line("Before=blockdev@dev-mapper-%i.target".to_owned());
    line("Wants=blockdev@dev-mapper-%i.target".to_owned());
    line("Conflicts=umount.target".to_owned());
    if entry.netdev {
        line("After=remote-fs-pre.target".to_owned());
    }
    if !entry.nofail {
        line(format!("Before={target}"));
    }
    for path in [&entry.key, &entry.header].into_iter().flatten() {
        line(after(path));
    }
    if is_device(&entry.device) {
        let device = value(&format!("{}.device", escape_path(&entry.device)));
        line(format!("BindsTo={device}"));
        line(format!("After={device}"));
        line("Before=umount.target".to_owned());
    } else {
        line(format!("RequiresMountsFor={}", word(&entry.device)));
        // The loop device.
        line("Requires=systemd-tmpfiles-setup-dev.service".to_owned());
        line("After=systemd-tmpfiles-setup-dev.service".to_owned());
    }
    line(String::new());
    line("[Service]".to_owned());
    line("Type=oneshot".to_owned());
    line("RemainAfterExit=yes".to_owned());
    line("TimeoutSec=infinity".to_owned());
    line("KeyringMode=shared".to_owned());
    line("LimitMEMLOCK=infinity".to_owned());
    line("OOMScoreAdjust=500".to_owned());
    line(format!(
        "Environment={}",
        word(&format!("XTENT_ASK_ID={}", entry.device))
    ));
    if let Some(span) = &entry.timeout {
        line(format!("Environment=XTENT_ASK_TIMEOUT={span}"));
    }
    let mut command = vec![programs.xtent.to_owned()];
    command.extend(entry.arguments(Some(programs.ask)));
    let words: Vec<String> = command.iter().map(|w| command_word(w)).collect();
    line(format!("ExecStart={}", words.join(" ")));
    line(format!(
        "ExecStop={} close -- {}",
        command_word(programs.xtent),
        command_word(&entry.name)
    ));
    unit
}

/// The dependency on a key file or a header.
fn after(path: &str) -> String {
    if is_device(path) {
        let device = value(&format!("{}.device", escape_path(path)));
        format!("BindsTo={device}\nAfter={device}")
    } else {
        format!("RequiresMountsFor={}", word(path))
    }
}

fn is_device(path: &str) -> bool {
    path.starts_with("/dev/")
}

/// A setting's value: `%` begins a specifier.
fn value(text: &str) -> String {
    text.replace('%', "%%")
}

/// One word of a setting that takes several (systemd.syntax(7), "Quoting").
fn word(text: &str) -> String {
    let text = value(text).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

/// One word of a command line, where `$` begins a variable.
fn command_word(text: &str) -> String {
    let is_plain = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"/-_=.,:@+".contains(&b));
    if is_plain {
        text.to_owned()
    } else {
        word(text).replace('$', "$$")
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn unit(line: &str) -> Unit {
        let entry = parse(line).remove(0).unwrap();
        let programs = Programs {
            xtent: "/usr/bin/xtent",
            ask: "/usr/libexec/xtent/ask-systemd",
        };
        unit_of(&entry, Path::new("/etc/crypttab"), &programs)
    }

    #[test]
    fn a_device_is_waited_for_and_asked_for() {
        let unit = unit("my-data UUID=1-2 none x-xtent,timeout=90s,x-systemd.device-timeout=2min");
        let (name, text) = &unit.files[0];
        assert_eq!(name, "systemd-cryptsetup@my\\x2ddata.service");
        for line in [
            "BindsTo=dev-disk-by\\x2duuid-1\\x2d2.device",
            "Before=cryptsetup.target",
            "ConditionPathExists=!/dev/mapper/my-data",
            "Environment=XTENT_ASK_TIMEOUT=90s",
            "ExecStart=/usr/bin/xtent open --ask-with=/usr/libexec/xtent/ask-systemd -- my-data /dev/disk/by-uuid/1-2",
            "ExecStop=/usr/bin/xtent close -- my-data",
        ] {
            assert!(text.lines().any(|l| l == line), "no {line} in {text}");
        }
        assert_eq!(
            unit.files[2],
            (
                "dev-disk-by\\x2duuid-1\\x2d2.device.d/50-device-timeout.conf".to_owned(),
                "[Unit]\nJobRunningTimeoutSec=2min\n".to_owned()
            )
        );
        let links: Vec<&str> = unit.links.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(
            links,
            [
                "dev-mapper-my\\x2ddata.device.requires/systemd-cryptsetup@my\\x2ddata.service",
                "cryptsetup.target.requires/systemd-cryptsetup@my\\x2ddata.service",
            ]
        );
    }

    #[test]
    fn nofail_noauto_and_netdev_choose_the_links() {
        let of = |options: &str| {
            let unit = unit(&format!("d /dev/sda /key x-xtent,{options}"));
            let links: Vec<String> = unit.links.into_iter().map(|(path, _)| path).collect();
            (unit.files.len(), links.join(" "))
        };
        let (files, links) = of("nofail");
        assert!(
            files == 1 && links.contains(" cryptsetup.target.wants/"),
            "{links}"
        );
        let (files, links) = of("noauto");
        assert!(
            files == 1 && !links.contains("cryptsetup.target"),
            "{links}"
        );
        let (files, links) = of("_netdev");
        assert!(
            files == 2 && links.contains(" remote-cryptsetup.target.requires/"),
            "{links}"
        );
    }

    #[test]
    fn nothing_in_a_line_is_taken_for_syntax() {
        let unit = unit("d /srv/a%b\"$HOME\\x20 /keys/$k;x x-xtent");
        let text = &unit.files[0].1;
        assert!(
            text.contains("RequiresMountsFor=\"/srv/a%%b\\\"$HOME\\\\x20\"\n"),
            "{text}"
        );
        assert!(
            text.contains("\"--key-file=/keys/$$k;x\" -- d \"/srv/a%%b\\\"$$HOME\\\\x20\"\n"),
            "{text}"
        );
    }
}
