//! The `xtent` command.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::Signal;

use crate::luks::Container;
use crate::process::{Background, Cmd, Finished};
use crate::{Scratch, bed};

/// The command: `$XTENT_BIN`, or what Cargo builds of this tree in the
/// profile of these tests.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("XTENT_BIN") {
            return path.into();
        }
        built("xtent")
    })
}

/// The helper for tokens, beside the command or in its place in an installed tree.
pub fn token_helper() -> &'static Path {
    static HELPER: OnceLock<PathBuf> = OnceLock::new();
    HELPER.get_or_init(|| match std::env::var_os("XTENT_BIN") {
        Some(path) => Path::new(&path).with_file_name("xtent-token-plugin"),
        None => built("xtent-token-plugin"),
    })
}

/// A program of this tree, by its package's name.
fn built(name: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let folder = this.ancestors().nth(2).unwrap();
    let profile = match folder.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    // Only a check for freshness where `cargo test` has built it already.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // What Cargo says of the package of these tests: build scripts would be run anew for it.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        let about = ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"];
        if about.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&variable);
        }
    }
    let built = command
        .args(["build", "--quiet", "--workspace", "--bin", name])
        // With what a test needs, which is built anyway, crates have the features that they have in
        // `cargo test`: else most of them would be compiled again.
        .args(["--test", "bed"])
        .args(["--profile", profile, "--target-dir"])
        .arg(bed::target_folder())
        .current_dir(bed::root_folder())
        .status()
        .unwrap();
    assert!(built.success(), "{name} does not build");
    folder.join(name)
}

/// `xtent`, to be given arguments.
pub fn xtent() -> Cmd {
    Cmd::new(binary())
}

/// A running `xtent serve`; killed when dropped.
pub struct Server {
    process: Background,
    /// For clients: `nbd+unix:///?socket=PATH` or `nbd://HOST:PORT`, `nbds` with TLS.
    pub uri: String,
    /// The Unix socket.
    pub socket: PathBuf,
    // Last, so that it outlives the process.
    _scratch: Scratch,
}

impl Server {
    /// Serves a container over a Unix socket of its own.
    pub fn start(container: &Container) -> Self {
        Self::start_with(container, &[])
    }

    /// As [`Server::start`], with more options.
    pub fn start_with(container: &Container, options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let socket = scratch.join("nbd.sock");
        let process = Self::command(container, &socket, options).spawn();
        let mut server = Self {
            process,
            uri: String::new(),
            socket,
            _scratch: scratch,
        };
        server.uri = server.wait_for_uri();
        server
    }

    /// The command line of a server, for those that are not to get ready.
    pub fn command(container: &Container, socket: &Path, options: &[&str]) -> Cmd {
        xtent()
            .args(["serve", "--nbd", &format!("unix:{}", socket.display())])
            .arg("--key-file")
            .arg(&container.key)
            .args(options)
            .args(options_of_all().split_whitespace())
            .arg(&container.image)
    }

    fn wait_for_uri(&mut self) -> String {
        let line = self.process.wait_for_line(|line| uri_in(line).is_some());
        uri_in(&line).unwrap()
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Asks it to stop, and fails unless it does so in good order.
    pub fn stop(self) -> Finished {
        let done = self.terminate(Signal::TERM);
        assert_eq!(done.code(), Some(0), "{}", done.text());
        done
    }

    /// Waits for an end that it comes to by itself.
    pub fn wait(self) -> Finished {
        self.process.finish()
    }

    /// Sends a signal and waits for the end.
    pub fn terminate(self, signal: Signal) -> Finished {
        self.process.signal(signal);
        self.process.finish()
    }
}

/// What every server is given besides: `$XTENT_SERVE_OPTIONS`.
fn options_of_all() -> String {
    std::env::var("XTENT_SERVE_OPTIONS").unwrap_or_default()
}

/// The NBD URI in a line that a server prints.
fn uri_in(line: &str) -> Option<String> {
    line.split_whitespace()
        .map(|word| word.trim_matches(|c| matches!(c, '"' | '\'' | ',' | '<' | '>')))
        .find(|word| {
            let schemes = ["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"];
            schemes.iter().any(|scheme| word.starts_with(scheme))
        })
        .map(str::to_owned)
}
