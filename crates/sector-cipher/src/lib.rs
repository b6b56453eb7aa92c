//! Disk sector ciphers over *runs*: any number of consecutive sectors in one
//! call, so that the back-end can fill the CPU's AES pipelines across sector
//! boundaries. The bytes are those of dm-crypt, sector by sector.
#![no_std]

mod backend;
mod cipher;
mod portable;
mod run;
mod spec;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use backend::{Backend, UnknownBackend};
pub use cipher::{Cipher, Segment};
pub use spec::{CipherSpec, IvMode, Mode, SectorCount, SectorSize, UnknownCipher, WrongKeyLength};
