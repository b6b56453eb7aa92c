//! Groups of eight vectors, several to a *piece* of 512 bytes. While one piece is under
//! way, the masks of the next are worked out: those of a sector's first piece from its
//! tweak, those of the second from the first one's, and those of all others in the place of
//! the last but one's. Whole bytes move, since the units that shift bits are those of AES.

use super::group::Masks;
use super::{HALF, Keys, Schedules, Tweaks, times_x64};
use crate::here::{ZipHere, from_fn};
use crate::run::{BATCH, Sector, Sectors};
use crate::simd::{ASK, LAST_BYTES, Vector, fresh};
use core::mem;

/// Bytes of a piece.
const PIECE: usize = 512;

/// The masks of a piece of `GROUPS` groups.
type Piece<V, const GROUPS: usize> = [Masks<V, HALF>; GROUPS];

#[inline(always)]
fn unset<V: Vector, const GROUPS: usize>() -> Piece<V, GROUPS> {
    from_fn(
        #[inline(always)]
        |_| Masks::unset(),
    )
}

/// `GROUPS` is the number of groups in a piece.
#[inline(always)]
pub(super) fn run<V: Vector, const GROUPS: usize, const FIRST: usize, const ENCRYPT: bool>(
    keys: &Keys,
    sectors: &mut Sectors<'_, '_>,
) {
    assert!(GROUPS * HALF * V::BYTES == PIECE);
    let schedules = keys.schedules::<ENCRYPT>();
    let pieces = sectors.bytes() / PIECE;
    // Places change, nothing is copied: a CPU that reads a part of what it has
    // just written waits until it has left the pipeline.
    let mut batch = &mut sectors.empty_batch();
    let mut following = &mut sectors.empty_batch();
    let tweaks = Tweaks::start::<V, FIRST>(schedules, sectors, batch);
    let Some((mut tweaks, first)) = tweaks else {
        return;
    };
    let (now, next): (&mut Piece<V, GROUPS>, &mut Piece<V, GROUPS>) = (&mut unset(), &mut unset());
    let (mut now, mut next) = (now, next);
    let mut series = Series::new(first.lane::<0>());
    unroll!(J in 0 1 2 3, if J < GROUPS {
        unroll!(I in 0 1 2 3 4 5 6 7, series.step(now, J, I));
    });
    loop {
        if batch.len() == BATCH {
            sectors.fill_places(following);
        }
        // Vectors of tweaks, encrypted one with each of the first sectors of this
        // batch, which is full then.
        let with_tweaks = tweaks.set_ivs::<V>(sectors, following);
        // Few other instructions between the groups: they take the place of AES rounds.
        let consecutive = batch.count().is_some();
        let mut at = At::start_of(batch.sector(0));
        for i in 0..batch.len().min(BATCH) {
            if !consecutive {
                at = At::start_of(batch.sector(i));
            }
            for piece in 1..pieces {
                for (masks, next) in now.iter().zip_here(next.iter_mut()) {
                    let ahead = batch.ahead(at.src);
                    // SAFETY: the group is in the sector, and the masks have been set;
                    // those in `next` are the piece before's.
                    unsafe {
                        if piece == 1 {
                            group::<V, FIRST, ENCRYPT, false>(
                                schedules,
                                at,
                                masks,
                                V::zero(),
                                #[inline(always)]
                                |i| {
                                    ahead.ask(i, HALF * V::BYTES);
                                    next.set(i, times_bytes::<V, 4, 12>(masks.get(i)));
                                },
                            );
                        } else {
                            group::<V, FIRST, ENCRYPT, false>(
                                schedules,
                                at,
                                masks,
                                V::zero(),
                                #[inline(always)]
                                |i| {
                                    ahead.ask(i, HALF * V::BYTES);
                                    next.set(i, times_x64(next.get(i)));
                                },
                            );
                        }
                    }
                    at = at.next_group::<V>();
                }
                mem::swap(&mut now, &mut next);
            }
            series = Series::new(tweaks.of::<V>(i + 1));
            unroll!(J in 0 1 2 3, if J < GROUPS {
                let (masks, ahead) = (&now[J], batch.ahead(at.src));
                // SAFETY: as above.
                unsafe {
                    if J == 0 && i < with_tweaks {
                        let x = group::<V, FIRST, ENCRYPT, true>(
                            schedules,
                            at,
                            masks,
                            tweaks.following(i),
                            #[inline(always)]
                            |i| {
                                ahead.ask(i, HALF * V::BYTES);
                                series.step(next, J, i);
                            },
                        );
                        tweaks.set_following(i, x);
                    } else {
                        group::<V, FIRST, ENCRYPT, false>(
                            schedules,
                            at,
                            masks,
                            V::zero(),
                            #[inline(always)]
                            |i| {
                                ahead.ask(i, HALF * V::BYTES);
                                series.step(next, J, i);
                            },
                        );
                    }
                }
                at = at.next_group::<V>();
            });
            mem::swap(&mut now, &mut next);
        }
        if following.len() == 0 {
            return;
        }
        mem::swap(&mut batch, &mut following);
        tweaks.advance::<V>();
        following.clear();
    }
}

/// Where the next group comes from, and where it goes.
#[derive(Clone, Copy)]
struct At {
    src: *const u8,
    dst: *mut u8,
}

impl At {
    #[inline(always)]
    fn start_of(sector: Sector) -> Self {
        Self {
            src: sector.src(),
            dst: sector.dst(),
        }
    }

    #[inline(always)]
    fn next_group<V: Vector>(self) -> Self {
        Self {
            src: self.src.wrapping_add(HALF * V::BYTES),
            dst: self.dst.wrapping_add(HALF * V::BYTES),
        }
    }
}

/// Encrypts or decrypts one group. Between its rounds `step` makes masks of a later
/// one, with the numbers 0 to 7 in turn. With `TWEAKS` it returns `ivs` encrypted.
///
/// # Safety
/// The source can be read and the destination written, and the masks have been set.
#[inline(always)]
unsafe fn group<V: Vector, const FIRST: usize, const ENCRYPT: bool, const TWEAKS: bool>(
    keys: Schedules<'_>,
    At { src, dst }: At,
    masks: &Masks<V, HALF>,
    ivs: V,
    mut step: impl FnMut(usize),
) -> V {
    let data = &keys.data.narrow;
    let mut x = [V::zero(); HALF];
    unroll!(I in 0 1 2 3 4 5 6 7, {
        // SAFETY: vector I of the group.
        x[I] = unsafe { V::load(src.add(I * V::BYTES)) };
    });
    // SAFETY: the caller's promise.
    V::aes_start_from::<HALF, FIRST>(&mut x, data, unsafe { masks.all() });
    let mut ivs = [ivs];
    if TWEAKS {
        V::wide_start_from::<1, FIRST>(&mut ivs, keys.tweak, &[V::zero()]);
    }
    unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND > FIRST {
        V::aes_round::<HALF, ENCRYPT, ROUND>(&mut x, data);
        if TWEAKS {
            V::wide_round::<1, true, ROUND>(&mut ivs, keys.tweak);
            x[2].tie(&mut ivs[0]);
        }
        // The steps go evenly between the rounds.
        unroll!(STEP in 0 1 2 3 4 5 6 7, if ROUND == FIRST + 1 + STEP * (12 - FIRST) / (HALF - 1) {
            step(STEP);
        });
    });
    // SAFETY: the caller's promise. From memory once more, not from registers.
    let masks = unsafe { fresh(masks).all() };
    V::aes_finish::<HALF, ENCRYPT>(&mut x, data, masks);
    unroll!(I in 0 1 2 3 4 5 6 7, {
        // SAFETY: as above, and the destination may be written.
        unsafe { x[I].store(dst.add(I * V::BYTES)) };
    });
    if TWEAKS {
        V::wide_finish::<1, true>(&mut ivs, keys.tweak, &[V::zero()]);
    }
    ivs[0]
}

/// The masks of a sector's first piece, in series of four: from each vector of the
/// first eight blocks on, x^8 times the one before.
struct Series<V: Vector> {
    tweak: V::One,
    /// The first vector of all, and with its halves swapped.
    first: V,
    swapped: V,
    /// The vector that the present series begins with.
    base: V,
    /// Products of the bytes that move out.
    products: V,
}

impl<V: Vector> Series<V> {
    #[inline(always)]
    fn new(tweak: V::One) -> Self {
        let zero = V::zero();
        Self {
            tweak,
            first: zero,
            swapped: zero,
            base: zero,
            products: zero,
        }
    }

    /// Step `step` of the eight for group `group`: two series.
    #[inline(always)]
    fn step<const GROUPS: usize>(
        &mut self,
        piece: &mut Piece<V, GROUPS>,
        group: usize,
        step: usize,
    ) {
        // The number of the series, and so of its first vector.
        let series = 2 * group + step / 4;
        // Number `i` of the series.
        let mut set = |i: usize, mask: V| {
            let at = series + i * HALF / V::BLOCKS;
            piece[at / HALF].set(at % HALF, mask);
        };
        match step % 4 {
            0 => {
                if series == 0 {
                    self.first = V::powers_of_x::<ASK>(self.tweak);
                    self.swapped = self.first.swap_halves();
                }
                self.base = V::times_x_of_vectors(self.first, self.swapped, series);
                set(0, self.base);
            }
            1 => {
                // What moves out of one byte, of two and of three, with room between
                // for their products with x^7 + x^2 + x + 1: these reach into the
                // byte behind. There all three have the same.
                let out = self.base.shuffle_bytes(V::splat(LAST_BYTES));
                self.products = out.clmul::<0x00>(V::splat(0x87));
                self.base = self.base.xor(self.products.shr_bytes::<8>());
            }
            2 => {
                set(1, self.base.behind::<15>(self.last::<15>()));
                set(2, self.base.behind::<14>(self.last::<12>()));
            }
            _ => set(3, self.base.behind::<13>(self.last::<8>())),
        }
    }

    /// The products up by `N` bytes. Pinned: the compiler would rather shift bits and
    /// blend.
    #[inline(always)]
    fn last<const N: i32>(&self) -> V {
        self.products.shl_bytes::<N>().pin()
    }
}

/// Times x^(8 `LEFT`); `RIGHT` is 16 - `LEFT`.
#[inline(always)]
fn times_bytes<V: Vector, const LEFT: i32, const RIGHT: i32>(mask: V) -> V {
    let out = mask.shr_bytes::<RIGHT>();
    mask.shl_bytes::<LEFT>()
        .xor(out.clmul::<0x00>(V::splat(0x87)))
}
