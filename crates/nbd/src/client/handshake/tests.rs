//! The client's handshake against this crate's server, and against anything at all.

use proptest::prelude::*;

use super::*;
use crate::{ExportInfo, Progress, Session, Tls};

fn exports() -> Vec<ExportInfo> {
    vec![ExportInfo {
        name: "disk".into(),
        description: "a disk".into(),
        size: 1 << 20,
        read_only: true,
        minimum_block: 4096,
        allowed: Vec::new(),
    }]
}

/// Runs both sides; `at_a_time` bytes at most reach the client at once.
fn negotiate(
    name: &str,
    at_a_time: usize,
    tls: (bool, Tls),
) -> (Result<Negotiated, HandshakeError>, Option<Session>) {
    let exports = exports();
    let mut server = crate::Handshake::new(&exports, tls.1);
    let mut client = Handshake::new(name, tls.0);
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    let mut session = None;
    let mut shown = 0;
    for _ in 0..10_000 {
        to_client.extend(server.take_output());
        shown = to_client.len().min(shown + at_a_time);
        match client.step(&to_client[..shown]) {
            Err(error) => return (Err(error), session),
            Ok((_, Step::Done(negotiated))) => return (Ok(negotiated), session),
            Ok((used, step)) => {
                to_client.drain(..used);
                shown -= used;
                if step == Step::StartTls {
                    assert!(to_client.is_empty());
                    client.secured();
                }
            }
        }
        to_server.extend(client.take_output());
        if session.is_none() {
            let (used, progress) = server.step(&to_server);
            to_server.drain(..used);
            match progress {
                Progress::Transmission(begun) => session = Some(begun),
                Progress::StartTls => {
                    assert!(to_server.is_empty());
                    server.secured(Vec::new());
                }
                _ => {}
            }
        }
    }
    panic!("the handshake does not end");
}

#[test]
fn the_server_of_this_crate_is_understood() {
    let plain = (false, Tls::Off);
    for (at_a_time, tls) in [
        (1, plain),
        (7, (false, Tls::Allowed)),
        (10_000, plain),
        (1, (true, Tls::Required)),
        (10_000, (true, Tls::Allowed)),
    ] {
        let (negotiated, session) = negotiate("disk", at_a_time, tls);
        let negotiated = negotiated.unwrap();
        assert_eq!(negotiated.size, 1 << 20);
        assert_eq!(negotiated.form, Form::Structured);
        assert!(negotiated.has(FLAG_READ_ONLY) && !negotiated.has(FLAG_SEND_TRIM));
        assert_eq!(negotiated.blocks.minimum, 4096);
        assert!(session.unwrap().structured_replies);
        let error = negotiate("disc", at_a_time, tls).0.unwrap_err();
        assert_eq!(error.kind, HandshakeErrorKind::UnknownExport);
        assert!(error.message.contains("no such export"), "{error}");
    }
}

/// An option's reply.
fn rep(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    [
        &OPTION_REPLY_MAGIC.to_be_bytes()[..],
        &option.to_be_bytes(),
        &kind.to_be_bytes(),
        &len.to_be_bytes(),
        data,
    ]
    .concat()
}

fn greeting(flags: u16) -> Vec<u8> {
    [b"NBDMAGICIHAVEOPT", &flags.to_be_bytes()[..]].concat()
}

/// What a client makes of these messages.
fn follow(messages: &[Vec<u8>]) -> Result<Option<Negotiated>, HandshakeError> {
    let input = messages.concat();
    let mut client = Handshake::new("x", false);
    let mut start = 0;
    loop {
        let (used, step) = client.step(&input[start..])?;
        start += used;
        match step {
            Step::Done(negotiated) => return Ok(Some(negotiated)),
            Step::StartTls => panic!("nobody wants TLS"),
            Step::Continue if used == 0 => return Ok(None),
            Step::Continue => {}
        }
    }
}

fn info_export(size: u64, flags: u16) -> Vec<u8> {
    [
        &INFO_EXPORT.to_be_bytes()[..],
        &size.to_be_bytes(),
        &flags.to_be_bytes(),
    ]
    .concat()
}

fn info_blocks(sizes: [u32; 3]) -> Vec<u8> {
    let mut data = Vec::from(INFO_BLOCK_SIZE.to_be_bytes());
    data.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
    data
}

#[test]
fn extended_headers_are_taken_where_they_are_offered() {
    let negotiated = follow(&[
        greeting(3),
        rep(OPT_EXTENDED_HEADERS, REP_ACK, &[]),
        rep(OPT_GO, REP_INFO, &info_export(77, 1)),
        rep(OPT_GO, REP_INFO, &info_blocks([1, 3, 1001])),
        rep(OPT_GO, REP_INFO, &[0, 99, 1]),
        rep(OPT_GO, REP_ACK, &[]),
    ]);
    let negotiated = negotiated.unwrap().unwrap();
    assert_eq!((negotiated.size, negotiated.form), (77, Form::Extended));
    assert_eq!(
        (negotiated.blocks.preferred, negotiated.blocks.maximum),
        (4096, 1001)
    );
}

/// A large read would come to as many requests as it has bytes.
#[test]
fn requests_may_have_a_sector_at_least() {
    for sizes in [[1, 1, 1], [1, 4096, 511], [512, 4096, 256]] {
        let negotiated = follow(&[
            greeting(3),
            rep(OPT_EXTENDED_HEADERS, REP_ERR_UNSUP, &[]),
            rep(OPT_STRUCTURED_REPLY, REP_ERR_UNSUP, &[]),
            rep(OPT_GO, REP_INFO, &info_blocks(sizes)),
        ]);
        let error = negotiated.unwrap_err();
        assert_eq!(error.kind, HandshakeErrorKind::Protocol, "{error}");
    }
}

#[test]
fn servers_without_go_are_asked_by_name() {
    for (flags, zeroes) in [(1, 124), (3, 0)] {
        let told = [&5000_u64.to_be_bytes()[..], &[0, 5], &vec![0; zeroes]].concat();
        let negotiated = follow(&[
            greeting(flags),
            rep(OPT_EXTENDED_HEADERS, REP_ERR_UNSUP, b"what?"),
            rep(OPT_STRUCTURED_REPLY, REP_ERR_UNSUP, &[]),
            rep(OPT_GO, REP_ERR_UNSUP, &[]),
            told,
        ]);
        let negotiated = negotiated.unwrap().unwrap();
        assert_eq!((negotiated.size, negotiated.flags), (5000, 5));
        assert_eq!(
            (negotiated.form, negotiated.blocks),
            (Form::Simple, BlockSizes::DEFAULT)
        );
    }
}

#[test]
fn hostile_handshakes_end_with_words() {
    let begun = || vec![greeting(3), rep(OPT_EXTENDED_HEADERS, REP_ACK, &[])];
    let with = |more: Vec<Vec<u8>>| [begun(), more].concat();
    let many = vec![rep(OPT_GO, REP_INFO, &[0, 99]); 65];
    let mut huge = rep(OPT_GO, REP_INFO, &[]);
    huge[16..].copy_from_slice(&u32::MAX.to_be_bytes());
    for (messages, word) in [
        (vec![b"HTTP/1.1 400 Bad".to_vec()], "no NBD server"),
        (
            vec![b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0".to_vec()],
            "newstyle",
        ),
        (vec![greeting(2)], "newstyle"),
        (with(vec![rep(OPT_GO, REP_ACK, &[])]), "how large"),
        (with(vec![rep(OPT_LIST, REP_ACK, &[])]), "not asked"),
        (with(vec![rep(OPT_GO, REP_SERVER, &[])]), "0x2"),
        (with(vec![rep(OPT_GO, REP_INFO, &[0])]), "wrongly"),
        (with(vec![rep(OPT_GO, REP_INFO, &[0, 0, 1])]), "wrongly"),
        (
            with(vec![rep(OPT_GO, REP_INFO, &info_blocks([3, 512, 512]))]),
            "impossible",
        ),
        (
            with(vec![rep(OPT_GO, REP_INFO, &info_blocks([1 << 17; 3]))]),
            "impossible",
        ),
        (
            with(vec![rep(OPT_GO, REP_INFO, &info_blocks([512, 512, 0]))]),
            "impossible",
        ),
        (with(vec![rep(OPT_GO, REP_ERR_TLS_REQD, &[])]), "TLS"),
        (
            with(vec![b"garbage garbage!!!!!".to_vec()]),
            "something else",
        ),
        (with(vec![huge]), "4294967295"),
        (with(many), "does not stop"),
    ] {
        let error = follow(&messages).unwrap_err();
        assert!(error.message.contains(word), "{error} lacks {word}");
    }
    let text = [b"\x1b[31m\r\nred".as_slice(), &[b'x'; 5000]].concat();
    let error = follow(&with(vec![rep(OPT_GO, REP_ERR_POLICY, &text)])).unwrap_err();
    assert_eq!(error.kind, HandshakeErrorKind::Policy);
    assert!(error.message.len() < 300 && !error.message.contains(char::is_control));
}

proptest! {
    #[test]
    fn any_handshake_ends_or_waits(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for tls in [false, true] {
            let mut client = Handshake::new("x", tls);
            let input = [greeting(3), bytes.clone()].concat();
            let mut start = 0;
            while let Ok((used, Step::Continue)) = client.step(&input[start..]) {
                start += used;
                if used == 0 {
                    break;
                }
            }
        }
    }
}

/// Whoever is in between can answer as it likes: no other word is said in the clear.
#[test]
fn without_tls_nothing_is_said_where_it_is_wanted() {
    for kind in [
        REP_ERR_UNSUP,
        REP_ERR_POLICY,
        REP_ERR_INVALID,
        REP_ERR_TLS_REQD,
        REP_ERR_SHUTDOWN,
    ] {
        let mut client = Handshake::new("secret name", true);
        let (used, step) = client.step(&greeting(3)).unwrap();
        assert_eq!((used, step), (GREETING, Step::Continue));
        let said = client.take_output();
        assert_eq!(be32(&said, 12), OPT_STARTTLS);
        assert_eq!(said.len(), 4 + 16);
        let error = client.step(&rep(OPT_STARTTLS, kind, b"no")).unwrap_err();
        assert_eq!(error.kind, HandshakeErrorKind::NoTls);
        assert!(error.message.contains("refuses TLS"), "{error}");
        assert!(client.take_output().is_empty());
    }
    let required = follow(&[
        greeting(3),
        rep(OPT_EXTENDED_HEADERS, REP_ERR_TLS_REQD, b""),
    ]);
    let error = required.unwrap_err();
    assert_eq!(error.kind, HandshakeErrorKind::TlsRequired);
    assert!(error.message.contains("wants TLS"), "{error}");
}
