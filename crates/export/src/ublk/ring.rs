//! Rings that do what they are used for and nothing else: others of their operations would be system
//! calls that a sandbox forbids.
#![allow(unsafe_code)]

use std::io;

use io_uring::register::Restriction;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

/// Restricts a ring that was made disabled to these operations, and enables it. With `is_fixed` they
/// reach the files only that are registered with it.
///
/// Errors where the kernel does not hold to that.
pub(super) fn restrict<S>(ring: &mut IoUring<S>, allowed: &[u8], is_fixed: bool) -> io::Result<()>
where
    S: squeue::EntryMarker + From<squeue::Entry>,
{
    let mut restrictions: Vec<_> = allowed.iter().copied().map(Restriction::sqe_op).collect();
    if is_fixed {
        let required = squeue::Flags::FIXED_FILE.bits();
        restrictions.push(Restriction::sqe_flags_required(required));
    }
    ring.submitter().register_restrictions(&mut restrictions)?;
    ring.submitter().register_enable_rings()?;
    check(ring)
}

/// Fails unless the ring refuses what it is not used for.
fn check<S>(ring: &mut IoUring<S>) -> io::Result<()>
where
    S: squeue::EntryMarker + From<squeue::Entry>,
{
    let forbidden = opcode::Nop::new().build().into();
    // SAFETY: it points to no memory.
    let pushed = unsafe { ring.submission().push(&forbidden) };
    pushed.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    let mut answers = ring.completion();
    match answers.next().map(|answer: cqueue::Entry| answer.result()) {
        Some(answer) if answer == -Errno::ACCESS.raw_os_error() => Ok(()),
        _ => Err(io::Error::other("the ring cannot be restricted")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disabled() -> IoUring {
        IoUring::builder().setup_r_disabled().build(4).unwrap()
    }

    #[test]
    fn a_ring_does_what_it_is_used_for() {
        restrict(&mut disabled(), &[opcode::Read::CODE], false).unwrap();
        restrict(&mut disabled(), &[opcode::UringCmd16::CODE], true).unwrap();
        let mut large: IoUring<squeue::Entry128> =
            IoUring::builder().setup_r_disabled().build(4).unwrap();
        restrict(&mut large, &[opcode::UringCmd80::CODE], true).unwrap();
    }

    #[test]
    fn a_ring_that_does_more_is_refused() {
        let error = restrict(&mut disabled(), &[opcode::Nop::CODE], false).unwrap_err();
        assert_eq!(error.to_string(), "the ring cannot be restricted");
    }
}
