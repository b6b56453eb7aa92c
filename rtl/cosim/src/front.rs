//! Serves a guest over vhost-user while the model's clock runs in its own thread, as fast as it
//! can.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::device::Device;
use crate::function::Registers;
use crate::guest::Guest;

impl Registers for Device {
    fn read(&mut self, offset: u16) -> io::Result<u32> {
        Self::read(self, offset)
    }

    fn write(&mut self, offset: u16, value: u32) -> io::Result<()> {
        Self::write(self, offset, value)
    }
}

/// Serves a client until it leaves. The device is as after power-on, and to be reset after it.
///
/// # Errors
/// The client did what is not in order, and is cut off; or the model has stopped.
pub fn serve(stream: UnixStream, device: &mut Device) -> io::Result<()> {
    let vectors = u16::from(device.rings) + 1;
    let eventfds: Vec<File> = (0..vectors)
        .map(|_| Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?.into()))
        .collect::<io::Result<_>>()?;
    let copies = eventfds
        .iter()
        .map(File::try_clone)
        .collect::<io::Result<_>>()?;
    device.interrupts.set(0, vectors.into(), copies)?;
    let mut guest = Guest::new(stream, vectors, &device.mappings);
    loop {
        let (readable, writable) = wait(&guest, &eventfds)?;
        if writable {
            guest.session.send_calls()?;
        }
        for (vector, mut eventfd) in eventfds.iter().enumerate() {
            // As many as there were since are one, as on a bus that is slow.
            if eventfd.read_exact(&mut [0; 8]).is_ok() {
                guest.raise(vector);
            }
        }
        guest.deliver()?;
        if readable {
            let Some(event) = guest.session.receive()? else {
                return Ok(());
            };
            guest.serve(event, device)?;
            guest.session.done()?;
        }
    }
}

/// Waits for anything: whether the client has sent something, and whether it takes calls again.
fn wait(guest: &Guest, eventfds: &[File]) -> io::Result<(bool, bool)> {
    let mut files = vec![PollFd::new(guest.session.stream(), PollFlags::IN)];
    files.extend(
        eventfds
            .iter()
            .map(|eventfd| PollFd::from_borrowed_fd(eventfd.as_fd(), PollFlags::IN)),
    );
    if let Some(requests) = guest.session.blocked() {
        files.push(PollFd::new(requests, PollFlags::OUT));
    }
    match poll(&mut files, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let is_writable = files[eventfds.len() + 1..]
        .iter()
        .any(|it| !it.revents().is_empty());
    Ok((!files[0].revents().is_empty(), is_writable))
}
