//! What a caller can choose.

use std::time::Duration;

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Plaintext in, ciphertext out.
    Encrypt,
    /// Ciphertext in, plaintext out.
    Decrypt,
}

/// Who encrypts tweaks where the engine does not count them itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Tweaks {
    /// The engine's ECB, by requests before those for the data.
    #[default]
    Engine,
    /// The CPU.
    Cpu,
}

/// How long requests are where the engine does ECB only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RequestSize {
    /// 512 bytes, as drivers were before runs.
    Bytes512,
    /// 4096 bytes, *extended requests*.
    Bytes4096,
    /// Whole runs, up to the engine's limit.
    #[default]
    Run,
}

/// How the work is shared between engine and CPU. The bytes are the same in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The engine takes runs of sectors and counts their tweaks (level 3).
    Runs,
    /// The engine takes one sector of at most [`Facts::xts_bytes`](crate::Facts::xts_bytes) at a time, with its tweak encrypted
    /// (level 2). XTS only.
    Units(Tweaks),
    /// The engine does ECB, the CPU both exclusive-ors (level 1). XTS only.
    Mixed(Tweaks, RequestSize),
}

/// What happens to a request that the engine has failed, or that comes when it is out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// It ends with an error.
    #[default]
    Fail,
    /// The CPU carries it out, with a warning in the log.
    Cpu,
}

/// How the driver learns of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Wait {
    /// The device interrupts.
    #[default]
    Interrupts,
    /// The driver looks, with this time between two looks (a microsecond at least), as long as requests are under way.
    Polling(Duration),
}

/// How an engine is driven.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of memory for data that the device sees: rounded up to pages, at least 64 KiB, at most 1 GiB. A request
    /// that is longer than half of it is cut, and so is one beyond the device's limit. 4 MiB unless said otherwise.
    pub memory: usize,
    /// Entries of each ring, rounded up to a power of two and down to what the device has. 256 unless said otherwise.
    pub ring_entries: usize,
    /// Rings at most.
    pub rings: usize,
    /// How completions are noticed.
    pub wait: Wait,
    /// Completions until one interrupts; 0 and 1: each does.
    pub coalesce: u8,
    /// Microseconds after which it does in any case; 0 with `coalesce` of 0 or 1 only (it is made 1 otherwise).
    pub coalesce_us: u16,
    /// Time without a completion, while requests are under way, after which the device is reset. 10 seconds unless said
    /// otherwise.
    pub watchdog: Duration,
    /// What happens to requests that the engine did not carry out.
    pub on_failure: OnFailure,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory: 4 << 20,
            ring_entries: 256,
            rings: 8,
            wait: Wait::Interrupts,
            coalesce: 0,
            coalesce_us: 0,
            watchdog: Duration::from_secs(10),
            on_failure: OnFailure::Fail,
        }
    }
}
