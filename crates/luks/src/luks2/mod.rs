//! LUKS2 (on-disk format specification, version 1.1): two copies of a header,
//! each a binary part with a checksum and a JSON text, and an area of
//! keyslots.
//!
//! | module | what |
//! |---|---|
//! | `binary` | the binary part and the checksum of a copy |
//! | `document` | the JSON text, edited without touching what is not understood |
//! | `model`, `validate` | typed views of it, and whether they fit each other |
//! | `read`, `write` | choosing the good copy; replacing both safely |
//! | `areas`, `keyslot`, `digest` | room for key material; making and opening it; telling a right key |
//! | `unlock`, `edit`, `remove`, `format`, `restore` | the operations |
//! | `token`, `config`, `resize` | what else can be changed |
//! | `opener` | tokens as ways to open the volume |
//! | `dump` | what there is, for people and programs |

pub(crate) mod areas;
pub(crate) mod binary;
mod config;
mod digest;
pub(crate) mod document;
mod dump;
mod edit;
mod format;
mod keyslot;
pub(crate) mod model;
mod opener;
pub(crate) mod read;
mod remove;
mod resize;
mod restore;
mod segment;
mod signature;
pub(crate) mod token;
mod unlock;
pub(crate) mod validate;
pub(crate) mod write;

#[cfg(test)]
mod tests;

pub(crate) use config::configure;
pub use dump::{DigestDump, Dump, KdfDump, KeyslotDump, Luks2KeyslotDump, SegmentDump, TokenDump};
pub(crate) use edit::{
    add_key, add_unbound_key, change_key, overwritten_by_repair, read_shared, repair,
};
pub(crate) use format::{default_data_offset, format, header_size, wipe_copies};
pub(crate) use read::{Header, read_present};
pub(crate) use remove::{erase, kill_slot, remove_key};
pub(crate) use resize::resize;
pub(crate) use restore::{Plan, backup, is_detached, plan_restore};
pub(crate) use unlock::{is_volume_key, unlock, unlock_any};
