use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use xtent_store::{AlignedBuffer, Memory, Submitted, block_on};

use super::*;

fn fence() -> Fence {
    Fence::new(Place::Image("rbd:pool/disk".into()))
}

/// Begins and ends an operation.
fn perform(fence: &Fence, act: Act, result: io::Result<()>) -> Result<(), ErrorKind> {
    let (completion, submitted) = Submitted::later();
    if let Some(ticket) = fence.begin(act, None, completion, None) {
        fence.end(ticket, act, None, result);
    }
    block_on(submitted).result.map_err(|error| error.kind)
}

#[test]
fn what_is_lost_stays_lost() {
    let fence = fence();
    assert!(fence.refusal(Act::Write).is_none());
    for (errno, kind) in [
        (Errno::ROFS, ErrorKind::ReadOnly),
        (Errno::SHUTDOWN, ErrorKind::Fenced),
    ] {
        assert!(fence.refusal(Act::Read).is_none());
        assert_eq!(perform(&fence, Act::Read, Err(errno.into())), Err(kind));
    }
    for act in [Act::Read, Act::Write, Act::Flush, Act::Discard] {
        assert_eq!(
            fence.refusal(act).map(|(kind, _)| kind),
            Some(ErrorKind::Fenced)
        );
        assert_eq!(perform(&fence, act, Ok(())), Err(ErrorKind::Fenced));
    }
}

#[test]
fn a_write_without_the_lock_is_a_loss_and_a_full_cluster_is_none() {
    let fence = fence();
    let write = |errno: Errno| perform(&fence, Act::Write, Err(errno.into()));
    assert_eq!(write(Errno::NOSPC), Err(ErrorKind::NoSpace));
    assert!(fence.refusal(Act::Write).is_none());
    assert_eq!(write(Errno::ROFS), Err(ErrorKind::Fenced));
    assert!(fence.refusal(Act::Write).is_some());
}

#[test]
fn after_a_failed_flush_every_later_one_fails() {
    let fence = fence();
    let failed = perform(&fence, Act::Flush, Err(Errno::IO.into()));
    assert_eq!(failed, Err(ErrorKind::Io));
    assert!(fence.refusal(Act::Write).is_none());
    for act in [Act::Flush, Act::DurableWrite] {
        assert_eq!(fence.refusal(act), Some((ErrorKind::Io, UNFLUSHED)));
    }
}

#[test]
fn a_loss_is_told_once_and_to_who_comes_late_at_once() {
    let (tell, told) = channel();
    let on_loss = |fence: &Fence| {
        let tell = tell.clone();
        fence.on_loss(Box::new(move || tell.send(()).unwrap()));
    };
    let fence = fence();
    on_loss(&fence);
    on_loss(&fence);
    assert!(told.try_recv().is_err());
    fence.close();
    fence.close();
    assert_eq!(told.try_iter().count(), 2);
    on_loss(&fence);
    assert_eq!(told.try_iter().count(), 1);
}

#[test]
fn what_is_under_way_ends_with_the_loss_and_its_memory_when_the_library_lets_go() {
    let one = AlignedBuffer::footprint(1 << 16);
    let memory = Memory::new(2 * one);
    let fence = fence();
    let mut begun = Vec::new();
    for number in 0..2 {
        let mut buffer = memory.take(1 << 16).unwrap();
        let (completion, submitted) = Submitted::later();
        let ticket = fence.begin(Act::Write, Some(number), completion, Some(&mut buffer));
        begun.push((ticket.unwrap(), buffer, submitted, number));
    }
    // One that ends before gives its memory back as ever.
    let (ticket, buffer, submitted, _) = begun.remove(0);
    fence.end(ticket, Act::Write, Some(buffer), Ok(()));
    let completed = block_on(submitted);
    assert!(completed.result.is_ok());
    assert_eq!(completed.buffer.unwrap().len(), 1 << 16);
    assert_eq!(memory.allocated(), 2 * one);
    let (ticket, mut buffer, submitted, number) = begun.remove(0);
    fence.close();
    let completed = block_on(submitted);
    let error = completed.result.unwrap_err();
    assert_eq!(
        (error.kind, error.act, error.offset),
        (ErrorKind::Fenced, Act::Write, Some(number))
    );
    assert!(completed.buffer.is_none(), "the library has it");
    assert_eq!(memory.allocated(), one, "it is counted no more");
    // The library writes to it, and ends the operation late, with success or not.
    buffer.fill(7);
    fence.end(ticket, Act::Write, Some(buffer), Ok(()));
    assert_eq!(memory.allocated(), one, "nor twice");
    memory.trim();
    assert_eq!(memory.allocated(), 0);
}

/// The library's threads, that end what they have, or never do.
#[test]
fn whoever_begins_while_the_image_is_lost_is_told_as_well() {
    const CLIENTS: usize = 4;
    for round in 0..200 {
        let fence = Arc::new(fence());
        let (give, given) = channel();
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let (fence, give) = (Arc::clone(&fence), give.clone());
                scope.spawn(move || {
                    let mut done = 0_u32;
                    loop {
                        let (completion, submitted) = Submitted::later();
                        if let Some(ticket) = fence.begin(Act::Read, None, completion, None) {
                            give.send(ticket).unwrap();
                        }
                        match block_on(submitted).result {
                            Ok(()) => done += 1,
                            Err(error) => {
                                assert_eq!(error.kind, ErrorKind::Fenced);
                                return done;
                            }
                        }
                    }
                });
            }
            drop(give);
            let mut kept = Vec::new();
            for (count, ticket) in given.iter().enumerate() {
                // Some are left for ever, as many as let the others go on.
                match count % 8 == 7 && kept.len() < CLIENTS - 1 {
                    true => kept.push(ticket),
                    false => fence.end(ticket, Act::Read, None, Ok(())),
                }
                if count == 20 + round {
                    let fence = Arc::clone(&fence);
                    scope.spawn(move || fence.close());
                }
            }
            // Late ends are nobody's.
            for ticket in kept {
                fence.end(ticket, Act::Read, None, Err(Errno::SHUTDOWN.into()));
            }
        });
        assert!(fence.state().under_way.is_empty());
    }
}
