//! A volume that another process has opened, made this one's: all that is said of it is
//! checked as if an enemy had said it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sector_cipher::{CipherSpec, SectorCount, SectorSize};
use xtent_control::{Attach, Discard, Role, Source};
use xtent_luks::{Device, KdfLimits};
use xtent_secret::SecretBytes;
use xtent_store::{Access, FileParts, FileStore};
use xtent_volume::{CipherThreads, Config, DiscardPolicy, Holes, Volume};

use super::Rules;
use crate::args::parse_threads;
use crate::disk::{Disk, uri};
use crate::failure::{Exit, Failure, Result};
use crate::growth::Growth;
use crate::identity;
use crate::open::parse_backend;
use crate::registry::{Entry, Kind};
use crate::wanted::Opened;

pub(super) fn adopt(
    attach: &Attach,
    files: Vec<File>,
    key: SecretBytes,
    user_key: Option<SecretBytes>,
    rules: &Rules,
) -> Result<Opened> {
    if !attach.clients.is_empty() && !rules.verifies_clients {
        return Err(
            refuse("this server does not ask its clients who they are").advise(
                "Start it with --tls-certificates DIR --tls-verify-peer to have volumes for some \
                 clients only.",
            ),
        );
    }
    let config = config(attach)?;
    let (disk, held) = disk(attach, files, user_key, rules)?;
    let key = match &attach.source {
        Source::Image {
            has_header: true, ..
        } => expect_header(&disk, attach, key)?,
        _ => key,
    };
    let volume = Volume::open(disk.for_volume(), &key, &config)?;
    let volume = volume
        .with_cipher_threads(threads(attach)?)
        .holding((disk.clone(), held));
    let volume = Arc::new(match attach.encrypt {
        true => volume.turned(),
        false => volume,
    });
    let cipher = attach.cipher.clone();
    let device = Path::new(&attach.device);
    let mut entry = Entry::new(Kind::Server, device, attach.uuid.clone(), cipher, &volume);
    (entry.partition, entry.start) = (attach.partition, disk.window_start());
    let offset = attach.grows.then_some(attach.offset);
    Ok(Opened {
        engine: None,
        name: attach.name.clone(),
        growth: Growth::to_the_end(&disk, offset, entry.uuid.clone(), &volume),
        volume,
        entry,
        upstreams: Vec::new(),
        has_image: disk.is_image(),
        image: disk.is_image().then_some(disk),
        allowed: attach.clients.clone(),
    })
}

fn refuse(what: impl Into<String>) -> Failure {
    Failure::new(Exit::Parameters, what)
}

fn config(attach: &Attach) -> Result<Config> {
    let cipher: CipherSpec = attach
        .cipher
        .parse()
        .map_err(|e| refuse(format!("the server cannot decrypt {}", attach.cipher)).because(e))?;
    let backend = attach.backend.as_deref().map(parse_backend).transpose();
    Ok(Config {
        cipher,
        sector_size: SectorSize::new(attach.sector_size)
            .map_err(|_| refuse("a sector has 512, 1024, 2048 or 4096 bytes"))?,
        sector_count: match attach.large_sectors {
            true => SectorCount::Large,
            false => SectorCount::Units512,
        },
        offset: attach.offset,
        length: attach.length,
        iv_offset: attach.iv_offset,
        read_only: attach.read_only || attach.encrypt,
        discard: match attach.discard {
            Discard::Never => DiscardPolicy::Never,
            Discard::Allow => DiscardPolicy::Allow,
            Discard::Zero => DiscardPolicy::Zero,
        },
        holes: match attach.zero_holes {
            true => Holes::Zero,
            false => Holes::Noise,
        },
        backend: backend.map_err(|text| refuse(format!("back-end of the cipher: {text}")))?,
    })
}

fn threads(attach: &Attach) -> Result<CipherThreads> {
    match attach.cipher_threads {
        None => Ok(CipherThreads::Auto),
        Some(count) => parse_threads(&count.to_string())
            .map_err(|text| refuse(format!("threads of the cipher: {text}"))),
    }
}

/// Certificates are files, and a sandbox opens none.
fn refuse_tls(name: &str, rules: &Rules) -> Result<()> {
    let has_tls = uri(Path::new(name))?.is_some_and(|uri| uri.has_tls());
    match has_tls && !rules.reads_files {
        true => Err(refuse(format!(
            "{name}: this server cannot read the certificates for TLS in its sandbox"
        ))
        .advise("Name the volume when the server is started, or start another one for it.")),
        false => Ok(()),
    }
}

/// What has the ciphertext, and the files that are held for their locks.
fn disk(
    attach: &Attach,
    files: Vec<File>,
    user_key: Option<SecretBytes>,
    rules: &Rules,
) -> Result<(Disk, Vec<File>)> {
    if files.len() != attach.files.len() {
        return Err(refuse(format!(
            "{} files were announced, and {} came",
            attach.files.len(),
            files.len()
        )));
    }
    let (mut data, mut claim, mut backing, mut held) = (None, None, None, Vec::new());
    for (role, file) in attach.files.iter().zip(files) {
        match role {
            Role::Data => data = Some(file),
            Role::Claim => claim = Some(file),
            Role::Backing => backing = Some(file),
            Role::Held => held.push(file),
        }
    }
    let access = match attach.read_only || attach.encrypt {
        true => Access::ReadOnly,
        false => Access::ReadWrite,
    };
    let disk = match (&attach.source, data) {
        (
            &Source::File {
                window,
                direct,
                atomic,
                discard,
            },
            Some(file),
        ) => FileStore::from_parts(FileParts {
            file,
            claim,
            backing,
            path: PathBuf::from(&attach.device),
            access,
            window,
            is_direct: direct,
            atomic,
            discard,
        })?
        .into(),
        (
            Source::Export {
                uri,
                reconnect,
                has_header,
            },
            None,
        ) if rules.connects => {
            refuse_tls(uri, rules)?;
            let reconnect = Duration::from_secs((*reconnect).into());
            let disk = Disk::connect(Path::new(uri), access, reconnect)?;
            // The header was read by another connection, which may have led elsewhere.
            if let Some(uuid) = attach.uuid.as_deref().filter(|_| *has_header) {
                identity::expect(&disk, uuid)?;
            }
            disk
        }
        (Source::Export { uri, .. }, None) => {
            return Err(refuse(format!(
                "{uri}: this server makes no connections to other servers"
            ))
            .advise(
                "Start it with --allow-connect, or name the volume when it is started: its \
                 sandbox then allows that.",
            ));
        }
        (
            Source::Image {
                name,
                user,
                settings,
                ..
            },
            None,
        ) => match &rules.opener {
            Some(opener) => Disk::Image(Arc::new(
                opener.open(name, user, settings, user_key, access)?,
            )),
            None => {
                return Err(refuse(format!(
                    "{name}: this server makes no connections to a Ceph cluster"
                ))
                .advise(
                    "Start it with an image, or with --allow-connect where Ceph's library is: its \
                     sandbox then allows that.",
                ));
            }
        },
        _ => return Err(refuse("these are not the files of a volume")),
    };
    Ok((disk, held))
}

/// How long it may take to find out whether the key is that of the header.
const LONGEST_CHECK: Duration = Duration::from_secs(60);

/// Refuses an image whose volume is not the one any more that another process has found there: it had
/// no lock when it did. Passphrases may have changed. Gives the key back.
fn expect_header(disk: &Disk, attach: &Attach, key: SecretBytes) -> Result<SecretBytes> {
    let another = |what: &str| {
        Failure::new(
            Exit::Device,
            format!(
                "{}: the volume has changed since its header was read: {what}",
                disk.path().display()
            ),
        )
        .advise("It was formatted or encrypted anew meanwhile. Attach it again.")
    };
    let device = Device::without_locks(disk.store());
    let header = match device.read() {
        Err(error) if error.kind == xtent_luks::ErrorKind::NotLuks => {
            return Err(another("there is no LUKS header any more"));
        }
        other => other.map_err(|error| Failure::of_metadata(error, disk.path()))?,
    };
    let segment = header.segment(disk.size())?;
    let cipher = segment.encryption.parse().ok();
    let cipher = cipher.map(|cipher: CipherSpec| cipher.to_string());
    let is_laid_out_alike = cipher.as_ref() == Some(&attach.cipher)
        && (segment.sector_size, segment.offset, segment.iv_tweak)
            == (attach.sector_size, attach.offset, attach.iv_offset)
        && attach.length <= segment.length;
    if attach.uuid.as_deref() != Some(header.uuid()) || !is_laid_out_alike {
        return Err(another("its UUID or layout is another"));
    }
    let limits = KdfLimits {
        longest: Some(LONGEST_CHECK),
    };
    match device.unlock_with_volume_key(key, &limits) {
        Ok(unlocked) => Ok(unlocked.key),
        Err(error) if error.kind == xtent_luks::ErrorKind::WrongPassphrase => {
            Err(another("its key is another"))
        }
        Err(error) => Err(Failure::of_metadata(error, disk.path())),
    }
}
