//! One client of an image: requests of one size, sixteen under way, and the CPU time of all of its
//! threads for them. For `bench/volume/rbd.py`.
//!
//! ```text
//! load NAME plain|librbd|CIPHER read|write BYTES-OF-A-REQUEST BYTES
//! ```
//!
//! `plain` is the image itself, `librbd` its own LUKS2 encryption (passphrase `bench`), and a cipher by
//! dm-crypt's name a volume with a fixed key and no header, 4096-byte sectors, 16 MiB into the image.
#![allow(clippy::unwrap_used, reason = "an example may stop at an error")]
#![allow(clippy::cast_possible_truncation, reason = "any byte will do")]

use std::cell::RefCell;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use rustix::time::{ClockId, clock_gettime};
use sector_cipher::{CipherSpec, SectorCount, SectorSize};
use xtent_rbd::{Image, Name};
use xtent_secret::SecretBytes;
use xtent_store::{Access, Memory, Operation, Store, block_on};
use xtent_volume::{Config, DiscardPolicy, Holes, Volume};

const DEPTH: usize = 16;
const OFFSET: u64 = 16 << 20;

fn seconds(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, mode, direction, request, total] = &arguments[..] else {
        panic!("usage: load NAME plain|librbd|CIPHER read|write BYTES-OF-A-REQUEST BYTES");
    };
    let name: Name = name.parse().unwrap();
    let image = Arc::new(Image::open(&name, Access::ReadWrite).unwrap());
    let request: usize = request.parse().unwrap();
    let total: u64 = total.parse().unwrap();
    let writes = direction == "write";
    let volume = match mode.as_str() {
        "plain" => None,
        "librbd" => {
            image.load_luks2("bench").unwrap();
            None
        }
        cipher => Some(volume(&image, cipher)),
    };
    let size = volume
        .as_ref()
        .map_or_else(|| image.size() - OFFSET, Volume::size);
    let start = match mode.as_str() {
        // The same places in the cluster.
        "plain" => OFFSET,
        _ => 0,
    };
    let slots = size / request as u64;
    let memory = Memory::new(DEPTH * 2 * request.next_power_of_two().max(16 << 10));
    let pattern: Vec<u8> = (0..request).map(|i| (i * 31 % 251) as u8).collect();
    // As an export gives it to a socket. Whoever is first to look at what librbd has read on another
    // core waits for that core's cache: each mode has that once.
    let sent = RefCell::new(vec![0; request]);
    let run = |index: u64| {
        let (volume, image, memory, pattern) = (&volume, &image, &memory, &pattern);
        let sent = &sent;
        async move {
            let offset = index % slots * request as u64;
            let mut buffer = memory.wait_for(request).await.unwrap();
            if writes {
                // As an export receives it.
                buffer.copy_from_slice(pattern);
            }
            match (volume, writes) {
                (Some(volume), true) => {
                    volume
                        .write_async(buffer, offset, request, false)
                        .await
                        .unwrap();
                }
                (Some(volume), false) => {
                    let read = volume.read_async(buffer, offset, request).await.unwrap();
                    sent.borrow_mut().copy_from_slice(&read[..request]);
                }
                (None, true) => {
                    let durably = false;
                    let offset = start + offset;
                    let write = Operation::Write {
                        buffer,
                        offset,
                        durably,
                    };
                    image.submit(write).await.result.unwrap();
                }
                (None, false) => {
                    let offset = start + offset;
                    let read = image.submit(Operation::Read { buffer, offset }).await;
                    read.result.unwrap();
                    sent.borrow_mut().copy_from_slice(&read.buffer.unwrap());
                }
            }
        }
    };
    let (wall, cpu) = (
        seconds(ClockId::Monotonic),
        seconds(ClockId::ProcessCPUTime),
    );
    block_on(
        stream::iter(0..total / request as u64)
            .map(run)
            .buffer_unordered(DEPTH)
            .for_each(|()| async {}),
    );
    let wall = seconds(ClockId::Monotonic) - wall;
    let cpu = seconds(ClockId::ProcessCPUTime) - cpu;
    let bytes = total / request as u64 * request as u64;
    println!("{{\"bytes\": {bytes}, \"wall\": {wall:.6}, \"cpu\": {cpu:.6}}}");
}

fn volume(image: &Arc<Image>, cipher: &str) -> Volume {
    let cipher: CipherSpec = cipher.parse().unwrap();
    let length = *cipher.key_lengths().iter().max().unwrap();
    let key: Vec<u8> = (0..length).map(|i| (i * 7 + 1) as u8).collect();
    let config = Config {
        cipher,
        sector_size: SectorSize::new(4096).unwrap(),
        sector_count: SectorCount::Units512,
        offset: OFFSET,
        length: image.size() - OFFSET,
        iv_offset: 0,
        read_only: false,
        discard: DiscardPolicy::Never,
        holes: Holes::Noise,
        backend: None,
    };
    let store = Arc::clone(image) as Arc<dyn Store>;
    Volume::open(store, &SecretBytes::copy_of(&key).unwrap(), &config).unwrap()
}
