//! Names of images in Ceph clusters: one that is understood means the same when it is shown, has no
//! key in it, and is the same image without its options.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xtent_rbd::Name;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(name) = text.parse::<Name>() else {
        return;
    };
    assert!(Name::looks_like(text));
    let shown = name.to_string();
    assert_eq!(shown.parse::<Name>().as_ref(), Ok(&name), "{shown}");
    assert!(!shown.contains(":key="), "{shown}");
    let bare = name.bare();
    assert!(bare.is_same_image(&name));
    assert_eq!(bare.is_snapshot(), name.is_snapshot());
    assert_eq!(bare.to_string().parse(), Ok(bare));
});
