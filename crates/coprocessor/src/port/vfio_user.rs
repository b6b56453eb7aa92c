//! A device that is a process, at the other end of a socket (vfio-user).
//!
//! The library's client waits for each reply, however long it takes, and ends in a panic over some replies. So it has a
//! thread of its own, which takes one call after the other; whoever calls waits for a bounded time. Writes are not waited
//! for, as over a bus. The thread of a process that answers no more stays with the connection until this process ends: the
//! client gives nobody its socket. It keeps the memory that it was given, as the process at the other end does; this one
//! has no more use for it.
//!
//! The process at the other end gets keys and data, and is trusted with them as this one is.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_INTX_IRQ_INDEX, VFIO_PCI_MSI_IRQ_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_REGION_INFO_FLAG_WRITE,
};
use vfio_user::Client;
use zeroize::Zeroizing;

use super::Port;
use crate::memory::Memory;
use crate::patience::{LOOK, Patience};
use crate::registers::BAR_BYTES;
use crate::{Error, ErrorKind};

/// Something for the thread to do; what it returns ends the connection.
type Call = Box<dyn FnOnce(&mut Client) -> Result<(), vfio_user::Error> + Send>;

/// A connection to a device.
pub(super) struct Socket {
    calls: Sender<Call>,
    /// Why the connection has ended.
    end: Arc<OnceLock<String>>,
    patience: Patience,
}

/// The command register in the configuration space, and memory access and DMA in it.
const COMMAND: u64 = 4;
const MEMORY_AND_MASTER: u16 = 0b110;

impl Socket {
    pub(super) fn connect(path: &Path, patience: Duration) -> Result<Self, Error> {
        let fail = |reason: String| {
            Error::by(
                ErrorKind::Open,
                format!(
                    "cannot open the engine at {}: is the process that simulates it running?",
                    path.display()
                ),
                reason,
            )
        };
        let (calls, todo) = channel();
        let (say, heard) = channel();
        let end = Arc::new(OnceLock::new());
        let path = path.to_owned();
        let its_end = Arc::clone(&end);
        thread::Builder::new()
            .name("xtent-vfio-user".into())
            .spawn(move || match greet(&path) {
                Ok(client) => {
                    // Nobody may be waiting any more: then there are no calls either.
                    let _ = say.send(Ok(()));
                    serve(client, &todo, &its_end);
                }
                Err(reason) => {
                    let _ = say.send(Err(reason));
                }
            })
            .map_err(|e| fail(e.to_string()))?;
        match heard.recv_timeout(patience) {
            Ok(Ok(())) => Ok(Self {
                calls,
                end,
                patience: Patience::new(patience),
            }),
            Ok(Err(reason)) => Err(fail(reason)),
            Err(RecvTimeoutError::Timeout) => Err(fail("it does not answer".into())),
            Err(RecvTimeoutError::Disconnected) => Err(fail(PROTOCOL.into())),
        }
    }

    fn gone(&self) -> Error {
        let reason = self.end.get().map_or(PROTOCOL, String::as_str);
        Error::by(
            ErrorKind::Dead,
            "the engine's process is gone",
            reason.to_owned(),
        )
    }

    fn send(&self, call: Call) -> Result<(), Error> {
        match self.end.get() {
            None => self.calls.send(call).map_err(|_| self.gone()),
            Some(_) => Err(self.gone()),
        }
    }

    /// Carries out a call and waits for its end. One that takes too long is the last.
    fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Client) -> Result<R, vfio_user::Error> + Send + 'static,
    ) -> Result<R, Error> {
        let (say, heard) = channel();
        self.send(Box::new(move |client| {
            // Who no longer waits has no use for it.
            let _ = say.send(call(client)?);
            Ok(())
        }))?;
        let begun = Instant::now();
        loop {
            match heard.recv_timeout(self.patience.left(begun).min(LOOK)) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone()),
                Err(RecvTimeoutError::Timeout) if self.patience.left(begun).is_zero() => {
                    // There may be another reason already, which is as good.
                    let _ = self.end.set("it does not answer".into());
                    return Err(self.gone());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// Why a connection ends where its client does not say it.
const PROTOCOL: &str = "it does not follow the protocol";

/// Connects, and looks whether it is a device with an engine's registers.
fn greet(path: &Path) -> Result<Client, String> {
    let mut client = Client::new(path).map_err(|e| e.to_string())?;
    let size = client
        .region(VFIO_PCI_BAR0_REGION_INDEX)
        .map_or(0, |bar| bar.size);
    if size < u64::from(BAR_BYTES) {
        return Err(format!(
            "it has {size} bytes of registers, an engine has {BAR_BYTES}"
        ));
    }
    let writable = |region: &vfio_user::Region| {
        region.size >= 64 && region.flags & VFIO_REGION_INFO_FLAG_WRITE != 0
    };
    if client
        .region(VFIO_PCI_CONFIG_REGION_INDEX)
        .is_some_and(writable)
    {
        client
            .region_write(
                VFIO_PCI_CONFIG_REGION_INDEX,
                COMMAND,
                &MEMORY_AND_MASTER.to_le_bytes(),
            )
            .map_err(|e| e.to_string())?;
    }
    Ok(client)
}

fn serve(mut client: Client, todo: &Receiver<Call>, end: &OnceLock<String>) {
    while let Ok(call) = todo.recv() {
        if let Err(error) = call(&mut client) {
            // The first reason is the one; there is no second.
            let _ = end.set(error.to_string());
            break;
        }
    }
    // What was at the other end is told by the end of the connection as well.
    let _ = client.shutdown();
}

impl Port for Socket {
    fn read(&self, register: u32) -> Result<u32, Error> {
        self.call(move |client| {
            let mut value = [0; 4];
            client.region_read(VFIO_PCI_BAR0_REGION_INDEX, register.into(), &mut value)?;
            Ok(u32::from_le_bytes(value))
        })
    }

    fn write(&self, register: u32, value: u32) -> Result<(), Error> {
        self.send(Box::new(move |client| {
            client.region_write(
                VFIO_PCI_BAR0_REGION_INDEX,
                register.into(),
                &value.to_le_bytes(),
            )
        }))
    }

    fn write_secret(&self, register: u32, value: &[u8; 4]) -> Result<(), Error> {
        // In a place of its own: what moves is the pointer.
        let mut place = Box::new(Zeroizing::new([0; 4]));
        place.copy_from_slice(value);
        self.send(Box::new(move |client| {
            client.region_write(VFIO_PCI_BAR0_REGION_INDEX, register.into(), &**place)
        }))
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<(), Error> {
        let fail = |e: std::io::Error| {
            Error::by(
                ErrorKind::Memory,
                "cannot share memory with the engine's process",
                e,
            )
        };
        let file: File = memory
            .file()
            .ok_or_else(|| fail(std::io::ErrorKind::Unsupported.into()))?
            .try_clone()
            .map_err(fail)?;
        let (address, len) = (memory.address(0), memory.len() as u64);
        self.call(move |client| client.dma_map(0, address, len, file.as_raw_fd()))
    }

    fn unmap(&self, memory: &Memory) -> Result<(), Error> {
        let (address, len) = (memory.address(0), memory.len() as u64);
        self.call(move |client| client.dma_unmap(address, len))
    }

    fn interrupts(&self, counters: &[OwnedFd]) -> Result<usize, Error> {
        let fail = |e: std::io::Error| {
            Error::by(ErrorKind::Open, "cannot have the engine's interrupts", e)
        };
        let counters: Vec<OwnedFd> = counters
            .iter()
            .map(OwnedFd::try_clone)
            .collect::<Result<_, _>>()
            .map_err(fail)?;
        let used = self.call(move |client| {
            for index in [
                VFIO_PCI_MSIX_IRQ_INDEX,
                VFIO_PCI_MSI_IRQ_INDEX,
                VFIO_PCI_INTX_IRQ_INDEX,
            ] {
                let vectors = client.get_irq_info(index)?.count as usize;
                let used = super::vectors(vectors, counters.len());
                if used == 0 {
                    continue;
                }
                let fds: Vec<RawFd> = counters[..used].iter().map(OwnedFd::as_raw_fd).collect();
                let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
                let count = u32::try_from(used).unwrap_or_default();
                client.set_irqs(index, flags, 0, count, &fds)?;
                return Ok(used);
            }
            Ok(0)
        })?;
        super::some_vectors(used)
    }

    fn hurry(&self) {
        self.patience.hurry();
    }

    fn in_thread(&self, work: super::Work) {
        // Also to a thread that was given up and waits for an answer still: it may go on at any time. One that has ended
        // takes nothing.
        let _ = self.calls.send(Box::new(move |_| {
            work();
            Ok(())
        }));
    }
}
