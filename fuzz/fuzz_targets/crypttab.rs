//! Lines of crypttab become units that systemd runs as root. Whatever a table says, a unit
//! has the settings that it may have, each once or as often as it may, and each is, read
//! by systemd's rules (systemd.syntax(7), systemd.unit(5), systemd.service(5)), exactly
//! what the line names.
#![no_main]

use std::collections::BTreeMap;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use xtent_crypttab::{Entry, Programs, Unit, parse, unit_of};

const PROGRAMS: Programs<'_> = Programs {
    xtent: "/usr/bin/xtent",
    ask: "/usr/libexec/xtent/ask-systemd",
};
const CRYPTTAB: &str = "/etc/crypttab";

/// What `xtent open` may be told by a line.
const OPTIONS: [&str; 23] = [
    "--or-ask",
    "--key-file=/",
    "--header=/",
    "--token-only",
    "--allow-discards",
    "--read-only",
    "--perf-same_cpu_crypt",
    "--perf-submit_from_crypt_cpus",
    "--perf-no_read_workqueue",
    "--perf-no_write_workqueue",
    "--perf-high_priority",
    "--key-slot=",
    "--keyfile-",
    "--tries=",
    "--tpm2-device=",
    "--type=plain",
    "--cipher=",
    "--key-size=",
    "--hash=",
    "--sector-size=",
    "--offset=",
    "--skip=",
    "--token-timeout=",
];

fuzz_target!(|text: &str| {
    check(text);
    // Most inputs are no lines of ours: as fields of one, and as its options.
    check(&format!("{text} x-xtent"));
    check(&format!("name /dev/sda none x-xtent,{text}"));
});

fn check(text: &str) {
    let mut names = BTreeMap::new();
    for entry in parse(text) {
        let Ok(entry) = entry else { continue };
        let unit = unit_of(&entry, Path::new(CRYPTTAB), &PROGRAMS);
        check_places(&entry, &unit);
        check_arguments(&entry);
        check_service(&entry, &unit.files[0].1);
        let before = names.insert(unit.files[0].0.clone(), entry.name.clone());
        assert_eq!(before, None, "two lines are one unit");
    }
}

/// Files and links are where they belong, and nowhere above.
fn check_places(entry: &Entry, unit: &Unit) {
    let service = |file: &str| {
        let name = file
            .strip_prefix("systemd-cryptsetup@")?
            .strip_suffix(".service")?;
        Some(unescape(name))
    };
    let device = |file: &str| {
        let name = file.strip_prefix("dev-mapper-")?.strip_suffix(".device")?;
        Some(unescape(name))
    };
    let name = Some(entry.name.clone());
    assert_eq!(service(&unit.files[0].0), name);
    let mut files = unit.files[1..].iter();
    if let Some(span) = &entry.device_timeout
        && entry.device.starts_with("/dev/")
    {
        let (file, text) = files
            .next_back()
            .expect("how long the device is waited for");
        let folder = file.strip_suffix(".d/50-device-timeout.conf");
        check_dependency(folder.expect("its place"), &[&entry.device]);
        assert_eq!(*text, format!("[Unit]\nJobRunningTimeoutSec={span}\n"));
        assert!(span.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.'));
    }
    assert!(files.len() <= 1);
    for (file, text) in files {
        let folder = file
            .strip_suffix(".d/40-device-timeout.conf")
            .expect("its place");
        assert_eq!(device(folder), name);
        assert_eq!(text, "[Unit]\nJobTimeoutSec=infinity\n");
    }
    assert!((1..=2).contains(&unit.links.len()));
    for (link, target) in &unit.links {
        let (folder, file) = link.split_once('/').expect("a folder");
        let (wanting, bond) = folder.rsplit_once('.').expect("a kind of link");
        assert!(["requires", "wants"].contains(&bond));
        assert!(
            ["cryptsetup.target", "remote-cryptsetup.target"].contains(&wanting)
                || device(wanting) == name
        );
        assert_eq!(service(file), name);
        assert_eq!(target.strip_prefix("../"), Some(file));
    }
}

/// No option is one that a line does not have.
fn check_arguments(entry: &Entry) {
    let arguments = entry.arguments(None);
    let [open, options @ .., dashes, name, device] = &arguments[..] else {
        panic!("{arguments:?}");
    };
    assert_eq!((&**open, &**dashes), ("open", "--"));
    assert_eq!((name, device), (&entry.name, &entry.device));
    assert!(device.starts_with('/') && !name.contains('/'));
    for option in options {
        assert!(OPTIONS.iter().any(|it| option.starts_with(it)), "{option}");
        assert!(!option.contains(char::is_control), "{option:?}");
    }
}

/// Reads the unit as systemd does, and checks every setting.
fn check_service(entry: &Entry, text: &str) {
    let mut section = "";
    let mut count: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let paths: Vec<&String> = [&entry.key, &entry.header]
        .into_iter()
        .flatten()
        .chain([&entry.device])
        .collect();
    // A line ends with any of these.
    for line in text.split(['\n', '\r', '\0']) {
        assert!(!line.ends_with('\\'), "goes on in the next line: {line}");
        if line.is_empty() || line == "# Made by xtent-generator" {
            continue;
        }
        if ["[Unit]", "[Service]"].contains(&line) {
            section = line;
            *count.entry((line, "")).or_default() += 1;
            continue;
        }
        let (key, value) = line.split_once('=').expect("a setting");
        *count.entry((section, key)).or_default() += 1;
        match (section, key) {
            ("[Unit]", "Description") => {
                let expected = format!("Encrypted volume {} (Xtent)", entry.name);
                assert_eq!(plain(value), expected);
            }
            ("[Unit]", "Documentation") => assert_eq!(value, "man:xtent-open(8)"),
            ("[Unit]", "SourcePath") => assert_eq!(plain(value), CRYPTTAB),
            ("[Unit]", "DefaultDependencies") => assert_eq!(value, "no"),
            ("[Unit]", "IgnoreOnIsolate") => assert_eq!(value, "true"),
            ("[Unit]", "ConditionPathExists") => {
                assert_eq!(plain(value), format!("!/dev/mapper/{}", entry.name));
            }
            ("[Unit]", "RequiresMountsFor") => {
                let [path] = &words(value)[..] else {
                    panic!("not one path: {line}");
                };
                assert!(paths.contains(&path), "{line}");
            }
            ("[Unit]", "After" | "Before" | "Wants" | "Requires" | "BindsTo" | "Conflicts") => {
                for unit in value.split(' ') {
                    check_dependency(unit, &paths);
                }
            }
            ("[Service]", "Type") => assert_eq!(value, "oneshot"),
            ("[Service]", "RemainAfterExit") => assert_eq!(value, "yes"),
            ("[Service]", "TimeoutSec") => assert_eq!(value, "infinity"),
            ("[Service]", "KeyringMode") => assert_eq!(value, "shared"),
            ("[Service]", "LimitMEMLOCK") => assert_eq!(value, "infinity"),
            ("[Service]", "OOMScoreAdjust") => assert_eq!(value, "500"),
            ("[Service]", "Environment") => {
                let [set] = &words(value)[..] else {
                    panic!("not one variable: {line}");
                };
                // With others it is ignored.
                assert!(!set.contains(|c: char| c.is_control()), "{line:?}");
                match set.split_once('=') {
                    Some(("XTENT_ASK_ID", id)) => assert_eq!(id, entry.device),
                    Some(("XTENT_ASK_TIMEOUT", span)) => {
                        assert_eq!(Some(span), entry.timeout.as_deref());
                        assert!(span.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.'));
                    }
                    _ => panic!("{line}"),
                }
            }
            ("[Service]", "ExecStart") => {
                let mut expected = vec![PROGRAMS.xtent.to_owned()];
                expected.extend(entry.arguments(Some(PROGRAMS.ask)));
                assert_eq!(command(value), expected);
                // The program is the one difference that it makes.
                let with = format!("={}", PROGRAMS.ask);
                let asks =
                    |it: &&String| it.starts_with("--or-ask") || it.starts_with("--ask-with");
                let asked: Vec<&String> = expected
                    .iter()
                    .take_while(|it| *it != "--")
                    .filter(asks)
                    .collect();
                assert!(asked.len() <= 1 && asked.iter().all(|it| it.ends_with(&with)));
            }
            ("[Service]", "ExecStop") => {
                assert_eq!(command(value), [PROGRAMS.xtent, "close", "--", &entry.name]);
            }
            _ => panic!("{section} has {line}"),
        }
    }
    for once in [
        ("[Unit]", ""),
        ("[Service]", ""),
        ("[Unit]", "Description"),
        ("[Unit]", "ConditionPathExists"),
        ("[Service]", "Type"),
        ("[Service]", "ExecStart"),
        ("[Service]", "ExecStop"),
    ] {
        assert_eq!(count.get(&once), Some(&1), "{once:?}");
    }
    let variables = 1 + usize::from(entry.timeout.is_some());
    assert_eq!(count.get(&("[Service]", "Environment")), Some(&variables));
}

/// A unit that another one waits for: one of systemd's, or the device of a path in the line.
fn check_dependency(unit: &str, paths: &[&String]) {
    const OTHERS: [&str; 8] = [
        "cryptsetup-pre.target",
        "systemd-udevd-kernel.socket",
        "blockdev@dev-mapper-%i.target",
        "umount.target",
        "remote-fs-pre.target",
        "cryptsetup.target",
        "remote-cryptsetup.target",
        "systemd-tmpfiles-setup-dev.service",
    ];
    if OTHERS.contains(&unit) {
        return;
    }
    let name = unit.strip_suffix(".device").expect("a device");
    let path = unescape(name);
    let is_same = |it: &&&String| {
        let parts = it
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".");
        it.starts_with("/dev/") && path.split('/').eq(parts)
    };
    assert!(paths.iter().any(|it| is_same(&it)), "{unit} is {path}");
}

/// A unit's name, or part of one, back to what it was made of (systemd-escape(1)).
fn unescape(name: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'-' => bytes.push(b'/'),
            b'\\' => {
                let [b'x', high, low, after @ ..] = rest else {
                    panic!("{name}");
                };
                let digit = |it: &u8| char::from(*it).to_digit(16).expect("hexadecimal") as u8;
                bytes.push(digit(high) << 4 | digit(low));
                rest = after;
            }
            it => {
                assert!(it.is_ascii_alphanumeric() || b":_.".contains(it), "{name}");
                bytes.push(*it);
            }
        }
    }
    String::from_utf8(bytes).expect("text")
}

/// A value without specifiers.
fn plain(value: &str) -> String {
    let mut text = String::new();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        if c == '%' {
            assert_eq!(chars.next(), Some('%'), "a specifier: {value}");
        }
        text.push(c);
    }
    text
}

/// The words of a value: split, unquoted, unescaped; no specifiers.
fn words(value: &str) -> Vec<String> {
    raw_words(value).iter().map(|word| plain(word)).collect()
}

fn raw_words(value: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(q), c) if q == c => quote = None,
            (_, '\\') => {
                // Others than these have a meaning that nothing here needs.
                let c = chars.next().filter(|c| "\\\"'".contains(*c));
                word.get_or_insert_default().push(c.expect("an escape"));
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    assert_eq!(quote, None, "a quote without an end: {value}");
    words.extend(word);
    words
}

/// The words of a command line: of one command, without variables.
fn command(value: &str) -> Vec<String> {
    assert!(value.starts_with('/'), "a prefix: {value}");
    assert!(!value.split(' ').any(|word| word == ";"), "two: {value}");
    let mut words = words(value);
    for word in &mut words[1..] {
        let mut text = String::new();
        let mut chars = word.chars();
        while let Some(c) = chars.next() {
            if c == '$' {
                assert_eq!(chars.next(), Some('$'), "a variable: {value}");
            }
            text.push(c);
        }
        *word = text;
    }
    words
}
