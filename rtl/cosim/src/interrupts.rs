//! The client's eventfds: one for each of the machine's interrupt lines.

use std::fs::{File, read_link};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// For the thread of the client's messages and that of the model.
#[derive(Debug)]
pub struct Interrupts {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    eventfds: Vec<Option<File>>,
    lines: u16,
}

impl Interrupts {
    /// So many lines, all down, and no eventfds.
    pub fn new(lines: usize) -> Self {
        let eventfds = (0..lines).map(|_| None).collect();
        Self {
            state: Mutex::new(State { eventfds, lines: 0 }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panics leaves a list that is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees which lines are up, and signals some of them.
    pub fn see(&self, lines: u16, signals: u16) {
        let mut state = self.state();
        state.lines = lines;
        for (line, eventfd) in state.eventfds.iter_mut().enumerate() {
            if signals >> line & 1 != 0 {
                signal(eventfd.as_mut());
            }
        }
    }

    /// Gives lines from `start` on their eventfds, or takes `count` of them away if there are
    /// none. A line that is up is signalled at once: it rose when nobody looked.
    ///
    /// # Errors
    /// `InvalidInput` for lines that are not there, fewer files than lines, or other files.
    pub fn set(&self, start: u32, count: u32, files: Vec<File>) -> io::Result<()> {
        let mut state = self.state();
        let range = range(start, count, state.eventfds.len())?;
        if files.is_empty() {
            state.eventfds[range].fill_with(|| None);
            return Ok(());
        }
        if files.len() != range.len() {
            return Err(invalid("another number of eventfds than of interrupts"));
        }
        // A pipe, say, could hold the model up.
        if !files.iter().all(is_eventfd) {
            return Err(invalid("a file for an interrupt is no eventfd"));
        }
        let lines = state.lines;
        for (line, file) in range.zip(files) {
            let eventfd = state.eventfds[line].insert(file);
            if lines >> line & 1 != 0 {
                signal(Some(eventfd));
            }
        }
        Ok(())
    }

    /// Signals lines as if they rose.
    ///
    /// # Errors
    /// `InvalidInput` for lines that are not there.
    pub fn fire(&self, start: u32, count: u32) -> io::Result<()> {
        let mut state = self.state();
        let range = range(start, count, state.eventfds.len())?;
        for eventfd in &mut state.eventfds[range] {
            signal(eventfd.as_mut());
        }
        Ok(())
    }

    /// Takes all eventfds away.
    pub fn clear(&self) {
        self.state().eventfds.fill_with(|| None);
    }
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn range(start: u32, count: u32, lines: usize) -> io::Result<std::ops::Range<usize>> {
    let range = start as usize..(start as usize).saturating_add(count as usize);
    if range.end > lines {
        return Err(invalid("no such interrupts"));
    }
    Ok(range)
}

fn is_eventfd(file: &File) -> bool {
    read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}

/// Adds one to an eventfd, if there is one, unless its counter is full: writing would wait for
/// the client then, who has more than enough signals. One that fills an eventfd in between holds up its own
/// device: whether writing waits is a flag that the client shares, and may want for its reads.
fn signal(eventfd: Option<&mut File>) {
    let Some(file) = eventfd else { return };
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(&*file, PollFlags::OUT)], Some(&now));
    if ready.is_ok_and(|count| count == 1)
        && let Err(error) = file.write_all(&1_u64.to_ne_bytes())
    {
        log::info!("an interrupt was not signalled: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    fn new_eventfd() -> File {
        eventfd(0, EventfdFlags::NONBLOCK).unwrap().into()
    }

    fn count(mut file: &File) -> u64 {
        let mut bytes = [0; 8];
        match file.read(&mut bytes) {
            Ok(8) => u64::from_ne_bytes(bytes),
            _ => 0,
        }
    }

    #[test]
    fn lines_are_signalled() {
        let interrupts = Interrupts::new(3);
        let (first, last) = (new_eventfd(), new_eventfd());
        interrupts
            .set(0, 1, vec![first.try_clone().unwrap()])
            .unwrap();
        for (lines, signals) in [(1, 1), (1, 0), (3, 2), (3, 1), (7, 4)] {
            interrupts.see(lines, signals);
        }
        assert_eq!(count(&first), 2);
        interrupts
            .set(2, 1, vec![last.try_clone().unwrap()])
            .unwrap();
        assert_eq!(count(&last), 1, "the line was up");
        interrupts.fire(0, 3).unwrap();
        assert_eq!((count(&first), count(&last)), (1, 1));
        interrupts.set(0, 3, Vec::new()).unwrap();
        interrupts.see(7, 7);
        assert_eq!((count(&first), count(&last)), (0, 0));
    }

    #[test]
    fn a_client_cannot_hold_it_up() {
        let interrupts = Interrupts::new(2);
        let full: File = eventfd(0, EventfdFlags::empty()).unwrap().into();
        (&full).write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
        interrupts.set(0, 1, vec![full]).unwrap();
        interrupts.see(1, 1);
        let null = || File::options().write(true).open("/dev/null").unwrap();
        assert!(interrupts.set(0, 1, vec![null()]).is_err());
        for (start, count) in [(0, 3), (2, 1), (u32::MAX, u32::MAX), (1, u32::MAX)] {
            assert!(interrupts.set(start, count, Vec::new()).is_err());
            assert!(interrupts.fire(start, count).is_err());
        }
        assert!(interrupts.set(0, 2, vec![new_eventfd()]).is_err());
    }
}
