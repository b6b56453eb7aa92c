//! What is left on the stack behind `wipe_stack` does not depend on the key.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

mod common;

use common::{Random, Way, cipher, names};
use sector_cipher::{Backend, Cipher, CipherSpec};
use std::arch::asm;

/// Bytes below the caller that are looked at: more than the deepest kernel takes.
const DEPTH: usize = 64 << 10;

/// Fills what is below the stack pointer with zeros.
#[inline(always)]
fn clear() {
    // SAFETY: what is below the stack pointer belongs to nobody, and a test's stack is
    // larger. Without `nostack` the compiler keeps nothing there.
    unsafe {
        asm!(
            "lea rdi, [rsp - {depth}]",
            "rep stosb",
            depth = const DEPTH,
            in("rcx") DEPTH,
            in("al") 0u8,
            lateout("rcx") _,
            out("rdi") _,
        );
    }
}

/// Copies it.
#[inline(always)]
fn below(copy: &mut [u8; DEPTH]) {
    // SAFETY: as above; the copy has as many bytes.
    unsafe {
        asm!(
            "lea rsi, [rsp - {depth}]",
            "rep movsb",
            depth = const DEPTH,
            in("rdi") copy.as_mut_ptr(),
            in("rcx") DEPTH,
            lateout("rdi") _,
            lateout("rcx") _,
            out("rsi") _,
        );
    }
}

/// What a call leaves that encrypts, or decrypts, `data`, and what is then left behind
/// [`Cipher::wipe_stack`].
#[inline(never)]
fn left_by(cipher: &Cipher, encrypt: bool, data: &mut [u8], copies: &mut [[u8; DEPTH]]) {
    clear();
    if encrypt {
        cipher.encrypt(8, data);
    } else {
        cipher.decrypt(8, data);
    }
    below(&mut copies[0]);
    cipher.wipe_stack();
    below(&mut copies[1]);
}

/// How many bytes are not the same.
fn different(a: &[u8; DEPTH], b: &[u8; DEPTH]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a != b).count()
}

#[test]
fn nothing_of_the_key_stays_on_the_stack() {
    let mut random = Random::new(17);
    let plain = random.bytes(70 * 4096);
    // All of it always at the same places, or addresses would differ.
    let mut data = plain.clone();
    let mut copies = vec![[0; DEPTH]; 2];
    // Of what a call leaves: some leave nothing, but not all.
    let mut most = 0;
    for name in names() {
        let spec: CipherSpec = name.parse().unwrap();
        for &len in spec.key_lengths() {
            let keys = [random.bytes(len), random.bytes(len)];
            let ways = |&backend: &Backend| {
                let ways = Way::all(backend, spec.mode());
                ways.into_iter().map(move |way| (backend, way))
            };
            for (backend, way) in Backend::available().iter().flat_map(ways) {
                way.take();
                for (bytes, sectors) in [(512, 1), (512, 9), (512, 70), (4096, 1), (4096, 20)] {
                    let mut cipher = cipher(&name, bytes, &keys[0], backend);
                    for encrypt in [true, false] {
                        let left = [&keys[0], &keys[1]].map(|key| {
                            cipher.rekey(key).unwrap();
                            data.copy_from_slice(&plain);
                            left_by(&cipher, encrypt, &mut data[..bytes * sectors], &mut copies);
                            copies.clone()
                        });
                        let what = format!(
                            "{name} {len} {backend} {sectors} of {bytes} bytes{}",
                            way.name()
                        );
                        let [before, after] = [0, 1].map(|i| different(&left[0][i], &left[1][i]));
                        assert_eq!(after, 0, "{what}");
                        most = most.max(before);
                    }
                }
            }
        }
    }
    assert!(most > 256, "{most}: is anything looked at?");
}
