//! Groups of sixteen vectors: a part of a sector, or two sectors of 512 bytes. While
//! one is under way, the masks of the next are worked out.

use super::group::{Masks, order};
use super::{HALF, Keys, Schedules, Tweaks, lone, times_x64};
use crate::here::MapHere;
use crate::run::{BATCH, Batch, Sector, Sectors};
use crate::simd::{Lanes, SHIFT, Vector, fresh};
use core::mem;

/// Vectors of a group.
const GROUP: usize = 2 * HALF;

/// Groups of sixteen vectors; with `PAIRS` each is two sectors.
#[inline(always)]
pub(super) fn run<
    V: Vector,
    const FIRST: usize,
    const ENCRYPT: bool,
    const PAIRS: bool,
    const HOW: u8,
>(
    keys: &Keys,
    sectors: &mut Sectors<'_, '_>,
) {
    let schedules = keys.schedules::<ENCRYPT>();
    let group = GROUP * V::BYTES;
    let bytes = sectors.bytes();
    let groups = bytes / group;
    // Places change, nothing is copied: a CPU that reads a part of what it has
    // just written waits until it has left the pipeline.
    let mut batch = &mut sectors.empty_batch();
    let mut following = &mut sectors.empty_batch();
    let tweaks = Tweaks::start::<V, FIRST>(schedules, sectors, batch);
    let Some((mut tweaks, first)) = tweaks else {
        return;
    };
    let (mut now, mut next) = (Masks::unset(), Masks::unset());
    let mut work = Work::<V> {
        keys: schedules,
        text: Text::of_two(Sector::NONE, Sector::NONE),
        now: &mut now,
        next: &mut next,
    };
    work.first::<PAIRS, HOW>([first.lane::<0>(), first.lane::<1>()]);
    loop {
        if batch.len() == BATCH {
            sectors.fill_places(following);
        }
        // Vectors of tweaks, encrypted one with each of the first groups of
        // this batch, or first sectors', which is full then.
        let with_tweaks = tweaks.set_ivs::<V>(sectors, following);
        // Few other instructions between the groups: they take the place of AES rounds.
        let consecutive = batch.count().is_some();
        let half = HALF * V::BYTES;
        let len = batch.len().min(BATCH);
        work.text = Text::one_behind_the_other(batch.sector(0), half);
        if PAIRS {
            for i in 0..len.div_ceil(2) {
                if 2 * i + 1 == len {
                    let tweak = tweaks.of::<V>(2 * i);
                    // SAFETY: a sector of the stream.
                    unsafe {
                        lone::<V, FIRST, ENCRYPT, true>(
                            schedules.data,
                            batch.sector(2 * i),
                            bytes,
                            tweak,
                        );
                    }
                    break;
                }
                if !consecutive {
                    work.text = Text::of_two(batch.sector(2 * i), batch.sector(2 * i + 1));
                }
                let next = [tweaks.of::<V>(2 * i + 2), tweaks.of::<V>(2 * i + 3)];
                // SAFETY: the halves are the sectors.
                unsafe {
                    if i < with_tweaks {
                        let ivs = tweaks.following(i);
                        let x = work.group::<FIRST, ENCRYPT, PAIR, true, HOW>(batch, ivs, next);
                        tweaks.set_following(i, x);
                    } else {
                        work.group::<FIRST, ENCRYPT, PAIR, false, HOW>(batch, V::zero(), next);
                    }
                }
                work.text.advance(group);
            }
        } else {
            let none = [V::One::zero(); 2];
            for i in 0..len {
                if !consecutive {
                    work.text = Text::one_behind_the_other(batch.sector(i), half);
                }
                let mut left = groups - 1;
                if i < with_tweaks {
                    let ivs = tweaks.following(i);
                    // SAFETY: the group is in the sector.
                    let x = unsafe {
                        if left == 0 {
                            let next = [tweaks.of::<V>(i + 1); 2];
                            work.group::<FIRST, ENCRYPT, OTHER, true, HOW>(batch, ivs, next)
                        } else {
                            work.group::<FIRST, ENCRYPT, SAME, true, HOW>(batch, ivs, none)
                        }
                    };
                    tweaks.set_following(i, x);
                    work.text.advance(group);
                    if left == 0 {
                        continue;
                    }
                    left -= 1;
                }
                while left != 0 {
                    // SAFETY: as above.
                    unsafe {
                        work.group::<FIRST, ENCRYPT, SAME, false, HOW>(batch, V::zero(), none)
                    };
                    work.text.advance(group);
                    left -= 1;
                }
                let next = [tweaks.of::<V>(i + 1); 2];
                // SAFETY: as above.
                unsafe { work.group::<FIRST, ENCRYPT, OTHER, false, HOW>(batch, V::zero(), next) };
                work.text.advance(group);
            }
        }
        if following.len() == 0 {
            return;
        }
        mem::swap(&mut batch, &mut following);
        tweaks.advance::<V>();
        following.clear();
    }
}

/// The group's masks go on in its sector.
const SAME: u8 = 0;
/// They are those of the next sector.
const OTHER: u8 = 1;
/// They are those of the next two sectors.
const PAIR: u8 = 2;

/// Where the halves of a group come from, and where they go.
struct Text {
    src: [*const u8; 2],
    dst: [*mut u8; 2],
}

impl Text {
    /// The text of a group that is two sectors.
    #[inline(always)]
    fn of_two(a: Sector, b: Sector) -> Self {
        Self {
            src: [a.src(), b.src()],
            dst: [a.dst(), b.dst()],
        }
    }

    /// The text from the start of a sector, or of two that are consecutive: the second half is
    /// `half` bytes behind the first.
    #[inline(always)]
    fn one_behind_the_other(sector: Sector, half: usize) -> Self {
        Self {
            src: [sector.src(), sector.src().wrapping_add(half)],
            dst: [sector.dst(), sector.dst().wrapping_add(half)],
        }
    }

    /// Goes `bytes` bytes on.
    #[inline(always)]
    fn advance(&mut self, bytes: usize) {
        self.src = self.src.map_here(
            #[inline(always)]
            |src| src.wrapping_add(bytes),
        );
        self.dst = self.dst.map_here(
            #[inline(always)]
            |dst| dst.wrapping_add(bytes),
        );
    }
}

/// Whether the last round key is in the masks: then the last round needs no sum of both. It costs nothing where
/// a mask is a sum anyway, which it is not if it comes by `vpermt2b`; and gains nothing in longer sectors, whose
/// masks come from each other.
const fn has_sums(next: u8, how: u8) -> bool {
    next == PAIR && how != SHIFT
}

/// What lives from group to group.
struct Work<'k, V> {
    keys: Schedules<'k>,
    text: Text,
    now: &'k mut Masks<V, GROUP>,
    next: &'k mut Masks<V, GROUP>,
}

/// One mask of the group after that with the masks `now`.
#[inline(always)]
fn step<V: Vector, const NEXT: u8, const HOW: u8>(
    now: &Masks<V, GROUP>,
    next: &mut Masks<V, GROUP>,
    state: &mut [[V; 5]; 2],
    more: V,
    tweaks: [V::One; 2],
    step: usize,
) {
    match NEXT {
        SAME => {
            // SAFETY: all of them have been set.
            let mask = unsafe { now.get(step) };
            next.set(step, times_x64(mask));
        }
        OTHER => {
            let mask = V::mask::<GROUP, HOW>(
                &mut state[0],
                more,
                #[inline(always)]
                || V::powers_of_x::<HOW>(tweaks[0]),
                step,
            );
            next.set(order(GROUP, step), mask);
        }
        _ => {
            let (half, step) = (step % 2, step / 2);
            let mask = V::mask::<HALF, HOW>(
                &mut state[half],
                more,
                #[inline(always)]
                || V::powers_of_x::<HOW>(tweaks[half]),
                step,
            );
            next.set(half * HALF + order(HALF, step), mask);
        }
    }
}

impl<V: Vector> Work<'_, V> {
    /// What is in each mask in addition. Read for each group: what lives longer the compiler would keep on the stack.
    #[inline(always)]
    fn more<const NEXT: u8, const HOW: u8>(&self) -> V {
        match const { has_sums(NEXT, HOW) } {
            true => V::last_key(self.keys.data),
            false => V::zero(),
        }
    }

    /// The masks of the first group.
    #[inline(always)]
    fn first<const PAIRS: bool, const HOW: u8>(&mut self, tweaks: [V::One; 2]) {
        let more = match PAIRS {
            true => self.more::<PAIR, HOW>(),
            false => self.more::<OTHER, HOW>(),
        };
        let mut state = [[V::zero(); 5]; 2];
        unroll!(I in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15, {
            if PAIRS {
                step::<V, PAIR, HOW>(self.now, self.next, &mut state, more, tweaks, I);
            } else {
                step::<V, OTHER, HOW>(self.now, self.next, &mut state, more, tweaks, I);
            }
        });
        mem::swap(&mut self.now, &mut self.next);
    }

    /// One group of blocks. Its masks are there; it leaves those of the next
    /// group, which `NEXT` tells, and asks for the bytes of a later one of the batch's run. With `TWEAKS`
    /// it returns `ivs` encrypted.
    ///
    /// # Safety
    /// The sources can be read and the destinations written.
    #[inline(always)]
    unsafe fn group<
        const FIRST: usize,
        const ENCRYPT: bool,
        const NEXT: u8,
        const TWEAKS: bool,
        const HOW: u8,
    >(
        &mut self,
        batch: &Batch<'_>,
        ivs: V,
        tweaks: [V::One; 2],
    ) -> V {
        let more = self.more::<NEXT, HOW>();
        let (now, next) = (&*self.now, &mut *self.next);
        let mut state = [[V::zero(); 5]; 2];
        let ahead = batch.ahead(self.text.src[0]);
        // SAFETY: the caller's promise; the group before, or `first`, has set the masks.
        let ivs = unsafe {
            group::<V, FIRST, ENCRYPT, NEXT, TWEAKS, HOW>(
                self.keys,
                &self.text,
                now,
                ivs,
                #[inline(always)]
                |i| {
                    ahead.ask(i, GROUP * V::BYTES);
                    step::<V, NEXT, HOW>(now, next, &mut state, more, tweaks, i);
                },
            )
        };
        mem::swap(&mut self.now, &mut self.next);
        ivs
    }
}

/// Encrypts or decrypts one group. Between its rounds `step` makes masks of a later
/// one, with the numbers 0 to 15 in turn. With `TWEAKS` it returns `ivs` encrypted.
///
/// # Safety
/// The sources can be read and the destinations written, and the masks have been set.
#[inline(always)]
unsafe fn group<
    V: Vector,
    const FIRST: usize,
    const ENCRYPT: bool,
    const NEXT: u8,
    const TWEAKS: bool,
    const HOW: u8,
>(
    keys: Schedules<'_>,
    text: &Text,
    masks: &Masks<V, GROUP>,
    ivs: V,
    mut step: impl FnMut(usize),
) -> V {
    let mut x = [V::zero(); GROUP];
    for (i, x) in x.iter_mut().enumerate() {
        // SAFETY: vector i of the group.
        *x = unsafe { V::load(text.src[i / HALF].add(i % HALF * V::BYTES)) };
    }
    // SAFETY: the caller's promise.
    let all = unsafe { masks.all() };
    match const { has_sums(NEXT, HOW) } {
        true => V::start_from_sums::<GROUP, FIRST>(&mut x, keys.data, all),
        false => V::wide_start_from::<GROUP, FIRST>(&mut x, keys.data, all),
    }
    let mut ivs = [ivs];
    if TWEAKS {
        V::wide_start_from::<1, FIRST>(&mut ivs, keys.tweak, &[V::zero()]);
    }
    unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND > FIRST {
        V::wide_round::<GROUP, ENCRYPT, ROUND>(&mut x, keys.data);
        if TWEAKS {
            V::wide_round::<1, true, ROUND>(&mut ivs, keys.tweak);
            x[2].tie(&mut ivs[0]);
        }
        if const { ROUND <= FIRST + 8 } {
            step(2 * (ROUND - FIRST) - 2);
            step(2 * (ROUND - FIRST) - 1);
        }
    });
    // SAFETY: the caller's promise. From memory once more, not from registers.
    let masks = unsafe { fresh(masks).all() };
    match const { has_sums(NEXT, HOW) } {
        true => V::finish_with_sums::<GROUP, ENCRYPT>(&mut x, keys.data, masks),
        false => V::wide_finish::<GROUP, ENCRYPT>(&mut x, keys.data, masks),
    }
    for (i, x) in x.into_iter().enumerate() {
        // SAFETY: as above, and the destination may be written.
        unsafe { x.store(text.dst[i / HALF].add(i % HALF * V::BYTES)) };
    }
    if TWEAKS {
        V::wide_finish::<1, true>(&mut ivs, keys.tweak, &[V::zero()]);
    }
    ivs[0]
}
