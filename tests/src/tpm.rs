//! A software TPM, and a Tang server.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::peer;
use crate::{Cmd, Scratch};

/// A running `swtpm`; ended when dropped.
pub struct Tpm {
    control: PathBuf,
    /// The TPM in tpm2-tss's words: `swtpm:path=…`.
    pub device: String,
    _scratch: Scratch,
}

impl Tpm {
    /// A TPM as new.
    #[expect(clippy::new_without_default, reason = "it starts a process")]
    pub fn new() -> Self {
        let scratch = Scratch::new();
        // Where libtss2-tcti-swtpm expects the second.
        let (socket, control) = (scratch.join("tpm"), scratch.join("tpm.ctrl"));
        let at = |kind: &str, path: &Path| format!("{kind}={}", path.display());
        Cmd::peer("swtpm")
            .args(["socket", "--tpm2", "--daemon"])
            .args(["--tpmstate", &at("dir", scratch.path())])
            .args(["--server", &at("type=unixio,path", &socket)])
            .args(["--ctrl", &at("type=unixio,path", &control)])
            .args(["--flags", "not-need-init,startup-clear"])
            .ok();
        Self {
            device: format!("swtpm:path={}", socket.display()),
            control,
            _scratch: scratch,
        }
    }

    /// One of tpm2-tools on this TPM.
    pub fn tool(&self, name: &str) -> Cmd {
        Cmd::peer(name).env("TPM2TOOLS_TCTI", &self.device)
    }

    /// Puts something into a PCR that it did not have before.
    pub fn extend(&self, pcr: u32) {
        self.tool("tpm2_pcrextend")
            .arg(format!("{pcr}:sha256={}", "5a".repeat(32)))
            .ok();
    }

    /// Forgets sessions and objects that somebody left there. The kernel's resource manager
    /// does so when `/dev/tpmrm0` is closed; here there is none.
    pub fn flush(&self) {
        for kind in ["--loaded-session", "--transient-object"] {
            self.tool("tpm2_flushcontext").arg(kind).ok();
        }
    }

    /// Enrols it with systemd's own tool for the volume in `image`, whose passphrase is
    /// `passphrase`.
    pub fn enroll(&self, image: &Path, passphrase: &str, options: &[&str], pin: &str) {
        Cmd::peer("systemd-cryptenroll")
            .arg(format!("--tpm2-device={}", self.device))
            .args(options)
            .arg(image)
            .env("PASSWORD", passphrase)
            .env("NEWPIN", pin)
            .ok();
        self.flush();
    }
}

impl Drop for Tpm {
    fn drop(&mut self) {
        // Its files go anyway; a failure here must not hide the test's own.
        let _ = Command::new(peer("swtpm_ioctl"))
            .args(["-s", "--unix"])
            .arg(&self.control)
            .status();
    }
}

/// A Tang server on a port of its own, for as long as the tests run.
pub struct Tang {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    _scratch: Scratch,
}

impl Tang {
    /// A server with new keys.
    #[expect(clippy::new_without_default, reason = "it starts a server")]
    pub fn new() -> Self {
        let scratch = Scratch::new();
        Cmd::new("/usr/libexec/tangd-keygen")
            .arg(scratch.path())
            .args(["signature", "exchange"])
            .ok();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let folder = scratch.path().to_owned();
        // tangd answers one connection on its standard input, as systemd starts it.
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let connection = File::from(OwnedFd::from(connection.unwrap()));
                Command::new("/usr/libexec/tangd")
                    .arg(&folder)
                    .stdin(connection.try_clone().unwrap())
                    .stdout(connection)
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap()
                    .wait()
                    .unwrap();
            }
        });
        Self {
            url,
            _scratch: scratch,
        }
    }
}
