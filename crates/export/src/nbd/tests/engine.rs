//! A volume with a cipher engine, which completes later.

use std::sync::Arc;

use xtent_volume::Direction;

use super::client::{Rig, header};
use super::{EIO, Options, pattern, round_trips};
use crate::metrics::{Exported, text};
use crate::nbd::proto::constants::*;

const LONG: usize = 300_000;

#[test]
fn data_comes_back_with_either_kind_of_reply() {
    for least in [0, LONG, usize::MAX] {
        let (rig, engine) = Rig::with_engine(Options::default(), least);
        round_trips(&rig, true);
        round_trips(&rig, false);
        assert_eq!(engine.take_done().is_empty(), least == usize::MAX);
        rig.stop().unwrap();
    }
}

#[test]
fn without_memory_for_requests_everything_still_works() {
    let (rig, _) = Rig::with_engine(Rig::tight(1), LONG);
    round_trips(&rig, true);
    rig.stop().unwrap();
}

#[test]
fn long_requests_go_there_whole_and_short_ones_do_not_wait_for_them() {
    for structured in [true, false] {
        let (rig, engine) = Rig::with_engine(Options::default(), LONG);
        let mut client = rig.connect("", structured);
        let data = pattern(4 << 20, 1);
        assert_eq!(client.write(0, 0, &data), 0);
        assert_eq!(client.write(CMD_FLAG_FUA, 0, &data[..1 << 20]), 0);
        assert!(client.read(0, 512, 2 << 20).unwrap() == data[512..(2 << 20) + 512]);
        assert_eq!(engine.take_done(), [4 << 20, 1 << 20, 2 << 20]);
        engine.hold(true);
        client.send(&header(CMD_READ, 0, 1, 0, 1 << 20));
        client.send(&header(CMD_READ, 0, 2, 0, 4096));
        let reply = client.message();
        assert_eq!((reply.cookie(), reply.error()), (2, 0));
        if !structured {
            client.take(4096);
        }
        engine.hold(false);
        assert_eq!(client.message().cookie(), 1);
        rig.stop().unwrap();
    }
}

#[test]
fn what_the_engine_fails_fails_alone() {
    for structured in [true, false] {
        let (rig, engine) = Rig::with_engine(Options::default(), LONG);
        let mut client = rig.connect("", structured);
        let data = pattern(1 << 20, 1);
        assert_eq!(client.write(0, 0, &data), 0);
        engine.fail(Some(Direction::Encrypt));
        assert_eq!(client.write(0, 0, &pattern(1 << 20, 2)), EIO);
        assert!(client.read(0, 0, 1 << 20).unwrap() == data);
        engine.fail(Some(Direction::Decrypt));
        assert_eq!(client.read(0, 0, 1 << 20).unwrap_err(), EIO);
        assert!(client.read(0, 0, 4096).unwrap() == data[..4096]);
        engine.fail(None);
        assert!(client.read(0, 0, 1 << 20).unwrap() == data);
        let snapshot = rig.volume.metrics().snapshot();
        assert_eq!(snapshot.engine.failed, 2);
        let volume = Arc::clone(&rig.volume);
        let page = text(&[Exported {
            name: "a".into(),
            volume,
            connections: 1,
        }]);
        let count = snapshot.engine.count;
        assert!(page.contains(&format!(
            "\nxtent_engine_runs_total{{export=\"a\"}} {count}\n"
        )));
        assert!(page.contains("\nxtent_engine_errors_total{export=\"a\"} 2\n"));
        assert!(page.contains("\nxtent_engine_up{export=\"a\"} 1\n"));
        // The one of 4096 bytes.
        let short = "\nxtent_engine_cpu_runs_total{export=\"a\",why=\"short\"} 1\n";
        assert!(page.contains(short), "{page}");
        rig.stop().unwrap();
    }
}
