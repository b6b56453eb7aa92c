//! Operations of vectors that are the same for every width, but for the names of intrinsics and
//! registers: macros for the bodies of `impl`s, each with its `unsafe` in one place.

/// What an expression of intrinsics gives, as a vector.
macro_rules! intrinsics {
    ($value:expr) => {
        // SAFETY: the CPU has the features of every operation of this vector: see
        // [`crate::simd::Vector`]. What else is read or written is the caller's promise.
        Self(unsafe { $value })
    };
}

/// Operations that are one intrinsic each, of none, one or several vectors.
macro_rules! operations {
    ($(
        fn $name:ident $(<const $n:ident: $number:ty>)? ($($x:ident $(, $y:ident)*)?) = $operation:path;
    )*) => {$(
        #[inline(always)]
        fn $name $(<const $n: $number>)? ($($x $(, $y: Self)*)?) -> Self {
            intrinsics!($operation($($x.0 $(, $y.0)*)?))
        }
    )*};
}

/// Shifts of 64-bit halves, by intrinsics that take the number of bits from a register. The
/// compiler knows it.
macro_rules! shifts {
    ($left:ident, $right:ident) => {
        #[inline(always)]
        fn shl64<const N: u32>(self) -> Self {
            intrinsics!($left(self.0, _mm_cvtsi32_si128(N.cast_signed())))
        }

        #[inline(always)]
        fn shr64<const N: u32>(self) -> Self {
            intrinsics!($right(self.0, _mm_cvtsi32_si128(N.cast_signed())))
        }
    };
}

/// The order of bytes that rotates each word to the left by 8 bits, and by 16.
#[repr(align(32))]
pub(super) struct Rotated(#[allow(dead_code, reason = "assembly reads it")] [u128; 2]);

pub(super) static BY_8: Rotated = Rotated([0x0e0d_0c0f_0a09_080b_0605_0407_0201_0003; 2]);
pub(super) static BY_16: Rotated = Rotated([0x0d0c_0f0e_0908_0b0a_0504_0706_0100_0302; 2]);

/// Rotations of words where there is no instruction for them: `$or` of `$left` and `$right`, and
/// one shuffle by whole bytes. That is assembly since the compiler, which knows what a shuffle by
/// a constant does, makes two of it: of halves of words, or one each of what is added before.
macro_rules! rotations {
    (
        $register:ty, $class:ident, $features:literal, $memory:literal:
        $or:ident, $left:ident, $right:ident
    ) => {
        #[inline(always)]
        fn rotl32<const N: u32>(self) -> Self {
            #[target_feature(enable = $features)]
            #[inline]
            fn by_bytes<const N: u32>(mut x: $register) -> $register {
                macro_rules! shuffle {
                    ($order:path) => {
                        // SAFETY: computes on a register, and reads as much as it has.
                        unsafe {
                            core::arch::asm!(
                                concat!("vpshufb {x}, {x}, ", $memory, " ptr [rip + {order}]"),
                                x = inout($class) x,
                                order = sym $order,
                                options(pure, readonly, nostack, preserves_flags),
                            );
                        }
                    };
                }
                if N == 8 {
                    shuffle!($crate::arch::x86::operations::BY_8);
                } else {
                    shuffle!($crate::arch::x86::operations::BY_16);
                }
                x
            }
            if const { N == 8 || N == 16 } {
                return intrinsics!(by_bytes::<N>(self.0));
            }
            intrinsics!($or(
                $left(self.0, _mm_cvtsi32_si128(N.cast_signed())),
                $right(self.0, _mm_cvtsi32_si128(32 - N.cast_signed()))
            ))
        }
    };
}

/// Memory of so many blocks, by the intrinsics for any alignment.
macro_rules! memory {
    ($blocks:literal: $load:ident, $store:ident) => {
        #[inline(always)]
        fn from_fn(block: impl FnMut(usize) -> u128) -> Self {
            let blocks: [u128; $blocks] = from_fn(block);
            // SAFETY: as many bytes as the vector has.
            unsafe { Self::load(blocks.as_ptr().cast()) }
        }

        #[inline(always)]
        fn blocks(self) -> [u128; 4] {
            let mut blocks = [0; 4];
            // SAFETY: no fewer bytes than the vector has.
            unsafe { self.store(blocks.as_mut_ptr().cast()) };
            blocks
        }

        #[inline(always)]
        unsafe fn load(src: *const u8) -> Self {
            intrinsics!($load(src.cast()))
        }

        #[inline(always)]
        unsafe fn store(self, dst: *mut u8) {
            // SAFETY: the CPU has the features, and the caller's promise.
            unsafe { $store(dst.cast(), self.0) }
        }
    };
}

/// The key schedule of AES, which is the same instructions for every width.
macro_rules! key_schedule {
    () => {
        #[inline(always)]
        fn expand(key: &[u8], keys: &mut RoundKeys) {
            // SAFETY: the CPU has the features.
            unsafe { schedule::expand(key, keys) };
        }

        #[inline(always)]
        fn invert(encrypt: &RoundKeys, decrypt: &mut RoundKeys) {
            // SAFETY: the CPU has the features.
            unsafe { schedule::invert(encrypt, decrypt) };
        }

        #[inline(always)]
        fn aes_before<const N: usize>(x: &mut [Self; N], keys: &RoundKeys) {
            let first = key(keys, keys.first());
            each!(I < N, x[I] = x[I].xor(first));
        }

        #[inline(always)]
        fn aes_start_with<const N: usize, const ENCRYPT: bool>(
            x: &mut [Self; N],
            keys: &RoundKeys,
            masks: &[Self; N],
        ) {
            let first = key(keys, keys.first());
            each!(I < N, x[I] = x[I].xor3(first, masks[I]));
            Self::aes_early::<N, ENCRYPT>(x, keys);
        }
    };
}

/// The start, the rounds and the end of AES from `$keys`, of which `$key` loads one. For some
/// numbers of vectors side by side there are functions for a round (see `rounds!`).
macro_rules! aes {
    (
        fn $start_from:ident, $round:ident, $finish:ident from $keys:ty, $key:ident;
        $(rounds of $count:literal: $rounds:ident;)*
        encrypt: $encrypt:ident, $encrypt_last:ident;
        decrypt: $decrypt:ident, $decrypt_last:ident;
    ) => {
        #[inline(always)]
        fn $start_from<const N: usize, const FIRST: usize>(
            x: &mut [Self; N],
            keys: &$keys,
            masks: &[Self; N],
        ) {
            let first: Self = $key(keys, FIRST);
            each!(I < N, x[I] = x[I].xor3(first, masks[I]));
        }

        #[inline(always)]
        fn $round<const N: usize, const ENCRYPT: bool, const ROUND: usize>(
            x: &mut [Self; N],
            keys: &$keys,
        ) {
            $(
                if const { N == $count } {
                    let x = x.as_mut_ptr().cast::<[Self; $count]>();
                    // SAFETY: the CPU has the features, and there are as many vectors.
                    unsafe { $rounds::<ENCRYPT, ROUND>(&mut *x, keys) };
                    return;
                }
            )*
            let key: Self = $key(keys, ROUND);
            each!(I < N, {
                x[I] = if ENCRYPT {
                    intrinsics!($encrypt(x[I].0, key.0))
                } else {
                    intrinsics!($decrypt(x[I].0, key.0))
                };
            });
        }

        #[inline(always)]
        fn $finish<const N: usize, const ENCRYPT: bool>(
            x: &mut [Self; N],
            keys: &$keys,
            masks: &[Self; N],
        ) {
            let last: Self = $key(keys, RoundKeys::LAST);
            each!(I < N, {
                let last = last.xor(masks[I]);
                x[I] = if ENCRYPT {
                    intrinsics!($encrypt_last(x[I].0, last.0))
                } else {
                    intrinsics!($decrypt_last(x[I].0, last.0))
                };
            });
        }
    };
}

/// Functions for one AES round, not the last, on vectors side by side. Assembly,
/// because the compiler, seeing independent chains, may put them one behind the
/// other again. A wide key is loaded as it is; the others fill the lanes.
macro_rules! rounds {
    (
        $vector:ty, $register:ident, $class:ident, $features:literal;
        $(
            $name:ident, $count:literal from $keys:ty, $load:literal, $stride:literal:
            $($i:literal $x:ident)*;
        )*
    ) => {$(
        /// One round on as many vectors side by side, the round key loaded once.
        #[target_feature(enable = $features)]
        #[inline]
        pub(super) fn $name<const ENCRYPT: bool, const ROUND: usize>(
            x: &mut [$vector; $count],
            keys: &$keys,
        ) {
            macro_rules! round {
                ($instruction:literal) => {{
                    let _round_key: $register;
                    // SAFETY: computes on registers and reads one round key.
                    unsafe {
                        core::arch::asm!(
                            concat!($load, " ptr [{keys} + {offset}]"),
                            $(concat!(
                                $instruction, " {", stringify!($x), "}, {", stringify!($x), "}, {k}"
                            ),)*
                            $($x = inout($class) x[$i].0,)*
                            k = out($class) _round_key,
                            keys = in(reg) keys.at(0),
                            offset = const $stride * ROUND,
                            options(pure, readonly, nostack, preserves_flags),
                        );
                    }
                }};
            }
            if ENCRYPT {
                round!("vaesenc");
            } else {
                round!("vaesdec");
            }
        }
    )*};
}

/// Hints to the compiler: empty pieces of assembly, through which it has to hand vectors. They
/// are functions, since registers of a class want its feature.
macro_rules! hints {
    ($vector:ty, $class:ident, $features:literal) => {
        #[inline(always)]
        fn pin(self) -> Self {
            #[target_feature(enable = $features)]
            #[inline]
            fn pin(mut x: $vector) -> $vector {
                // SAFETY: it does nothing.
                unsafe {
                    core::arch::asm!(
                        "/* {} */",
                        inout($class) x.0,
                        options(nomem, nostack, preserves_flags),
                    );
                }
                x
            }
            // SAFETY: the CPU has the features.
            unsafe { pin(self) }
        }

        #[inline(always)]
        fn order(x: &mut [Self; 4], y: &mut [Self; 3]) {
            #[target_feature(enable = $features)]
            #[inline]
            fn order(x: &mut [$vector; 4], y: &mut [$vector; 3]) {
                // SAFETY: it does nothing.
                unsafe {
                    core::arch::asm!(
                        "/* {} {} {} {} {} {} {} */",
                        inout($class) x[0].0,
                        inout($class) x[1].0,
                        inout($class) x[2].0,
                        inout($class) x[3].0,
                        inout($class) y[0].0,
                        inout($class) y[1].0,
                        inout($class) y[2].0,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
            }
            // SAFETY: the CPU has the features.
            unsafe { order(x, y) }
        }

        #[inline(always)]
        fn tie(&mut self, other: &mut Self) {
            #[target_feature(enable = $features)]
            #[inline]
            fn tie(a: &mut $vector, b: &mut $vector) {
                // SAFETY: it does nothing.
                unsafe {
                    core::arch::asm!(
                        "/* {} {} */",
                        inout($class) a.0,
                        inout($class) b.0,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
            }
            // SAFETY: the CPU has the features.
            unsafe { tie(self, other) }
        }
    };
}
