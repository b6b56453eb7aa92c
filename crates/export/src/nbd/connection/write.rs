//! Writes: from the receive buffer as the payload comes, or by workers where
//! something has to be waited for.

use xtent_store::PAGE;

use super::{Connection, IN_PAYLOAD, WORTH_WRITING};
use crate::nbd::port::Closed;
use crate::nbd::worker::{Reply, Task};

impl Connection<'_> {
    pub(super) fn write(
        &mut self,
        reply: Reply,
        offset: u64,
        len: usize,
        fua: bool,
    ) -> Result<(), Closed> {
        if fua && len > 0 {
            return match self.write_by_worker(reply, offset, len, true)? {
                true => Ok(()),
                false => self.write_here(reply, offset, len, true),
            };
        }
        self.write_here(reply, offset, len, false)
    }

    /// Receives the payload into a buffer of its own for a worker; false if
    /// there is no memory.
    fn write_by_worker(
        &mut self,
        reply: Reply,
        offset: u64,
        len: usize,
        fua: bool,
    ) -> Result<bool, Closed> {
        let Some(mut buffer) = self.shared.memory.take(len) else {
            return Ok(false);
        };
        let here = self.input.bytes().len().min(len);
        buffer[..here].copy_from_slice(&self.input.bytes()[..here]);
        self.input.consume(here);
        if here < len {
            self.flush()?;
            self.port.receive_all(&mut buffer[here..], IN_PAYLOAD)?;
        }
        self.hand_over(
            reply,
            Task::Write {
                offset,
                buffer,
                fua,
            },
        )?;
        Ok(true)
    }

    /// Writes from the receive buffer, as the payload comes.
    fn write_here(
        &mut self,
        reply: Reply,
        mut offset: u64,
        mut left: usize,
        fua: bool,
    ) -> Result<(), Closed> {
        while left > 0 {
            let here = self.input.bytes().len().min(left);
            let take = if here == left {
                here
            } else if here >= WORTH_WRITING {
                // Up to a page boundary of the volume, so up to a sector's.
                #[expect(clippy::cast_possible_truncation, reason = "less than a page")]
                let beyond = ((offset + here as u64) % PAGE as u64) as usize;
                here - beyond
            } else {
                self.receive_payload(offset, left - here)?;
                continue;
            };
            let volume = self.volume;
            let data = self.input.front_mut(take);
            let result = match fua {
                true => Ok(false),
                false => volume.try_write_at_in_place(data, offset),
            };
            let result = match result {
                Ok(true) => Ok(()),
                Ok(false) if !fua && self.write_by_worker(reply, offset, left, false)? => {
                    return Ok(());
                }
                Ok(false) => {
                    self.flush()?;
                    volume.write_at_in_place(self.input.front_mut(take), offset, fua)
                }
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                let head = reply.volume_failure("write", &error);
                self.drain(left)?;
                return self.answer(head);
            }
            self.input.consume(take);
            offset += take as u64;
            left -= take;
        }
        self.answer(reply.success())
    }
}
