//! Containers of every shape, made by cryptsetup or by Xtent, with key
//! derivation as cheap as the formats allow.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::scratch::assert_same;
use crate::xtent::xtent;
use crate::{Cmd, Scratch};

/// The passphrase file of most tests. The newline at the end is a part of the
/// passphrase, as in cryptsetup.
pub const KEY: &[u8] = b"correct horse battery staple\n";
/// A second one.
pub const OTHER_KEY: &[u8] = b"\x00binary\xff key \n with everything\0";

/// Makes containers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maker {
    /// The reference.
    Cryptsetup,
    /// Ours.
    Xtent,
}

/// Key derivation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pbkdf {
    /// PBKDF2 with SHA-256.
    Pbkdf2,
    /// Argon2id.
    Argon2id,
}

/// What to make.
#[derive(Clone, Copy)]
pub struct Shape {
    /// 1 or 2.
    pub version: u32,
    /// dm-crypt's name.
    pub cipher: &'static str,
    /// As in `--key-size`.
    pub key_bits: u32,
    /// Bytes.
    pub sector: u32,
    /// Of the first keyslot.
    pub pbkdf: Pbkdf,
}

/// A short name, fit for file names.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cipher = self.cipher.replace([':', '-', ',', '(', ')'], "_");
        write!(
            f,
            "luks{}_{cipher}_{}_{}_{:?}",
            self.version, self.key_bits, self.sector, self.pbkdf
        )
    }
}

impl Shape {
    /// LUKS1, AES-256-XTS.
    pub const LUKS1: Self = Self {
        version: 1,
        cipher: "aes-xts-plain64",
        key_bits: 512,
        sector: 512,
        pbkdf: Pbkdf::Pbkdf2,
    };
    /// LUKS2, AES-256-XTS, 512-byte sectors.
    pub const LUKS2: Self = Self {
        version: 2,
        ..Self::LUKS1
    };
    /// LUKS2, AES-256-XTS, 4096-byte sectors.
    pub const LUKS2_4096: Self = Self {
        sector: 4096,
        ..Self::LUKS2
    };

    /// LUKS2 with a wide-block cipher, its longest key and 4096-byte sectors.
    pub const fn wide(cipher: &'static str, key_bits: u32) -> Self {
        Self {
            cipher,
            key_bits,
            ..Self::LUKS2_4096
        }
    }

    /// Every combination of format, key length, sector size and key
    /// derivation that exists.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for version in [1, 2] {
            for key_bits in [256, 512] {
                for sector in [512, 4096] {
                    for pbkdf in [Pbkdf::Pbkdf2, Pbkdf::Argon2id] {
                        if version == 2 || (sector == 512 && pbkdf == Pbkdf::Pbkdf2) {
                            all.push(Self {
                                version,
                                key_bits,
                                sector,
                                pbkdf,
                                ..Self::LUKS1
                            });
                        }
                    }
                }
            }
        }
        all
    }

    /// Bytes before the data in a container of the default layout.
    pub fn data_offset(&self) -> u64 {
        match self.version {
            1 => 2 << 20,
            _ => 16 << 20,
        }
    }

    /// Formats `image` so that `key` opens it.
    pub fn format(&self, maker: Maker, image: &Path, key: &Path) {
        let command = match maker {
            Maker::Cryptsetup => Cmd::peer("cryptsetup").args(["luksFormat", "--batch-mode"]),
            Maker::Xtent => xtent().args(["format", "--batch-mode", "--overwrite-luks"]),
        };
        let mut command = command
            .args(["--type", &format!("luks{}", self.version)])
            .args(["--cipher", self.cipher])
            .args(["--key-size", &self.key_bits.to_string()])
            .args(cheap(self.pbkdf, self.version));
        if self.version == 2 {
            command = command.args(["--sector-size", &self.sector.to_string()]);
        }
        command.arg("--key-file").arg(key).arg(image).ok();
    }

    /// A formatted image with room for `data` bytes, and its key file.
    pub fn image(&self, maker: Maker, scratch: &Scratch, data: u64) -> Container {
        self.image_with_key(maker, scratch, data, KEY)
    }

    /// As [`Shape::image`], with a key of the caller's choice.
    pub fn image_with_key(
        &self,
        maker: Maker,
        scratch: &Scratch,
        data: u64,
        key: &[u8],
    ) -> Container {
        let name = format!("{self}_{maker:?}");
        let image = scratch.image(&format!("{name}.img"), self.data_offset() + data);
        let key = scratch.file(&format!("{name}.key"), key);
        self.format(maker, &image, &key);
        Container { image, key }
    }
}

/// A formatted image and the file that opens it.
pub struct Container {
    /// The image.
    pub image: PathBuf,
    /// The key file.
    pub key: PathBuf,
}

impl Container {
    /// What is in it, through `xtent decrypt`.
    pub fn decrypt(&self) -> Vec<u8> {
        let out = Scratch::new();
        let target = out.join("plain");
        xtent()
            .arg("decrypt")
            .arg("--key-file")
            .arg(&self.key)
            .args([&self.image, &target])
            .ok();
        std::fs::read(target).unwrap()
    }

    /// Fails unless it holds an ext4 without a fault, with this file in it.
    pub fn assert_has_file(&self, name: &str, data: &[u8]) {
        let scratch = Scratch::new();
        let plain = scratch.file("plain", &self.decrypt());
        let found = scratch.join("found");
        Cmd::peer("e2fsck").args(["-f", "-n"]).arg(&plain).ok();
        Cmd::peer("debugfs")
            .args(["-R", &format!("dump /{name} {}", found.display())])
            .arg(&plain)
            .ok();
        assert_same(&std::fs::read(&found).unwrap(), data, name);
    }

    /// Fills it, through `xtent encrypt`.
    pub fn encrypt(&self, data: &[u8]) {
        let out = Scratch::new();
        let source = out.file("plain", data);
        xtent()
            .arg("encrypt")
            .arg("--key-file")
            .arg(&self.key)
            .args([&source, &self.image])
            .ok();
    }
}

/// Options that make key derivation quick; the same for both commands.
pub fn cheap(pbkdf: Pbkdf, version: u32) -> Vec<&'static str> {
    match (pbkdf, version) {
        // LUKS1 knows no --pbkdf.
        (Pbkdf::Pbkdf2, 1) => vec!["--pbkdf-force-iterations", "1000"],
        (Pbkdf::Pbkdf2, _) => vec!["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"],
        (Pbkdf::Argon2id, _) => vec![
            "--pbkdf",
            "argon2id",
            "--pbkdf-force-iterations",
            "4",
            "--pbkdf-memory",
            "64",
            "--pbkdf-parallel",
            "1",
        ],
    }
}

/// A LUKS2 header by cryptsetup for data on another device, in a file of its own.
pub fn detached_header(scratch: &Scratch, name: &str, key: &Path, data: &Path) -> PathBuf {
    let header = scratch.image(name, 16 << 20);
    Cmd::peer("cryptsetup")
        .args(["luksFormat", "--batch-mode", "--type", "luks2", "--header"])
        .arg(&header)
        .args(cheap(Shape::LUKS2.pbkdf, 2))
        .arg("--key-file")
        .args([key, data])
        .ok();
    header
}

/// Adds the passphrase in the file `new` to an image that `key` opens, cheaply.
pub fn add_key(version: u32, image: &Path, key: &Path, new: &Path) -> Cmd {
    xtent()
        .args(["key", "add"])
        .args(cheap(Pbkdf::Pbkdf2, version))
        .arg("--key-file")
        .arg(key)
        .arg("--new-key-file")
        .args([new, image])
}

/// Whether a passphrase opens a container, in cryptsetup's opinion.
pub fn cryptsetup_opens(image: &Path, key: &Path) -> bool {
    let done = Cmd::peer("cryptsetup")
        .args(["open", "--test-passphrase", "--key-file"])
        .args([key, image])
        .run();
    match done.code() {
        Some(0) => true,
        Some(2) => false,
        _ => panic!("{}", done.text()),
    }
}

/// Whether a passphrase opens a container, in Xtent's opinion.
pub fn xtent_opens(image: &Path, key: &Path) -> bool {
    let done = xtent()
        .args(["key", "test", "--key-file"])
        .args([key, image])
        .run();
    match done.code() {
        Some(0) => true,
        Some(2) => false,
        _ => panic!("{}", done.text()),
    }
}

/// Fails unless both commands agree that `key` opens (or does not open) it.
pub fn assert_opens(image: &Path, key: &Path, expected: bool, what: &str) {
    assert_eq!(cryptsetup_opens(image, key), expected, "cryptsetup: {what}");
    assert_eq!(xtent_opens(image, key), expected, "xtent: {what}");
}
