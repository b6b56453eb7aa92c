//! Volumes opened by the kernel's device mapper, with the target `xtent` if it is
//! there, else with `crypt`. The key of a volume with a header goes through the kernel's
//! keyring, and what is made is what cryptsetup would make: it can show and close it.
//!
//! This room knows tables and names of the device mapper; what is in a header is
//! told to it.

mod error;
mod grow;
mod keyring;
mod layout;
mod listed;
mod load;
mod mapper;
mod name;
mod node;
mod suspend;
mod table;
mod told;

pub use error::{Error, ErrorKind};
pub use grow::Active;
pub use layout::Layout;
pub use listed::{Mapped, listed};
pub use mapper::{Choice, Closed, Mapper, Opened, Wanted};
pub use name::{Format, Name, uuid};
pub use suspend::Seen;
pub use table::{Options, Place, Table, Target};
