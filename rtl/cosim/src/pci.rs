//! The device's PCI configuration space: its identity, two BARs and MSI-X.

use crate::msix::{BAR2_BYTES, PENDING};
use crate::registers::{BAR_BYTES, PCI_DEVICE, PCI_VENDOR};

/// Bytes of the configuration space.
pub const CONFIG_BYTES: usize = 256;
const COMMAND: usize = 0x04;
const BAR0: usize = 0x10;
const BAR2: usize = 0x18;
const MSIX: usize = 0x40;
/// Memory space, bus master, parity error response, SERR, INTx disable.
const COMMAND_BITS: u16 = 0x0546;
const MEMORY_SPACE: u16 = 2;
const BUS_MASTER: u16 = 4;

/// The space, and which of its bits can be written.
#[derive(Debug)]
pub struct Config {
    bytes: [u8; CONFIG_BYTES],
    mask: [u8; CONFIG_BYTES],
}

impl Config {
    /// As after power-on, with so many vectors.
    pub fn new(vectors: u16) -> Self {
        let mut config = Self {
            bytes: [0; CONFIG_BYTES],
            mask: [0; CONFIG_BYTES],
        };
        config.put(0x00, &PCI_VENDOR.to_le_bytes(), 0);
        config.put(0x02, &PCI_DEVICE.to_le_bytes(), 0);
        config.put(COMMAND, &[0, 0], 0);
        config.mask[COMMAND..COMMAND + 2].copy_from_slice(&COMMAND_BITS.to_le_bytes());
        // Status: there is a list of capabilities.
        config.put(0x06, &[0x10, 0], 0);
        // Revision 0; class: encryption controller, of another kind.
        config.put(0x08, &[0, 0, 0x80, 0x10], 0);
        config.put(0x0c, &[0], 0xff);
        // BARs of 32 bits, not prefetchable; the bits below their size are zero.
        for (bar, bytes) in [(BAR0, BAR_BYTES), (BAR2, BAR2_BYTES)] {
            config.mask[bar..bar + 4].copy_from_slice(&(!(bytes - 1)).to_le_bytes());
        }
        config.put(0x2c, &PCI_VENDOR.to_le_bytes(), 0);
        config.put(0x2e, &PCI_DEVICE.to_le_bytes(), 0);
        config.put(0x34, &[0x40], 0);
        config.put(0x3c, &[0], 0xff);
        // MSI-X, the last capability; of its control, enable and the mask of all can be written.
        config.put(MSIX, &[0x11, 0], 0);
        config.put(MSIX + 2, &(vectors - 1).to_le_bytes(), 0);
        config.mask[MSIX + 3] = 0xc0;
        config.put(MSIX + 4, &2_u32.to_le_bytes(), 0);
        config.put(MSIX + 8, &(2 | PENDING).to_le_bytes(), 0);
        config
    }

    fn put(&mut self, at: usize, bytes: &[u8], mask: u8) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.mask[at..at + bytes.len()].fill(mask);
    }

    /// Reads bytes that are there.
    pub fn read(&self, at: usize, data: &mut [u8]) {
        data.copy_from_slice(&self.bytes[at..at + data.len()]);
    }

    /// Writes bytes that are there, as far as they can be written.
    pub fn write(&mut self, at: usize, data: &[u8]) {
        for (i, byte) in (at..).zip(data) {
            self.bytes[i] = self.bytes[i] & !self.mask[i] | byte & self.mask[i];
        }
    }

    /// Whether the device may access memory.
    pub fn is_bus_master(&self) -> bool {
        self.command() & BUS_MASTER != 0
    }

    /// Whether the BARs answer.
    pub fn has_memory_space(&self) -> bool {
        self.command() & MEMORY_SPACE != 0
    }

    /// MSI-X: whether it is on, and whether all of its vectors are masked.
    pub fn msix(&self) -> (bool, bool) {
        let control = self.bytes[MSIX + 3];
        (control & 0x80 != 0, control & 0x40 != 0)
    }

    fn command(&self) -> u16 {
        u16::from_le_bytes([self.bytes[COMMAND], self.bytes[COMMAND + 1]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_tell_their_size() {
        let mut config = Config::new(2);
        config.write(BAR0, &[0xff; 12]);
        let mut bars = [0; 12];
        config.read(BAR0, &mut bars);
        assert_eq!(
            bars,
            [0x00, 0xe0, 0xff, 0xff, 0, 0, 0, 0, 0x00, 0xf0, 0xff, 0xff]
        );
    }

    #[test]
    fn only_what_can_be_written_changes() {
        let mut config = Config::new(9);
        assert!(!config.is_bus_master());
        config.write(0, &[0xff; CONFIG_BYTES]);
        let mut bytes = [0; CONFIG_BYTES];
        config.read(0, &mut bytes);
        assert_eq!(bytes[..4], [0x1d, 0x1d, 0x74, 0x78]);
        assert_eq!(bytes[4..8], [0x46, 0x05, 0x10, 0]);
        assert_eq!(
            bytes[MSIX..MSIX + 12],
            [0x11, 0, 8, 0xc0, 2, 0, 0, 0, 2, 8, 0, 0]
        );
        assert!(bytes[MSIX + 12..].iter().all(|&byte| byte == 0));
        assert!(config.is_bus_master());
    }
}
