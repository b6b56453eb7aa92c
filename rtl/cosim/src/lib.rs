//! The co-processor of `rtl/engine` as a PCI device that other processes use over vfio-user: its
//! Verilator model, a clock, and the memory that a client shows to it. `README.md` has more.

pub mod backend;
pub mod device;
pub mod interrupts;
pub mod lite;
pub mod mappings;
pub mod memory_port;
pub mod model;
pub mod pci;
#[path = "../../../crates/coprocessor/src/registers.rs"]
pub mod registers;
pub mod socket;
