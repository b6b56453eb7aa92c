//! Every call with whatever C can pass and the documentation does not forbid: null pointers,
//! lengths of any size where nothing is read, buffers that overlap, segments in any order.
//! What is refused has changed nothing; what is done is what the Rust interface does, to
//! those bytes and no others.
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

use proptest::prelude::*;

use crate::*;

/// Bytes that all buffers of a call lie in.
const ROOM: usize = 24 * 512;
/// No object is as long.
const HUGE: [usize; 3] = [usize::MAX, usize::MAX - 511, isize::MAX as usize + 1];

/// Where a buffer is, and how long.
#[derive(Clone, Debug)]
enum Place {
    Null(usize),
    At(usize, usize),
    /// Longer than anything: refused before it is looked at.
    Huge(usize),
}

impl Place {
    fn pointer(&self, room: &mut [u8]) -> *mut u8 {
        match self {
            Self::Null(_) => ptr::null_mut(),
            Self::At(at, _) => room[*at..].as_mut_ptr(),
            Self::Huge(_) => room.as_mut_ptr(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Null(len) | Self::Huge(len) | Self::At(_, len) => *len,
        }
    }

    /// The bytes meant, if they are any.
    fn range(&self) -> Option<std::ops::Range<usize>> {
        match self {
            Self::Null(0) => Some(0..0),
            Self::At(at, len) => Some(*at..at + len),
            Self::Null(_) | Self::Huge(_) => None,
        }
    }
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => (0..7usize).prop_map(|sectors| sectors * 512),
        1 => Just(4096),
        1 => 0..4096usize,
    ]
}

fn place() -> impl Strategy<Value = Place> {
    let start = prop_oneof![
        3 => (0..16usize).prop_map(|at| at * 512),
        1 => 0..16 * 512usize,
    ];
    prop_oneof![
        12 => (start, length()).prop_map(|(at, len)| Place::At(at, len)),
        1 => length().prop_map(Place::Null),
        1 => prop::sample::select(&HUGE[..]).prop_map(Place::Huge),
    ]
}

fn first() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..1000u64).prop_map(|n| n * 8),
        1 => 0..1000u64,
        1 => (0..20u64).prop_map(|n| u64::MAX - n),
        1 => any::<u64>(),
    ]
}

/// A cipher by both interfaces.
struct Both {
    c: *mut sector_cipher,
    rust: Cipher,
    size: SectorSize,
}

impl Both {
    fn new(name: &CStr, size: SectorSize, key: &[u8]) -> Self {
        let bytes = u32::try_from(size.bytes()).unwrap();
        let mut c = ptr::null_mut();
        // SAFETY: readable and writable values of ours; NULL names no back-end.
        let code = unsafe {
            let (key, len) = (key.as_ptr(), key.len());
            sector_cipher_new(&mut c, name.as_ptr(), bytes, false, key, len, ptr::null())
        };
        assert_eq!(code, Code::Ok);
        let spec = name.to_str().unwrap().parse().unwrap();
        let rust = Cipher::new(spec, size, SectorCount::Units512, key, None).unwrap();
        Self { c, rust, size }
    }

    /// Whether these are sectors, wherever they lie.
    fn are_sectors(&self, first: u64, len: usize) -> bool {
        let units = self.size.bytes() as u64 / 512;
        len.is_multiple_of(self.size.bytes())
            && first.is_multiple_of(units)
            && u128::from(first) + len as u128 / 512 <= 1 << 64
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        // SAFETY: from `sector_cipher_new`, and not used again.
        unsafe { sector_cipher_free(self.c) };
    }
}

fn ciphers() -> impl Strategy<Value = (&'static CStr, SectorSize)> {
    let names = [
        c"aes-xts-plain64",
        c"aes-cbc-essiv:sha256",
        c"xchacha12,aes-adiantum-plain64",
    ];
    let sizes = [SectorSize::ALL[0], SectorSize::ALL[3]];
    (
        prop::sample::select(names.to_vec()),
        prop::sample::select(sizes.to_vec()),
    )
}

fn filled() -> Vec<u8> {
    (0..=250).cycle().take(ROOM).collect()
}

fn do_overlap(a: &std::ops::Range<usize>, b: &std::ops::Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

proptest! {
    #[test]
    fn a_run(
        (name, size) in ciphers(),
        place in place(),
        first in first(),
        encrypt in any::<bool>(),
        no_cipher in prop::bool::weighted(0.05),
    ) {
        let both = Both::new(name, size, &[7; 32]);
        let mut room = filled();
        let c = if no_cipher { ptr::null_mut() } else { both.c };
        let (data, len) = (place.pointer(&mut room), place.len());
        let call = if encrypt { sector_cipher_encrypt } else { sector_cipher_decrypt };
        // SAFETY: bytes of `room`, or none that are looked at.
        let code = unsafe { call(c, first, data, len) };
        let mut expected = filled();
        let range = place.range().filter(|range| both.are_sectors(first, range.len()));
        prop_assert_eq!(code == Code::Ok, range.is_some() && !no_cipher, "{:?}", code);
        if code == Code::Ok {
            let first = First::Units512(first);
            let data = &mut expected[range.unwrap()];
            if encrypt {
                both.rust.try_encrypt(first, data).unwrap();
            } else {
                both.rust.try_decrypt(first, data).unwrap();
            }
        }
        prop_assert!(room == expected);
    }

    #[test]
    fn a_run_between(
        (name, size) in ciphers(),
        (source, dest) in (place(), place()),
        is_same in any::<bool>(),
        first in first(),
        encrypt in any::<bool>(),
    ) {
        let both = Both::new(name, size, &[7; 32]);
        let mut room = filled();
        let dest = if is_same { source.clone() } else { dest };
        // One length for both, and room for it.
        let len = source.len();
        let fits = match &dest {
            Place::At(at, _) => at + len.min(ROOM) <= ROOM,
            Place::Null(_) => true,
            Place::Huge(_) => false,
        };
        prop_assume!(fits || len >= HUGE[2]);
        let (from, to) = (source.pointer(&mut room), dest.pointer(&mut room));
        let call = if encrypt { sector_cipher_encrypt_to } else { sector_cipher_decrypt_to };
        // SAFETY: bytes of `room`, or none that are looked at.
        let code = unsafe { call(both.c, first, from, to, len) };
        let ranges = match (&source, &dest) {
            _ if len == 0 => Some((0..0, 0..0)),
            (Place::At(from, _), Place::At(to, _)) => Some((*from..from + len, *to..to + len)),
            _ => None,
        };
        let ranges = ranges.filter(|(from, to)| {
            both.are_sectors(first, len) && (from == to || !do_overlap(from, to))
        });
        prop_assert_eq!(code == Code::Ok, ranges.is_some(), "{:?}", code);
        let mut expected = filled();
        if let Some((from, to)) = ranges {
            let mut data = expected[from].to_vec();
            let first = First::Units512(first);
            if encrypt {
                both.rust.try_encrypt(first, &mut data).unwrap();
            } else {
                both.rust.try_decrypt(first, &mut data).unwrap();
            }
            expected[to].copy_from_slice(&data);
        }
        prop_assert!(room == expected);
    }

    #[test]
    fn segments(
        (name, size) in ciphers(),
        places in prop::collection::vec((place(), first()), 0..6),
        apart in any::<bool>(),
        empty in 0..70usize,
        encrypt in any::<bool>(),
    ) {
        let both = Both::new(name, size, &[7; 32]);
        let mut room = filled();
        let mut places = places;
        if apart {
            // Else few lists would be without an overlap.
            for (at, (place, first)) in places.iter_mut().enumerate() {
                let len = if at % 2 == 0 { size.bytes() } else { 0 };
                *place = Place::At((2 - at / 2) * 4096, len);
                *first &= !7;
            }
        }
        // More than are handed over together.
        places.extend(vec![(Place::Null(0), 0); empty]);
        let list: Vec<_> = places
            .iter()
            .map(|(place, first)| sector_cipher_segment {
                first: *first,
                data: place.pointer(&mut room),
                len: place.len(),
            })
            .collect();
        let call = if encrypt {
            sector_cipher_encrypt_segments
        } else {
            sector_cipher_decrypt_segments
        };
        // SAFETY: segments of bytes of `room`, or of none that are looked at.
        let code = unsafe { call(both.c, list.as_ptr(), list.len()) };
        let ranges: Option<Vec<_>> = places
            .iter()
            .map(|(place, first)| Some((place.range()?, *first)))
            .collect();
        let ranges = ranges.filter(|ranges| {
            let sectors = ranges.iter().all(|(range, first)| both.are_sectors(*first, range.len()));
            let apart = ranges.iter().enumerate().all(|(at, (one, _))| {
                ranges[..at].iter().all(|(other, _)| !do_overlap(one, other))
            });
            sectors && apart
        });
        prop_assert_eq!(code == Code::Ok, ranges.is_some(), "{:?}", code);
        let mut expected = filled();
        for (range, first) in ranges.unwrap_or_default() {
            let (first, data) = (First::Units512(first), &mut expected[range]);
            if encrypt {
                both.rust.try_encrypt(first, data).unwrap();
            } else {
                both.rust.try_decrypt(first, data).unwrap();
            }
        }
        prop_assert!(room == expected);
    }

    #[test]
    fn a_list_longer_than_memory(count in prop::sample::select(&HUGE[..])) {
        let both = Both::new(c"aes-xts-plain64", SectorSize::ALL[0], &[7; 32]);
        let none: [sector_cipher_segment; 0] = [];
        // SAFETY: refused before it is looked at; with a null pointer too.
        unsafe {
            for list in [none.as_ptr(), ptr::null()] {
                prop_assert!(sector_cipher_encrypt_segments(both.c, list, count) != Code::Ok);
            }
            prop_assert_eq!(sector_cipher_encrypt_segments(both.c, ptr::null(), 0), Code::Ok);
        }
    }

    #[test]
    fn a_new_cipher_and_another_key(
        name in prop_oneof![
            3 => Just(b"aes-xts-plain64".to_vec()),
            1 => prop::collection::vec(1..=255u8, 0..40),
        ],
        size in prop_oneof![Just(512), Just(4096), any::<u32>()],
        lens in prop::array::uniform2(prop_oneof![
            4 => Just(32usize),
            2 => Just(64usize),
            2 => 0..80usize,
            1 => prop::sample::select(&HUGE[..]),
        ]),
        nulls in prop::array::uniform3(prop::bool::weighted(0.1)),
        backend in prop_oneof![
            Just(None),
            Just(Some(b"portable".to_vec())),
            prop::collection::vec(1..=255u8, 0..10).prop_map(Some),
        ],
    ) {
        let key: Vec<u8> = (0..80).collect();
        let key_of = |null: bool| if null { ptr::null() } else { key.as_ptr() };
        let (c_name, c_backend) = (CString::new(name.clone()).unwrap(), backend.clone());
        let c_backend = c_backend.map(|text| CString::new(text).unwrap());
        let text = if nulls[0] { ptr::null() } else { c_name.as_ptr() };
        let back = c_backend.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        // Not null: what is there must be overwritten in any case.
        let mut made: *mut sector_cipher = ptr::dangling_mut();
        // SAFETY: strings with a zero at the end, a key as long as what is looked at of it.
        let code = unsafe {
            sector_cipher_new(&mut made, text, size, true, key_of(nulls[1]), lens[0], back)
        };
        let is_key = |len: usize, null: bool| [32, 64].contains(&len) && !null;
        let right = !nulls[0]
            && name == b"aes-xts-plain64"
            && [512, 1024, 2048, 4096].contains(&size)
            && is_key(lens[0], nulls[1])
            && backend.as_deref().is_none_or(|it| it == b"portable");
        // Another back-end's name can only be hit by chance.
        prop_assume!(!backend.is_some_and(|it| it != b"portable" && !right && code == Code::Ok));
        prop_assert_eq!(code == Code::Ok, right, "{:?}", code);
        prop_assert_eq!(made.is_null(), !right);
        // SAFETY: null, or a cipher that nobody else uses; the key as above.
        unsafe {
            let code = sector_cipher_rekey(made, key_of(nulls[2]), lens[1]);
            prop_assert_eq!(code == Code::Ok, right && is_key(lens[1], nulls[2]), "{:?}", code);
            prop_assert!(!right || lens[1] <= 64 || code == Code::KeyLength, "{:?}", code);
            prop_assert_eq!(sector_cipher_backend(made).is_null(), !right);
            sector_cipher_wipe_stack(made);
            sector_cipher_free(made);
        }
    }

    #[test]
    fn any_number_has_a_text(number in any::<c_int>()) {
        // SAFETY: a string of ours.
        let text = unsafe { CStr::from_ptr(sector_cipher_error_text(number)) };
        prop_assert!(!text.to_bytes().is_empty());
    }
}
