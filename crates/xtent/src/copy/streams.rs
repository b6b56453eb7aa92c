//! Copies of which one side can only be read or written in order. Lanes, each
//! with a thread and a buffer, take the pieces in turn: while one waits for
//! the stream the others encrypt and use the disk.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::{PIECE, Progress, buffer, threads};
use crate::failure::{Exit, Failure, Result};

/// A piece in its buffer, on its way between the stream's thread and a lane.
struct Piece {
    buf: Vec<u8>,
    len: usize,
    offset: u64,
}

/// Copies from a stream to its end. `fill` reads up to the buffer's length, less
/// only at the end; `write` gets the pieces from several threads, in no
/// particular order. A stream of more than `room` bytes is an error, after
/// `room` bytes were copied.
pub(crate) fn from_stream(
    progress: &Progress,
    room: u64,
    mut fill: impl FnMut(&mut [u8]) -> Result<usize>,
    write: impl Fn(&mut [u8], u64) -> Result<()> + Sync,
) -> Result<()> {
    struct Lane<'scope> {
        full: SyncSender<Piece>,
        empty: Receiver<Vec<u8>>,
        worker: std::thread::ScopedJoinHandle<'scope, Result<()>>,
    }
    let write = &write;
    let copied = std::thread::scope(|scope| {
        let mut lanes = Vec::new();
        for _ in 0..=threads() {
            let (full, pieces) = sync_channel::<Piece>(1);
            let (back, empty) = sync_channel(1);
            // It has room for one: this never waits, nor fails.
            let _ = back.send(buffer()?);
            let worker = scope.spawn(move || {
                for mut piece in pieces {
                    write(&mut piece.buf[..piece.len], piece.offset)?;
                    progress.advance(piece.len);
                    let _ = back.send(piece.buf);
                }
                Ok(())
            });
            lanes.push(Lane {
                full,
                empty,
                worker,
            });
        }
        let mut offset = 0;
        let mut read = || -> Result<()> {
            for lane in lanes.iter().cycle() {
                // Fails when the lane's thread has ended: its error counts.
                let Ok(mut buf) = lane.empty.recv() else {
                    return Ok(());
                };
                let most = usize::try_from(room - offset).unwrap_or(PIECE).min(PIECE);
                let len = fill(&mut buf[..most])?;
                let is_last = len < PIECE;
                if len > 0 && lane.full.send(Piece { buf, len, offset }).is_err() {
                    return Ok(());
                }
                offset += len as u64;
                if is_last {
                    break;
                }
            }
            Ok(())
        };
        let mut result = read();
        for lane in lanes {
            drop(lane.full);
            let worked = lane.worker.join().unwrap_or_else(|_| Err(broken()));
            result = result.and(worked);
        }
        result.map(|()| offset)
    })?;
    if copied == room && fill(&mut [0])? > 0 {
        return Err(Failure::new(
            Exit::Device,
            format!(
                "the source is longer than the volume, which has room for {room} bytes \
                 and now holds the first {room} of the source"
            ),
        )
        .advise("Make a larger volume with `xtent format --size`."));
    }
    Ok(())
}

/// Copies `size` bytes to a stream. `read` is called from several threads;
/// `write` gets the pieces in order.
pub(crate) fn to_stream(
    progress: &Progress,
    size: u64,
    read: impl Fn(&mut [u8], u64) -> Result<()> + Sync,
    mut write: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let read = &read;
    let lanes = threads() + 1;
    let starts = move |first: usize| (first as u64 * PIECE as u64..size).step_by(lanes * PIECE);
    std::thread::scope(|scope| {
        let mut ends = Vec::new();
        for first in 0..lanes {
            let (full, pieces) = sync_channel::<Result<Piece>>(1);
            let (back, empty) = sync_channel(1);
            // It has room for one: this never waits, nor fails.
            let _ = back.send(buffer()?);
            scope.spawn(move || {
                for offset in starts(first) {
                    // Fails when the stream's thread has given up.
                    let Ok(mut buf) = empty.recv() else { return };
                    let len = usize::try_from(size - offset).unwrap_or(PIECE).min(PIECE);
                    let done = read(&mut buf[..len], offset);
                    if full
                        .send(done.map(|()| Piece { buf, len, offset }))
                        .is_err()
                    {
                        return;
                    }
                }
            });
            ends.push((pieces, back));
        }
        for ((pieces, back), _) in ends.iter().cycle().zip((0..size).step_by(PIECE)) {
            let piece = pieces.recv().unwrap_or_else(|_| Err(broken()))?;
            write(&piece.buf[..piece.len])?;
            progress.advance(piece.len);
            // Fails when that lane has no more pieces.
            let _ = back.send(piece.buf);
        }
        Ok(())
    })
}

/// A thread that ended without a word has panicked, and said so itself.
fn broken() -> Failure {
    Failure::new(Exit::Device, "the copy broke off")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::output::Output;

    fn progress() -> Progress {
        let output = Output {
            json: true,
            quiet: true,
        };
        Progress::start(None, false, &output, "Half.")
    }

    /// Sizes around whole pieces and whole rounds of the lanes.
    fn sizes() -> Vec<usize> {
        let round = PIECE * (threads() + 1);
        [0, PIECE, round, 2 * round]
            .into_iter()
            .flat_map(|n| [n.saturating_sub(1), n, n + 1])
            .collect()
    }

    fn content(size: usize) -> Vec<u8> {
        (0..size).map(|i| (i / 4096 + i).to_le_bytes()[0]).collect()
    }

    #[test]
    fn streams_come_whole_and_in_order() {
        for size in sizes() {
            let data = content(size);
            let mut out = Vec::new();
            let read = |buf: &mut [u8], offset: u64| {
                let at = usize::try_from(offset).unwrap();
                buf.copy_from_slice(&data[at..at + buf.len()]);
                Ok(())
            };
            let write = |piece: &[u8]| {
                out.extend_from_slice(piece);
                Ok(())
            };
            let moved = progress();
            to_stream(&moved, size as u64, read, write).unwrap();
            assert!(out == data, "{size}");
            assert_eq!(moved.done(), size as u64);
        }
    }

    #[test]
    fn streams_go_to_their_places_up_to_the_room() {
        for size in sizes() {
            for room in [size, size + 1, size.saturating_sub(1)] {
                let data = content(size);
                let mut left = &data[..];
                let out = Mutex::new(vec![0; room]);
                let moved = progress();
                let copied = from_stream(
                    &moved,
                    room as u64,
                    |buf| {
                        let len = buf.len().min(left.len());
                        buf[..len].copy_from_slice(&left[..len]);
                        left = &left[len..];
                        Ok(len)
                    },
                    |piece, offset| {
                        let at = usize::try_from(offset).unwrap();
                        out.lock().unwrap()[at..at + piece.len()].copy_from_slice(piece);
                        Ok(())
                    },
                );
                let fits = size.min(room);
                assert_eq!(copied.is_ok(), size <= room, "{size} into {room}");
                assert_eq!(moved.done(), fits as u64);
                assert!(out.into_inner().unwrap()[..fits] == data[..fits]);
            }
        }
    }

    #[test]
    fn failures_end_both_sides() {
        let fail = || Err(Failure::parameters("full"));
        let endless = |buf: &mut [u8]| Ok(buf.len());
        let said = from_stream(&progress(), u64::MAX, endless, |_, _| fail());
        assert_eq!(said.unwrap_err().message, "full");
        let said = from_stream(
            &progress(),
            u64::MAX,
            |_| Err(Failure::parameters("gone")),
            |_, _| Ok(()),
        );
        assert_eq!(said.unwrap_err().message, "gone");
        let size = u64::MAX / 2;
        let said = to_stream(&progress(), size, |_, _| Ok(()), |_| fail());
        assert_eq!(said.unwrap_err().message, "full");
        let said = to_stream(&progress(), size, |_, _| fail(), |_| Ok(()));
        assert_eq!(said.unwrap_err().message, "full");
    }
}
