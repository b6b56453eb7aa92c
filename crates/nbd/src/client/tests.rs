//! Replies as servers give them, and as none may.

use proptest::prelude::*;

use super::*;
use crate::constants::*;
use crate::{Head, NbdError, Request};

const READ: Request = Request {
    flags: 0,
    kind: CMD_READ,
    cookie: 7,
    offset: 4096,
    length: 1024,
};

fn parsed(form: Form, bytes: &[u8]) -> Result<Reply, Violation> {
    for cut in 0..bytes.len() {
        assert_eq!(parse_reply(form, &bytes[..cut])?, None);
    }
    let (used, reply) = parse_reply(form, bytes)?.unwrap();
    assert_eq!(used, bytes.len());
    Ok(reply)
}

fn chunk(kind: u16, done: u16, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap();
    let head = Head::empty()
        .put(&STRUCTURED_REPLY_MAGIC.to_be_bytes())
        .put(&done.to_be_bytes())
        .put(&kind.to_be_bytes())
        .put(&7_u64.to_be_bytes())
        .put(&len.to_be_bytes());
    [head.as_bytes(), payload].concat()
}

fn hole(offset: u64, len: u32, done: u16) -> Vec<u8> {
    let payload = [&offset.to_be_bytes()[..], &len.to_be_bytes()].concat();
    chunk(REPLY_TYPE_OFFSET_HOLE, done, &payload)
}

#[test]
fn request_heads_have_the_documented_layout() {
    let head = request_head(Form::Structured, &READ);
    assert_eq!(
        Request::parse(head.as_bytes().try_into().unwrap()),
        Ok(READ)
    );
    let write = Request {
        kind: CMD_WRITE,
        flags: CMD_FLAG_FUA,
        ..READ
    };
    let head = request_head(Form::Extended, &write);
    let bytes = head.as_bytes();
    assert_eq!(bytes.len(), 32);
    assert_eq!(bytes[..8], [0x21, 0xe4, 0x1c, 0x71, 0, 0x21, 0, 1]);
    assert_eq!(
        (crate::be64(bytes, 16), crate::be64(bytes, 24)),
        (4096, 1024)
    );
}

#[test]
fn a_read_may_be_answered_in_any_order() {
    let mut answer = Answer::to(&READ);
    let mut take =
        |bytes: &[u8]| answer.take(Form::Structured, parsed(Form::Structured, bytes).unwrap());
    let data = |offset, len| crate::offset_data(7, offset, len, false);
    assert_eq!(
        take(data(4096 + 512, 256).as_bytes()),
        Ok(Fill::Data(512..768))
    );
    assert_eq!(take(&hole(4096, 512, 0)), Ok(Fill::Zeros(0..512)));
    assert_eq!(
        take(data(4096 + 768, 256).as_bytes()),
        Ok(Fill::Data(768..1024))
    );
    assert_eq!(take(crate::no_data_reply(7).as_bytes()), Ok(Fill::Nothing));
    assert_eq!(answer.result(), Some(Ok(())));
    let again = parsed(Form::Structured, &hole(4096, 1, 1)).unwrap();
    assert!(answer.take(Form::Structured, again).is_err());
}

#[test]
fn errors_are_told_with_the_servers_words() {
    let bytes = crate::error_at(7, NbdError::Io, 4100, "bad\nsector", true);
    let mut answer = Answer::to(&READ);
    let reply = parsed(Form::Structured, bytes.as_bytes()).unwrap();
    assert_eq!(answer.take(Form::Structured, reply), Ok(Fill::Nothing));
    let failure = answer.result().unwrap().unwrap_err();
    assert_eq!((failure.error, &*failure.message), (5, "bad sector"));
    // A type that is not known is an error all the same.
    let mut answer = Answer::to(&READ);
    let bytes = chunk((1 << 15) | 99, 1, &[0, 0, 0, 28, 0, 0, 1, 2, 3]);
    let reply = parsed(Form::Structured, &bytes).unwrap();
    answer.take(Form::Structured, reply).unwrap();
    assert_eq!(answer.result().unwrap().unwrap_err().error, 28);
}

/// Replies to [`READ`], or to a write of the same range, that no server may give.
#[test]
fn lies_are_seen() {
    let simple = crate::simple_reply(7, None).as_bytes().to_vec();
    let none = crate::no_data_reply(7).as_bytes().to_vec();
    let data = |offset, len, done| crate::offset_data(7, offset, len, done).as_bytes().to_vec();
    let error = |at| {
        crate::error_at(7, NbdError::Io, at, "", false)
            .as_bytes()
            .to_vec()
    };
    let reads = [
        vec![simple.clone()],
        vec![none.clone()],
        vec![data(4096, 512, true)],
        vec![data(4096, 1025, true)],
        vec![data(4095, 1024, true)],
        vec![data(u64::MAX, 5, true)],
        vec![data(4096, 512, false), data(4607, 513, true)],
        vec![data(4608, 512, false), data(4096, 1024, true)],
        vec![hole(4096, 0, 1)],
        vec![hole(4096, 2000, 1)],
        vec![data(4096, 1024, false), hole(5000, 1, 0)],
        vec![error(4095)],
        vec![error(4096 + 1024)],
        vec![error(4097); 4097],
        vec![chunk(REPLY_TYPE_NONE, 0, &[])],
        vec![chunk(REPLY_TYPE_NONE, 1, &[1])],
        vec![chunk(REPLY_TYPE_OFFSET_DATA, 1, &[0; 8])],
        vec![chunk(REPLY_TYPE_OFFSET_HOLE, 1, &[0; 13])],
        vec![chunk(REPLY_TYPE_BLOCK_STATUS, 1, &[0; 12])],
        vec![chunk(REPLY_TYPE_ERROR, 1, &[0; 6])],
        vec![chunk(REPLY_TYPE_ERROR, 1, &[0, 0, 0, 5, 0, 1])],
        vec![chunk(REPLY_TYPE_ERROR, 1, &[0; 5])],
        vec![chunk(
            REPLY_TYPE_ERROR_OFFSET,
            1,
            &[0, 0, 0, 5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        )],
        vec![vec![0; 16]],
    ];
    let is_lie = |request: &Request, replies: &[Vec<u8>]| {
        let mut answer = Answer::to(request);
        replies.iter().any(|bytes| {
            parse_reply(Form::Structured, bytes)
                .and_then(|reply| answer.take(Form::Structured, reply.unwrap().1))
                .is_err()
        })
    };
    for replies in reads {
        assert!(is_lie(&READ, &replies), "{:?}", replies[0]);
    }
    let write = Request {
        kind: CMD_WRITE,
        ..READ
    };
    for replies in [
        vec![data(4096, 1024, true)],
        vec![hole(4096, 1024, 1)],
        vec![simple.clone(), simple.clone()],
        vec![none.clone(), none],
    ] {
        assert!(is_lie(&write, &replies));
    }
    assert!(!is_lie(&write, std::slice::from_ref(&simple)));
    assert!(parse_reply(Form::Extended, &simple).is_err());
    assert!(parse_reply(Form::Simple, &data(4096, 1024, true)).is_err());
}

#[test]
fn extended_replies_repeat_the_offset() {
    let bytes = |offset: u64, len: u64| {
        [
            &EXTENDED_REPLY_MAGIC.to_be_bytes()[..],
            &[0, 1, 0, 1],
            &7_u64.to_be_bytes(),
            &offset.to_be_bytes(),
            &len.to_be_bytes(),
            &4096_u64.to_be_bytes(),
        ]
        .concat()
    };
    let take = |bytes: &[u8]| {
        Answer::to(&READ).take(Form::Extended, parsed(Form::Extended, bytes).unwrap())
    };
    assert_eq!(take(&bytes(4096, 1032)), Ok(Fill::Data(0..1024)));
    assert!(take(&bytes(0, 1032)).is_err());
    assert!(take(&bytes(4096, u64::MAX)).is_err());
}

proptest! {
    /// Whatever comes, what is to be filled lies in the buffer and comes once.
    #[test]
    fn no_byte_is_filled_twice(chunks in proptest::collection::vec((0_u64..40, 1_u32..20, any::<bool>(), any::<bool>()), 0..30)) {
        let request = Request { offset: 4, length: 32, ..READ };
        let mut answer = Answer::to(&request);
        let mut seen = [false; 32];
        for (offset, len, is_hole, done) in chunks {
            let bytes = match is_hole {
                true => hole(offset, len, done.into()),
                false => crate::offset_data(7, offset, len, done).as_bytes().to_vec(),
            };
            let reply = parsed(Form::Structured, &bytes).unwrap();
            let wanted = offset.wrapping_sub(4)..offset.wrapping_sub(4).wrapping_add(len.into());
            let fresh = offset >= 4 && wanted.end <= 32 && wanted.clone().all(|at| !seen[usize::try_from(at).unwrap()]);
            match answer.take(Form::Structured, reply) {
                Ok(Fill::Data(range) | Fill::Zeros(range)) => {
                    prop_assert!(fresh);
                    prop_assert_eq!(range.start as u64..range.end as u64, wanted);
                    seen[range].fill(true);
                }
                Ok(Fill::Nothing) => prop_assert!(false),
                Err(_) => {
                    let all = seen.iter().filter(|seen| **seen).count() + if fresh { len as usize } else { 0 };
                    prop_assert!(!fresh || done && all < 32);
                    return Ok(());
                }
            }
            if let Some(result) = answer.result() {
                prop_assert!(result.is_ok() && seen.iter().all(|seen| *seen));
                return Ok(());
            }
        }
    }

    #[test]
    fn any_bytes_are_parsed_refused_or_wait(
        bytes in proptest::collection::vec(any::<u8>(), 0..64), magic in 0_usize..3, kind in any::<u8>(),
    ) {
        let magics = [SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, EXTENDED_REPLY_MAGIC];
        let input = [&magics[magic].to_be_bytes()[..], &[0, 1, kind & 0x80, kind & 7], &bytes].concat();
        for form in [Form::Simple, Form::Structured, Form::Extended] {
            if let Ok(Some((used, _))) = parse_reply(form, &input) {
                prop_assert!(used <= input.len());
            }
        }
    }
}
