//! What a header can be told besides keys: tokens, labels, flags.

/// A token: how some program gets at the passphrase of a keyslot. LUKS2 only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its number, 0 to 31.
    pub id: u32,
    /// Its type, `systemd-tpm2` or another one.
    pub kind: String,
    /// The keyslots that it is for.
    pub keyslots: Vec<u32>,
    /// The whole token as it is stored, a JSON object, type and keyslots
    /// included.
    pub json: String,
}

/// LUKS2's persistent flags by cryptsetup's names: how a volume wants to be
/// activated.
pub const PERSISTENT_FLAGS: [&str; 6] = [
    "allow-discards",
    "same-cpu-crypt",
    "submit-from-crypt-cpus",
    "no-read-workqueue",
    "no-write-workqueue",
    "high-priority",
];

/// What [`Device::configure`](crate::Device::configure) changes; what is
/// `None` or empty stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The new UUID. LUKS1 can have this changed, and nothing else.
    pub uuid: Option<String>,
    /// The new label, up to 47 bytes; an empty one removes it.
    pub label: Option<String>,
    /// The new subsystem, up to 47 bytes; an empty one removes it.
    pub subsystem: Option<String>,
    /// The keyslot whose priority changes, and to what.
    pub priority: Option<(u32, crate::Priority)>,
    /// Names from [`PERSISTENT_FLAGS`] to set.
    pub set_flags: Vec<String>,
    /// Names from [`PERSISTENT_FLAGS`] to clear.
    pub clear_flags: Vec<String>,
}
