//! A connected socket, and TLS on it where that is wanted.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use xtent_tls::Channel;

pub(crate) struct Wire {
    pub(crate) socket: OwnedFd,
    pub(crate) tls: Option<Channel>,
}

impl Wire {
    /// Sends what it can without waiting. With TLS, bytes count as sent once they are encrypted; a
    /// call with nothing sends what is left of them.
    pub(crate) fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.tls {
            None => self.send_bytes(slices),
            Some(tls) => tls.send(slices, |records| self.send_bytes(&[IoSlice::new(records)])),
        }
    }

    fn send_bytes(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut ancillary = SendAncillaryBuffer::default();
        Ok(sendmsg(&self.socket, slices, &mut ancillary, flags)?)
    }

    /// Whether encrypted bytes are left that the socket has not taken.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(Channel::has_unsent)
    }

    /// Receives what has come, without waiting; 0 at the end of the stream.
    pub(crate) fn receive(&self, space: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => Ok(self.receive_bytes(space)?),
            Some(tls) => tls.receive(space, |room| Ok(self.receive_bytes(room)?)),
        }
    }

    /// As [`Wire::receive`], the bytes as they come.
    pub(crate) fn receive_bytes(&self, space: &mut [u8]) -> Result<usize, Errno> {
        recv(&self.socket, space, RecvFlags::DONTWAIT).map(|(n, _)| n)
    }

    /// Whether something has come that no wait for the socket tells of.
    pub(crate) fn has_more(&self) -> bool {
        self.tls.as_ref().is_some_and(Channel::has_more)
    }

    /// Tells the server that nothing follows.
    pub(crate) fn close(&self) {
        if let Some(tls) = &self.tls {
            tls.close(|records| self.send_bytes(&[IoSlice::new(records)]));
        }
    }
}
