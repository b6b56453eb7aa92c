//! Memory that others see: the same bytes as elsewhere, one look at each, and nothing but the result in it.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sector_cipher::{
    Backend, Cipher, CipherSpec, First, Foreign, RunError, SectorCount, SectorSize,
};

const LEN: usize = 64 << 10;

/// Memory that is reached by its address alone.
struct Place(*mut u8);

// SAFETY: threads read and write single bytes and words of it, volatile.
unsafe impl Sync for Place {}

impl Place {
    fn layout() -> Layout {
        Layout::from_size_align(LEN, 4096).unwrap()
    }

    fn new() -> Self {
        // SAFETY: of a length above zero.
        let start = unsafe { alloc_zeroed(Self::layout()) };
        assert!(!start.is_null());
        Self(start)
    }

    fn piece(&self, start: usize, len: usize) -> Foreign<'_> {
        assert!(start + len <= LEN);
        // SAFETY: inside, for as long as the place; there are no references to it.
        unsafe { Foreign::new(self.0.add(start), len) }
    }

    fn fill(&self, word: u64) {
        for at in (0..LEN).step_by(8) {
            // SAFETY: inside, and aligned.
            unsafe { self.0.add(at).cast::<u64>().write_volatile(word) };
        }
    }

    fn put(&self, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate().take(LEN) {
            // SAFETY: inside.
            unsafe { self.0.add(at).write_volatile(*byte) };
        }
    }

    fn byte(&self, at: usize) -> u8 {
        assert!(at < LEN);
        // SAFETY: inside.
        unsafe { self.0.add(at).read_volatile() }
    }

    fn bytes(&self) -> Vec<u8> {
        (0..LEN).map(|at| self.byte(at)).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: what `new` has allocated.
        unsafe { dealloc(self.0, Self::layout()) };
    }
}

fn cipher(name: &str, key: usize, sector: u32, backend: Backend) -> Cipher {
    let (spec, size) = (name.parse().unwrap(), SectorSize::new(sector).unwrap());
    let key: Vec<u8> = (0..key)
        .map(|i| u8::try_from(i * 7 % 251).unwrap())
        .collect();
    Cipher::new(spec, size, SectorCount::Units512, &key, Some(backend)).unwrap()
}

/// XTS with every key size, sector size and back-end that this CPU has.
fn all() -> impl Iterator<Item = (Cipher, Backend)> {
    Backend::available().iter().flat_map(|&backend| {
        [(32, 512), (64, 512), (32, 4096), (64, 4096), (64, 1024)]
            .map(|(key, sector)| (cipher("aes-xts-plain64", key, sector, backend), backend))
    })
}

#[test]
fn pieces_are_one_run_whatever_their_lengths() {
    let (place, first) = (Place::new(), First::Units512(8000));
    let plain: Vec<u8> = (0..LEN)
        .map(|i| u8::try_from(i * i % 253).unwrap())
        .collect();
    for (cipher, backend) in all() {
        let sector = cipher.sector_size().bytes();
        let mut expected = plain.clone();
        cipher.try_encrypt(first, &mut expected).unwrap();
        for seed in 1..40_usize {
            // Pieces in turn from the front and from the back of what is left of the place.
            let (mut pieces, mut begin, mut end, mut step) = (Vec::new(), 0, LEN, seed);
            while begin < end {
                step = step * 75 % 65_537;
                let len = (step % 19 * sector).min(end - begin);
                let start = match step % 3 {
                    0 => end - len,
                    _ => begin,
                };
                match step % 3 {
                    0 => end -= len,
                    _ => begin += len,
                }
                pieces.push((start, len));
            }
            let foreign: Vec<_> = pieces
                .iter()
                .map(|&(at, len)| place.piece(at, len))
                .collect();
            let mut in_pieces = plain.clone();
            let mut from = 0;
            for &(start, len) in &pieces {
                in_pieces[start..start + len].copy_from_slice(&plain[from..from + len]);
                from += len;
            }
            place.put(&in_pieces);
            let mut dest = vec![0xee; LEN];
            cipher.try_encrypt_from(first, &foreign, &mut dest).unwrap();
            assert!(dest == expected, "{backend}, {sector}, {pieces:?}");
            assert!(place.bytes() == in_pieces, "the source has changed");
            place.fill(0);
            cipher.try_decrypt_into(first, &expected, &foreign).unwrap();
            assert!(
                place.bytes() == in_pieces,
                "{backend}, {sector}, {pieces:?}"
            );
        }
    }
}

#[test]
fn what_makes_no_run_is_refused_before_a_byte_is_changed() {
    let place = Place::new();
    let cipher = cipher("aes-xts-plain64", 64, 512, Backend::best());
    let mut dest = vec![7; 1024];
    let two = [place.piece(0, 512), place.piece(1024, 511)];
    let error = cipher.try_encrypt_from(First::Index(0), &two, &mut dest);
    assert!(matches!(error, Err(RunError::Length { len: 511, .. })));
    let one = [place.piece(0, 512)];
    let error = cipher.try_encrypt_from(First::Index(0), &one, &mut dest);
    assert!(matches!(
        error,
        Err(RunError::Unequal {
            source: 512,
            dest: 1024
        })
    ));
    let error = cipher.try_decrypt_into(First::Index(0), &dest, &one);
    assert!(matches!(
        error,
        Err(RunError::Unequal {
            source: 1024,
            dest: 512
        })
    ));
    let last = First::Units512(u64::MAX);
    let two = [place.piece(0, 512), place.piece(512, 512)];
    let error = cipher.try_encrypt_from(last, &two, &mut dest);
    assert!(matches!(error, Err(RunError::BeyondLast { .. })));
    assert!(dest == [7; 1024] && place.bytes() == [0; LEN]);
    assert!(cipher.try_encrypt_from(last, &[], &mut []).is_ok());
}

#[test]
fn no_other_cipher_takes_it() {
    let place = Place::new();
    for spec in CipherSpec::all() {
        let key = vec![3; *spec.key_lengths().last().unwrap()];
        let size = SectorSize::new(512).unwrap();
        let Ok(cipher) = Cipher::new(spec, size, SectorCount::Units512, &key, None) else {
            continue;
        };
        let source = [place.piece(0, 512)];
        let result = cipher.try_encrypt_from(First::Index(0), &source, &mut [0; 512]);
        let expected = match spec.to_string().contains("xts") {
            true => Ok(()),
            false => Err(RunError::Foreign),
        };
        assert_eq!(result, expected, "{spec}");
    }
}

/// While somebody changes all bytes back and forth, what was encrypted is, byte for byte, one of the two that were
/// there: a cipher that looked twice would make a block of neither.
#[test]
fn a_byte_is_looked_at_once() {
    let (place, is_over) = (Place::new(), AtomicBool::new(false));
    let (zeros, ones) = (0, u64::MAX);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                place.fill(ones);
                place.fill(zeros);
            }
        });
        let end = End(&is_over);
        for (cipher, backend) in all() {
            let source = [place.piece(0, LEN)];
            // Until enough runs have seen the other thread at work.
            let mut mixed = 0;
            while mixed < 20 {
                let mut dest = vec![0; LEN];
                cipher
                    .try_encrypt_from(First::Index(0), &source, &mut dest)
                    .unwrap();
                cipher.try_decrypt(First::Index(0), &mut dest).unwrap();
                assert!(dest.iter().all(|it| [0, 0xff].contains(it)), "{backend}");
                mixed += usize::from(dest.contains(&0) && dest.contains(&0xff));
            }
        }
        drop(end);
    });
}

/// While it is decrypted to, whoever looks sees what was there before or the result, and nothing else.
#[test]
fn nothing_but_the_result_is_written() {
    const LOOKS: usize = 50_000;
    let (place, is_over) = (Place::new(), AtomicBool::new(false));
    let (runs, looks) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for (cipher, backend) in all() {
        is_over.store(false, Ordering::Relaxed);
        looks.store(0, Ordering::Relaxed);
        let mut ciphertext = vec![0xff; LEN];
        cipher
            .try_encrypt(First::Index(0), &mut ciphertext)
            .unwrap();
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut at = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let run = runs.load(Ordering::SeqCst);
                    for _ in 0..16 {
                        at = (at + 4093) % LEN;
                        let byte = place.byte(at);
                        assert!([0, 0xff].contains(&byte), "{backend}: {byte:x} at {at}");
                    }
                    // Only what was seen while a run was under way counts.
                    if run % 2 == 1 && runs.load(Ordering::SeqCst) == run {
                        looks.fetch_add(16, Ordering::Relaxed);
                    }
                }
            });
            let end = End(&is_over);
            while looks.load(Ordering::Relaxed) < LOOKS && !watch.is_finished() {
                place.fill(0);
                let dest = [place.piece(0, LEN / 2), place.piece(LEN / 2, LEN / 2)];
                runs.fetch_add(1, Ordering::SeqCst);
                cipher
                    .try_decrypt_into(First::Index(0), &ciphertext, &dest)
                    .unwrap();
                runs.fetch_add(1, Ordering::SeqCst);
            }
            drop(end);
            watch.join().unwrap();
        });
        assert!(place.bytes() == [0xff; LEN]);
    }
}

/// Ends the other thread, whatever happens to this one.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
