//! The NBD protocol core: any options in the handshake, and after it any
//! requests. Whatever comes must end, wait for more or be refused, and what is
//! accepted must lie inside the export.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xtent_export::nbd::proto::constants::{OPTION_MAGIC, REQUEST_LEN, REQUEST_MAGIC};
use xtent_export::nbd::proto::{
    Command, ExportInfo, Handshake, MAX_DRAIN, MAX_PAYLOAD, Progress, Request, Session, Tls,
    Verdict,
};

/// Client flags, options as number and data, request headers without the magic
/// number, and bytes that follow unframed. The magic numbers are put in here:
/// they are hard to guess.
type Input<'a> = (
    u8,
    Vec<(u8, &'a [u8])>,
    Vec<[u8; REQUEST_LEN - 4]>,
    &'a [u8],
    u16,
);

fn exports() -> [ExportInfo; 3] {
    let export = |name: &str, read_only, allowed: &[&str]| ExportInfo {
        name: name.into(),
        description: "fuzz".into(),
        size: 1 << 30,
        read_only,
        minimum_block: 512,
        allowed: allowed.iter().map(|&name| name.to_owned()).collect(),
    };
    [
        export("", false, &[]),
        export("ro", true, &[]),
        export("a", false, &["alice"]),
    ]
}

fn stream((flags, options, requests, rest, _): &Input<'_>) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, *flags & 0x3f];
    for (option, data) in options {
        bytes.extend(OPTION_MAGIC.to_be_bytes());
        bytes.extend(u32::from(*option).to_be_bytes());
        bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend(*data);
    }
    for request in requests {
        bytes.extend(REQUEST_MAGIC.to_be_bytes());
        bytes.extend(request);
    }
    bytes.extend(*rest);
    bytes
}

fuzz_target!(|input: Input<'_>| {
    let at_a_time = usize::from(input.4) + 1;
    let bytes = stream(&input);
    let exports = exports();
    let tls = [Tls::Off, Tls::Allowed, Tls::Required][usize::from(input.0 >> 6) % 3];
    let mut handshake = Handshake::new(&exports, tls);
    let mut names = None;
    let (mut start, mut end) = (0, 0);
    let session = loop {
        let (used, progress) = handshake.step(&bytes[start..end]);
        start += used;
        assert!(start <= end);
        // An answer is bounded by what one option can ask for.
        assert!(handshake.take_output().len() < 32 << 10);
        match progress {
            Progress::Transmission(session) => {
                assert!(tls != Tls::Required || names.is_some());
                assert!(session.export != 2 || names == Some(true));
                break session;
            }
            Progress::StartTls => {
                assert!(tls != Tls::Off && names.is_none());
                let is_alice = input.4 & 1 == 0;
                names = Some(is_alice);
                handshake.secured(if is_alice {
                    vec!["alice".into()]
                } else {
                    Vec::new()
                });
            }
            Progress::Close(_) => return,
            Progress::Continue if used > 0 => {}
            Progress::Continue if end - start >= Handshake::input_capacity() => {
                panic!("no progress with a full buffer")
            }
            Progress::Continue if end == bytes.len() => return,
            Progress::Continue => end = bytes.len().min(end + at_a_time),
        }
    };
    transmission(&session, &bytes[start..]);
});

fn transmission(session: &Session, mut bytes: &[u8]) {
    while let Some((header, rest)) = bytes.split_first_chunk::<REQUEST_LEN>() {
        let Ok(request) = Request::parse(header) else {
            return;
        };
        match request.check(session) {
            Verdict::Serve(command) => check(session, &request, command),
            Verdict::Refuse(refusal) => {
                assert!(refusal.drain <= MAX_DRAIN);
                assert_eq!(refusal.drain as usize, request.payload_len());
            }
            Verdict::End(_) => return,
        }
        // Payload is not looked at; the next header comes at once.
        bytes = rest;
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
