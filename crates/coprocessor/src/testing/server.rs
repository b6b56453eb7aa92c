//! The device as a process has it, at the other end of a socket.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

use super::{Device, Memory};
use crate::port::Port;
use crate::registers::BAR_BYTES;

/// Waits for one client at a socket that this makes, and serves it with a device until it leaves.
///
/// # Errors
/// What goes wrong with the socket.
pub fn serve(
    device: &Device,
    socket: &Path,
) -> Result<impl FnOnce() + Send + use<>, vfio_user::Error> {
    let region = |index: u32, size: u64| ServerRegion {
        region_info: vfio_region_info {
            argsz: u32::try_from(size_of::<vfio_region_info>()).unwrap_or_default(),
            flags: VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE,
            index,
            size,
            ..Default::default()
        },
        sparse_areas: Vec::new(),
        mmap_fd: None,
    };
    let size = |index| match index {
        0 => BAR_BYTES.into(),
        VFIO_PCI_CONFIG_REGION_INDEX => 256,
        _ => 0,
    };
    let regions = (0..9).map(|index| region(index, size(index))).collect();
    let vectors = u32::try_from(device.vectors()).unwrap_or_default();
    let irqs = (0..5)
        .map(|index| IrqInfo {
            index,
            flags: VFIO_IRQ_INFO_EVENTFD,
            count: if index == VFIO_PCI_MSIX_IRQ_INDEX {
                vectors
            } else {
                0
            },
        })
        .collect();
    let server = Server::new(socket, true, irqs, regions)?;
    let mut backend = Backend {
        port: device.port(),
        is_master: false,
    };
    Ok(move || {
        // The end of a client is the end of a device.
        let _ = server.run(&mut backend);
    })
}

struct Backend {
    port: Box<dyn Port>,
    /// Whether memory access and DMA were turned on.
    is_master: bool,
}

fn other(error: crate::Error) -> io::Error {
    io::Error::other(error)
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let (0, Ok(register), 4) = (region, u32::try_from(offset), data.len()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let value = self.port.read(register).map_err(other)?;
        data.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match (region, u32::try_from(offset), data) {
            (VFIO_PCI_CONFIG_REGION_INDEX, Ok(4), [command, _]) => {
                self.is_master = command & 0b110 == 0b110;
                Ok(())
            }
            (0, Ok(register), &[a, b, c, d]) if self.is_master => {
                let value = u32::from_le_bytes([a, b, c, d]);
                self.port.write(register, value).map_err(other)
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn dma_map(
        &mut self,
        _: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        let (Some(file), 0) = (file, offset) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let len = usize::try_from(size).map_err(io::Error::other)?;
        let memory = Memory::of_file(file, len)?;
        assert_eq!(
            memory.address(0),
            address,
            "the model has memory at one place only"
        );
        self.port.map(&Arc::new(memory)).map_err(other)
    }

    fn dma_unmap(&mut self, _: DmaUnmapFlags, _: u64, size: u64) -> io::Result<()> {
        let nothing =
            Memory::new(usize::try_from(size).map_err(io::Error::other)?).map_err(other)?;
        self.port.unmap(&nothing).map_err(other)
    }

    fn reset(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        _: u32,
        _: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        assert_eq!(
            (index, count as usize),
            (VFIO_PCI_MSIX_IRQ_INDEX, fds.len())
        );
        let counters: Vec<OwnedFd> = fds.into_iter().map(OwnedFd::from).collect();
        self.port.interrupts(&counters).map_err(other)?;
        Ok(())
    }
}
