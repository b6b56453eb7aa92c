//! What the CPU's ports decide changes nothing but speed: each way of a back-end gives what
//! the portable one gives, whatever this CPU takes by itself. The conformance suite has that one.
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

mod common;

use common::{Way, cipher, cut, for_all, lengths, spec};
use sector_cipher::Backend;

#[test]
fn every_way_gives_the_same() {
    let mut tried = 0;
    for_all(|name, key, bytes, random| {
        let first = 4096;
        let plain = random.bytes(70 * bytes);
        let mut all = None;
        for &backend in Backend::available() {
            let ways = Way::all(backend, spec(name).mode());
            if ways.len() == 1 {
                continue;
            }
            let all = all.get_or_insert_with(|| {
                let mut all = plain.clone();
                cipher(name, bytes, key, Backend::Portable).encrypt(first, &mut all);
                all
            });
            for way in ways {
                way.take();
                tried += 1;
                let cipher = cipher(name, bytes, key, backend);
                for sectors in lengths() {
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
