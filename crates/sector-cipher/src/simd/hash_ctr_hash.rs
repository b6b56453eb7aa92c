//! What HCTR2, FAST and XCB have in common: a hash of most of the sector, a
//! few AES calls in the middle, counter mode over the part that was hashed, and
//! a hash of what that gave.
//!
//! Sectors go through in groups of four. While one group is in counter mode,
//! with its second hash, the first hash of the group after the next is worked
//! out, and in between, for the group that is next, all that depends on the
//! first hash: no unit waits for the serial part. What there is once per sector
//! is done for a group at a time, one sector in each lane.
//!
//! All runs over whole vectors of the sector. The few blocks that are neither
//! hashed nor in counter mode have the power zero in the hash; what counter
//! mode makes of them is overwritten when the sector is finished.

mod group;
mod pass;

use super::field::Products;
use super::powers::Powers;
use super::{RoundKeys, Vector, wipe};
use crate::run::{RunEnd, Sectors};
use group::{GROUP, Sums};
use pass::Pass;

pub(super) use group::Group;

/// Bytes of a group, at most, if it has several sectors.
const GROUP_BYTES: usize = 16384;

/// Bytes of a group, at least, if there are as many.
const LEAST_BYTES: usize = 4096;

/// So few sectors go one by one: the CPU begins the next one while it waits for this one's
/// middle, and with one group there would be nothing beside that either.
const FEW: usize = 2;

/// Parts of the middle.
const PARTS: usize = 4;

/// With which of them the group before is finished.
const FINISH: usize = 1;

/// A cipher of this form.
pub(super) trait Scheme {
    /// Whether the hash takes the bytes of a block in reverse.
    const REVERSED: bool;
    /// The powers of the hash's key, one for each block.
    fn powers(&self) -> &Powers;
    /// The AES key of counter mode.
    fn counter_keys(&self) -> &RoundKeys;
    /// What [`Self::counters`] needs of where the counter starts.
    fn start<V: Vector>(&self, start: V) -> V;
    /// The counters of the sector's blocks from `block` on, a multiple of `N` vectors, up to
    /// AES's last ten rounds.
    fn counters<V: Vector, const N: usize>(&self, start: V, block: usize) -> [V; N];
    /// Between the first hash and counter mode, for the sectors of a group from
    /// `lane` on: leaves where the counter starts. Part 0 has the hash, and the
    /// others follow; a part should wait for AES once at most.
    fn middle<V: Vector>(
        &self,
        encrypt: bool,
        part: usize,
        group: &mut Group,
        hash: impl Fn() -> Products<V>,
        lane: usize,
    );
    /// After the second hash: writes the blocks that are left.
    fn finish<V: Vector>(&self, encrypt: bool, group: &Group, hash: Products<V>, lane: usize);
}

/// Encrypts or decrypts the stream.
#[inline(always)]
pub(super) fn crypt<S: Scheme, V: Vector>(
    scheme: &S,
    sectors: &mut Sectors<'_, '_>,
    encrypt: bool,
) {
    // As many vectors side by side as there are registers for.
    if const { V::BLOCKS == 4 } {
        crypt_by::<S, V, 8>(scheme, sectors, encrypt);
    } else {
        crypt_by::<S, V, 4>(scheme, sectors, encrypt);
    }
}

#[inline(always)]
fn crypt_by<S: Scheme, V: Vector, const N: usize>(
    scheme: &S,
    sectors: &mut Sectors<'_, '_>,
    encrypt: bool,
) {
    if let Some(left @ ..=FEW) = sectors.left() {
        for _ in 0..left {
            alone::<S, V, N>(scheme, sectors, encrypt);
        }
        return;
    }
    let bytes = sectors.bytes();
    // Few enough to be in the first-level cache still when they come to counter
    // mode.
    let most = (GROUP_BYTES >> bytes.trailing_zeros()).clamp(1, GROUP);
    // A short run in more groups, so that there is something to go beside the first hash,
    // but not in smaller ones than keep a unit busy while the middle waits for itself.
    let least = (LEAST_BYTES >> bytes.trailing_zeros()).clamp(1, GROUP);
    let together = sectors
        .left()
        .map_or(most, |left| left.div_ceil(4).clamp(least, most));
    // Bytes between the parts of the middle.
    let spacing = together * bytes / PARTS;
    let mut groups = [Group::none(bytes); 4];
    let mut before = Sums::<V>::unset();
    let mut after = Sums::<V>::unset();
    let mut pass = Pass::<S, V, N>::new(scheme);
    // Four groups, each one step behind the next; the first ones of the array come first.
    let mut turn = 0;
    let (mut used_groups, mut used_lanes) = (0, 0);
    loop {
        let [a, b, c, d] = &mut groups;
        // Pointers that moved through memory would wait for each other.
        let [first, second, third, fourth] = match turn {
            0 => [a, d, c, b],
            1 => [b, a, d, c],
            2 => [c, b, a, d],
            _ => [d, c, b, a],
        };
        turn = (turn + 1) % 4;
        first.fill::<V>(sectors, together);
        let (hashed, counted) = (first.len, third.len);
        if hashed == 0 && second.len == 0 && counted == 0 && fourth.len == 0 {
            break;
        }
        if hashed != 0 {
            used_groups += 1;
            used_lanes = used_lanes.max(hashed);
        }
        let mut part = 0;
        let (mut done, mut due) = (0, 0);
        macro_rules! next_part {
            () => {
                let mut lane = 0;
                while lane < second.len {
                    scheme.middle::<V>(
                        encrypt,
                        part,
                        second,
                        #[inline(always)]
                        // SAFETY: the group's hashes are done.
                        || unsafe { before.get(lane) },
                        lane,
                    );
                    lane += V::BLOCKS;
                }
                if part == FINISH {
                    lane = 0;
                    while lane < fourth.len {
                        // SAFETY: so are its second ones.
                        let hash = unsafe { after.get(lane) };
                        scheme.finish::<V>(encrypt, fourth, hash, lane);
                        lane += V::BLOCKS;
                    }
                }
                part += 1;
            };
        }
        let mut last = fourth.len.wrapping_sub(1) % GROUP;
        if counted == 0 {
            after.set(last, pass.finish(bytes));
        }
        after.pad(fourth.len);
        // Groups are full but for the stream's last one.
        debug_assert!(counted == 0 || hashed <= counted);
        for i in 0..counted {
            let (sector, ahead) = (third.sectors[i], first.sectors[i].src());
            pass.start(third.start.splat(i));
            let mut offset = 0;
            while offset < bytes {
                if done >= due && part < PARTS {
                    next_part!();
                    due += spacing;
                }
                let behind = offset.wrapping_sub(Pass::<S, V, N>::STEP) & (bytes - 1);
                // SAFETY: the sectors are there.
                unsafe {
                    if i < hashed {
                        let later = first.end.ahead(ahead.wrapping_add(behind));
                        pass.step::<true>(sector, ahead, later, offset, behind);
                    } else {
                        let none = RunEnd::NONE.ahead(ahead);
                        pass.step::<false>(sector, ahead, none, offset, behind);
                    }
                }
                if offset == 0 {
                    after.set(last, pass.take_after());
                    last = i;
                }
                offset += Pass::<S, V, N>::STEP;
                done += Pass::<S, V, N>::STEP;
            }
            if i < hashed {
                before.set(i, pass.take_before());
            }
        }
        // What is left of the middle, or all of it where nothing is in counter mode: then by turns
        // with the first hash, so that a CPU has that while the middle waits for itself.
        let alone = if counted == 0 { hashed } else { 0 };
        let mut i = 0;
        while part < PARTS || i < alone {
            if part < PARTS {
                next_part!();
            }
            if i < alone {
                // SAFETY: the sector is there.
                before.set(i, unsafe { pass.hash(first.sectors[i].src(), bytes) });
                i += 1;
            }
        }
        before.pad(hashed);
        fourth.len = 0;
    }
    let used_groups = used_groups.min(groups.len());
    // A hash of data that somebody knows tells them the hash's key. None of
    // these has a destructor, and as they are aligned their sizes are whole
    // vectors.
    // SAFETY: all bytes zero is a value of each.
    unsafe {
        let lanes = used_lanes * size_of::<Products<V>>();
        wipe::<V>((&raw mut groups).cast(), used_groups * size_of::<Group>());
        wipe::<V>((&raw mut before).cast(), lanes);
        wipe::<V>((&raw mut after).cast(), lanes);
    }
}

/// Encrypts or decrypts the next sector of the present run: one phase after the other, in
/// which nothing waits in memory, so that nothing is wiped here. What the compiler has
/// put on the stack is left to [`Cipher::wipe_stack`](crate::Cipher::wipe_stack).
#[inline(always)]
fn alone<S: Scheme, V: Vector, const N: usize>(
    scheme: &S,
    sectors: &mut Sectors<'_, '_>,
    encrypt: bool,
) {
    let bytes = sectors.bytes();
    let (sector, tweak) = sectors.one();
    let mut group = Group::of_one(sector, bytes, tweak);
    let mut pass = Pass::<S, V, N>::new(scheme);
    // One lane takes less time than several.
    // SAFETY: the sector is there.
    let hash = unsafe { pass.hash(sector.src(), bytes) }.fold();
    for part in 0..PARTS {
        scheme.middle::<V::One>(
            encrypt,
            part,
            &mut group,
            #[inline(always)]
            || hash,
            0,
        );
    }
    pass.start(V::spread(group.start.get(0)));
    let none = RunEnd::NONE.ahead(sector.src());
    let mut offset = 0;
    while offset < bytes {
        let behind = offset.wrapping_sub(Pass::<S, V, N>::STEP) & (bytes - 1);
        // SAFETY: the sector is there.
        unsafe { pass.step::<false>(sector, sector.src(), none, offset, behind) };
        offset += Pass::<S, V, N>::STEP;
    }
    scheme.finish::<V::One>(encrypt, &group, pass.finish(bytes).fold(), 0);
}
