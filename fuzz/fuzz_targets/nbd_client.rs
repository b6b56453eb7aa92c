//! The NBD client's side of the protocol: any handshake, and after it any replies to a read and
//! a write. Whatever comes must end, wait for more or be refused; what is filled lies in the
//! request and comes once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xtent_nbd::Request;
use xtent_nbd::client::{Answer, Fill, Form, Handshake, REPLY_CAPACITY, Step, parse_reply};
use xtent_nbd::constants::{
    CMD_READ, CMD_WRITE, EXTENDED_REPLY_MAGIC, OPTION_REPLY_MAGIC, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC,
};

/// Option replies as option, kind and data; replies as form of the magic number, kind and what
/// follows; bytes that follow unframed. Magic numbers are put in here: they are hard to guess.
type Input<'a> = (Vec<(u8, u8, &'a [u8])>, Vec<(u8, u8, &'a [u8])>, &'a [u8]);

fn handshake(tls: bool, replies: &[(u8, u8, &[u8])], rest: &[u8]) {
    let mut bytes = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    for (option, kind, data) in replies {
        bytes.extend(OPTION_REPLY_MAGIC.to_be_bytes());
        bytes.extend(u32::from(*option).to_be_bytes());
        // Errors have the highest bit.
        bytes.extend([kind & 0x80, 0, 0, kind & 0x7f]);
        bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend(*data);
    }
    bytes.extend(rest);
    let mut client = Handshake::new("disk", tls);
    let mut start = 0;
    let mut is_secured = false;
    while let Ok((used, step)) = client.step(&bytes[start..]) {
        start += used;
        let output = client.take_output();
        assert!(start <= bytes.len() && output.len() < 8 << 10);
        // Not even the export's name is said in the clear.
        assert!(!tls || is_secured || !output.windows(4).any(|said| said == b"disk"));
        match step {
            Step::Done(session) => {
                assert!(!tls || is_secured);
                let blocks = session.blocks;
                assert!(blocks.minimum.is_power_of_two() && blocks.preferred >= blocks.minimum);
                assert!(blocks.maximum >= blocks.minimum && blocks.maximum % blocks.minimum == 0);
                return;
            }
            Step::StartTls => {
                assert!(tls && !is_secured);
                is_secured = true;
                client.secured();
            }
            Step::Continue if used == 0 => {
                assert!(bytes.len() - start < Handshake::input_capacity());
                return;
            }
            Step::Continue => {}
        }
    }
}

fn transmission(form: Form, replies: &[(u8, u8, &[u8])], rest: &[u8]) {
    const LEN: u32 = 4096;
    let magics = [
        SIMPLE_REPLY_MAGIC,
        STRUCTURED_REPLY_MAGIC,
        EXTENDED_REPLY_MAGIC,
    ];
    let mut bytes = Vec::new();
    for (magic, kind, data) in replies {
        bytes.extend(magics[usize::from(*magic) % 3].to_be_bytes());
        bytes.extend([0, magic >> 7, kind & 0x80, kind & 0x7f]);
        bytes.extend(*data);
    }
    bytes.extend(rest);
    let request = |kind| Request {
        flags: 0,
        kind,
        cookie: 0,
        offset: 0,
        length: LEN,
    };
    let mut answers = [
        Answer::to(&request(CMD_READ)),
        Answer::to(&request(CMD_WRITE)),
    ];
    let mut filled = vec![false; LEN as usize];
    let mut input = &bytes[..];
    loop {
        let (used, reply) = match parse_reply(form, input) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return assert!(input.len() < REPLY_CAPACITY),
            Err(_) => return,
        };
        input = &input[used..];
        let answer = &mut answers[usize::from(reply.cookie % 2 != 0)];
        match answer.take(form, reply) {
            Ok(Fill::Data(range)) => {
                input = &input[range.len().min(input.len())..];
                fill(&mut filled[range]);
            }
            Ok(Fill::Zeros(range)) => fill(&mut filled[range]),
            Ok(Fill::Nothing) => {}
            Err(_) => return,
        }
        if answers[0].result() == Some(Ok(())) {
            assert!(filled.iter().all(|filled| *filled));
        }
    }
}

fn fill(range: &mut [bool]) {
    assert!(range.iter().all(|filled| !filled));
    range.fill(true);
}

fuzz_target!(|input: Input<'_>| {
    let (options, replies, rest) = input;
    handshake(false, &options, rest);
    handshake(true, &options, rest);
    for form in [Form::Simple, Form::Structured, Form::Extended] {
        transmission(form, &replies, rest);
    }
});
