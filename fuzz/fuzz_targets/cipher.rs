//! Any list of runs: the checked calls refuse it or work, and what works gives, sector by
//! sector, what one call for one sector gives on the portable back-end, and goes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sector_cipher::{Backend, Cipher, CipherSpec, First, Run, SectorCount, SectorSize};

/// Bytes that all runs of an input come from.
const ROOM: usize = 48 * 512;

/// Where a run starts, and what it has.
struct Piece {
    first: u64,
    len: usize,
}

fuzz_target!(|data: &[u8]| {
    let [which, setting, seed, rest @ ..] = data else {
        return;
    };
    let specs: Vec<CipherSpec> = CipherSpec::all().collect();
    let spec = specs[usize::from(*which) % specs.len()];
    let lengths = spec.key_lengths();
    let key_len = lengths[usize::from(*setting) % lengths.len()];
    let size = SectorSize::ALL[usize::from(setting >> 2) % 4];
    let count = [SectorCount::Units512, SectorCount::Large][usize::from(setting >> 4) % 2];
    let available = Backend::available();
    let backend = available[usize::from(setting >> 5) % available.len()];
    let key: Vec<u8> = (0..)
        .map(|i: u8| i.wrapping_mul(*seed))
        .take(key_len)
        .collect();
    let make = |backend| {
        Cipher::new(spec, size, count, &key, Some(backend)).expect("a key length of the cipher")
    };
    let (cipher, portable) = (make(backend), make(Backend::Portable));

    // Each takes ten bytes: a number, and a length that is mostly whole sectors.
    let mut left = ROOM;
    let mut pieces = Vec::new();
    for piece in rest.chunks_exact(10) {
        let first = u64::from_le_bytes(piece[..8].try_into().expect("eight bytes"));
        let odd = usize::from(piece[9] == 255);
        let sectors = usize::from(piece[8]) % 9;
        let len = sectors * size.bytes() + odd;
        if len > left {
            break;
        }
        left -= len;
        pieces.push(Piece { first, len });
    }

    let plain: Vec<u8> = (0..ROOM).map(|i| (i as u8).wrapping_add(*seed)).collect();
    let runs = |data: &mut [u8], call: &dyn Fn(&mut [Run<'_>]) -> bool| {
        let mut data = data;
        let mut runs = Vec::new();
        for piece in &pieces {
            let (now, later) = data.split_at_mut(piece.len);
            runs.push(Run {
                first: piece.first,
                data: now,
            });
            data = later;
        }
        call(&mut runs)
    };
    // What makes a run, by the rules as they are written down.
    let units = (size.bytes() / 512) as u64;
    let right = pieces.iter().all(|piece| {
        piece.len % size.bytes() == 0
            && piece.first % units == 0
            && u128::from(piece.first) + (piece.len / 512) as u128 <= 1 << 64
    });

    let mut data = plain.clone();
    let taken = runs(&mut data, &|s| cipher.try_encrypt_runs(s).is_ok());
    // An empty one has no last sector, and may stand anywhere.
    assert_eq!(taken, right);
    if !taken {
        assert!(data == plain, "changed, and then refused");
        let other = runs(&mut data, &|s| cipher.try_decrypt_runs(s).is_err());
        assert!(other && data == plain);
        return;
    }
    let mut expected = plain.clone();
    let mut start = 0;
    for piece in &pieces {
        for i in 0..piece.len / size.bytes() {
            let first = First::Units512(piece.first + i as u64 * units);
            let sector = &mut expected[start + i * size.bytes()..][..size.bytes()];
            portable.try_encrypt(first, sector).expect("a sector");
        }
        start += piece.len;
    }
    assert!(data == expected, "{spec} {backend}");

    // Piece by piece, from one buffer to another.
    let mut between = plain.clone();
    let mut start = 0;
    for piece in &pieces {
        let range = start..start + piece.len;
        let first = First::Units512(piece.first);
        cipher
            .try_encrypt_to(first, &plain[range.clone()], &mut between[range])
            .expect("a run");
        start += piece.len;
    }
    assert!(between == expected, "{spec} {backend}");
    assert!(runs(&mut data, &|s| cipher.try_decrypt_runs(s).is_ok()));
    assert!(data == plain, "{spec} {backend}");
});
