//! The device as `virtio_pcidev` has it: a PCI function whose configuration space and BARs are read
//! and written by messages.

use std::fmt;
use std::io;

use crate::msix::{BAR2_BYTES, Message, Msix};
use crate::pci::{CONFIG_BYTES, Config};
use crate::registers::BAR_BYTES;

/// Bytes of a message's header, which data follows.
pub const HEADER: usize = 16;
/// Bytes of a message at most: a whole BAR is written.
pub const MOST: usize = HEADER + BAR_BYTES as usize;

// What a message wants.
const CONFIG_READ: u8 = 1;
const CONFIG_WRITE: u8 = 2;
const READ: u8 = 3;
const WRITE: u8 = 4;
const FILL: u8 = 5;
const MSI: u8 = 7;

/// The registers of BAR 0.
pub trait Registers {
    /// Reads one, after all that was written before.
    ///
    /// # Errors
    /// The model has stopped.
    fn read(&mut self, offset: u16) -> io::Result<u32>;
    /// Writes one, in its turn.
    ///
    /// # Errors
    /// The model has stopped.
    fn write(&mut self, offset: u16, value: u32) -> io::Result<()>;
}

/// A message that is in order.
#[derive(Debug)]
pub struct Command {
    space: Space,
    at: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Space {
    Config,
    Registers,
    Msix,
}

enum Kind {
    Read(usize),
    Write(Vec<u8>),
}

/// Without the data, which may be of a key: this goes to the log.
impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(size) => write!(f, "Read({size} bytes)"),
            Self::Write(data) => write!(f, "Write({} bytes)", data.len()),
        }
    }
}

impl Command {
    /// Takes a message apart.
    ///
    /// # Errors
    /// It is none, or about something that is not there.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let Some((header, data)) = bytes.split_first_chunk::<HEADER>() else {
            return Err("a command that is too short".into());
        };
        let [op, bar, _, _, size @ .., a, b, c, d, e, f, g, h] = *header;
        let size = u32::from_le_bytes(size) as usize;
        let at = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let (space, bytes) = match (op, bar) {
            (CONFIG_READ | CONFIG_WRITE, _) => (Space::Config, 0x1000),
            (READ | WRITE | FILL, 0) => (Space::Registers, BAR_BYTES),
            (READ | WRITE | FILL, 2) => (Space::Msix, BAR2_BYTES),
            (READ | WRITE | FILL, _) => return Err(format!("a command about BAR {bar}")),
            _ => return Err(format!("a command of kind {op}")),
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if matches!(space, Space::Config) && !matches!(size, 1 | 2 | 4 | 8) {
            return Err(format!("a configuration access of {size} bytes"));
        }
        if at.checked_add(size).is_none_or(|end| end > bytes as usize) {
            return Err(format!(
                "an access of {size} bytes at {at:#x}, beyond what is there"
            ));
        }
        let kind = match op {
            CONFIG_READ | READ => Kind::Read(size),
            FILL => Kind::Write(vec![*data.first().ok_or("no byte to fill with")?; size]),
            _ => Kind::Write(
                data.get(..size)
                    .ok_or("a write with too little data")?
                    .into(),
            ),
        };
        Ok(Self { space, at, kind })
    }

    /// Bytes of its answer.
    pub fn answer(&self) -> usize {
        match self.kind {
            Kind::Read(size) => size,
            Kind::Write(_) => 0,
        }
    }
}

/// The function, but for its registers.
#[derive(Debug)]
pub struct Function {
    config: Config,
    msix: Msix,
}

impl Function {
    /// As after power-on, with so many vectors.
    pub fn new(vectors: u16) -> Self {
        Self {
            config: Config::new(vectors),
            msix: Msix::new(vectors),
        }
    }

    /// Whether the device may access memory, and send messages.
    pub fn is_bus_master(&self) -> bool {
        self.config.is_bus_master()
    }

    /// Carries out a command. Its answer, empty for a write.
    ///
    /// # Errors
    /// The model has stopped.
    pub fn carry_out(
        &mut self,
        command: &Command,
        registers: &mut impl Registers,
    ) -> io::Result<Vec<u8>> {
        // Nobody answers, which reads as ones: beyond a space, while BARs are off, and to what is no
        // whole register.
        let mut answer = vec![0xff; command.answer()];
        let at = command.at;
        let size = match &command.kind {
            Kind::Read(size) => *size,
            Kind::Write(data) => data.len(),
        };
        let is_there = match command.space {
            Space::Config => at + size <= CONFIG_BYTES,
            Space::Registers => {
                self.config.has_memory_space() && at.is_multiple_of(4) && size.is_multiple_of(4)
            }
            Space::Msix => self.config.has_memory_space(),
        };
        if !is_there {
            log::info!("nothing answers to {command:?}");
            return Ok(answer);
        }
        match (command.space, &command.kind) {
            (Space::Config, Kind::Read(_)) => self.config.read(at, &mut answer),
            (Space::Config, Kind::Write(data)) => self.config.write(at, data),
            (Space::Msix, Kind::Read(_)) => self.msix.read(at, &mut answer),
            (Space::Msix, Kind::Write(data)) => self.msix.write(at, data),
            (Space::Registers, Kind::Read(_)) => {
                for (offset, word) in (at..).step_by(4).zip(answer.as_chunks_mut().0) {
                    *word = registers.read(register(offset))?.to_le_bytes();
                }
            }
            (Space::Registers, Kind::Write(data)) => {
                for (offset, word) in (at..).step_by(4).zip(data.as_chunks().0) {
                    registers.write(register(offset), u32::from_le_bytes(*word))?;
                }
            }
        }
        Ok(answer)
    }

    /// An interrupt comes. It is lost where MSI-X is off.
    pub fn raise(&mut self, vector: usize) {
        let (enabled, _) = self.config.msix();
        if enabled {
            self.msix.raise(vector);
        } else {
            log::info!("interrupt {vector} comes while MSI-X is off, and is lost");
        }
    }

    /// The next message that goes out, if there is one: not while all are masked, or bus mastering is off.
    pub fn next_message(&mut self) -> Option<Message> {
        match self.config.msix() {
            (true, false) if self.is_bus_master() => self.msix.take_message(),
            _ => None,
        }
    }
}

fn register(offset: usize) -> u16 {
    u16::try_from(offset).unwrap_or(u16::MAX)
}

/// Bytes of a message that carries an interrupt.
pub const INTERRUPT: u32 = 20;

/// A message that carries an interrupt to the driver.
pub fn interrupt(message: Message) -> [u8; INTERRUPT as usize] {
    let mut bytes = [0; INTERRUPT as usize];
    bytes[0] = MSI;
    bytes[4] = 4;
    bytes[8..16].copy_from_slice(&message.address.to_le_bytes());
    bytes[16..].copy_from_slice(&message.data.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_not_for_the_log() {
        let header = [WRITE, 0, 0, 0, 4, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0];
        let command = Command::parse(&[header.as_slice(), &[0xab; 4]].concat()).unwrap();
        assert_eq!(
            format!("{command:?}"),
            "Command { space: Registers, at: 128, kind: Write(4 bytes) }"
        );
    }
}
