//! Where keyslots' material goes, one keyslot at a time, so that at every
//! step what is moved is whole in its old place and whole in its new one.

use std::collections::BTreeMap;

use crate::luks2::areas::gap;
use crate::luks2::model::Area;

/// A keyslot's material goes to an area that nothing else uses, not even its
/// old place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) keyslot: u32,
    pub(super) to: Area,
}

/// The moves that bring every keyslot into one of `cells`, a keyslot in each,
/// whichever; by way of other places in `room` if need be. `None` if the room
/// is too narrow for that.
pub(super) fn settle(
    keyslots: &BTreeMap<u32, Area>,
    cells: &[Area],
    room: Area,
) -> Option<Vec<Move>> {
    let mut cells = cells.to_vec();
    cells.sort_by_key(|cell| cell.offset);
    let mut unsettled: Vec<u32> = keyslots
        .iter()
        .filter(|(_, area)| !cells.iter().any(|cell| cell.offset == area.offset))
        .map(|(keyslot, _)| *keyslot)
        .collect();
    unsettled.sort_by_key(|keyslot| keyslots[keyslot].offset);
    // Where everything is packed, only towards the free space: what is above it
    // goes down, lowest first, what is below it goes up, highest first.
    (0..=unsettled.len()).find_map(|first_above| {
        let mut packing = Packing {
            now: keyslots.clone(),
            room,
            moves: Vec::new(),
        };
        for keyslot in &unsettled[first_above..] {
            packing.place(*keyslot, cells.iter())?;
        }
        for keyslot in unsettled[..first_above].iter().rev() {
            packing.place(*keyslot, cells.iter().rev())?;
        }
        Some(packing.moves)
    })
}

/// An attempt.
struct Packing {
    now: BTreeMap<u32, Area>,
    room: Area,
    moves: Vec<Move>,
}

impl Packing {
    /// Moves a keyslot to the first cell that is free; to one that overlaps its own
    /// place only if there is no other, and by way of a third place.
    fn place<'a>(&mut self, keyslot: u32, cells: impl Iterator<Item = &'a Area>) -> Option<()> {
        let own = self.now.remove(&keyslot)?;
        let mut taken: Vec<Area> = self.now.values().copied().collect();
        let free: Vec<Area> = cells
            .filter(|cell| !taken.iter().any(|other| other.overlaps(**cell)))
            .copied()
            .collect();
        let to = match free.iter().find(|cell| !cell.overlaps(own)) {
            Some(cell) => *cell,
            None => {
                let cell = *free.first()?;
                taken.extend([own, cell]);
                let between = gap(self.room, taken, cell.size)?;
                self.moves.push(Move {
                    keyslot,
                    to: between,
                });
                cell
            }
        };
        self.moves.push(Move { keyslot, to });
        self.now.insert(keyslot, to);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 65536;
    const HEAD: u64 = 32768;
    const SHIFT: u64 = 28672;

    fn grid(first: u64) -> Vec<Area> {
        (0..8)
            .map(|number| Area {
                offset: first + number * STEP,
                size: STEP,
            })
            .collect()
    }

    /// Carries the moves out, and checks each.
    fn check(start: &BTreeMap<u32, Area>, moves: &[Move], cells: &[Area], room: Area) {
        let mut now = start.clone();
        for step in moves {
            assert!(step.to.offset >= room.offset && step.to.end() <= room.end());
            for area in now.values() {
                assert!(!area.overlaps(step.to), "{step:?} among {now:?}");
            }
            now.insert(step.keyslot, step.to);
        }
        for area in now.values() {
            assert!(cells.iter().any(|cell| cell.offset == area.offset));
        }
    }

    /// Every set of keyslots, from LUKS1's places into cryptsetup's LUKS2
    /// places and back, with no room but for eight areas, and with more.
    #[test]
    fn every_set_of_keyslots_settles_where_there_is_room() {
        for slack in [0, 2 * STEP] {
            let room = Area {
                offset: HEAD,
                size: 8 * STEP + slack,
            };
            for set in 0_u32..256 {
                let pick = |cells: &[Area]| -> BTreeMap<u32, Area> {
                    (0_u32..)
                        .zip(cells)
                        .filter(|(number, _)| set & (1 << number) != 0)
                        .map(|(number, cell)| (number, *cell))
                        .collect()
                };
                let (luks1, luks2) = (grid(4096), grid(HEAD));
                // LUKS1's first place is under the LUKS2 header.
                let from_luks1 = pick(&luks1[1..]);
                let from_luks2 = pick(&luks2);
                let mut back = luks1[1..].to_vec();
                back.push(Area {
                    offset: 4096 + 8 * STEP,
                    size: STEP,
                });
                back.retain(|cell| cell.end() <= room.end());
                for (start, cells) in [(&from_luks1, &luks2), (&from_luks2, &back)] {
                    match settle(start, cells, room) {
                        Some(moves) => check(start, &moves, cells, room),
                        None => {
                            assert!(start.len() >= 7 && slack == 0, "{start:?}");
                        }
                    }
                }
            }
        }
        assert_eq!(HEAD - 4096, SHIFT);
    }
}
