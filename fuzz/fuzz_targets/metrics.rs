//! The request of a scraper, as it comes: whatever it is, there is an answer to it after 8 KiB
//! at most, and one that there is does not change with what follows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xtent_export::metrics::{Answer, answer};

const LONGEST: usize = 8 << 10;

fuzz_target!(|input: (bool, Vec<u8>)| {
    // Half of them begin as a request does, which is hard to guess.
    let (begins, rest) = input;
    let mut request = if begins {
        b"GET /metrics HTTP/1.1\r\n".to_vec()
    } else {
        Vec::new()
    };
    request.extend(rest);
    let all = answer(&request);
    assert!(all != Answer::Incomplete || request.len() < LONGEST);
    // As it comes in parts: the first answer is the last.
    for end in 0..request.len() {
        let part = answer(&request[..end]);
        if part != Answer::Incomplete {
            assert_eq!(
                part,
                answer(&request[..end.next_multiple_of(1024).min(request.len())])
            );
            break;
        }
    }
});
