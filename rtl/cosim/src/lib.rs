//! The co-processor of `rtl/engine` as a PCI device that other processes use over vfio-user, or
//! User Mode Linux over vhost-user: its
//! Verilator model, a clock, and the memory that a client shows to it. `README.md` has more.

pub mod backend;
pub mod calendar;
pub mod device;
pub mod front;
pub mod function;
pub mod guest;
pub mod interrupts;
pub mod lite;
pub mod machine;
pub mod mappings;
pub mod memory_port;
pub mod model;
pub mod msix;
pub mod paced;
pub mod pci;
#[path = "../../../crates/coprocessor/src/registers.rs"]
pub mod registers;
pub mod socket;
pub mod spoil;
pub mod timed;
pub mod vhost_user;
pub mod virtqueue;
