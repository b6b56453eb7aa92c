//! A PCI device, by the kernel's driver `vfio-pci`: everything goes through the IOMMU, so the device reaches the memory
//! that it was given and nothing else.
//!
//! Registers are read and written by system calls, whose answers are checked: a mapping of them would end the process
//! when the device goes away.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use vfio_bindings::bindings::vfio::{
    VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSI_IRQ_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_ioctls::{VfioContainer, VfioDevice, VfioError};
use vmm_sys_util::eventfd::EventFd;

use super::Port;
use crate::memory::Memory;
use crate::registers::BAR_BYTES;
use crate::{Error, ErrorKind};

/// Of PCI's configuration space: the command register, and memory access and DMA in it.
const COMMAND: u64 = 4;
const MEMORY_AND_MASTER: u16 = 0b110;

/// A device of a group that this process has.
pub(super) struct Device {
    device: VfioDevice,
    container: Arc<VfioContainer>,
    /// Its address, for messages.
    name: String,
}

impl Device {
    pub(super) fn open(name: &str) -> Result<Self, Error> {
        let place = Path::new("/sys/bus/pci/devices").join(name);
        let driver = std::fs::read_link(place.join("driver"));
        let driver = driver.ok().and_then(|path| {
            let name = path.file_name()?.to_str()?;
            Some(name.to_owned())
        });
        if let Some(what) = obstacle(
            name,
            place.exists(),
            place.join("iommu_group").exists(),
            driver.as_deref(),
        ) {
            return Err(Error::new(ErrorKind::Open, what));
        }
        let fail = |error: VfioError| {
            let what = match &error {
                VfioError::OpenContainer(_) => {
                    "is the module vfio loaded (modprobe vfio-pci), and may this user open /dev/vfio/vfio?"
                }
                VfioError::OpenGroup(..) => {
                    "may this user open its group in /dev/vfio, and has nobody else opened it?"
                }
                VfioError::GroupViable => {
                    "every other device of its IOMMU group has to be bound to vfio-pci as well"
                }
                _ => "see the kernel's log",
            };
            let message = format!("cannot open PCI device {name}: {what}");
            Error::by(ErrorKind::Open, message, error)
        };
        let container = Arc::new(VfioContainer::new(None).map_err(fail)?);
        let ops = Arc::clone(&container);
        let device = VfioDevice::new(&place, ops, false).map_err(fail)?;
        let size = device.get_region_size(VFIO_PCI_BAR0_REGION_INDEX);
        if size < u64::from(BAR_BYTES) {
            let message = format!(
                "PCI device {name} has {size} bytes of registers, an engine has {BAR_BYTES}"
            );
            return Err(Error::new(ErrorKind::Unknown, message));
        }
        let device = Self {
            device,
            container,
            name: name.to_owned(),
        };
        // Memory access and DMA are off until somebody turns them on.
        let config = device
            .device
            .get_region_offset(VFIO_PCI_CONFIG_REGION_INDEX);
        let mut command = [0; 2];
        device.pread(config + COMMAND, &mut command)?;
        let command = u16::from_le_bytes(command) | MEMORY_AND_MASTER;
        device.pwrite(config + COMMAND, &command.to_le_bytes())?;
        Ok(device)
    }

    fn file(&self) -> BorrowedFd<'_> {
        // SAFETY: the device's file is open as long as `self.device` is there.
        unsafe { BorrowedFd::borrow_raw(self.device.as_raw_fd()) }
    }

    fn gone(&self, source: impl Into<std::io::Error>) -> Error {
        let message = format!("PCI device {} is gone", self.name);
        Error::by(ErrorKind::Dead, message, source.into())
    }

    fn pread(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        match rustix::io::pread(self.file(), &mut *bytes, offset) {
            Ok(read) if read == bytes.len() => Ok(()),
            Ok(_) => Err(self.gone(std::io::ErrorKind::UnexpectedEof)),
            Err(errno) => Err(self.gone(errno)),
        }
    }

    fn pwrite(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        match rustix::io::pwrite(self.file(), bytes, offset) {
            Ok(written) if written == bytes.len() => Ok(()),
            Ok(_) => Err(self.gone(std::io::ErrorKind::WriteZero)),
            Err(errno) => Err(self.gone(errno)),
        }
    }

    /// Where a register is in the device's file.
    fn place(&self, register: u32) -> u64 {
        self.device.get_region_offset(VFIO_PCI_BAR0_REGION_INDEX) + u64::from(register)
    }
}

/// What is in the way of opening a device, and what to do about it.
fn obstacle(name: &str, exists: bool, has_group: bool, driver: Option<&str>) -> Option<String> {
    if !exists {
        return Some(format!(
            "there is no PCI device {name}: lspci -D lists those that there are"
        ));
    }
    if !has_group {
        return Some(format!(
            "PCI device {name} has no IOMMU group: turn the IOMMU on, in the firmware and with intel_iommu=on on the \
             kernel's command line"
        ));
    }
    let has = match driver {
        Some("vfio-pci") => return None,
        Some(other) => format!("belongs to the driver {other}"),
        None => "has no driver".into(),
    };
    Some(format!(
        "PCI device {name} {has}, not vfio-pci: modprobe vfio-pci; driverctl set-override {name} vfio-pci"
    ))
}

impl Port for Device {
    fn read(&self, register: u32) -> Result<u32, Error> {
        let mut value = [0; 4];
        self.pread(self.place(register), &mut value)?;
        Ok(u32::from_le_bytes(value))
    }

    fn write(&self, register: u32, value: u32) -> Result<(), Error> {
        self.pwrite(self.place(register), &value.to_le_bytes())
    }

    fn write_secret(&self, register: u32, value: &[u8; 4]) -> Result<(), Error> {
        self.pwrite(self.place(register), value)
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<(), Error> {
        let (address, len) = (memory.address(0), memory.len());
        // SAFETY: this memory is only ever copied from and to by volatile and atomic access (`Memory` gives out nothing
        // else), and outlives the device: `Shared` drops the port before it.
        unsafe {
            self.container
                .vfio_dma_map(address, len, memory.pointer())
        }
        .map_err(|e| {
            let message = format!(
                "cannot let the engine see {len} bytes of memory: raise the limit on locked memory (ulimit -l, \
                 LimitMEMLOCK=)"
            );
            Error::by(ErrorKind::Memory, message, e)
        })
    }

    fn unmap(&self, memory: &Memory) -> Result<(), Error> {
        self.container
            .vfio_dma_unmap(memory.address(0), memory.len())
            .map_err(|e| {
                let message = "cannot take memory away from the engine";
                Error::by(ErrorKind::Dead, message, e)
            })
    }

    fn interrupts(&self, counters: &[OwnedFd]) -> Result<usize, Error> {
        let fail = |source: Box<dyn std::error::Error + Send + Sync>| {
            let message = format!("cannot have the interrupts of PCI device {}", self.name);
            Error::by(ErrorKind::Open, message, source)
        };
        for index in [VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_MSI_IRQ_INDEX] {
            let there_are = self.device.get_irq_info(index).map_or(0, |irq| irq.count);
            let used = super::vectors(there_are as usize, counters.len());
            if used == 0 {
                continue;
            }
            let counters: Vec<EventFd> = counters[..used]
                .iter()
                .map(|counter| {
                    let own = counter.try_clone()?.into_raw_fd();
                    // SAFETY: an event counter that nobody else has: it was duplicated just now.
                    Ok(unsafe { EventFd::from_raw_fd(own) })
                })
                .collect::<std::io::Result<_>>()
                .map_err(|e| fail(e.into()))?;
            let borrowed = counters.iter().collect();
            self.device
                .enable_irq(index, borrowed)
                .map_err(|e| fail(e.into()))?;
            return Ok(used);
        }
        super::some_vectors(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;

    #[test]
    fn what_is_in_the_way_comes_with_what_to_do() {
        let name = "0000:03:00.0";
        assert!(
            obstacle(name, false, false, None)
                .unwrap()
                .contains("lspci")
        );
        assert!(
            obstacle(name, true, false, Some("vfio-pci"))
                .unwrap()
                .contains("intel_iommu=on")
        );
        for driver in [None, Some("nvme")] {
            let what = obstacle(name, true, true, driver).unwrap();
            assert!(what.contains("modprobe vfio-pci") && what.contains(name));
            assert_eq!(what.contains("nvme"), driver.is_some());
        }
        assert_eq!(obstacle(name, true, true, Some("vfio-pci")), None);
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        // No machine has so many buses.
        let address: Address = "vfio:fffe:ff:1f.7".parse().unwrap();
        let error = super::super::open(&address, std::time::Duration::from_secs(1))
            .err()
            .unwrap();
        assert_eq!(error.kind(), ErrorKind::Open);
        assert!(
            error
                .to_string()
                .contains("there is no PCI device fffe:ff:1f.7")
        );
    }
}
