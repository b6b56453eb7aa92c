//! A mounted volume over a raw image (no LUKS header), in the foreground:
//!
//! ```text
//! mount [--file-only] [--read-only] [--discard never|allow|zero] [--sector-size N] KEYFILE IMAGE DIR
//! ```
//!
//! `aes-xts-plain64`; the key file holds 32 or 64 bytes. Prints `ready` when
//! the volume is usable. Each line on standard input is a request to stop, as
//! a signal would be. Tests kill it; it serves for measurements as well.

use std::io::BufRead as _;
use std::path::Path;
use std::sync::Arc;

use sector_cipher::{SectorCount, SectorSize};
use xtent_export::fuse::{Mount, Options};
use xtent_secret::SecretBytes;
use xtent_store::{Access, FileStore, Store as _};
use xtent_volume::{Config, DiscardPolicy, Volume};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() {
    if let Err(e) = run() {
        eprintln!("mount: {e}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let (mut file_only, mut read_only) = (false, false);
    let (mut discard, mut sector_size) = (DiscardPolicy::Never, 4096);
    let mut paths = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--file-only" => file_only = true,
            "--read-only" => read_only = true,
            "--discard" => {
                discard = match arguments.next().as_deref() {
                    Some("never") => DiscardPolicy::Never,
                    Some("allow") => DiscardPolicy::Allow,
                    Some("zero") => DiscardPolicy::Zero,
                    _ => return Err("--discard takes never, allow or zero".into()),
                }
            }
            "--sector-size" => {
                sector_size = arguments
                    .next()
                    .ok_or("--sector-size takes bytes")?
                    .parse()?;
            }
            _ => paths.push(argument),
        }
    }
    let [key_file, image, dir] = &paths[..] else {
        return Err("takes KEYFILE IMAGE DIR".into());
    };

    let access = if read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    let store = Arc::new(FileStore::open(Path::new(image), access)?);
    store.lock_for_serving()?;
    let config = Config {
        cipher: "aes-xts-plain64".parse().map_err(|_| "no such cipher")?,
        sector_size: SectorSize::new(sector_size).ok_or("no such sector size")?,
        sector_count: SectorCount::Units512,
        offset: 0,
        length: store.size(),
        iv_offset: 0,
        read_only,
        discard,
        backend: None,
    };
    let key = SecretBytes::copy_of(&std::fs::read(key_file)?).map_err(|e| e.to_string())?;
    let volume = Arc::new(Volume::open(store, &key, &config)?);

    let mount = Mount::new(
        volume,
        &Options {
            device: image.into(),
            dir: dir.into(),
            file_only,
            fstype: None,
            mount_options: None,
        },
    )?;
    for warning in mount.warnings() {
        eprintln!("mount: warning: {warning}");
    }
    println!("ready {:?}", mount.served());
    let stop = mount.stop();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines() {
            stop.request();
        }
    });
    Ok(mount.wait()?)
}
