//! The receive buffer of a connection. Requests are parsed, and payloads
//! encrypted and written, where they were received.

use xtent_store::{AlignedBuffer, PAGE};

use super::proto::constants::REQUEST_LEN;

/// Where the buffer is filled from when empty: the payload of a write whose
/// header comes first lies on a page boundary.
const HEADER_START: usize = PAGE - REQUEST_LEN;

/// Received bytes that are not used yet.
pub(super) struct Input {
    bytes: AlignedBuffer,
    start: usize,
    end: usize,
}

impl Input {
    /// A buffer that takes a header with `payload` bytes, if there is memory.
    pub(super) fn new(payload: usize) -> Option<Self> {
        Some(Self {
            bytes: AlignedBuffer::zeroed(PAGE + payload).ok()?,
            start: HEADER_START,
            end: HEADER_START,
        })
    }

    /// Bytes of memory behind such a buffer.
    pub(super) const fn footprint(payload: usize) -> usize {
        AlignedBuffer::footprint(PAGE + payload)
    }

    /// The unused bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The first `len` unused bytes, to be changed in place.
    pub(super) fn front_mut(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + len]
    }

    /// The first `len` bytes are used.
    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
    }

    /// Room behind the unused bytes for more messages; they have moved to
    /// where all but a part of the first page is free.
    pub(super) fn room_for_messages(&mut self) -> &mut [u8] {
        self.move_to(HEADER_START);
        &mut self.bytes[self.end..]
    }

    /// Room for up to `more` bytes of payload behind the unused bytes, which
    /// are payload for `offset` and have moved so that a page-aligned offset
    /// lies at a page boundary.
    pub(super) fn room_for_payload(&mut self, offset: u64, more: usize) -> &mut [u8] {
        #[expect(clippy::cast_possible_truncation, reason = "less than a page")]
        self.move_to((offset % PAGE as u64) as usize);
        let room = &mut self.bytes[self.end..];
        let more = more.min(room.len());
        &mut room[..more]
    }

    /// `len` bytes were received into the room.
    pub(super) fn received(&mut self, len: usize) {
        self.end += len;
    }

    fn move_to(&mut self, place: usize) {
        if self.start != place {
            self.bytes.copy_within(self.start..self.end, place);
            self.end = place + (self.end - self.start);
            self.start = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_lie_on_page_boundaries() {
        let mut input = Input::new(1 << 16).unwrap();
        let room = input.room_for_messages();
        assert_eq!(room.len(), REQUEST_LEN + (1 << 16));
        room.fill(1);
        input.received(100);
        input.consume(REQUEST_LEN);
        assert_eq!(input.front_mut(72).as_ptr().align_offset(PAGE), 0);

        input.consume(70);
        let room = input.room_for_payload(4096 + 512, 10);
        assert_eq!((room.len(), room.as_ptr().align_offset(512)), (10, 510));
        assert_eq!(input.bytes(), [1, 1]);
        input.room_for_messages();
        assert_eq!(input.bytes(), [1, 1]);
    }
}
