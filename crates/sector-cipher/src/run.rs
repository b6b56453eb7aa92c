//! What the kernels see of a request: a stream of sectors, from wherever they
//! come. A run in place, a run from source to destination and a list of
//! segments all become the same stream, so that there is one kernel for the
//! three and none of them stops at a segment's end.
#![allow(unsafe_code)]

use crate::{IvMode, SectorCount, SectorSize, Segment};
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::{ptr, slice};

/// Bytes in an AES block.
pub(crate) const BLOCK: usize = 16;

/// Sectors whose IVs are made together.
pub(crate) const BATCH: usize = 8;

/// One sector: where its bytes come from and where they go.
#[derive(Clone, Copy)]
pub(crate) struct Sector {
    src: *const u8,
    dst: *mut u8,
}

impl Sector {
    /// None: its pointers must not be used.
    pub(crate) const NONE: Self = Self {
        src: ptr::null(),
        dst: ptr::null_mut(),
    };

    /// Readable for the sector size while the stream lives. The same as
    /// [`Self::dst`], or not overlapping it.
    #[inline(always)]
    #[cfg(any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ))]
    pub(crate) fn src(&self) -> *const u8 {
        self.src
    }

    /// Writable for the sector size while the stream lives.
    #[inline(always)]
    #[cfg(any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ))]
    pub(crate) fn dst(&self) -> *mut u8 {
        self.dst
    }
}

/// Up to [`BATCH`] following sectors of a stream.
pub(crate) struct Batch<'a> {
    sectors: [Sector; BATCH],
    ivs: [u128; BATCH],
    len: usize,
    /// What the IVs count, at the first sector, if they are left to the kernel.
    count: Option<u64>,
    bytes: usize,
    _borrow: PhantomData<&'a mut [u8]>,
}

#[cfg(test)]
impl<'a> Batch<'a> {
    /// A message of any length in place, for vectors that have no sector's.
    pub(crate) fn of_one(data: &'a mut [u8]) -> Self {
        let dst = data.as_mut_ptr();
        let mut sectors = [Sector::NONE; BATCH];
        sectors[0] = Sector { src: dst, dst };
        Self {
            sectors,
            ivs: [0; BATCH],
            len: 1,
            count: None,
            bytes: data.len(),
            _borrow: PhantomData,
        }
    }
}

impl Batch<'_> {
    /// The sectors.
    #[inline(always)]
    pub(crate) fn sectors(&self) -> &[Sector] {
        &self.sectors[..self.len]
    }

    /// Their IVs, before any encryption, as little-endian integers; behind the
    /// last sector's stands anything.
    #[inline(always)]
    pub(crate) fn ivs(&self) -> &[u128; BATCH] {
        &self.ivs
    }

    /// Sector `i`, whether [`Sectors::fill_places`] has filled the batch or
    /// [`Sectors::fill`].
    #[inline(always)]
    #[cfg(any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ))]
    pub(crate) fn sector(&self, i: usize) -> Sector {
        if self.count.is_none() {
            return self.sectors()[i];
        }
        let Sector { src, dst } = self.sectors[0];
        let offset = i * self.bytes;
        Sector {
            src: src.wrapping_add(offset),
            dst: dst.wrapping_add(offset),
        }
    }

    /// What the IV of the first sector counts, if the sectors are consecutive
    /// and their IVs have not been made: see [`Sectors::fill_places`].
    #[inline(always)]
    #[cfg(any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ))]
    pub(crate) fn count(&self) -> Option<u64> {
        self.count
    }

    /// How many sectors there are.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Makes it empty.
    #[inline(always)]
    #[cfg(any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ))]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Block `block` of sector `sector`.
    #[inline(always)]
    pub(crate) fn load(&self, sector: usize, block: usize) -> [u8; BLOCK] {
        let offset = block * BLOCK;
        assert!(offset < self.bytes);
        // SAFETY: a sector in `sectors()` is readable for `bytes` bytes, a
        // multiple of the block, and `offset` is one below it.
        unsafe { ptr::read_unaligned(self.sectors()[sector].src.add(offset).cast()) }
    }

    /// Writes block `block` of sector `sector`.
    #[inline(always)]
    pub(crate) fn store(&mut self, sector: usize, block: usize, bytes: [u8; BLOCK]) {
        let offset = block * BLOCK;
        assert!(offset < self.bytes);
        // SAFETY: as in `load`; the destination is borrowed mutably by the stream.
        unsafe { ptr::write_unaligned(self.sectors()[sector].dst.add(offset).cast(), bytes) }
    }
}

/// How the number of a sector becomes its IV.
#[derive(Clone, Copy)]
pub(crate) struct IvRule {
    size: SectorSize,
    log_bytes: u32,
    /// Sectors of 512 bytes in one sector.
    units: u64,
    /// From 512-byte units to what the IV counts.
    shift: u32,
    /// The bits of the number in the first eight bytes of the IV.
    little: u64,
    /// The bits of the byte-swapped number in its last eight bytes.
    big: u64,
    /// What the IV counts from a sector to those behind it.
    steps: [u128; BATCH],
    /// The bits of the count in the IV, and of the count with all sixteen bytes
    /// reversed.
    masks: [u128; 2],
    /// Any IV, for vectors whose IV is no sector number.
    #[cfg(test)]
    pub(crate) forced: Option<u128>,
}

impl IvRule {
    pub(crate) fn new(mode: IvMode, size: SectorSize, count: SectorCount) -> Self {
        let units = size.bytes() as u64 / 512;
        let shift = match count {
            SectorCount::Units512 => 0,
            SectorCount::Large => units.trailing_zeros(),
        };
        let (little, big) = match mode {
            IvMode::Plain => (0xffff_ffff, 0),
            IvMode::Plain64 | IvMode::EssivSha256 => (u64::MAX, 0),
            IvMode::Plain64Be => (0, u64::MAX),
        };
        let step = u128::from(units >> shift);
        // Behind the last sector comes sector 0.
        let counted = u64::MAX >> shift;
        Self {
            steps: core::array::from_fn(|i| step * i as u128),
            masks: [
                u128::from(little & counted),
                u128::from(big & counted.swap_bytes()) << 64,
            ],
            size,
            log_bytes: size.bytes().trailing_zeros(),
            units,
            shift,
            little,
            big,
            #[cfg(test)]
            forced: None,
        }
    }

    /// The IV, or the tweak before its encryption, of the sector whose first
    /// 512 bytes have number `sector`.
    #[inline(always)]
    fn iv(&self, sector: u64) -> u128 {
        #[cfg(test)]
        if let Some(iv) = self.forced {
            return iv;
        }
        let number = sector >> self.shift;
        u128::from(number & self.little) | u128::from(number.swap_bytes() & self.big) << 64
    }
}

/// The stream of sectors of one request.
pub(crate) struct Sectors<'a, 'b> {
    src: *const u8,
    dst: *mut u8,
    /// Sectors left of the present run.
    left: usize,
    /// Number of the next sector, in 512-byte units.
    next: u64,
    rest: slice::IterMut<'a, Segment<'b>>,
    bytes: usize,
    rule: &'a IvRule,
}

impl<'a, 'b> Sectors<'a, 'b> {
    /// A run in place.
    pub(crate) fn in_place(rule: &'a IvRule, first: u64, data: &'a mut [u8]) -> Self {
        let dst = data.as_mut_ptr();
        Self::run(rule, first, dst, dst, data.len())
    }

    /// A run from `source` to `dest`.
    pub(crate) fn between(
        rule: &'a IvRule,
        first: u64,
        source: &'a [u8],
        dest: &'a mut [u8],
    ) -> Self {
        assert_eq!(
            source.len(),
            dest.len(),
            "source and destination of a run must have the same length"
        );
        Self::run(
            rule,
            first,
            source.as_ptr(),
            dest.as_mut_ptr(),
            source.len(),
        )
    }

    /// Several runs in place.
    pub(crate) fn segments(rule: &'a IvRule, segments: &'a mut [Segment<'b>]) -> Self {
        // All are checked before the first byte is changed.
        for segment in segments.iter() {
            check(rule, segment.first, segment.data.len());
        }
        let mut sectors = Self::run(rule, 0, ptr::null(), ptr::null_mut(), 0);
        sectors.rest = segments.iter_mut();
        sectors
    }

    fn run(rule: &'a IvRule, first: u64, src: *const u8, dst: *mut u8, len: usize) -> Self {
        check(rule, first, len);
        let bytes = rule.size.bytes();
        let left = len >> rule.log_bytes;
        Self {
            src,
            dst,
            left,
            next: first,
            rest: [].iter_mut(),
            bytes,
            rule,
        }
    }

    /// Bytes of every sector.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many sectors are left, if they are one run; `None` if further segments
    /// follow.
    #[inline(always)]
    #[cfg(any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ))]
    pub(crate) fn left(&self) -> Option<usize> {
        (self.rest.len() == 0).then_some(self.left)
    }

    /// An empty batch, to be filled.
    #[inline(always)]
    pub(crate) fn empty_batch(&self) -> Batch<'a> {
        Batch {
            sectors: [Sector::NONE; BATCH],
            ivs: [0; BATCH],
            len: 0,
            count: None,
            bytes: self.bytes,
            _borrow: PhantomData,
        }
    }

    /// Replaces the batch by the next sectors, as many as there are up to
    /// [`BATCH`]; none at the end.
    #[inline(always)]
    pub(crate) fn fill(&mut self, batch: &mut Batch<'a>) {
        batch.count = None;
        batch.len = self.take(&mut batch.sectors, &mut batch.ivs);
    }

    /// The next sectors and their IVs, as many as there is room for. Tells how many.
    #[inline(always)]
    pub(crate) fn take(&mut self, sectors: &mut [Sector], ivs: &mut [u128]) -> usize {
        let sectors = ptr::from_mut(sectors) as *mut [MaybeUninit<Sector>];
        let ivs = ptr::from_mut(ivs) as *mut [MaybeUninit<u128>];
        // SAFETY: borrowed mutably for as long, and nothing but values is written.
        unsafe { self.take_new(&mut *sectors, &mut *ivs) }
    }

    /// The same, into room that has not been written before.
    #[inline(never)]
    pub(crate) fn take_new(
        &mut self,
        sectors: &mut [MaybeUninit<Sector>],
        ivs: &mut [MaybeUninit<u128>],
    ) -> usize {
        let mut places = sectors.iter_mut().zip(ivs);
        let room = places.len();
        loop {
            let count = self.left.min(places.len());
            // Not in their places, through which each would wait for the one before.
            let (mut src, mut dst, mut next) = (self.src, self.dst, self.next);
            for (sector, iv) in places.by_ref().take(count) {
                sector.write(Sector { src, dst });
                put(iv, self.rule.iv(next));
                src = src.wrapping_add(self.bytes);
                dst = dst.wrapping_add(self.bytes);
                next = next.wrapping_add(self.rule.units);
            }
            (self.src, self.dst, self.next) = (src, dst, next);
            self.left -= count;
            if places.len() == 0 {
                return room;
            }
            let Some(segment) = self.rest.next() else {
                return room - places.len();
            };
            self.dst = segment.data.as_mut_ptr();
            self.src = self.dst;
            self.left = segment.data.len() >> self.rule.log_bytes;
            self.next = segment.first;
        }
    }

    /// The next sector of the present run, which has one, and its IV.
    #[inline(always)]
    #[cfg(any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ))]
    pub(crate) fn one(&mut self) -> (Sector, u128) {
        assert!(self.left != 0);
        let (src, dst, iv) = (self.src, self.dst, self.rule.iv(self.next));
        self.src = src.wrapping_add(self.bytes);
        self.dst = dst.wrapping_add(self.bytes);
        self.next = self.next.wrapping_add(self.rule.units);
        self.left -= 1;
        (Sector { src, dst }, iv)
    }

    /// [`Self::fill`], but leaves the IVs of consecutive sectors to the kernel:
    /// it makes them as vectors. Numbers on their way from one kind of register
    /// to the other take the place of AES rounds.
    #[inline(always)]
    #[cfg(any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ))]
    pub(crate) fn fill_places(&mut self, batch: &mut Batch<'a>) {
        let count = self.left.min(BATCH);
        #[cfg(test)]
        if self.rule.forced.is_some() {
            return self.fill(batch);
        }
        if count < BATCH && self.rest.len() != 0 {
            return self.fill(batch);
        }
        let (src, dst) = (settled(self.src), settled(self.dst.cast_const()).cast_mut());
        batch.sectors[0] = Sector { src, dst };
        self.src = src.wrapping_add(BATCH * self.bytes);
        self.dst = dst.wrapping_add(BATCH * self.bytes);
        batch.count = Some(self.next >> self.rule.shift);
        self.next = self.next.wrapping_add(BATCH as u64 * self.rule.units);
        batch.len = count;
        self.left -= count;
    }

    /// What the IV counts from a sector to those behind it, and the bits of the
    /// count in the IV: as it is, and with its sixteen bytes reversed.
    #[inline(always)]
    #[cfg(any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ))]
    pub(crate) fn counting(&self) -> (&[u128; BATCH], &[u128; 2]) {
        (&self.rule.steps, &self.rule.masks)
    }
}

/// The same pointer, in a register of its own, of which the compiler does not know
/// how it has come about. Otherwise it reads two pointers as one vector, which
/// cannot be done before both have reached the cache, or works one out again and
/// again.
#[inline(always)]
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_endian = "little")
))]
pub(crate) fn settled(mut pointer: *const u8) -> *const u8 {
    // SAFETY: an empty piece of assembly, that hands the pointer through.
    unsafe {
        core::arch::asm!("/* {} */", inout(reg) pointer, options(pure, readonly, nostack, preserves_flags));
    }
    pointer
}

/// Writes an IV, all of it at once: one that is written in two halves cannot be
/// read as a whole before both have reached the cache.
#[inline(always)]
fn put(place: &mut MaybeUninit<u128>, iv: u128) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_mm_set_epi64x, _mm_storeu_si128};
        #[allow(clippy::cast_possible_truncation, reason = "halves are wanted")]
        let [low, high] = [iv as i64, (iv >> 64) as i64];
        // SAFETY: sixteen bytes of plain data, and every x86-64 CPU has SSE2.
        unsafe { _mm_storeu_si128(ptr::from_mut(place).cast(), _mm_set_epi64x(high, low)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        place.write(iv);
    }
}

/// The boundary check: after it `len` is whole sectors.
fn check(rule: &IvRule, first: u64, len: usize) {
    let bytes = rule.size.bytes();
    assert!(
        // A power of two: no division, which takes as long as some blocks do.
        len & (bytes - 1) == 0,
        "a run of {len} bytes is not whole sectors of {bytes} bytes"
    );
    assert!(
        first & (rule.units - 1) == 0,
        "sector {first} (512-byte units) is not at the start of a sector of {bytes} bytes"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(mode: IvMode, bytes: u32, count: SectorCount) -> IvRule {
        IvRule::new(mode, SectorSize::new(bytes).unwrap(), count)
    }

    #[test]
    fn ivs_as_dm_crypt() {
        let plain = rule(IvMode::Plain, 512, SectorCount::Units512);
        assert_eq!(plain.iv(0xffff_ffff), 0xffff_ffff);
        assert_eq!(plain.iv(0x1_0000_0000), 0);
        assert_eq!(plain.iv(0x5_0000_0007), 7);
        let plain64 = rule(IvMode::Plain64, 512, SectorCount::Units512);
        assert_eq!(plain64.iv(u64::MAX), u128::from(u64::MAX));
        let be = rule(IvMode::Plain64Be, 512, SectorCount::Units512);
        assert_eq!(
            be.iv(0x0102_0304_0506_0708).to_le_bytes(),
            [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
        );
        let large = rule(IvMode::Plain64, 4096, SectorCount::Large);
        assert_eq!(large.iv(8 * 5), 5);
        let units = rule(IvMode::Plain64, 4096, SectorCount::Units512);
        assert_eq!(units.iv(8 * 5), 40);
        // dm-crypt shifts first and truncates then.
        let large = rule(IvMode::Plain, 2048, SectorCount::Large);
        assert_eq!(large.iv(4 << 32), 0);
        assert_eq!(large.iv(1 << 33), 1 << 31);
    }

    #[test]
    fn numbers_wrap_at_two_to_the_64() {
        let mut data = [0; 4 * 512];
        let rule = rule(IvMode::Plain64, 512, SectorCount::Units512);
        let mut sectors = Sectors::in_place(&rule, u64::MAX - 1, &mut data);
        let mut batch = sectors.empty_batch();
        sectors.fill(&mut batch);
        assert_eq!(batch.len(), 4);
        let max = u128::from(u64::MAX);
        assert_eq!(batch.ivs()[..4], [max - 1, max, 0, 1]);
    }

    #[test]
    fn batches_cross_segments_and_skip_empty_ones() {
        let (mut a, mut b, mut c) = ([0; 3 * 512], [0; 0], [0; 7 * 512]);
        let rule = rule(IvMode::Plain64, 512, SectorCount::Units512);
        let mut segments = [
            Segment {
                first: 100,
                data: &mut b,
            },
            Segment {
                first: 10,
                data: &mut a,
            },
            Segment {
                first: 20,
                data: &mut c,
            },
        ];
        let mut sectors = Sectors::segments(&rule, &mut segments);
        let mut batch = sectors.empty_batch();
        sectors.fill(&mut batch);
        assert_eq!(batch.len(), 8);
        assert_eq!(batch.ivs(), &[10, 11, 12, 20, 21, 22, 23, 24]);
        sectors.fill(&mut batch);
        assert_eq!((batch.len(), &batch.ivs()[..2]), (2, &[25, 26][..]));
        sectors.fill(&mut batch);
        assert_eq!(batch.len(), 0);
        sectors.fill(&mut batch);
        assert_eq!(batch.len(), 0);
    }
}
