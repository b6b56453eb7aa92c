//! The configuration file of `xtent serve --config`: read if nobody else can have written it,
//! and turned into what the options would say.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Parser;
use xtent_server_config::{Config, LONGEST, Server, Volume};

use crate::args::EngineArgs;
use crate::disk::is_uri;
use crate::failure::{Exit, Failure, Result};
use crate::open::parse_backend;
use crate::output::Output;
use crate::secrets::CommandLine;
use crate::trust::open_to_others;
use crate::wanted::{VolumeArgs, Wanted};

/// What the file says.
pub(crate) struct Configured {
    pub(crate) server: Server,
    pub(crate) wanted: Vec<Wanted>,
}

/// The options of one volume, as on a command line of its own.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    volume: VolumeArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

/// Reads the file, and all that it names by paths of its own folder.
pub(crate) fn read(
    path: &Path,
    cpu: Option<sector_cipher::Backend>,
    output: &Output,
) -> Result<Configured> {
    let shown = path.display();
    let fail = |e| Failure::system(format!("cannot read {shown}"), e);
    let path = std::fs::canonicalize(path).map_err(fail)?;
    if let Some(place) = open_to_others(&path) {
        return Err(Failure::new(
            Exit::Permission,
            format!("{shown} is not trusted: {}", others(&place)),
        )
        .advise(
            "It says which programs are run and which devices are opened: it and all folders above it \
             have to be yours or root's, and closed to other writers (chmod o-w).",
        ));
    }
    let mut text = String::new();
    let file = File::open(&path).map_err(fail)?;
    file.take(LONGEST as u64 + 1)
        .read_to_string(&mut text)
        .map_err(fail)?;
    let config = Config::parse(&text).map_err(|e| Failure::parameters(format!("{shown}: {e}")))?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let wanted = config
        .exports()
        .map(|(name, volume)| {
            of(name, volume, folder, cpu, output).map_err(|mut failure| {
                failure.message = format!("{shown}: volume {name:?}: {}", failure.message);
                failure
            })
        })
        .collect::<Result<_>>()?;
    Ok(Configured {
        wanted,
        server: Server {
            pid_file: config.server.pid_file.map(|path| folder.join(path)),
            tls_certificates: config.server.tls_certificates.map(|path| folder.join(path)),
            ..config.server
        },
    })
}

fn of(
    name: &str,
    volume: &Volume,
    folder: &Path,
    cpu: Option<sector_cipher::Backend>,
    output: &Output,
) -> Result<Wanted> {
    for key in [&volume.key_file, &volume.volume_key_file] {
        warn_of_open_key(key.as_deref(), folder, output);
    }
    let line = Line::try_parse_from(arguments(volume, folder)).map_err(|e| {
        // The first line says what is wrong; what follows is how to type it.
        let text = e.render().to_string();
        let text = text.lines().next().unwrap_or_default();
        Failure::parameters(text.trim_start_matches("error: ").to_owned())
    })?;
    let mut args = line.volume;
    let command = volume.key_command.as_ref();
    let command = command.map(|words| in_folder(words, folder)).transpose()?;
    args.unlock.passphrase.key.key_command = command.map(CommandLine);
    let backend = volume.cpu.as_deref().map(parse_backend).transpose();
    Ok(Wanted {
        name: name.to_owned(),
        args,
        backend: backend
            .map_err(|e| Failure::parameters(format!("`cpu`: {e}")))?
            .or(cpu),
        engine: line.engine,
    })
}

/// The words of a command whose program, where it is named by its path, is relative to the file,
/// and whom others can have nothing to do with. Without a path it is looked for when it is run.
fn in_folder(words: &[String], folder: &Path) -> Result<Vec<OsString>> {
    let mut words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let Some(program) = words.first_mut() else {
        return Ok(words);
    };
    if !program.as_encoded_bytes().contains(&b'/') {
        return Ok(words);
    }
    let path = folder.join(&*program);
    let shown = path.display();
    std::fs::metadata(&path)
        .map_err(|e| Failure::system(format!("`key-command`: cannot find {shown}"), e))?;
    // By the name that was given, links and all: some programs go by it.
    if let Some(place) = open_to_others(&path) {
        return Err(Failure::new(
            Exit::Permission,
            format!("`key-command`: {shown} is not run: {}", others(&place)),
        )
        .advise(
            "It and all folders and links on the way to it have to be yours or root's, and closed to other \
             writers (chmod o-w).",
        ));
    }
    *program = path.into();
    Ok(words)
}

fn others(place: &Path) -> String {
    format!(
        "others can change {}, or could have put it there",
        place.display()
    )
}

/// The options that a volume's table comes to.
fn arguments(volume: &Volume, folder: &Path) -> Vec<OsString> {
    let place = |name: &str| -> OsString {
        match is_uri(Path::new(name)) {
            true => name.into(),
            false => folder.join(name).into(),
        }
    };
    let path = |path: &PathBuf| OsString::from(folder.join(path));
    let text = |value: &dyn ToString| OsString::from(value.to_string());
    let values = [
        ("--header", volume.header.as_deref().map(place)),
        ("--partition", volume.partition.as_ref().map(|it| text(it))),
        ("--key-file", volume.key_file.as_ref().map(path)),
        (
            "--keyfile-offset",
            volume.keyfile_offset.as_ref().map(|it| text(it)),
        ),
        (
            "--keyfile-size",
            volume.keyfile_size.as_ref().map(|it| text(it)),
        ),
        (
            "--credential",
            volume.credential.as_ref().map(|it| text(it)),
        ),
        (
            "--volume-key-file",
            volume.volume_key_file.as_ref().map(path),
        ),
        ("--key-slot", volume.key_slot.as_ref().map(|it| text(it))),
        (
            "--cipher-threads",
            volume.cipher_threads.as_ref().map(|it| text(it)),
        ),
        (
            "--engine",
            volume.engine.as_deref().map(|it| of_folder(it, folder)),
        ),
        (
            "--engine-model",
            volume.engine_model.as_ref().map(|it| text(it)),
        ),
        (
            "--engine-tweaks",
            volume.engine_tweaks.as_ref().map(|it| text(it)),
        ),
        (
            "--engine-threshold",
            volume.engine_threshold.as_ref().map(|it| text(it)),
        ),
        (
            "--engine-failure",
            volume.engine_failure.as_ref().map(|it| text(it)),
        ),
        ("--discard", volume.discard.as_ref().map(|it| text(it))),
        ("--holes", volume.holes.as_ref().map(|it| text(it))),
        ("--reconnect", volume.reconnect.as_ref().map(|it| text(it))),
    ];
    let flags = [
        ("--read-only", volume.read_only),
        ("--direct-io", volume.direct_io),
        // Whoever names a program for the key means that.
        (
            "--no-tokens",
            volume
                .no_tokens
                .or(volume.key_command.as_ref().map(|_| true)),
        ),
    ];
    let with_value = values.into_iter().filter_map(|(option, value)| {
        let mut argument = OsString::from(option);
        argument.push("=");
        argument.push(value?);
        Some(argument)
    });
    let given = flags
        .into_iter()
        .filter(|(_, given)| *given == Some(true))
        .map(|(option, _)| OsString::from(option));
    let clients = volume.clients.iter().flatten();
    let clients = clients.map(|name| OsString::from(format!("--tls-client={name}")));
    let pins = volume.expect_header.iter().map(|pin| {
        let mut argument = OsString::from("--expect-header=");
        match pin.strip_prefix('@') {
            Some(file) => {
                argument.push("@");
                argument.push(folder.join(file));
            }
            None => argument.push(pin),
        }
        argument
    });
    let device = [OsStr::new("--").to_owned(), place(&volume.device)];
    with_value
        .chain(given)
        .chain(clients)
        .chain(pins)
        .chain(device)
        .collect()
}

/// An engine's address; the path of a socket is relative to the file, as every path.
fn of_folder(address: &str, folder: &Path) -> OsString {
    match address.strip_prefix("vfio-user:") {
        Some(path) if !path.is_empty() => {
            let mut address = OsString::from("vfio-user:");
            address.push(folder.join(path));
            address
        }
        _ => address.into(),
    }
}

/// A key that others can read, or change, is not one for long.
fn warn_of_open_key(key: Option<&Path>, folder: &Path, output: &Output) {
    let Some(path) = key.map(|key| folder.join(key)) else {
        return;
    };
    if let Ok(found) = path.metadata()
        && found.is_file()
        && found.mode() & 0o006 != 0
    {
        output.warn(format!(
            "{}: other users can read or change this key (chmod o-rw)",
            path.display()
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use xtent_volume::Threshold;

    use super::*;

    const QUIET: Output = Output {
        json: false,
        quiet: true,
    };

    fn read_text(text: &str) -> Result<Configured> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.toml");
        std::fs::write(&path, text).unwrap();
        read(&path, None, &QUIET)
    }

    #[test]
    fn a_table_is_what_the_options_would_be() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let path = folder.join("x.toml");
        std::fs::write(folder.join("k"), "").unwrap();
        let text = "[volume.a]\ndevice = \"-x\"\nkey-file = \"k\"\nread-only = true\n\
                    partition = 2\nengine = \"vfio-user:e\"\nengine-threshold = \"64K\"\n[volume.b]\ndevice = \"nbd://h/b\"\nkey-command = [\"./k\", \"--b\"]";
        std::fs::write(&path, text).unwrap();
        let wanted = read(&path, None, &QUIET).unwrap().wanted;
        let [a, b] = &wanted[..] else { panic!() };
        assert_eq!((&*a.name, &*b.name), ("a", "b"));
        assert_eq!(a.args.device.device, folder.join("-x"));
        assert_eq!(a.args.device.partition, Some(2));
        assert!(a.args.read_only);
        let engine = a.engine.choice.engine.as_ref().unwrap().to_string();
        assert_eq!(engine, format!("vfio-user:{}", folder.join("e").display()));
        assert_eq!(a.engine.threshold(), Threshold::Bytes(64 << 10));
        assert!(b.engine.choice.engine.is_none());
        assert_eq!(a.args.unlock.key.key_file, Some(folder.join("k")));
        assert_eq!(b.args.device.device, Path::new("nbd://h/b"));
        assert!(b.args.unlock.tokens.no_tokens);
        let command = b.args.unlock.key.key_command.as_ref().unwrap();
        assert_eq!(command.0, [folder.join("./k").as_os_str(), "--b".as_ref()]);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (text, says) in [
            (
                "[volume.a]\ndevice=\"x\"\nfoo=1",
                "line 3: unknown field `foo`",
            ),
            (
                "[volume.a]\ndevice=\"x\"\nclients=[\"\"]",
                "volume \"a\": a value is required for '--tls-client",
            ),
            (
                "[volume.a]\ndevice=\"x\"\ndiscard=\"some\"",
                "volume \"a\": invalid value 'some'",
            ),
            (
                "[volume.a]\ndevice=\"x\"\nengine=\"/e\"",
                "volume \"a\": invalid value '/e'",
            ),
            ("[volume.a]\ndevice=\"x\"\ncpu=\"z80\"", "`cpu`"),
            (
                "[volume.a]\ndevice=\"x\"\ncipher-threads=99",
                "volume \"a\"",
            ),
        ] {
            let failure = read_text(text).err().unwrap();
            assert_eq!(failure.exit, Exit::Parameters);
            assert!(failure.message.contains(says), "{failure}");
        }
    }

    #[test]
    fn a_file_that_others_can_change_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.toml");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let failure = read(&path, None, &QUIET).err().unwrap();
        assert_eq!(failure.exit, Exit::Permission);
    }
}
