//! Any bytes as a LUKS1 device: everything that reads must end in a value or
//! an error.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use xtent_luks::Device;
use xtent_store::Store;
use xtent_store::testing::MemStore;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    // The magic and the version cost the fuzzer nothing to find; the length
    // that a header asks for would.
    if let Some(start) = bytes.get_mut(..8) {
        start.copy_from_slice(b"LUKS\xba\xbe\0\x01");
        bytes.resize(bytes.len().max(3 << 20), 0);
    }
    let store = Arc::new(MemStore::from(bytes));
    let device = Device::without_locks(store.clone());
    if let Ok(header) = device.read() {
        let _ = header.segment(store.size());
        let _ = header.dump().to_string();
        let _ = header.keyslots();
    }
    assert_eq!(store.writes(), 0, "reading has written");
});
