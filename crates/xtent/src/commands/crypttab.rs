//! `xtent crypttab`: what systemd's generator and the initramfs do with lines of
//! crypttab(5) that have the option `x-xtent`. For packages, not for people.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use xtent_crypttab::{Entry, Programs, Unit, parse, unit_of};

use crate::cli::Global;
use crate::failure::{Exit, Failure, Result};
use crate::output::{Output, complain};

/// Carry out lines of crypttab that have the option x-xtent
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write systemd units, as systemd.generator(7) wants it
    Generate {
        /// Folder for units of normal priority
        normal: PathBuf,
        /// Folder for units that replace others
        early: Option<PathBuf>,
        /// Folder for units of low priority
        late: Option<PathBuf>,
    },
    /// List the volumes: name, device, key file, header, and whether for the initramfs
    List {
        /// The table
        #[arg(long, default_value = CRYPTTAB)]
        file: PathBuf,
    },
    /// Open one of the volumes
    Open {
        /// Its name in the table
        name: String,
        /// The table
        #[arg(long, default_value = CRYPTTAB)]
        file: PathBuf,
        /// Ask by this program if somebody is to be asked
        #[arg(long)]
        ask_with: Option<PathBuf>,
    },
}

const CRYPTTAB: &str = "/etc/crypttab";

/// Does it, or gives the command line of this program that does.
pub(crate) fn run(args: &Args, global: &Global) -> Result<Option<Vec<String>>> {
    match &args.action {
        Action::Generate { normal, early, .. } => {
            generate(early.as_ref().unwrap_or(normal)).map(|()| None)
        }
        Action::List { file } => list(file, &global.output()).map(|()| None),
        Action::Open {
            name,
            file,
            ask_with,
        } => opening(name, file, ask_with.as_deref(), &global.output()).map(Some),
    }
}

fn read(path: &Path) -> Result<String> {
    match fs::read(path) {
        // A line of something else's may have any bytes. One of ours that has others is refused.
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(Failure::system(
            format!("cannot read {}", path.display()),
            e,
        )),
    }
}

/// Writes the units to `folder`, the one that replaces others': systemd's own generator
/// knows nothing of the mark, and writes a unit of the same name for the same line.
/// Lines that are not understood are left to that one.
fn generate(folder: &Path) -> Result<()> {
    if is_switched_off() {
        return Ok(());
    }
    // As systemd's own does.
    let crypttab = std::env::var_os("SYSTEMD_CRYPTTAB").unwrap_or(CRYPTTAB.into());
    let crypttab = PathBuf::from(crypttab);
    let xtent = std::env::current_exe()
        .map_err(|e| Failure::system("cannot find out where this program is", e))?;
    let ask = xtent
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new("/usr"))
        .join("libexec/xtent/ask-systemd");
    let (xtent, ask) = (xtent.to_string_lossy(), ask.to_string_lossy());
    let programs = Programs {
        xtent: &xtent,
        ask: &ask,
    };
    for entry in parse(&read(&crypttab)?) {
        match entry {
            Ok(entry) => {
                for remark in &entry.remarks {
                    log(&format!("{}: {}: {remark}", crypttab.display(), entry.name));
                }
                write(&unit_of(&entry, &crypttab, &programs), folder)?;
            }
            Err(why) => log(&format!("{}: {why}; left to systemd", crypttab.display())),
        }
    }
    Ok(())
}

fn write(unit: &Unit, folder: &Path) -> Result<()> {
    let failed = |path: &Path, e| Failure::system(format!("cannot write {}", path.display()), e);
    let place = |name: &str| {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| failed(parent, e))?;
        }
        Ok::<_, Failure>(path)
    };
    for (name, text) in &unit.files {
        let path = place(name)?;
        fs::write(&path, text).map_err(|e| failed(&path, e))?;
    }
    for (name, target) in &unit.links {
        let path = place(name)?;
        symlink(target, &path).map_err(|e| failed(&path, e))?;
    }
    Ok(())
}

/// Whether the kernel's command line says that nothing is to be opened, as
/// systemd-cryptsetup-generator(8) has it.
fn is_switched_off() -> bool {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let in_initrd = Path::new("/etc/initrd-release").exists();
    says_no(&line, in_initrd)
}

fn says_no(line: &str, in_initrd: bool) -> bool {
    let mut off = (false, false);
    for (key, value) in line.split_whitespace().filter_map(|w| w.split_once('=')) {
        let key = match key.strip_prefix("rd.") {
            Some(_) if !in_initrd => continue,
            Some(key) => key,
            None => key,
        };
        let no = ["0", "no", "n", "false", "f", "off"].contains(&value);
        match key {
            "luks" => off.0 = no,
            "luks.crypttab" => off.1 = no,
            _ => {}
        }
    }
    off.0 || off.1
}

/// To the kernel's log, which is all there is when systemd runs generators.
fn log(text: &str) {
    if std::env::var_os("SYSTEMD_SCOPE").is_some()
        && let Ok(mut kmsg) = fs::OpenOptions::new().write(true).open("/dev/kmsg")
        && writeln!(kmsg, "<4>xtent-generator: {text}").is_ok()
    {
        return;
    }
    complain(&format!("xtent-generator: {text}"));
}

fn list(file: &Path, output: &Output) -> Result<()> {
    let mut found: Vec<Entry> = Vec::new();
    for entry in parse(&read(file)?) {
        match entry {
            Ok(entry) => found.push(entry),
            Err(why) => output.warn(format!("{}: {why}", file.display())),
        }
    }
    if output.json {
        let all: Vec<_> = found
            .iter()
            .map(|entry| {
                serde_json::json!({
                    "name": entry.name,
                    "device": entry.device,
                    "key_file": entry.key,
                    "header": entry.header,
                    "initrd": entry.in_initrd,
                })
            })
            .collect();
        return output.object(&all);
    }
    for entry in found {
        let or_none = |path: &Option<String>| path.clone().unwrap_or("-".to_owned());
        let initrd = if entry.in_initrd { "initrd" } else { "-" };
        let (key, header) = (or_none(&entry.key), or_none(&entry.header));
        output.line(format!(
            "{} {} {key} {header} {initrd}",
            entry.name, entry.device
        ))?;
    }
    Ok(())
}

/// Runs `xtent open` as the line says.
/// The command line that opens a volume of the table.
fn opening(
    name: &str,
    file: &Path,
    ask_with: Option<&Path>,
    output: &Output,
) -> Result<Vec<String>> {
    let mut refused = None;
    for entry in parse(&read(file)?) {
        match entry {
            Ok(entry) if entry.name == name => {
                for remark in &entry.remarks {
                    output.warn(format!("{name}: {remark}"));
                }
                return command_line(&entry, ask_with);
            }
            Err(why) if why.starts_with(&format!("{name}:")) => refused = refused.or(Some(why)),
            _ => {}
        }
    }
    let why = refused.unwrap_or_else(|| format!("no line with x-xtent is for {name}"));
    Err(Failure::new(
        Exit::Parameters,
        format!("{}: {why}", file.display()),
    ))
}

fn command_line(entry: &Entry, ask_with: Option<&Path>) -> Result<Vec<String>> {
    let program = match ask_with.map(|program| (program, program.to_str())) {
        Some((program, None)) => {
            return Err(Failure::parameters(format!(
                "the path of --ask-with is no UTF-8: {}",
                program.display()
            )));
        }
        Some((_, program)) => program,
        None => None,
    };
    let mut words = vec!["xtent".to_owned()];
    words.extend(entry.arguments(program));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_kernel_command_line_can_switch_it_off() {
        assert!(says_no("root=/dev/sda luks=no quiet", false));
        assert!(says_no("luks.crypttab=0", false));
        assert!(!says_no("luks=no luks=yes", false));
        assert!(says_no("rd.luks=0", true));
        assert!(!says_no("rd.luks=0 rd.luks.crypttab=no", false));
    }

    #[test]
    fn units_are_files_and_links() {
        let folder = tempfile::tempdir().unwrap();
        let entry = parse("d /dev/sda none x-xtent").remove(0).unwrap();
        let programs = Programs {
            xtent: "/usr/bin/xtent",
            ask: "/ask",
        };
        let unit = unit_of(&entry, Path::new(CRYPTTAB), &programs);
        write(&unit, folder.path()).unwrap();
        let link = folder
            .path()
            .join("cryptsetup.target.requires/systemd-cryptsetup@d.service");
        assert!(fs::read_to_string(link).unwrap().contains("ExecStart="));
    }

    /// What a line becomes is understood by `xtent open`.
    #[test]
    fn command_lines_parse() {
        for line in [
            "d /dev/sda /k x-xtent,discard,read-only,header=/h,key-slot=1,tries=0,\
             keyfile-size=3,keyfile-offset=1,same-cpu-crypt,submit-from-crypt-cpus,\
             no-read-workqueue,no-write-workqueue,high-priority",
            "d /dev/sda - x-xtent,tpm2-device=/dev/tpmrm0,token-timeout=0,tries=0",
            "d /dev/sda - x-xtent,plain,cipher=aes-xts-plain64,size=512,hash=sha256,\
             sector-size=4096,offset=8,skip=8",
            "d /dev/sda /k x-xtent,plain,cipher=aes-cbc-essiv:sha256,size=256",
        ] {
            let entry = parse(line).remove(0).unwrap();
            assert!(entry.remarks.is_empty());
            for program in [None, Some("/ask")] {
                let words = [vec!["xtent".to_owned()], entry.arguments(program)].concat();
                Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{line}: {e}"));
            }
        }
    }
}
