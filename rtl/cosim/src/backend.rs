//! The device as vfio-user has it: regions, interrupts and mappings of one client.

use std::fs::File;
use std::io;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD,
    VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_BAR2_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, ServerBackend, ServerRegion};

use crate::device::{Device, Ran};
use crate::msix::{BAR2_BYTES, Msix};
use crate::pci::{CONFIG_BYTES, Config};
use crate::registers::BAR_BYTES;

/// What a client of the device sees.
#[derive(Debug)]
pub struct Backend {
    device: Device,
    config: Config,
    /// What a client keeps there: its interrupts are eventfds.
    table: Msix,
}

impl Backend {
    /// As after power-on.
    pub fn new(device: Device) -> Self {
        let (config, table) = power_on(&device);
        Self {
            device,
            config,
            table,
        }
    }

    /// After a client: as [`Device::leave`].
    ///
    /// # Errors
    /// The model has stopped.
    pub fn leave(&mut self) -> io::Result<Ran> {
        let ran = self.device.leave()?;
        (self.config, self.table) = power_on(&self.device);
        Ok(ran)
    }

    /// The interrupts that clients are told of: with MSI-X a vector a ring, and one for faults.
    pub fn irqs(&self) -> Vec<IrqInfo> {
        let irq = |index| {
            let is_msix = index == VFIO_PCI_MSIX_IRQ_INDEX;
            IrqInfo {
                index,
                flags: if is_msix { VFIO_IRQ_INFO_EVENTFD } else { 0 },
                count: if is_msix {
                    vectors(&self.device).into()
                } else {
                    0
                },
            }
        };
        (0..VFIO_PCI_NUM_IRQS).map(irq).collect()
    }

    /// The regions that clients are told of.
    pub fn regions(&self) -> Vec<ServerRegion> {
        let region = |index| {
            let size = region_bytes(index);
            let flags = if size == 0 {
                0
            } else {
                VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE
            };
            ServerRegion {
                region_info: vfio_region_info {
                    argsz: u32::try_from(size_of::<vfio_region_info>()).unwrap_or(u32::MAX),
                    flags,
                    index,
                    size: size as u64,
                    ..Default::default()
                },
                sparse_areas: Vec::new(),
                mmap_fd: None,
            }
        };
        (0..VFIO_PCI_NUM_REGIONS).map(region).collect()
    }
}

fn vectors(device: &Device) -> u16 {
    u16::from(device.rings) + 1
}

fn power_on(device: &Device) -> (Config, Msix) {
    (Config::new(vectors(device)), Msix::new(vectors(device)))
}

fn region_bytes(region: u32) -> usize {
    match region {
        VFIO_PCI_BAR0_REGION_INDEX => BAR_BYTES as usize,
        VFIO_PCI_BAR2_REGION_INDEX => BAR2_BYTES as usize,
        VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_BYTES,
        _ => 0,
    }
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// An access's place in its region.
fn place(region: u32, offset: u64, bytes: usize) -> io::Result<usize> {
    usize::try_from(offset)
        .ok()
        .filter(|at| {
            at.checked_add(bytes)
                .is_some_and(|end| end <= region_bytes(region))
        })
        .ok_or_else(|| invalid("an access beyond the region"))
}

/// A register access's offset, and those of the words after it.
fn words(at: usize, bytes: usize) -> io::Result<impl Iterator<Item = u16>> {
    let offset = u16::try_from(at).ok();
    match offset.filter(|offset| offset.is_multiple_of(4) && bytes.is_multiple_of(4)) {
        Some(offset) => Ok((offset..).step_by(4)),
        None => Err(invalid(
            "registers are accessed by whole aligned words of 4 bytes",
        )),
    }
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let at = place(region, offset, data.len())?;
        match region {
            VFIO_PCI_BAR0_REGION_INDEX => {
                let offsets = words(at, data.len())?;
                for (offset, word) in offsets.zip(data.chunks_exact_mut(4)) {
                    word.copy_from_slice(&self.device.read(offset)?.to_le_bytes());
                }
            }
            VFIO_PCI_BAR2_REGION_INDEX => self.table.read(at, data),
            _ => self.config.read(at, data),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        let at = place(region, offset, data.len())?;
        match region {
            VFIO_PCI_BAR0_REGION_INDEX => {
                let offsets = words(at, data.len())?;
                for (offset, word) in offsets.zip(data.as_chunks().0) {
                    self.device.write(offset, u32::from_le_bytes(*word))?;
                }
            }
            VFIO_PCI_BAR2_REGION_INDEX => self.table.write(at, data),
            _ => {
                self.config.write(at, data);
                self.device.mappings.set_master(self.config.is_bus_master());
            }
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        let access = (
            flags.contains(DmaMapFlags::READ),
            flags.contains(DmaMapFlags::WRITE),
        );
        self.device.mappings.add(address, size, offset, fd, access)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            self.device.mappings.clear();
            return Ok(());
        }
        self.device.mappings.remove(address, size)
    }

    fn reset(&mut self) -> io::Result<()> {
        // First, so that nothing is under way that is cut off.
        self.device.reset()?;
        self.device.mappings.set_master(false);
        (self.config, self.table) = power_on(&self.device);
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        const EVENTFDS: u32 = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
        const NONE: u32 = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;
        let interrupts = &self.device.interrupts;
        match (index, flags, count) {
            (VFIO_PCI_MSIX_IRQ_INDEX, NONE, 0) => {
                interrupts.clear();
                Ok(())
            }
            (VFIO_PCI_MSIX_IRQ_INDEX, NONE, _) => interrupts.fire(start, count),
            (VFIO_PCI_MSIX_IRQ_INDEX, EVENTFDS, _) => interrupts.set(start, count, fds),
            // The other kinds have no interrupts, so there are none to turn off.
            (_, NONE, 0) => Ok(()),
            _ => Err(invalid(
                "interrupts that are not there, or cannot be masked",
            )),
        }
    }
}
