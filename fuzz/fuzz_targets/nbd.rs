//! The NBD protocol core: any bytes in the handshake, and after it any
//! requests. Whatever comes must end, wait for more or be refused, and what is
//! accepted must lie inside the export.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xtent_export::nbd::proto::constants::REQUEST_LEN;
use xtent_export::nbd::proto::{
    Command, ExportInfo, Handshake, MAX_DRAIN, MAX_PAYLOAD, Progress, Request, Session,
};

fn exports() -> [ExportInfo; 2] {
    let export = |name: &str, read_only| ExportInfo {
        name: name.into(),
        description: "fuzz".into(),
        size: 1 << 30,
        read_only,
        minimum_block: 512,
    };
    [export("", false), export("ro", true)]
}

fuzz_target!(|input: (u16, &[u8])| {
    let (at_a_time, bytes) = input;
    let exports = exports();
    let mut handshake = Handshake::new(&exports);
    let (mut start, mut end) = (0, 0);
    let session = loop {
        let (used, progress) = handshake.step(&bytes[start..end]);
        start += used;
        assert!(start <= end);
        // An answer is bounded by what one option can ask for.
        assert!(handshake.take_output().len() < 32 << 10);
        match progress {
            Progress::Transmission(session) => break session,
            Progress::Close(_) => return,
            Progress::Continue if used > 0 => {}
            Progress::Continue if end - start >= Handshake::input_capacity() => {
                panic!("no progress with a full buffer")
            }
            Progress::Continue if end == bytes.len() => return,
            Progress::Continue => end = bytes.len().min(end + usize::from(at_a_time) + 1),
        }
    };
    transmission(&session, &bytes[start..]);
});

fn transmission(session: &Session, mut bytes: &[u8]) {
    while let Some((header, rest)) = bytes.split_first_chunk::<REQUEST_LEN>() {
        let Ok(request) = Request::parse(header) else {
            return;
        };
        let payload = match request.check(session) {
            Ok(Ok(command)) => {
                check(session, &request, command);
                request.payload_len()
            }
            Ok(Err(refusal)) => {
                assert!(refusal.drain <= MAX_DRAIN);
                assert_eq!(refusal.drain as usize, request.payload_len());
                request.payload_len()
            }
            Err(_) => return,
        };
        bytes = rest.get(payload..).unwrap_or_default();
    }
}

fn check(session: &Session, request: &Request, command: Command) {
    let (offset, len) = match command {
        Command::Read { offset, len, .. } | Command::Write { offset, len, .. } => {
            assert!(len <= MAX_PAYLOAD);
            (offset, len)
        }
        Command::Trim { offset, len, .. }
        | Command::WriteZeroes { offset, len, .. }
        | Command::Cache { offset, len } => (offset, len),
        Command::BlockStatus { len } => (request.offset, len),
        Command::Flush | Command::Disconnect => return,
    };
    assert!(offset + u64::from(len) <= session.size);
    let writes = matches!(
        command,
        Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. }
    );
    assert!(!(writes && session.read_only));
}
