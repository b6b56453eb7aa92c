//! The memory behind the model's AXI4 port: several bursts under way, all answered in order, each
//! after its latency.
//!
//! Reads take the data, and writes leave it, in the cycle of their answer: that is as late as it
//! may be, so that a co-processor that does not wait for answers is found out.

use std::collections::VecDeque;

use crate::model::{Inputs, Outputs};

/// Bursts of each kind that are under way at most.
const OUTSTANDING: usize = 32;
/// `SLVERR`.
const ERROR: u8 = 2;

/// What the bursts reach.
pub trait Memory {
    /// Reads all of it; whether that is memory that may be read.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;
    /// Whether a burst of so many bytes is an error, of which nothing is written. Asked once for each.
    fn refuses(&self, _address: u64, _bytes: usize) -> bool {
        false
    }
    /// Writes all of it; whether that is memory that may be written.
    fn write(&self, address: u64, bytes: &[u8]) -> bool;
}

/// Cycles from an address, or the last data, to the answer; at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// From a read's address to its first data.
    pub read: u32,
    /// From a write's last data to its response.
    pub write: u32,
}

/// A burst on its way.
#[derive(Debug)]
struct Burst {
    id: u8,
    address: u64,
    beats: usize,
    /// Of a write: the bytes that have come, and which of them count. Of a read: what it has read.
    data: Vec<u8>,
    strobes: Vec<bool>,
    /// The cycle of its answer, or of the first beat of it; not known while data is missing.
    due: Option<u64>,
    /// The answer, once it is due.
    answer: Option<u8>,
    /// Beats of it that are gone.
    answered: usize,
}

/// An AXI4 slave on the model's pins.
#[derive(Debug)]
pub struct MemoryPort {
    latency: Latency,
    cycle: u64,
    /// Bytes of a beat, as the first burst has it.
    beat: usize,
    reads: VecDeque<Burst>,
    writes: VecDeque<Burst>,
    /// Addresses and data that were offered and not taken: they have to stay as they are.
    offered: Offered,
    /// Whether a read's, a write's answer was offered and not taken in the last cycle.
    untaken: (bool, bool),
}

#[derive(Debug, Default)]
struct Offered {
    read: Option<(u64, [u8; 4])>,
    write: Option<(u64, [u8; 4])>,
    data: Option<([u64; 2], u16, u8)>,
}

impl MemoryPort {
    /// A port without bursts. The first will tell how wide the bus is.
    pub fn new(latency: Latency) -> Self {
        Self {
            latency,
            cycle: 0,
            beat: 0,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            offered: Offered::default(),
            untaken: (false, false),
        }
    }

    /// Forgets all bursts: the model is being reset.
    pub fn reset(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.offered = Offered::default();
        self.untaken = (false, false);
    }

    /// Whether no burst is under way.
    pub fn is_idle(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    /// Sets its pins for the next cycle.
    pub fn drive(&mut self, inputs: &mut Inputs, memory: &impl Memory) {
        self.cycle += 1;
        inputs.m_axi_arready = self.reads.len() < OUTSTANDING;
        inputs.m_axi_awready = self.writes.len() < OUTSTANDING;
        inputs.m_axi_wready = self.writes.iter().any(|burst| burst.due.is_none());
        let cycle = self.cycle;
        let is_due = |burst: &&mut Burst| burst.due.is_some_and(|due| due <= cycle);

        inputs.m_axi_rvalid = false;
        if let Some(burst) = self.reads.front_mut().filter(is_due) {
            let answer = *burst.answer.get_or_insert_with(|| {
                let read = memory.read(burst.address, &mut burst.data);
                if !read {
                    burst.data.fill(0);
                }
                if read { 0 } else { ERROR }
            });
            let start = burst.answered * self.beat;
            inputs.m_axi_rdata = words(&burst.data[start..start + self.beat]);
            inputs.m_axi_rvalid = true;
            inputs.m_axi_rid = burst.id;
            inputs.m_axi_rresp = answer;
            inputs.m_axi_rlast = burst.answered + 1 == burst.beats;
        }

        inputs.m_axi_bvalid = false;
        if let Some(burst) = self.writes.front_mut().filter(is_due) {
            let answer = burst.answer.unwrap_or_else(|| burst.write(memory));
            burst.answer = Some(answer);
            inputs.m_axi_bresp = answer;
            inputs.m_axi_bvalid = true;
            inputs.m_axi_bid = burst.id;
        }
    }

    /// After [`MemoryPort::drive`]: answers nothing and takes nothing in this cycle, but what was offered
    /// before and has to stay.
    pub fn hold(&self, inputs: &mut Inputs) {
        inputs.m_axi_arready = false;
        inputs.m_axi_awready = false;
        inputs.m_axi_wready = false;
        inputs.m_axi_rvalid &= self.untaken.0;
        inputs.m_axi_bvalid &= self.untaken.1;
    }

    /// Sees how the cycle went.
    ///
    /// # Errors
    /// What the model did that AXI4, or `rtl/engine/README.md`, does not allow.
    pub fn see(&mut self, inputs: &Inputs, outputs: &Outputs) -> Result<(), String> {
        self.untaken = (
            inputs.m_axi_rvalid && outputs.m_axi_rready == 0,
            inputs.m_axi_bvalid && outputs.m_axi_bready == 0,
        );
        let read = [
            outputs.m_axi_arid,
            outputs.m_axi_arlen,
            outputs.m_axi_arsize,
            outputs.m_axi_arburst,
        ];
        let taken = steady(
            &mut self.offered.read,
            outputs.m_axi_arvalid != 0,
            inputs.m_axi_arready,
            (outputs.m_axi_araddr, read),
        )
        .map_err(|()| "a read's address changes before it is taken")?;
        if taken {
            let burst = self.burst(outputs.m_axi_araddr, read)?;
            let bytes = burst.beats * self.beat;
            self.reads.push_back(Burst {
                data: vec![0; bytes],
                due: Some(self.cycle + u64::from(self.latency.read)),
                ..burst
            });
        }
        if inputs.m_axi_rvalid
            && outputs.m_axi_rready != 0
            && let Some(burst) = self.reads.front_mut()
        {
            burst.answered += 1;
            if burst.answered == burst.beats {
                self.reads.pop_front();
            }
        }

        let data = (
            outputs.m_axi_wdata,
            outputs.m_axi_wstrb,
            outputs.m_axi_wlast,
        );
        let taken = steady(
            &mut self.offered.data,
            outputs.m_axi_wvalid != 0,
            inputs.m_axi_wready,
            data,
        )
        .map_err(|()| "data to write changes before it is taken")?;
        if taken {
            let due = self.cycle + u64::from(self.latency.write);
            let beat = self.beat;
            if let Some(burst) = self.writes.iter_mut().find(|burst| burst.due.is_none()) {
                burst.take(outputs, beat)?;
                if outputs.m_axi_wlast != 0 {
                    burst.due = Some(due);
                }
            }
        }
        let write = [
            outputs.m_axi_awid,
            outputs.m_axi_awlen,
            outputs.m_axi_awsize,
            outputs.m_axi_awburst,
        ];
        let taken = steady(
            &mut self.offered.write,
            outputs.m_axi_awvalid != 0,
            inputs.m_axi_awready,
            (outputs.m_axi_awaddr, write),
        )
        .map_err(|()| "a write's address changes before it is taken")?;
        if taken {
            let burst = self.burst(outputs.m_axi_awaddr, write)?;
            self.writes.push_back(burst);
        }
        if inputs.m_axi_bvalid && outputs.m_axi_bready != 0 {
            self.writes.pop_front();
        }
        Ok(())
    }

    /// A burst of this address and `[id, length, size, kind]`.
    fn burst(&mut self, address: u64, [id, length, size, kind]: [u8; 4]) -> Result<Burst, String> {
        let beat = 1_usize << size.min(7);
        if self.beat == 0 {
            self.beat = beat;
        }
        let beats = usize::from(length) + 1;
        let bytes = (beats * beat) as u64;
        if beat != self.beat || beat > 16 {
            return Err(format!(
                "a burst of beats of {beat} bytes, not of the bus's"
            ));
        }
        if kind != 1 {
            return Err(format!("a burst of kind {kind}, not INCR"));
        }
        if !address.is_multiple_of(beat as u64) || address % 4096 + bytes > 4096 || bytes > 1024 {
            return Err(format!(
                "a burst of {bytes} bytes at {address:#x}: not aligned, too long or across 4 KiB"
            ));
        }
        Ok(Burst {
            id,
            address,
            beats,
            data: Vec::new(),
            strobes: Vec::new(),
            due: None,
            answer: None,
            answered: 0,
        })
    }
}

impl Burst {
    /// Takes a beat of a write.
    fn take(&mut self, outputs: &Outputs, beat: usize) -> Result<(), String> {
        let bytes = outputs.m_axi_wdata.map(u64::to_le_bytes);
        self.data.extend_from_slice(&bytes.as_flattened()[..beat]);
        self.strobes
            .extend((0..beat).map(|bit| outputs.m_axi_wstrb >> bit & 1 != 0));
        if (self.data.len() == self.beats * beat) == (outputs.m_axi_wlast != 0) {
            Ok(())
        } else {
            Err(format!(
                "a write of {} beats whose end is marked at another",
                self.beats
            ))
        }
    }

    /// Leaves the bytes that count in memory, and gives the response.
    fn write(&self, memory: &impl Memory) -> u8 {
        if memory.refuses(self.address, self.data.len()) {
            return ERROR;
        }
        let mut start = 0;
        for run in self.strobes.chunk_by(|a, b| a == b) {
            let end = start + run.len();
            if run[0] && !memory.write(self.address + start as u64, &self.data[start..end]) {
                return ERROR;
            }
            start = end;
        }
        0
    }
}

/// Whether what is offered was taken. What was offered before has to be there, unchanged.
fn steady<T: PartialEq>(
    offered: &mut Option<T>,
    valid: bool,
    ready: bool,
    now: T,
) -> Result<bool, ()> {
    let before = offered.take();
    if before.is_some_and(|before| !valid || before != now) {
        return Err(());
    }
    if valid && !ready {
        *offered = Some(now);
    }
    Ok(valid && ready)
}

/// A beat's bytes as the model has them.
fn words(beat: &[u8]) -> [u64; 2] {
    let mut bytes = [0; 16];
    bytes[..beat.len()].copy_from_slice(beat);
    let value = u128::from_le_bytes(bytes);
    #[allow(clippy::cast_possible_truncation)]
    let low = value as u64;
    #[allow(clippy::cast_possible_truncation)]
    let high = (value >> 64) as u64;
    [low, high]
}

#[cfg(test)]
mod tests;
