//! Pins of headers come from files and command lines. One that is taken says the same when it is
//! printed, and is taken again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xtent_luks::Pin;

fuzz_target!(|text: &str| {
    check(text);
    // Most inputs are none: as what follows a good beginning.
    let digest = "0123456789abcdef".repeat(4);
    for scope in ["volume", "metadata"] {
        check(&format!("xtent1:{scope}:sha256:{digest},{text}"));
    }
});

fn check(text: &str) {
    if let Ok(pin) = text.parse::<Pin>() {
        assert_eq!(pin.to_string(), text);
        assert_eq!(text.parse::<Pin>().ok(), Some(pin.clone()));
        let short: Pin = pin.short().parse().expect("its beginning");
        assert_eq!(short.scope(), pin.scope());
    }
}
