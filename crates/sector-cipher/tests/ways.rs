//! What the CPU's ports decide changes nothing but speed: each way of a back-end gives what
//! the portable one gives, whatever this CPU takes by itself. The conformance suite has that one. Every
//! cipher goes every way here, whether it asks for one now or not, and one cipher takes all of them.
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

mod common;

use common::{Way, cipher, cut, for_all, quick};
use sector_cipher::Backend;

/// Sectors in a run: on both sides of where batches, groups and passes end.
fn lengths() -> &'static [usize] {
    if quick() {
        &[1, 2, 8, 17]
    } else {
        &[1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 64, 70]
    }
}

#[test]
fn every_way_gives_the_same() {
    let mut tried = 0;
    for_all(|name, key, bytes, random| {
        let first = 4096;
        let plain = random.bytes(70 * bytes);
        let mut all = None;
        for &backend in Backend::available() {
            if backend.ports().is_none() {
                continue;
            }
            let all = all.get_or_insert_with(|| {
                let mut all = plain.clone();
                cipher(name, bytes, key, Backend::Portable).encrypt(first, &mut all);
                all
            });
            let cipher = cipher(name, bytes, key, backend);
            for way in Way::every() {
                way.take();
                tried += 1;
                for &sectors in lengths() {
                    let len = sectors * bytes;
                    let (plain, expected) = (&plain[..len], &all[..len]);
                    let what = format!("{name} {bytes} {backend} {sectors} sectors{}", way.name());
                    let (from, to) = (random.below(65), random.below(65));
                    let mut source = vec![0xa5; from + len + 64];
                    let mut dest = vec![0x5a; to + len + 64];
                    source[from..from + len].copy_from_slice(plain);
                    cipher.encrypt_to(first, &source[from..from + len], &mut dest[to..to + len]);
                    assert!(dest[to..to + len] == *expected, "{what}: encrypt_to");
                    let mut outside = dest[..to].iter().chain(&dest[to + len..]);
                    assert!(outside.all(|&byte| byte == 0x5a), "{what}: outside");
                    source[from..from + len].fill(0);
                    cipher.decrypt_to(first, &dest[to..to + len], &mut source[from..from + len]);
                    let data = &mut source[from..from + len];
                    assert!(data == plain, "{what}: decrypt_to");
                    cipher.encrypt(first, data);
                    assert!(data == expected, "{what}: encrypt");
                    cipher.decrypt(first, data);
                    assert!(data == plain, "{what}: decrypt");
                    cipher.encrypt_runs(&mut cut(first, data, bytes, random));
                    assert!(data == expected, "{what}: encrypt_runs");
                    cipher.decrypt_runs(&mut cut(first, data, bytes, random));
                    assert!(data == plain, "{what}: decrypt_runs");
                }
            }
        }
    });
    let has_ways = |backend: &Backend| backend.ports().is_some();
    assert_eq!(tried > 0, Backend::available().iter().any(has_ways));
}
