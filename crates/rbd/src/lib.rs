//! Ciphertext in a Ceph cluster: [`Image`] is a store that is an RBD image.
//!
//! librbd and librados are opened at run time, so a program that uses this crate needs neither
//! until it opens an image. Operations are librbd's asynchronous ones, on the memory that they own:
//! nothing is copied on the way of a write but by the network, and any number is under way.
//!
//! # Who writes
//!
//! An image that is opened for writing has the feature `exclusive-lock`, and its lock is taken for
//! as long as the image is open. While somebody has it whose client is there, opening is
//! refused with [`ErrorKind::Busy`](xtent_store::ErrorKind::Busy) and their address. The lock is
//! what the cluster itself looks at: librbd asks for it before every write, and a client from which it
//! was taken by force is on the cluster's blocklist.
//! Reading takes no lock and is never refused.
//!
//! An image whose lock is lost fails every operation with
//! [`ErrorKind::Fenced`](xtent_store::ErrorKind::Fenced) from then on, reads included, whatever
//! becomes of the lock later, and those that are under way at once: librbd may never end them. Until it
//! does, their memory is its own, and so is the image, which is closed by a thread that nobody waits
//! for. One that has nothing to do looks every ten seconds. [`Image::take_over`] is the other side of it.
//!
//! # What is durable
//!
//! librbd's cache is off, so that a write that has completed is on the disks of all copies. Image
//! and cluster can have it otherwise (`conf_rbd_cache`, a persistent cache), so a flush is always
//! a flush, and a durable write is a write with a flush behind it.
//!
//! # Clusters that are away
//!
//! What opening waits for ends after [`LONGEST_OPEN`] or what the settings say. Operations wait for as
//! long as it takes for disks to come back, as with every client of Ceph, unless `rados_osd_op_timeout`
//! is set.
//!
//! # Memory
//!
//! What the operations' owners gave it, what librbd has for each (some KiB, and what is read once more
//! while it arrives), and the calls on borrowed memory copy what they are given.

mod client;
mod fence;
mod ffi;
mod image;
mod keyring;
mod lock;
mod name;
mod settings;
mod store;

pub use client::Client;
pub use ffi::has_clients;
pub use image::{Image, LONGEST_OPEN};
pub use name::{Name, NameError};

/// Loads Ceph's libraries, for a process that can open no files later.
///
/// # Errors
/// If they are not there, or not those that are known.
pub fn load() -> std::io::Result<()> {
    ffi::load_libraries()
}
