//! An open volume on its way to a server that runs: what it needs to know, the key, and the files
//! with their locks.

use std::os::fd::{AsFd, BorrowedFd};

use sector_cipher::SectorCount;
use xtent_control::{Attach, Role, Source};
use xtent_secret::SecretBytes;
use xtent_store::FileParts;
use xtent_volume::{CipherThreads, DiscardPolicy, Holes};

use super::{Prepared, Wanted, uuid_of};
use crate::disk::Disk;
use crate::failure::{Failure, Result};
use crate::headerless::VolumeKey;
use crate::identity;
use crate::output::{Output, text_of};

/// What another process needs to open a volume.
pub(crate) struct HandedOver {
    pub(crate) attach: Attach,
    key: SecretBytes,
    /// That of the cluster's user, of an image whose cluster asks for one.
    user_key: Option<SecretBytes>,
    files: Vec<std::fs::File>,
}

impl HandedOver {
    /// The files, in the order of [`Attach::files`].
    pub(crate) fn files(&self) -> Vec<BorrowedFd<'_>> {
        self.files.iter().map(AsFd::as_fd).collect()
    }

    /// The keys, each for a message of its own.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &SecretBytes> {
        std::iter::once(&self.key).chain(&self.user_key)
    }
}

impl Prepared<'_> {
    /// Asks for the passphrase; what a server needs to open the volume, and the locks with it.
    pub(crate) fn hand_over(self, output: &Output) -> Result<HandedOver> {
        let wanted = self.wanted;
        self.try_hand_over(output).map_err(|e| wanted.name_in(e))
    }

    fn try_hand_over(self, output: &Output) -> Result<HandedOver> {
        let Self {
            wanted: Wanted { name, args, .. },
            closed,
            config,
            ..
        } = self;
        let data = closed.data();
        if let Disk::Image(image) = &data {
            image.refuse_writes_to_snapshot(config.read_only)?;
        }
        let VolumeKey { key, .. } = closed.key(&args.unlock, output)?;
        let mut files = Files::default();
        let mut user_key = None;
        let source = match &data {
            Disk::File(file) => {
                let parts = file.hand_over()?;
                let source = Source::File {
                    window: parts.window,
                    direct: parts.is_direct,
                    atomic: parts.atomic,
                    discard: parts.discard,
                };
                files.add_store(parts, Role::Data);
                source
            }
            Disk::Export(_) => {
                if let Some(lock) = data.lock_file() {
                    files.add_copy(lock)?;
                }
                Source::Export {
                    uri: text_of(data.path()),
                    reconnect: args.device.reconnect,
                    has_header: match closed.header() {
                        Some(header) => identity::tells(&data, header)?,
                        None => false,
                    },
                }
            }
            Disk::Image(image) => {
                let source;
                (source, user_key) = image.hand_over(closed.has_header_on_data())?;
                source
            }
        };
        // So that nobody erases or overwrites the header of a volume in use.
        match closed.detached_header() {
            Some(Disk::File(header)) => files.add_store(header.hand_over()?, Role::Held),
            Some(disk) => {
                if let Some(lock) = disk.lock_file() {
                    files.add_copy(lock)?;
                }
            }
            None => {}
        }
        let header = closed.header();
        let grows = header.is_some_and(|header| header.fixed_size().is_none());
        let path = match data.file() {
            Some(file) => std::fs::canonicalize(file.path()),
            None => Ok(data.path().to_owned()),
        };
        let path = path.unwrap_or_else(|_| data.path().to_owned());
        let attach = Attach {
            name: name.clone(),
            clients: args.clients.clone(),
            device: text_of(&path),
            partition: args.device.partition,
            uuid: uuid_of(&closed),
            source,
            files: files.roles,
            key_length: key.len(),
            cipher: config.cipher.to_string(),
            sector_size: u32::try_from(config.sector_size.bytes()).unwrap_or_default(),
            large_sectors: config.sector_count == SectorCount::Large,
            offset: config.offset,
            length: config.length,
            iv_offset: config.iv_offset,
            grows,
            read_only: config.read_only,
            encrypt: args.encrypt,
            discard: match config.discard {
                DiscardPolicy::Never => xtent_control::Discard::Never,
                DiscardPolicy::Allow => xtent_control::Discard::Allow,
                DiscardPolicy::Zero => xtent_control::Discard::Zero,
            },
            zero_holes: config.holes == Holes::Zero,
            backend: config.backend.map(|backend| backend.name().to_owned()),
            cipher_threads: match args.threads.cipher_threads {
                CipherThreads::Auto => None,
                CipherThreads::Count(count) => Some(count.get()),
            },
        };
        Ok(HandedOver {
            attach,
            key,
            user_key,
            files: files.files,
        })
    }
}

/// Files on their way to another process, and what they are.
#[derive(Default)]
struct Files {
    roles: Vec<Role>,
    files: Vec<std::fs::File>,
}

impl Files {
    fn add(&mut self, role: Role, file: std::fs::File) {
        self.roles.push(role);
        self.files.push(file);
    }

    fn add_copy(&mut self, file: &std::fs::File) -> Result<()> {
        let copy = file
            .try_clone()
            .map_err(|e| Failure::system("cannot hand a lock over", e))?;
        self.add(Role::Held, copy);
        Ok(())
    }

    /// The file, and what belongs to it: of one that is only held, all is held.
    fn add_store(&mut self, parts: FileParts, role: Role) {
        let of = |other| match role {
            Role::Data => other,
            _ => Role::Held,
        };
        self.add(role, parts.file);
        if let Some(claim) = parts.claim {
            self.add(of(Role::Claim), claim);
        }
        if let Some(backing) = parts.backing {
            self.add(of(Role::Backing), backing);
        }
    }
}
