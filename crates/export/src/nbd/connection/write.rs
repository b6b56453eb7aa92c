//! Writes: from the receive buffer as the payload comes, or as a job where
//! something has to be waited for.

use xtent_store::PAGE;
use xtent_volume::RequestKind;

use super::{Connection, IN_PAYLOAD, WORTH_WRITING};
use crate::nbd::job::{Reply, Task};
use crate::nbd::port::Closed;

impl Connection<'_> {
    pub(super) fn write(
        &mut self,
        reply: Reply,
        offset: u64,
        len: usize,
        fua: bool,
    ) -> Result<(), Closed> {
        // An engine is given all of it.
        let is_job = fua && len > 0 || self.volume.goes_to_engine(len);
        if is_job && self.write_as_job(reply, offset, len, fua)? {
            return Ok(());
        }
        self.write_here(reply, offset, len, fua)
    }

    /// Receives the payload into memory that the request takes along; false if
    /// there is none.
    fn write_as_job(
        &mut self,
        reply: Reply,
        offset: u64,
        len: usize,
        fua: bool,
    ) -> Result<bool, Closed> {
        let hull = self.volume.hull(offset, len);
        let Some(mut buffer) = self.served.memory.take(hull.len) else {
            return Ok(false);
        };
        let data = &mut buffer[hull.skip..hull.skip + len];
        let here = self.input.bytes().len().min(len);
        data[..here].copy_from_slice(&self.input.bytes()[..here]);
        self.input.consume(here);
        if here < len {
            self.flush()?;
            self.port.receive_all(&mut data[here..], IN_PAYLOAD)?;
        }
        let task = Task::Write {
            offset,
            len,
            buffer,
            fua,
        };
        self.hand_over(reply, task)?;
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
                Ok(false) if !fua && self.write_as_job(reply, offset, left, false)? => {
                    return Ok(());
                }
                Ok(false) => {
                    self.flush()?;
                    volume.write_at_in_place(self.input.front_mut(take), offset, fua)
                }
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                self.end_if_fenced(reply, RequestKind::Write, &error)?;
                let head = reply.volume_failure(self.served, volume, RequestKind::Write, &error);
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
