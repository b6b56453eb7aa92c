//! A request to begin tests with.

use crate::{Attach, Discard, Role, Source};

/// A volume in a file, as an attach of a LUKS2 volume sends it.
pub fn sample(name: &str, device: &str, length: u64) -> Attach {
    Attach {
        name: name.to_owned(),
        clients: Vec::new(),
        device: device.to_owned(),
        partition: None,
        uuid: None,
        source: Source::File {
            window: None,
            direct: false,
            atomic: 512,
            discard: 4096,
        },
        files: vec![Role::Data],
        key_length: 64,
        cipher: "aes-xts-plain64".to_owned(),
        sector_size: 512,
        large_sectors: false,
        offset: 16 << 20,
        length,
        iv_offset: 0,
        grows: true,
        read_only: false,
        encrypt: false,
        discard: Discard::Never,
        zero_holes: false,
        backend: None,
        cipher_threads: None,
    }
}
