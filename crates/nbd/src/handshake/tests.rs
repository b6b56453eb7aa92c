//! What clients may ask, and hostile ones send.

use super::option_data::string32;
use super::*;
use crate::{ALLOCATION_CONTEXT_ID, MAX_PAYLOAD, be16};
use proptest::prelude::*;

fn exports() -> Vec<ExportInfo> {
    let export = ExportInfo {
        name: String::new(),
        description: "first".into(),
        size: 1 << 20,
        read_only: false,
        minimum_block: 4096,
        allowed: Vec::new(),
    };
    vec![
        export.clone(),
        ExportInfo {
            name: "ro".into(),
            size: 512,
            read_only: true,
            minimum_block: 512,
            ..export
        },
    ]
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::from(OPTION_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(length32(data.len()).to_be_bytes());
    out.extend(data);
    out
}

fn info_data(name: &str, requests: &[u16]) -> Vec<u8> {
    let mut data = string32(name);
    data.extend(u16::try_from(requests.len()).unwrap().to_be_bytes());
    data.extend(requests.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string32(name);
    data.extend(length32(queries.len()).to_be_bytes());
    data.extend(queries.iter().flat_map(|query| string32(query)));
    data
}

/// Replies as (option, type, data).
fn replies(mut bytes: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(be64(bytes, 0), OPTION_REPLY_MAGIC);
        let end = 20 + be32(bytes, 16) as usize;
        out.push((be32(bytes, 8), be32(bytes, 12), bytes[20..end].to_vec()));
        bytes = &bytes[end..];
    }
    out
}

fn begun(exports: &[ExportInfo]) -> Handshake {
    let mut handshake = Handshake::new(exports, Tls::Off);
    let greeting = handshake.take_output();
    assert_eq!(greeting, b"NBDMAGICIHAVEOPT\0\x03");
    let flags = FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES;
    assert_eq!(
        handshake.step(&flags.to_be_bytes()),
        (4, Progress::Continue)
    );
    handshake
}

fn ask(handshake: &mut Handshake, kind: u32, data: &[u8]) -> (Progress, Vec<(u32, u32, Vec<u8>)>) {
    let message = option(kind, data);
    for cut in 0..message.len() {
        assert_eq!(handshake.step(&message[..cut]), (0, Progress::Continue));
    }
    let (used, progress) = handshake.step(&message);
    assert_eq!(used, message.len());
    let replies = replies(&handshake.take_output());
    assert!(replies.iter().all(|reply| reply.0 == kind));
    (progress, replies)
}

fn kinds(replies: &[(u32, u32, Vec<u8>)]) -> Vec<u32> {
    replies.iter().map(|reply| reply.1).collect()
}

#[test]
fn go_tells_what_was_asked() {
    let exports = exports();
    let mut handshake = begun(&exports);
    let data = info_data("", &[INFO_NAME, INFO_BLOCK_SIZE, INFO_DESCRIPTION, 99]);
    let (progress, replies) = ask(&mut handshake, OPT_INFO, &data);
    assert_eq!(progress, Progress::Continue);
    assert_eq!(
        kinds(&replies),
        [REP_INFO, REP_INFO, REP_INFO, REP_INFO, REP_ACK]
    );
    let export = &replies[0].2;
    assert_eq!((be16(export, 0), be64(export, 2)), (INFO_EXPORT, 1 << 20));
    let block = &replies[3].2;
    assert_eq!(
        (be32(block, 2), be32(block, 6), be32(block, 10)),
        (4096, 4096, MAX_PAYLOAD)
    );

    let (progress, replies) = ask(&mut handshake, OPT_GO, &info_data("ro", &[]));
    assert_eq!(kinds(&replies), [REP_INFO, REP_ACK]);
    let flags = be16(&replies[0].2, 10);
    assert_eq!(
        flags & (FLAG_READ_ONLY | FLAG_SEND_TRIM | FLAG_SEND_DF),
        FLAG_READ_ONLY
    );
    let Progress::Transmission(session) = progress else {
        panic!("{progress:?}")
    };
    assert_eq!(
        (session.export, session.size, session.read_only),
        (1, 512, true)
    );
}

#[test]
fn unknown_exports_and_options_leave_the_handshake_alive() {
    let exports = exports();
    let mut handshake = begun(&exports);
    for (kind, data, expected) in [
        (OPT_GO, info_data("nope", &[]), REP_ERR_UNKNOWN),
        (OPT_GO, vec![0, 0, 0, 9], REP_ERR_INVALID),
        (
            OPT_GO,
            [info_data("", &[3]), vec![1]].concat(),
            REP_ERR_INVALID,
        ),
        (OPT_LIST, vec![1], REP_ERR_INVALID),
        (OPT_STRUCTURED_REPLY, vec![1], REP_ERR_INVALID),
        (OPT_STARTTLS, vec![], REP_ERR_UNSUP),
        (OPT_EXTENDED_HEADERS, vec![], REP_ERR_UNSUP),
        (4, vec![], REP_ERR_UNSUP),
        (12345, vec![1, 2, 3], REP_ERR_UNSUP),
        (
            OPT_SET_META_CONTEXT,
            context_data("", &["base:allocation"]),
            REP_ERR_INVALID,
        ),
        (
            OPT_INFO,
            string32(&"x".repeat(MAX_STRING + 1)),
            REP_ERR_INVALID,
        ),
    ] {
        let (progress, replies) = ask(&mut handshake, kind, &data);
        assert_eq!(
            (progress, kinds(&replies)),
            (Progress::Continue, vec![expected])
        );
    }
    let (_, replies) = ask(&mut handshake, OPT_LIST, &[]);
    assert_eq!(kinds(&replies), [REP_SERVER, REP_SERVER, REP_ACK]);
    assert_eq!(replies[1].2, b"\0\0\0\x02rofirst");
}

#[test]
fn export_name_enters_transmission_or_closes() {
    let exports = exports();
    let mut handshake = Handshake::new(&exports, Tls::Off);
    handshake.take_output();
    handshake.step(&FLAG_C_FIXED_NEWSTYLE.to_be_bytes());
    let (_, progress) = handshake.step(&option(OPT_EXPORT_NAME, b""));
    assert!(matches!(progress, Progress::Transmission(_)));
    assert_eq!(handshake.take_output().len(), 8 + 2 + 124);

    let mut handshake = begun(&exports);
    let (_, progress) = handshake.step(&option(OPT_EXPORT_NAME, b"x"));
    assert!(matches!(progress, Progress::Close(_)));
    let mut handshake = begun(&exports);
    handshake.step(&option(OPT_EXPORT_NAME, b"ro"));
    assert_eq!(handshake.take_output().len(), 8 + 2);
}

#[test]
fn metadata_contexts_count_for_their_export() {
    let exports = exports();
    let mut handshake = begun(&exports);
    ask(&mut handshake, OPT_STRUCTURED_REPLY, &[]);
    for (queries, found) in [(&[][..], true), (&["base:"], true), (&["x-y:z"], false)] {
        let (_, replies) = ask(
            &mut handshake,
            OPT_LIST_META_CONTEXT,
            &context_data("", queries),
        );
        assert_eq!(replies.len(), if found { 2 } else { 1 });
    }
    for bad in [&["base"][..], &[""]] {
        let (_, replies) = ask(&mut handshake, OPT_SET_META_CONTEXT, &context_data("", bad));
        assert_eq!(kinds(&replies), [REP_ERR_INVALID]);
    }
    let set = context_data("", &["qemu:dirty-bitmap:x", "base:allocation"]);
    let (_, replies) = ask(&mut handshake, OPT_SET_META_CONTEXT, &set);
    assert_eq!(kinds(&replies), [REP_META_CONTEXT, REP_ACK]);
    assert_eq!(be32(&replies[0].2, 0), ALLOCATION_CONTEXT_ID);
    assert!(!handshake.session(1).allocation_context);
    assert!(handshake.session(0).allocation_context);
    ask(&mut handshake, OPT_SET_META_CONTEXT, &context_data("", &[]));
    assert!(!handshake.session(0).allocation_context);
}

#[test]
fn hostile_input_closes() {
    let exports = exports();
    let mut handshake = Handshake::new(&exports, Tls::Off);
    assert!(matches!(
        handshake.step(&[0, 0, 0, 4]).1,
        Progress::Close(_)
    ));
    let mut handshake = begun(&exports);
    assert!(matches!(handshake.step(b"IHAVEOPS").1, Progress::Close(_)));
    let mut handshake = begun(&exports);
    let huge = [
        &OPTION_MAGIC.to_be_bytes()[..],
        &[0, 0, 0, 3, 255, 255, 255, 255],
    ]
    .concat();
    assert!(matches!(handshake.step(&huge).1, Progress::Close(_)));
    let mut handshake = begun(&exports);
    let closes = (0..=MAX_OPTIONS)
        .find(|_| matches!(handshake.step(&option(OPT_LIST, &[])).1, Progress::Close(_)));
    assert_eq!(closes, Some(MAX_OPTIONS));
}

#[test]
fn oversized_options_are_skipped() {
    let exports = exports();
    let mut handshake = begun(&exports);
    let message = option(OPT_INFO, &vec![0; MAX_OPTION as usize + 1]);
    let (mut at, mut progress) = (0, Progress::Continue);
    while at < message.len() && progress == Progress::Continue {
        let (used, next) = handshake.step(&message[at..message.len().min(at + 1000)]);
        (at, progress) = (at + used, next);
    }
    assert_eq!((at, progress), (message.len(), Progress::Continue));
    assert_eq!(kinds(&replies(&handshake.take_output())), [REP_ERR_TOO_BIG]);
    let (_, replies) = ask(&mut handshake, OPT_LIST, &[]);
    assert_eq!(replies.len(), 3);
}

#[test]
fn a_server_that_stops_says_so() {
    let exports = exports();
    let mut handshake = begun(&exports);
    handshake.shut_down();
    let (_, replies) = ask(&mut handshake, OPT_GO, &info_data("", &[]));
    assert_eq!(kinds(&replies), [REP_ERR_SHUTDOWN]);
    let (progress, replies) = ask(&mut handshake, OPT_ABORT, &[]);
    assert!(matches!(progress, Progress::Close(_)));
    assert_eq!(kinds(&replies), [REP_ACK]);
}

/// The handshake of a client of TLS up to where that begins.
fn begun_with(exports: &[ExportInfo], tls: Tls) -> Handshake {
    Handshake {
        tls,
        ..begun(exports)
    }
}

#[test]
fn nothing_is_answered_before_tls_where_it_is_required() {
    let exports = exports();
    for option in
        (0..=12).filter(|&option| ![OPT_EXPORT_NAME, OPT_ABORT, OPT_STARTTLS].contains(&option))
    {
        let mut handshake = begun_with(&exports, Tls::Required);
        let (progress, replies) = ask(&mut handshake, option, &info_data("ro", &[]));
        assert_eq!(
            (progress, kinds(&replies)),
            (Progress::Continue, vec![REP_ERR_TLS_REQD]),
            "{option}"
        );
    }
    let mut handshake = begun_with(&exports, Tls::Required);
    let (_, progress) = handshake.step(&option(OPT_EXPORT_NAME, b"ro"));
    assert!(matches!(progress, Progress::Close(_)), "{progress:?}");
    assert!(handshake.take_output().is_empty());
    let mut handshake = begun_with(&exports, Tls::Required);
    let (progress, replies) = ask(&mut handshake, OPT_ABORT, &[]);
    assert!(matches!(progress, Progress::Close(_)));
    assert_eq!(kinds(&replies), [REP_ACK]);
}

#[test]
fn tls_begins_once_and_forgets_what_was_before() {
    let exports = exports();
    let mut handshake = begun_with(&exports, Tls::Allowed);
    ask(&mut handshake, OPT_STRUCTURED_REPLY, &[]);
    ask(
        &mut handshake,
        OPT_SET_META_CONTEXT,
        &context_data("ro", &["base:allocation"]),
    );
    assert!(handshake.session(1).structured_replies && handshake.session(1).allocation_context);
    let (progress, replies) = ask(&mut handshake, OPT_STARTTLS, &[1]);
    assert_eq!(
        (progress, kinds(&replies)),
        (Progress::Continue, vec![REP_ERR_INVALID])
    );
    let (progress, replies) = ask(&mut handshake, OPT_STARTTLS, &[]);
    assert_eq!(
        (progress, kinds(&replies)),
        (Progress::StartTls, vec![REP_ACK])
    );
    handshake.secured(Vec::new());
    let session = handshake.session(1);
    assert!(!session.structured_replies && !session.allocation_context);
    let (progress, replies) = ask(&mut handshake, OPT_STARTTLS, &[]);
    assert_eq!(
        (progress, kinds(&replies)),
        (Progress::Continue, vec![REP_ERR_INVALID])
    );
    let (progress, _) = ask(&mut handshake, OPT_GO, &info_data("ro", &[]));
    assert!(matches!(progress, Progress::Transmission(_)));
}

#[test]
fn an_export_that_one_may_not_open_does_not_exist() {
    let mut exports = exports();
    exports[1].allowed = vec!["alice".into(), "spiffe://x/bob".into()];
    for (names, may) in [
        (None, false),
        (Some(vec![]), false),
        (Some(vec!["alic"]), false),
        (Some(vec!["Alice"]), false),
        (Some(vec!["mallory", "alice"]), true),
        (Some(vec!["spiffe://x/bob"]), true),
    ] {
        let begun = || {
            let mut handshake = begun_with(&exports, Tls::Allowed);
            if let Some(names) = &names {
                ask(&mut handshake, OPT_STARTTLS, &[]);
                handshake.secured(names.iter().map(|&name| name.to_owned()).collect());
            }
            handshake
        };
        let mut handshake = begun();
        let (_, replies) = ask(&mut handshake, OPT_LIST, &[]);
        assert_eq!(replies.len(), if may { 3 } else { 2 }, "{names:?}");
        ask(&mut handshake, OPT_STRUCTURED_REPLY, &[]);
        for (option, data) in [
            (OPT_INFO, info_data("ro", &[])),
            (OPT_LIST_META_CONTEXT, context_data("ro", &[])),
            (OPT_SET_META_CONTEXT, context_data("ro", &[])),
            (OPT_GO, info_data("ro", &[])),
        ] {
            let (progress, replies) = ask(&mut handshake, option, &data);
            let refused = kinds(&replies) == [REP_ERR_UNKNOWN];
            assert_eq!(refused, !may, "{names:?} {option} {progress:?}");
        }
        let (_, progress) = begun().step(&option(OPT_EXPORT_NAME, b"ro"));
        assert_eq!(
            matches!(progress, Progress::Transmission(_)),
            may,
            "{names:?}"
        );
        // The other is anybody's.
        let (progress, _) = ask(&mut begun(), OPT_GO, &info_data("", &[]));
        assert!(matches!(progress, Progress::Transmission(_)));
    }
}

fn some_option() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..64),
        Just(info_data("ro", &[INFO_BLOCK_SIZE])),
        Just(context_data("", &["base:allocation"])),
    ];
    (0_u32..14, data).prop_map(|(kind, data)| option(kind, &data))
}

/// Runs a handshake over `bytes`, handing over at most `at_a_time` new
/// bytes before each step.
fn run(exports: &[ExportInfo], bytes: &[u8], at_a_time: usize) -> (usize, Progress, Vec<u8>) {
    let mut handshake = Handshake::new(exports, Tls::Off);
    let (mut start, mut end) = (0, 0);
    let mut output = Vec::new();
    loop {
        let (used, progress) = handshake.step(&bytes[start..end]);
        output.extend(handshake.take_output());
        start += used;
        if progress != Progress::Continue || (used == 0 && end == bytes.len()) {
            return (start, progress, output);
        }
        if used == 0 {
            end = bytes.len().min(end.saturating_add(at_a_time));
        }
    }
}

proptest! {
    #[test]
    fn how_bytes_arrive_makes_no_difference(
        options in proptest::collection::vec(some_option(), 0..8), at_a_time in 1_usize..40,
    ) {
        let exports = exports();
        let bytes = [&[0, 0, 0, 3][..], &options.concat()].concat();
        prop_assert_eq!(run(&exports, &bytes, at_a_time), run(&exports, &bytes, usize::MAX >> 1));
    }

    #[test]
    fn any_bytes_end_or_wait(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        run(&exports(), &bytes, 7);
    }
}
