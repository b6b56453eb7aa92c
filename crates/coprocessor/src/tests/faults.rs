//! Every way in which the device can fail.

use std::sync::Arc;

use super::{
    COUNT, MODELS, by_hand, encrypts, held, key_bytes, load, options, patient, sectors_of, texts,
    xts,
};
use crate::registers as reg;
use crate::reset::{ENOUGH, MOST_RESETS, Trouble};
use crate::shared::FAILURES;
use crate::testing::{Build, Device, Flaw, Pace};
use crate::{Direction, Engine, ErrorKind, Keyed, Model, OnFailure, Options, RequestSize, Tweaks};

/// What becomes of the request and of the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// Nothing happens to either.
    Fine,
    /// The request fails, and that is all.
    Fails,
    /// The request fails, the device is reset and goes on.
    Reset,
    /// The device is not used again.
    Dead,
    /// The same, but the request was answered before.
    DeadLater,
}

const FLAWS: [(Flaw, Fate); 21] = [
    (Flaw::Status(reg::STATUS_OP), Fate::Fails),
    (Flaw::Status(reg::STATUS_SLOT), Fate::Fails),
    (Flaw::Status(reg::STATUS_READ), Fate::Fails),
    (Flaw::Status(reg::STATUS_WRITE), Fate::Fails),
    (Flaw::UnknownStatus, Fate::Dead),
    (Flaw::NoInterrupt, Fate::Fine),
    (Flaw::ManyInterrupts, Fate::Fine),
    (Flaw::Hangs, Fate::Reset),
    (Flaw::HangsForGood, Fate::Dead),
    (Flaw::Vanishes, Fate::Dead),
    (Flaw::Unplugged, Fate::Dead),
    (Flaw::Twice, Fate::DeadLater),
    (Flaw::Cookie, Fate::Dead),
    (Flaw::Phase, Fate::Dead),
    (Flaw::TooManyUnits, Fate::Dead),
    (Flaw::TooFewUnits, Fate::Dead),
    (Flaw::Head, Fate::Dead),
    (Flaw::NothingDone, Fate::Dead),
    (Flaw::Fault(reg::FAULT_DESCRIPTOR), Fate::Reset),
    (Flaw::Fault(reg::FAULT_COMPLETION), Fate::Reset),
    (Flaw::Fault(reg::FAULT_WIPED), Fate::Reset),
];

const LEN: usize = 12 * 512;

/// One request after `before` of a job fails. The job has so many requests as its model needs.
fn one_fails(
    device: &Device,
    engine: &Arc<Engine>,
    keyed: &Keyed,
    case: (Flaw, Fate),
    (before, direction): (u64, Direction),
    policy: OnFailure,
) {
    let (flaw, fate) = case;
    let resets = device.resets();
    encrypts(engine, keyed, 3, LEN);
    let (plain, encrypted) = texts(3, 100, LEN);
    let (from, to) = match direction {
        Direction::Encrypt => (plain, encrypted),
        Direction::Decrypt => (encrypted, plain),
    };
    device.spoil(before, flaw);
    let (data, result) = engine.run(keyed.crypt(direction, 100, from.clone()));
    let is_dead = matches!(fate, Fate::Dead | Fate::DeadLater);
    match (fate, policy) {
        (Fate::Fine, _) | (_, OnFailure::Cpu) => {
            let by_cpu = result.unwrap();
            match fate {
                Fate::Fine => assert_eq!(by_cpu, 0),
                // It depends on what comes behind the first completion.
                Fate::DeadLater => assert!(by_cpu == 0 || by_cpu == LEN),
                _ => assert_eq!(by_cpu, LEN, "{case:?}"),
            }
            assert!(data == to, "{case:?} {before} {direction:?}");
        }
        // The first completion counts, where there is no other request behind it.
        (Fate::DeadLater, _) if result.is_ok() => assert!(data == to),
        (_, OnFailure::Fail) => {
            let kind = result.unwrap_err().kind();
            let expected = if is_dead {
                ErrorKind::Dead
            } else {
                ErrorKind::Failed
            };
            assert_eq!(kind, expected, "{case:?}");
            assert!(data == from, "{case:?}: nothing of it was copied");
        }
    }
    if flaw == Flaw::NothingDone {
        // The job itself has found that; whoever attends to the device sees to it.
        engine.let_pass(engine.shared().tick());
    }
    assert_eq!(
        engine.failure().is_some(),
        is_dead,
        "{case:?} {:?}",
        engine.failure()
    );
    if !is_dead {
        let expected = u64::from(fate == Fate::Reset);
        assert_eq!(device.resets() - resets, expected, "{case:?}");
        encrypts(engine, keyed, 3, LEN);
        return;
    }
    // Whatever it was, it has no memory any more, if anybody can tell it so.
    assert_eq!(device.is_mapped(), flaw == Flaw::Unplugged, "{case:?}");
    let (plain, encrypted) = texts(3, 5, LEN);
    let requests = device.requests();
    let (data, result) = engine.run(keyed.crypt(Direction::Encrypt, 5, plain));
    match policy {
        OnFailure::Fail => {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Dead);
            assert!(
                error.to_string().contains(&engine.failure().unwrap()),
                "{error}"
            );
        }
        OnFailure::Cpu => assert!(data == encrypted),
    }
    assert_eq!(device.requests(), requests, "nothing more is asked of it");
    assert_eq!(
        load(engine, 4, Model::Runs).err().unwrap().kind(),
        ErrorKind::Dead
    );
    assert_eq!(engine.counters().unwrap_err().kind(), ErrorKind::Dead);
}

#[test]
fn every_flaw_in_every_model() {
    for case in FLAWS {
        for model in MODELS {
            for on_failure in [OnFailure::Fail, OnFailure::Cpu] {
                // The first, one in the middle, and in those with more than one the last.
                for before in [0, 7, 23] {
                    if model == Model::Runs && before != 0 {
                        continue;
                    }
                    for direction in [Direction::Decrypt, Direction::Encrypt] {
                        let options = Options {
                            on_failure,
                            ..options()
                        };
                        let (device, engine) = by_hand(Build::default(), Pace::AtOnce, options);
                        let keyed = load(&engine, 3, model).unwrap();
                        let where_it_is = (before, direction);
                        one_fails(&device, &engine, &keyed, case, where_it_is, on_failure);
                    }
                }
            }
        }
    }
}

/// With a thread, and interrupts, it comes to the same.
#[test]
fn every_flaw_with_a_thread() {
    let mixed = Model::Mixed(Tweaks::Engine, RequestSize::Bytes512);
    let cases = FLAWS.map(|case| [(case, mixed), (case, Model::Runs)]);
    for ((flaw, fate), model) in cases.into_iter().flatten() {
        let options = Options {
            on_failure: OnFailure::Cpu,
            ..patient()
        };
        let device = Device::new(Build::default(), Pace::Thread);
        let engine = Engine::by_port(device.port(), options).unwrap();
        let keyed = load(&engine, 3, model).unwrap();
        for before in [0, 9] {
            device.spoil(if model == mixed { before } else { 0 }, flaw);
            encrypts(&engine, &keyed, 3, LEN);
            encrypts(&engine, &keyed, 3, LEN);
        }
        let is_dead = matches!(fate, Fate::Dead | Fate::DeadLater);
        // What comes behind an answered request may be seen after the test looks.
        if fate != Fate::DeadLater {
            assert_eq!(engine.failure().is_some(), is_dead, "{flaw:?}");
        }
    }
}

/// Nothing comes of a device that hangs each time.
#[test]
fn a_device_that_hangs_again_is_dead() {
    let (device, engine) = by_hand(Build::default(), Pace::AtOnce, options());
    let keyed = load(&engine, 3, Model::Runs).unwrap();
    encrypts(&engine, &keyed, 3, LEN);
    for (kind, is_dead) in [(ErrorKind::Failed, false), (ErrorKind::Dead, true)] {
        device.spoil(0, Flaw::Hangs);
        let (plain, _) = texts(3, 9, LEN);
        let (_, result) = engine.run(keyed.crypt(Direction::Encrypt, 9, plain));
        assert_eq!(result.unwrap_err().kind(), kind);
        assert_eq!(engine.failure().is_some(), is_dead);
    }
    assert_eq!(device.resets(), 3, "when it was opened, and twice");
}

/// One that hangs again and again, each time after a little work, would hold up everybody for ever.
#[test]
fn a_device_that_does_little_between_resets_is_dead_in_the_end() {
    const PIECE: usize = 1 << 20;
    let (device, engine) = by_hand(Build::default(), Pace::AtOnce, options());
    let keyed = load(&engine, 3, Model::Runs).unwrap();
    let hangs = || {
        device.spoil(0, Flaw::Hangs);
        let (plain, _) = texts(3, 9, LEN);
        let (_, result) = engine.run(keyed.crypt(Direction::Encrypt, 9, plain));
        result.unwrap_err().kind()
    };
    let pieces = usize::try_from(ENOUGH).unwrap() / PIECE;
    let works = |times: usize| (0..times).for_each(|_| encrypts(&engine, &keyed, 3, PIECE));
    for _ in 0..MOST_RESETS {
        works(1);
        assert_eq!(hangs(), ErrorKind::Failed);
    }
    works(pieces);
    assert_eq!(hangs(), ErrorKind::Failed, "this one does not count");
    for _ in 0..MOST_RESETS {
        works(pieces - 1);
        assert_eq!(hangs(), ErrorKind::Failed);
    }
    works(pieces - 1);
    assert_eq!(hangs(), ErrorKind::Dead);
}

#[test]
fn a_device_that_fails_everything_is_reset_and_then_dead() {
    let (device, engine) = by_hand(Build::default(), Pace::AtOnce, options());
    let keyed = load(&engine, 3, Model::Runs).unwrap();
    let fails = |times: u32| {
        for _ in 0..times {
            device.spoil(0, Flaw::Status(reg::STATUS_READ));
            let (plain, _) = texts(3, 9, LEN);
            let (_, result) = engine.run(keyed.crypt(Direction::Encrypt, 9, plain));
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Failed);
        }
    };
    let resets = device.resets();
    encrypts(&engine, &keyed, 3, LEN);
    fails(FAILURES - 1);
    encrypts(&engine, &keyed, 3, LEN);
    fails(FAILURES - 1);
    assert_eq!(device.resets(), resets, "not in a row");
    fails(1);
    assert_eq!((device.resets(), engine.failure()), (resets + 1, None));
    fails(FAILURES);
    let reason = engine.failure().unwrap();
    assert!(reason.contains("failed 64 requests in a row"), "{reason}");
}

/// Where several requests make a sector, any of them.
#[test]
fn a_request_inside_of_a_sector_that_does_nothing_is_seen() {
    for before in 1..8 {
        let (device, engine) = by_hand(Build::default(), Pace::AtOnce, options());
        let model = Model::Mixed(Tweaks::Cpu, RequestSize::Bytes512);
        let keyed = engine.key(xts(), &key_bytes(3), sectors_of(4096), COUNT, model);
        let keyed = keyed.unwrap();
        device.spoil(before, Flaw::NothingDone);
        let (plain, _) = texts(3, 9, 4096);
        let (data, result) = engine.run(keyed.crypt(Direction::Encrypt, 9, plain.clone()));
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Dead, "{before}");
        assert!(data == plain);
    }
}

/// The slot of requests that nobody waits for may be empty before they are done.
#[test]
fn failures_that_nobody_hears_of_do_not_count() {
    let (device, engine) = held(Build::default(), options());
    let model = Model::Units(Tweaks::Cpu);
    let keyed = load(&engine, 3, model).unwrap();
    let long = usize::try_from(2 * FAILURES).unwrap() * 512;
    let mut job = Box::pin(keyed.crypt(Direction::Encrypt, 9, texts(3, 9, long).0));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(job.as_mut().poll(&mut context).is_pending());
    drop((job, keyed));
    let resets = device.resets();
    assert!(device.work(1000) > usize::try_from(FAILURES).unwrap());
    engine.let_pass(engine.shared().tick());
    assert_eq!((device.resets(), engine.failure()), (resets, None));
}

/// What is worse than the trouble that the device is reset for is not forgotten by the reset.
#[test]
fn a_device_that_has_lied_is_dead_whatever_it_is_reset_for() {
    let (device, engine) = by_hand(Build::default(), Pace::AtOnce, options());
    let keyed = load(&engine, 3, Model::Runs).unwrap();
    encrypts(&engine, &keyed, 3, LEN);
    let error = engine.shared().did_nothing();
    assert_eq!(engine.failure().as_deref(), Some(BROKEN), "at once");
    let late = Trouble::late(std::time::Duration::from_secs(1));
    engine.shared().recover(&late);
    assert_eq!(engine.failure().as_deref(), Some(BROKEN));
    assert!(error.to_string().contains(BROKEN), "{error}");
    assert!(!device.is_mapped());
}

const BROKEN: &str =
    "the device is broken: it says that a request is done, and has changed nothing";

/// Requests that wait for room when the device fails are not lost: they go on after the reset, or end.
#[test]
fn those_that_wait_go_on_or_end() {
    for (flaw, is_dead) in [(Flaw::Hangs, false), (Flaw::HangsForGood, true)] {
        let build = Build {
            log2_ring: 1,
            rings: 1,
            ..Build::default()
        };
        let (device, engine) = held(build, options());
        let keyed = load(&engine, 3, Model::Runs).unwrap();
        let job = || Box::pin(keyed.crypt(Direction::Encrypt, 9, texts(3, 9, LEN).0));
        let mut jobs: Vec<_> = (0..6).map(|_| job()).collect();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for job in &mut jobs {
            assert!(job.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(device.work(1), 1);
        device.spoil(0, flaw);
        assert_eq!(device.work(9), 1, "there is room for two");
        let mut results = Vec::new();
        for job in jobs {
            // Whoever attends to it has it work as well.
            let job = std::cell::RefCell::new(job);
            let result = loop {
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                if let std::task::Poll::Ready((_, result)) =
                    job.borrow_mut().as_mut().poll(&mut context)
                {
                    break result.map(drop).map_err(|error| error.kind());
                }
                device.work(9);
                engine.let_pass(engine.shared().tick());
            };
            results.push(result);
        }
        let behind = if is_dead {
            Err(ErrorKind::Dead)
        } else {
            Ok(())
        };
        let failed = if is_dead {
            ErrorKind::Dead
        } else {
            ErrorKind::Failed
        };
        assert_eq!(
            results,
            [Ok(()), Err(failed), behind, behind, behind, behind]
        );
    }
}

/// What a device may still write to is nobody else's.
#[test]
fn memory_of_a_device_that_cannot_be_stopped_is_not_used_again() {
    let (device, engine) = by_hand(Build::default(), Pace::AtOnce, options());
    let keyed = load(&engine, 3, Model::Runs).unwrap();
    let before = engine.shared().memory.len() - engine.shared().data_bytes;
    encrypts(&engine, &keyed, 3, LEN);
    assert_eq!(device.used(before), 0, "wiped after use");
    device.spoil(0, Flaw::Unplugged);
    let (plain, _) = texts(3, 9, LEN);
    let (_, result) = engine.run(keyed.crypt(Direction::Encrypt, 9, plain));
    result.unwrap_err();
    assert_eq!(device.used(before), LEN, "left alone");
    drop((keyed, engine));
    assert_eq!(device.used(before), 0, "there is no device any more");
}
