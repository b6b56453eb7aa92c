//! A FIDO2 security key in software.

use std::path::Path;

use rustix::process::Signal;

use crate::process::Background;
use crate::{Cmd, Scratch, bed};

/// A security key that is plugged in; out when dropped. Keys with the same name are the same.
pub struct SecurityKey {
    process: Background,
}

impl SecurityKey {
    /// Plugs it in; it is touched as soon as it wants to be.
    pub fn touched(name: &str, options: &[&str]) -> Self {
        Self::plug_in(name, options)
    }

    /// Plugs it in; it waits for [`SecurityKey::touch`].
    pub fn untouched(name: &str, options: &[&str]) -> Self {
        Self::plug_in(name, &[&["--touch", "signal"], options].concat())
    }

    fn plug_in(name: &str, options: &[&str]) -> Self {
        let mut process = Cmd::new("/usr/bin/python3")
            .arg(bed::root_folder().join("tests/fido2/authenticator.py"))
            .args(["--seed", name])
            .args(options)
            .spawn();
        process.wait_for_line(|line| line == "plugged in");
        Self { process }
    }

    /// Waits until it wants a touch.
    pub fn wait_until_it_blinks(&mut self) {
        self.process.wait_for_line(|line| line == "wants a touch");
    }

    /// Touches it.
    pub fn touch(&self) {
        self.process.signal(Signal::USR1);
    }

    /// Lets its time for a touch run out.
    pub fn run_out_of_patience(&mut self) {
        self.process.signal(Signal::USR2);
        self.process
            .wait_for_line(|line| line == "does not blink any more");
    }

    /// Pulls it out.
    pub fn pull(self) {
        self.process.kill();
    }

    /// Enrols this key, the only one that is plugged in, with systemd's own tool for the volume in
    /// `image`, whose passphrase is `passphrase`.
    pub fn enroll(&self, image: &Path, passphrase: &str, options: &[&str], pin: &str) {
        // systemd 252 takes the PIN from nowhere else, later versions by the longer name.
        let credentials = Scratch::new();
        for name in ["fido2-pin", "cryptenroll.fido2-pin"] {
            credentials.file(name, pin.as_bytes());
        }
        Cmd::peer("systemd-cryptenroll")
            .arg("--fido2-device=auto")
            .args(options)
            .arg(image)
            .env("PASSWORD", passphrase)
            .env("CREDENTIALS_DIRECTORY", credentials.path())
            .ok();
    }
}
