//! Disk sector ciphers over *runs*: any number of consecutive sectors in one
//! call, so that the back-end can fill the CPU's AES pipelines across sector
//! boundaries. The bytes are those of dm-crypt, sector by sector, where it has
//! the cipher; what [`Mode`] says about each is worth reading before its use.
//!
//! ```
//! use sector_cipher::{Cipher, First, SectorCount, SectorSize};
//!
//! let spec = "aes-xts-plain64".parse()?;
//! let size = SectorSize::new(4096)?;
//! let cipher = Cipher::new(spec, size, SectorCount::Units512, &[7; 64], None)?;
//! let source = vec![0; 16 * 4096];
//! let mut dest = vec![0; 16 * 4096];
//! cipher.try_encrypt_to(First::Index(1000), &source, &mut dest)?;
//! cipher.try_decrypt(First::Index(1000), &mut dest)?;
//! assert_eq!(source, dest);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Inside
//!
//! A request, of whichever form, becomes a stream of sectors (`run`), which a
//! kernel takes in batches: what comes once in a sector, such as its IV, for
//! several sectors together, and their blocks. There are two kernels per mode:
//! a portable one, and one for vectors of any width (`simd`), with one form of
//! key schedule for all back-ends that have vectors.
//!
//! # Constant time
//!
//! No branch and no address depends on a key or on data: the portable AES is
//! fixsliced, the others use the CPU's AES instructions, key expansion
//! included, and arithmetic is shifts, sums and products, of integers or without
//! carries.
#![no_std]
// Where nobody has vectors, nobody asks for what their kernels need.
#![cfg_attr(
    not(any(
        all(target_arch = "x86_64", target_feature = "sse2"),
        all(target_arch = "aarch64", target_endian = "little")
    )),
    allow(dead_code)
)]

#[macro_use]
mod here;

mod arch;
mod backend;
mod cipher;
mod error;
mod first;
mod foreign;
#[cfg(any(test, feature = "hazmat"))]
pub mod hazmat;
mod portable;
mod ports;
mod row;
mod run;
mod shared;
#[cfg(any(
    all(target_arch = "x86_64", target_feature = "sse2"),
    all(target_arch = "aarch64", target_endian = "little")
))]
mod simd;
mod spec;
#[cfg(test)]
mod vectors;

pub use backend::{Backend, UnknownBackend};
pub use cipher::{Cipher, Run};
pub use error::{NewError, RunError};
pub use first::First;
pub use foreign::Foreign;
pub use ports::{Ports, PortsSource};
pub use spec::{
    CipherSpec, IvMode, Mode, SectorCount, SectorSize, UnknownCipher, WrongKeyLength,
    WrongSectorSize,
};

/// The README's example, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
