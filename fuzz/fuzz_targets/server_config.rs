//! Whatever a configuration file says, it is volumes under names of their own, or an error of
//! one line about a line that there is.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use xtent_server_config::Config;

fuzz_target!(|text: &str| {
    check(text);
    // Most inputs are no file of ours: as what is in a table of one.
    check(&format!("[volume.a]\ndevice = \"x\"\n{text}"));
    check(&format!("[server]\n{text}"));
});

fn check(text: &str) {
    match Config::parse(text) {
        Ok(config) => {
            let names: BTreeSet<&str> = config.exports().map(|(name, _)| name).collect();
            assert_eq!(names.len(), config.volumes.len());
            assert!(names.iter().all(|name| !name.contains(char::is_control)));
            for volume in config.volumes.values() {
                assert!(!volume.device.is_empty());
                assert!(volume.key_file.is_none() || volume.key_command.is_none());
            }
        }
        Err(error) => {
            let lines = text.split('\n').count();
            assert!(
                error
                    .line
                    .is_none_or(|line| (1..=lines + 1).contains(&line))
            );
        }
    }
}
