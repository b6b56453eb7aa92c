//! Whatever comes in at a control socket is a request that can be carried out, or is refused;
//! and what is sent is what comes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xtent_control::{MAX_KEY, MAX_MESSAGE, MOST_FILES, Reply, Request, Role, Source, export_name};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::parse(bytes) {
        check(&request);
        // One that is too long cannot be sent, and so has not come from us.
        if let Ok(sent) = request.to_bytes() {
            assert!(sent.len() <= MAX_MESSAGE);
            assert_eq!(Request::parse(&sent).expect("our own"), request);
        }
    }
    if let Ok(reply) = Reply::parse(bytes)
        && let Ok(sent) = reply.to_bytes()
    {
        assert_eq!(Reply::parse(&sent).expect("our own"), reply);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert!(!export_name(text).contains('/'));
    }
});

fn check(request: &Request) {
    let plain = |text: &str| !text.contains(char::is_control) && text.len() <= 4096;
    match request {
        Request::Status | Request::Takeover => {}
        Request::Detach { name } | Request::Resize { name, .. } => assert!(plain(name)),
        Request::Attach(attach) => {
            assert!(plain(&attach.name) && plain(&attach.device) && plain(&attach.cipher));
            assert!(attach.files.len() <= MOST_FILES);
            assert!((1..=MAX_KEY).contains(&attach.key_length));
            let data = attach.files.iter().filter(|it| **it == Role::Data).count();
            let is_file = matches!(attach.source, Source::File { .. });
            assert_eq!(data, usize::from(is_file));
        }
    }
}
