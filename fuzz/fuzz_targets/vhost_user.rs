//! A virtual machine's disk: whatever the guest has in its memory, what it asks for stays inside
//! the volume and the memory, and the ring can be stopped.
#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use sector_cipher::{SectorCount, SectorSize};
use xtent_export::vhost_user::testing::{Descriptor, ENTRIES, Rig};
use xtent_secret::SecretBytes;
use xtent_store::testing::MemStore;
use xtent_volume::{Config, DiscardPolicy, Holes, Volume};

/// The header's words, descriptors, how many requests there are, and which comes when.
type Input<'a> = ([u32; 4], Vec<(u8, u8, u16, u8, u8)>, u8, Vec<u8>, &'a [u8]);

const HEADER: u64 = 0x8000;

fn volume() -> Arc<Volume> {
    static VOLUME: OnceLock<Arc<Volume>> = OnceLock::new();
    let open = || {
        let store = Arc::new(MemStore::new(1 << 20));
        let config = Config {
            cipher: "aes-xts-plain64".parse().unwrap(),
            sector_size: SectorSize::new(512).unwrap(),
            sector_count: SectorCount::Units512,
            offset: 0,
            length: 1 << 20,
            iv_offset: 0,
            read_only: false,
            discard: DiscardPolicy::Zero,
            holes: Holes::Noise,
            backend: None,
        };
        let key = SecretBytes::copy_of(&[7; 32]).unwrap();
        Arc::new(Volume::open(store, &key, &config).unwrap())
    };
    Arc::clone(VOLUME.get_or_init(open))
}

/// Places that matter: the ring's parts, the header, the second region, its end, no memory.
fn place(number: u8, offset: u16) -> u64 {
    let base = [
        HEADER,
        HEADER + 16,
        0x1000,
        0x2000,
        0x3000,
        0xff00,
        0x10_0000,
        0x4f_f000,
        0x9_0000,
        u64::MAX - 0xff,
    ];
    base[usize::from(number) % base.len()].wrapping_add(offset.into())
}

fuzz_target!(|input: Input| {
    let (header, descriptors, available, heads, rest) = input;
    let mut rig = Rig::new(volume());
    rig.put(HEADER + 32, rest);
    let [kind, zero, low, high] = header;
    // Most are requests that there are.
    let kinds = [0, 1, 4, 8, 11, 13, kind];
    let words = [
        kinds[kind as usize % kinds.len()],
        zero,
        low % 4096,
        high & 1,
    ];
    rig.put(HEADER, &words.map(u32::to_le_bytes).concat());
    for (index, (base, flags, len, next, offset)) in (0..ENTRIES).zip(descriptors) {
        let descriptor = Descriptor {
            at: place(base, offset.into()),
            len: match len & 3 {
                0 => 16,
                1 => 1,
                2 => u32::from(len) & !0x1ff,
                _ => u32::from(len) << 16,
            },
            flags: u16::from(flags & 7),
            next: u16::from(next) % (ENTRIES + 1),
        };
        rig.describe(Rig::TABLE, index, &[descriptor]);
    }
    for (index, head) in (0..u64::from(ENTRIES)).zip(heads) {
        rig.put(0x2004 + 2 * index, &[head % 20, 0]);
    }
    rig.serve_anything(u16::from(available));
});
