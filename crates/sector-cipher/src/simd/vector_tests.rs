//! Every vector against plain integers. Called for each vector of a CPU.

use super::aes::{decrypt, encrypt};
use super::{ASK, AesKeys, Cpu, Lanes, ROTATE, SHIFT, Vector, WideKeys, field};
use crate::shared::double;
use core::array::from_fn;

fn words(block: u128) -> [u32; 4] {
    from_fn(|i| u32::try_from(block >> (32 * i) & 0xffff_ffff).unwrap())
}

fn of_words(words: [u32; 4]) -> u128 {
    words
        .into_iter()
        .rev()
        .fold(0, |block, word| block << 32 | u128::from(word))
}

fn of_halves(low: u64, high: u64) -> u128 {
    u128::from(low) | u128::from(high) << 64
}

fn clmul(a: u64, b: u64) -> u128 {
    (0..64)
        .filter(|i| b >> i & 1 == 1)
        .fold(0, |sum, i| sum ^ u128::from(a) << i)
}

/// x^64 `middle` + x^128 `high`, reduced bit by bit.
fn reduce(middle: u128, high: u128) -> u128 {
    let mut power = 1_u128 << 64;
    let bits = (0..256).map(|i| {
        let bit = if i < 128 { middle >> i } else { 0 }
            ^ if (64..192).contains(&i) {
                high >> (i - 64)
            } else {
                0
            };
        let term = if bit & 1 == 1 { power } else { 0 };
        power = (power << 1) ^ ((power >> 127) * 0x87);
        term
    });
    bits.fold(0, |sum, term| sum ^ term)
}

/// Checks every operation on values that differ from lane to lane, if the CPU has them.
pub(crate) fn check<V: Vector>() {
    let Some(cpu) = Cpu::<V>::detect() else {
        return;
    };
    cpu.call(operations::<V>);
    cpu.call(rounds::<V>);
    field::tests::check(cpu);
}

fn operations<V: Vector>() {
    let mut state = 1_u128;
    let mut random = || {
        state = state.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645) | 1;
        state ^ state >> 67
    };
    for _ in 0..100 {
        let (a, b, c): ([u128; 4], [u128; 4], [u128; 4]) = (
            from_fn(|_| random()),
            from_fn(|_| random()),
            from_fn(|_| random()),
        );
        let (x, y, z) = (
            V::from_fn(|i| a[i]),
            V::from_fn(|i| b[i]),
            V::from_fn(|i| c[i]),
        );
        let is = |v: V, model: &dyn Fn(usize) -> u128, what: &str| {
            let expected: [u128; 4] = from_fn(|i| if i < V::BLOCKS { model(i) } else { 0 });
            assert_eq!(v.blocks(), expected, "{what}");
        };
        let half = |block: u128, high: bool| -> u64 {
            u64::try_from(if high {
                block >> 64
            } else {
                block & u128::from(u64::MAX)
            })
            .unwrap()
        };
        let by_halves = |block: u128, f: &dyn Fn(u64) -> u64| {
            of_halves(f(half(block, false)), f(half(block, true)))
        };
        is(V::zero(), &|_| 0, "zero");
        is(V::splat(a[0]), &|_| a[0], "splat");
        is(V::spread(V::One::splat(a[1])), &|_| a[1], "spread");
        let sum = a[..V::BLOCKS].iter().fold(0, |sum, block| sum ^ block);
        assert_eq!(x.fold().blocks()[0], sum, "fold");
        let four = [x, y, z, x.xor(y)];
        let sums = four.map(|x| x.fold().blocks()[0]);
        is(V::fold_each(four), &|i| sums[i], "fold_each");
        is(x.xor(y), &|i| a[i] ^ b[i], "xor");
        is(x.xor3(y, z), &|i| a[i] ^ b[i] ^ c[i], "xor3");
        is(x.and(y), &|i| a[i] & b[i], "and");
        is(
            x.low_halves(y),
            &|i| of_halves(half(a[i], false), half(b[i], false)),
            "low_halves",
        );
        is(
            x.high_halves(y),
            &|i| of_halves(half(a[i], true), half(b[i], true)),
            "high_halves",
        );
        let product = |i: usize, p: bool, q: bool| clmul(half(a[i], p), half(b[i], q));
        is(
            x.clmul::<0x00>(y),
            &|i| product(i, false, false),
            "clmul 00",
        );
        is(x.clmul::<0x01>(y), &|i| product(i, true, false), "clmul 01");
        is(x.clmul::<0x10>(y), &|i| product(i, false, true), "clmul 10");
        is(x.clmul::<0x11>(y), &|i| product(i, true, true), "clmul 11");
        is(x.swap_halves(), &|i| a[i].rotate_left(64), "swap_halves");
        is(x.shl_bytes::<1>(), &|i| a[i] << 8, "shl_bytes");
        is(x.shl_bytes::<12>(), &|i| a[i] << 96, "shl_bytes");
        is(x.shr_bytes::<8>(), &|i| a[i] >> 64, "shr_bytes");
        is(x.shr_bytes::<15>(), &|i| a[i] >> 120, "shr_bytes");
        is(x.behind::<13>(y), &|i| a[i] << 24 | b[i] >> 104, "behind");
        is(
            x.shuffle_bytes(V::splat(u128::MAX << 16 | 0x0e03)),
            &|i| (a[i] >> 24 & 0xff) | (a[i] >> 104 & 0xff00),
            "shuffle_bytes",
        );
        is(x.reverse_bytes(), &|i| a[i].swap_bytes(), "reverse_bytes");
        is(x.shl64::<1>(), &|i| by_halves(a[i], &|h| h << 1), "shl64");
        is(x.shl64::<63>(), &|i| by_halves(a[i], &|h| h << 63), "shl64");
        is(x.shr64::<1>(), &|i| by_halves(a[i], &|h| h >> 1), "shr64");
        is(x.shr64::<57>(), &|i| by_halves(a[i], &|h| h >> 57), "shr64");
        let by_words = |i: usize, f: &dyn Fn(u32, u32) -> u32| {
            let (p, q) = (words(a[i]), words(b[i]));
            of_words(from_fn(|i| f(p[i], q[i])))
        };
        is(x.add32(y), &|i| by_words(i, &u32::wrapping_add), "add32");
        is(
            x.add64(y),
            &|i| {
                of_halves(
                    half(a[i], false).wrapping_add(half(b[i], false)),
                    half(a[i], true).wrapping_add(half(b[i], true)),
                )
            },
            "add64",
        );
        is(
            x.mul32(y),
            &|i| {
                let (p, q) = (words(a[i]), words(b[i]));
                of_halves(
                    u64::from(p[0]) * u64::from(q[0]),
                    u64::from(p[2]) * u64::from(q[2]),
                )
            },
            "mul32",
        );
        is(
            x.rotl32::<7>(),
            &|i| by_words(i, &|p, _| p.rotate_left(7)),
            "rotl32",
        );
        is(
            x.rotl32::<8>(),
            &|i| by_words(i, &|p, _| p.rotate_left(8)),
            "rotl32",
        );
        is(
            x.rotl32::<16>(),
            &|i| by_words(i, &|p, _| p.rotate_left(16)),
            "rotl32",
        );
        let times_x = |block: u128, count: usize| (0..count).fold(block, |block, _| double(block));
        let swapped = x.swap_halves();
        is(
            x.times_x_with::<1, 63>(swapped),
            &|i| times_x(a[i], 1),
            "times_x_with",
        );
        is(
            x.times_x_with::<60, 4>(swapped),
            &|i| times_x(a[i], 60),
            "times_x_with",
        );
        is(
            x.times_x_of_group(),
            &|i| times_x(a[i], 8 * V::BLOCKS),
            "times_x_of_group",
        );
        is(
            V::powers_of_x::<ASK>(V::One::splat(a[1])),
            &|i| times_x(a[1], i),
            "powers_of_x",
        );
        is(
            V::alone(V::One::splat(a[1])),
            &|i| if i == 0 { a[1] } else { 0 },
            "alone",
        );
        assert_eq!(x.lane::<0>().blocks()[0], a[0], "lane");
        if V::BLOCKS > 1 {
            assert_eq!(x.lane::<1>().blocks()[0], a[1], "lane");
        }
        let both = |i: usize| {
            if i < V::BLOCKS {
                a[i]
            } else {
                b[i - V::BLOCKS]
            }
        };
        let (even, odd) = V::unzip(x, y);
        is(even, &|i| both(2 * i), "unzip");
        is(odd, &|i| both(2 * i + 1), "unzip");
        let (p, q) = V::zip(even, odd);
        is(p, &|i| a[i], "zip");
        is(q, &|i| b[i], "zip");
        let order = |i: usize, order: usize| {
            let p = words(a[i]);
            of_words(from_fn(|i| p[order >> (2 * i) & 3]))
        };
        is(x.shuffle32::<0x1b>(), &|i| order(i, 0x1b), "shuffle32");
        is(x.shuffle32::<0x93>(), &|i| order(i, 0x93), "shuffle32");
        let (mut several, mut sums) = ([x, y, z, x], [z, y, x]);
        V::order(&mut several, &mut sums);
        is(several[1].xor(sums[0]), &|i| b[i] ^ c[i], "order");

        // Four blocks for each lane.
        let blocks: [u128; 16] = from_fn(|_| random());
        let quads: [V; 4] = from_fn(|i| V::from_fn(|lane| blocks[V::BLOCKS * i + lane]));
        let transposed = V::transpose(quads);
        let halves = V::transpose_halves(quads);
        for (i, v) in transposed.into_iter().enumerate() {
            is(v, &|lane| blocks[4 * lane + i], "transpose");
        }
        for (i, v) in halves.into_iter().enumerate() {
            let high = i == 3;
            let model = |lane: usize| match i {
                0 | 1 => blocks[4 * lane + i],
                _ => of_halves(
                    half(blocks[4 * lane + 2], high),
                    half(blocks[4 * lane + 3], high),
                ),
            };
            is(v, &model, "transpose_halves");
        }
        is(
            field::reduce(x, y, z),
            &|i| a[i] ^ reduce(b[i], c[i]),
            "reduce",
        );
        let times_x = |block: u128, power: usize| {
            (0..power).fold(block, |block, _| (block << 1) ^ (0x87 * (block >> 127)))
        };
        is(
            x.times_x_with::<1, 63>(swapped),
            &|i| times_x(a[i], 1),
            "times_x_with",
        );
        is(
            x.times_x_with::<28, 36>(swapped),
            &|i| times_x(a[i], 28),
            "times_x_with",
        );
        is(
            x.times_x_of_group(),
            &|i| times_x(a[i], 8 * V::BLOCKS),
            "times_x_of_group",
        );
        is(
            V::powers_of_x::<ASK>(V::One::splat(a[0])),
            &|i| times_x(a[0], i),
            "powers_of_x",
        );
        masks::<V, 8, ASK>(a[0]);
        masks::<V, 8, SHIFT>(a[0]);
        masks::<V, 8, ROTATE>(a[0]);
        if V::ABREAST == 16 {
            masks::<V, 16, ASK>(a[0]);
            masks::<V, 16, SHIFT>(a[0]);
            masks::<V, 16, ROTATE>(a[0]);
        }
        // Of two vectors side by side in registers, and in memory.
        let mut sums = [x, y, z];
        V::add_products(&mut sums, [x, y], [y, z], z);
        let mut of_memory = [x, y, z];
        let both = [x, y];
        // SAFETY: two vectors.
        unsafe { V::add_products_at(&mut of_memory, both.as_ptr().cast(), [y, z], z) };
        for (sum, other) in sums.into_iter().zip(of_memory) {
            assert_eq!(sum.blocks(), other.blocks(), "add_products_at");
        }
        let (p, q) = (|i: usize| words(a[i]), |i: usize| words(b[i]));
        is(
            x.unpack32_low(y),
            &|i| of_words([p(i)[0], q(i)[0], p(i)[1], q(i)[1]]),
            "unpack32_low",
        );
        is(
            x.unpack32_high(y),
            &|i| of_words([p(i)[2], q(i)[2], p(i)[3], q(i)[3]]),
            "unpack32_high",
        );
        let d: [u128; 4] = from_fn(|_| random());
        let four = V::transpose_lanes([x, y, z, V::from_fn(|i| d[i])]);
        for (j, v) in four.into_iter().enumerate() {
            is(
                v,
                &|i| {
                    let at = j * V::BLOCKS + i;
                    [a, b, c, d][at % 4][at / 4]
                },
                "transpose_lanes",
            );
        }
        let sums = [false, true].map(|high| {
            let halves = a[..V::BLOCKS].iter().map(|&block| half(block, high));
            halves.fold(0, u64::wrapping_add)
        });
        assert_eq!(
            x.fold_add64().blocks()[0],
            of_halves(sums[0], sums[1]),
            "fold_add64"
        );

        let (mut p, mut q) = (x, y);
        p.tie(&mut q);
        is(p, &|i| a[i], "tie");
        is(q, &|i| b[i], "tie");

        // Memory, at every alignment.
        let mut bytes = [0; 64 + 16];
        let places = from_fn(|i| bytes.as_mut_ptr().wrapping_add(1 + 16 * (3 - i)));
        // SAFETY: four blocks in the bytes.
        unsafe { x.scatter(places) };
        for (i, block) in bytes[1..65].chunks_exact(16).rev().enumerate() {
            let written = if i < V::BLOCKS { a[i] } else { 0 };
            assert_eq!(block, written.to_le_bytes(), "scatter");
        }
        for offset in 0..16 {
            for (place, block) in bytes[offset..].chunks_exact_mut(16).zip(a) {
                place.copy_from_slice(&block.to_le_bytes());
            }
            let base = bytes[offset..].as_ptr();
            // SAFETY: at most 64 bytes behind the offset.
            is(unsafe { V::load(base) }, &|i| a[i], "load");
            let lanes = from_fn(|i| base.wrapping_add(16 * (3 - i)));
            // SAFETY: as above.
            is(unsafe { V::gather(lanes) }, &|i| a[3 - i], "gather");
            let front = |i: usize| if i < 2 { a[i] } else { 0 };
            // SAFETY: as above.
            is(unsafe { V::load_front(base) }, &front, "load_front");
            // SAFETY: as above.
            unsafe { y.store(bytes[offset..].as_mut_ptr()) };
            for (i, block) in bytes[offset..].chunks_exact(16).take(V::BLOCKS).enumerate() {
                assert_eq!(block, b[i].to_le_bytes(), "store");
            }
        }
    }
}

/// All masks, in the order in which they come.
fn masks<V: Vector, const COUNT: usize, const HOW: u8>(tweak: u128) {
    let mut state = [V::zero(); 5];
    for step in 0..COUNT {
        let first = || V::powers_of_x::<HOW>(V::One::splat(tweak));
        let more = !tweak.rotate_left(40);
        let mask = V::mask::<COUNT, HOW>(&mut state, V::splat(more), first, step);
        let at = 2 * step % COUNT + 2 * step / COUNT;
        for (lane, block) in mask.blocks().into_iter().take(V::BLOCKS).enumerate() {
            let power = V::BLOCKS * at + lane;
            let expected = (0..power).fold(tweak, |block, _| double(block));
            assert_eq!(block ^ more, expected, "mask {at} of {COUNT}, lane {lane}");
        }
    }
}

/// FIPS 197, appendix C: the key's bytes count up, the plaintext is 00 11 22 ...
fn rounds<V: Vector>() {
    let plain = u128::from_be_bytes(from_fn(|i| 0x11 * u8::try_from(i).unwrap())).swap_bytes();
    let key: [u8; 32] = from_fn(|i| u8::try_from(i).unwrap());
    let expected = [
        (16, 0x69c4_e0d8_6a7b_0430_d8cd_b780_70b4_c55a_u128),
        (32, 0x8ea2_b7ca_5167_45bf_eafc_4990_4b49_6089),
    ];
    for (len, expected) in expected {
        let expected = expected.swap_bytes();
        let mut keys = AesKeys::UNSET;
        keys.set::<V>(&key[..len], None);
        let mut wide = WideKeys::ZERO;
        V::expand(&key[..len], &mut wide.narrow);
        wide.widen();
        macro_rules! on {
            ($n:literal) => {{
                let mut x = [V::splat(plain); $n];
                encrypt::<V, $n>(&mut x, &keys.encrypt);
                for x in x {
                    assert_eq!(x.blocks()[..V::BLOCKS], [expected; 4][..V::BLOCKS]);
                }
                decrypt::<V, $n>(&mut x, &keys.decrypt);
                for x in x {
                    assert_eq!(x.blocks()[..V::BLOCKS], [plain; 4][..V::BLOCKS]);
                }
                // With masks on either side.
                let masks: [V; $n] = from_fn(|i| V::from_fn(|j| (i * 4 + j) as u128 * 0x1234_5678_9abc));
                let mut x: [V; $n] = from_fn(|i| V::splat(plain).xor(masks[i]));
                V::aes_start_with::<$n, true>(&mut x, &keys.encrypt, &masks);
                unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
                    V::aes_round::<$n, true, ROUND>(&mut x, &keys.encrypt);
                });
                V::aes_finish::<$n, true>(&mut x, &keys.encrypt, &masks);
                for (x, mask) in x.into_iter().zip(masks) {
                    assert_eq!(x.xor(mask).blocks()[..V::BLOCKS], [expected; 4][..V::BLOCKS]);
                }
                // From wide keys, the masks from memory.
                let mut x: [V; $n] = from_fn(|i| V::splat(plain).xor(masks[i]));
                if len == 16 {
                    V::wide_start_from::<$n, 4>(&mut x, &wide, &masks);
                } else {
                    V::wide_start_from::<$n, 0>(&mut x, &wide, &masks);
                    V::wide_early::<$n, true>(&mut x, &wide);
                }
                unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
                    V::wide_round::<$n, true, ROUND>(&mut x, &wide);
                });
                let places: [*const u8; $n] = from_fn(|i| (&raw const masks[i]).cast());
                // SAFETY: vectors.
                unsafe { V::wide_finish_loading::<$n, true>(&mut x, &wide, &places) };
                for (x, mask) in x.into_iter().zip(masks) {
                    assert_eq!(x.xor(mask).blocks()[..V::BLOCKS], [expected; 4][..V::BLOCKS]);
                }
                // And with the last round key in the masks.
                let last = V::last_key(&wide);
                let sums: [V; $n] = from_fn(|i| masks[i].xor(last));
                let mut x: [V; $n] = from_fn(|i| V::splat(plain).xor(masks[i]));
                if len == 16 {
                    V::start_from_sums::<$n, 4>(&mut x, &wide, &sums);
                } else {
                    V::start_from_sums::<$n, 0>(&mut x, &wide, &sums);
                    V::wide_early::<$n, true>(&mut x, &wide);
                }
                unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
                    V::wide_round::<$n, true, ROUND>(&mut x, &wide);
                });
                V::finish_with_sums::<$n, true>(&mut x, &wide, &sums);
                for (x, mask) in x.into_iter().zip(masks) {
                    assert_eq!(x.xor(mask).blocks()[..V::BLOCKS], [expected; 4][..V::BLOCKS]);
                }
            }};
        }
        on!(1);
        on!(3);
        on!(4);
        on!(8);
    }
}
