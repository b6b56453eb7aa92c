//! What each option of crypttab(5) means for a line: a word of `xtent open`, a property of
//! its unit, nothing, or that the line is not Xtent's to carry out.

use super::span::{is_span, seconds};
use super::{Entry, MARK, own_path};

impl Entry {
    pub(super) fn take(&mut self, option: &str) -> Result<(), String> {
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (option, None),
        };
        let mut pass = |flag: &str, value: &str| {
            self.options.push(format!("{flag}={value}"));
        };
        match (key, value) {
            (MARK | "luks" | "plain", None) => {}
            ("discard" | "allow-discards", None) => {
                self.options.push("--allow-discards".to_owned());
            }
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
            ("high-priority", None) => self.options.push("--perf-high_priority".to_owned()),
            ("header", Some(path)) => self.header = Some(own_path("header", path)?),
            ("key-slot" | "keyslot", Some(n)) => pass("--key-slot", number(key, n)?),
            ("keyfile-offset", Some(n)) => pass("--keyfile-offset", number(key, n)?),
            ("keyfile-size", Some(n)) => pass("--keyfile-size", number(key, n)?),
            // 0: as often as it takes.
            ("tries", Some("0")) => pass("--tries", FOREVER),
            ("tries", Some(n)) => pass("--tries", number(key, n)?),
            ("timeout", Some("0" | "infinity")) => {}
            ("timeout", Some(span)) if is_span(span) => self.timeout = Some(span.to_owned()),
            ("timeout", Some(span)) => return Err(format!("`timeout={span}` is no time")),
            ("x-systemd.device-timeout", Some(span)) if is_span(span) || span == "infinity" => {
                self.device_timeout = Some(span.to_owned());
            }
            ("noauto", None) => self.noauto = true,
            ("auto", None) => self.noauto = false,
            ("nofail", None) => self.nofail = true,
            ("fail", None) => self.nofail = false,
            ("_netdev", None) => self.netdev = true,
            ("x-initrd.attach" | "initramfs", None) => self.in_initrd = true,
            ("headless", None | Some("1" | "yes" | "true" | "on")) => self.headless = true,
            ("headless", Some(_)) => self.headless = false,
            ("cipher" | "size" | "hash" | "sector-size" | "offset" | "skip", Some(value)) => {
                self.take_plain(key, value)?;
            }
            _ => self.take_key_option(option, key, value)?,
        }
        Ok(())
    }

    /// Ways to the key beside files and passphrases, and what asking looks like.
    fn take_key_option(
        &mut self,
        option: &str,
        key: &str,
        value: Option<&str>,
    ) -> Result<(), String> {
        let mut pass = |flag: &str, value: &str| {
            self.options.push(format!("{flag}={value}"));
        };
        let remark = match (key, value) {
            // Of a key file, not of a token.
            ("tpm2-device" | "fido2-device" | "pkcs11-uri", Some(_)) if self.key.is_some() => {
                return Err(format!("with `{option}` the key file is an encrypted one"));
            }
            ("pkcs11-uri", Some(uri)) if uri != "auto" => {
                return Err(format!("`{option}` is not for volumes that Xtent opens"));
            }
            // Tokens are tried by themselves; the header says which there are.
            ("tpm2-device" | "fido2-device" | "pkcs11-uri", Some("auto")) => return Ok(()),
            // As tpm2-tss names it, or by the path alone.
            ("tpm2-device", Some(tcti)) if tcti.contains(':') && !tcti.starts_with('/') => {
                pass("--tpm2-device", tcti);
                return Ok(());
            }
            ("tpm2-device", Some(path)) => {
                pass("--tpm2-device", &format!("device:{path}"));
                return Ok(());
            }
            ("token-timeout", Some("0" | "infinity")) => {
                pass("--token-timeout", FOREVER);
                return Ok(());
            }
            ("token-timeout", Some(span)) => match seconds(span) {
                Some(n) => {
                    pass("--token-timeout", &n.to_string());
                    return Ok(());
                }
                None => return Err(format!("`{option}` is no time")),
            },
            ("fido2-device", Some(_)) => "does not count: any security key that is there is tried",
            ("tpm2-pcrs" | "tpm2-pin", _) => "does not count: the token says it",
            ("tpm2-signature", _) => {
                "does not count: signatures are taken from where systemd keeps them"
            }
            (
                "try-empty-password" | "password-echo" | "verify" | "check" | "checkargs"
                | "noearly",
                _,
            ) => "is left out by Xtent and does not count",
            // Of a key file on another device, which is left to systemd anyway; what has
            // no meaning without a keyscript.
            ("keyfile-timeout", _) | ("loud" | "quiet", None) => return Ok(()),
            ("keyfile-erase", Some("0" | "no" | "false" | "off" | "n" | "f")) => return Ok(()),
            _ if is_other_kind(key) => {
                return Err(format!("`{option}` is not for volumes that Xtent opens"));
            }
            // Another program's.
            _ if key.starts_with("x-") => return Ok(()),
            _ => "is not known and does not count",
        };
        self.remarks.push(format!("`{option}` {remark}"));
        Ok(())
    }

    /// What a header would say; with a header, it counts.
    fn take_plain(&mut self, key: &str, value: &str) -> Result<(), String> {
        let Some(plain) = &mut self.plain else {
            // Those make another volume of it, these do not.
            return match key {
                "offset" | "skip" => Err(format!("`{key}=` is for plain volumes")),
                _ => Ok(()),
            };
        };
        match key {
            "cipher" => plain.cipher = Some(value.to_owned()),
            "size" => plain.key_size = Some(number(key, value)?.to_owned()),
            "hash" => plain.hash = Some(value.to_owned()),
            _ => {
                value
                    .parse::<u64>()
                    .map_err(|_| format!("`{key}={value}` is no number"))?;
                self.options.push(format!("--{key}={value}"));
            }
        }
        Ok(())
    }

    /// What options mean only together.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        let Some(plain) = &self.plain else {
            return Ok(());
        };
        if self.header.is_some() || self.options.iter().any(|o| o.starts_with("--key-slot")) {
            return Err("a plain volume has neither header nor keyslots".to_owned());
        }
        let (Some(cipher), Some(key_size)) = (&plain.cipher, &plain.key_size) else {
            return Err("`plain` needs `cipher=` and `size=` beside it for Xtent".to_owned());
        };
        let mut words = vec![
            "--type=plain".to_owned(),
            format!("--cipher={cipher}"),
            format!("--key-size={key_size}"),
        ];
        match (plain.hash.as_deref(), &self.key) {
            (None | Some("plain"), Some(_)) => {}
            (Some(_), Some(_)) => {
                return Err(
                    "`hash=` with a key file is not for Xtent, which would not hash it".to_owned(),
                );
            }
            (Some(hash), None) => words.push(format!("--hash={hash}")),
            (None, None) => {
                return Err("`plain` needs `hash=` beside it for Xtent".to_owned());
            }
        }
        if self.key.is_none() && self.headless {
            return Err("`headless` leaves nobody to type, and there is no key file".to_owned());
        }
        self.options.append(&mut words);
        Ok(())
    }
}

/// The largest number that options take.
const FOREVER: &str = "4294967295";

/// Options that make another kind of volume of it, or another way to its key.
fn is_other_kind(key: &str) -> bool {
    const KINDS: [&str; 11] = [
        "swap",
        "tmp",
        "bitlk",
        "tcrypt",
        "tcrypthidden",
        "veracrypt",
        "keyscript",
        "decrypt_keyctl",
        // The file would stay.
        "keyfile-erase",
        "fido2-cid",
        "fido2-rp",
    ];
    KINDS.contains(&key) || key.starts_with("tcrypt-") || key.starts_with("veracrypt-")
}

fn number<'a>(key: &str, text: &'a str) -> Result<&'a str, String> {
    match text.parse::<u32>() {
        Ok(_) => Ok(text),
        Err(_) => Err(format!("`{key}={text}` is no number")),
    }
}
