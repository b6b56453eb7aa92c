//! What CPUs start side by side, where that decides between two ways to the same result.

use core::fmt;

/// Which of two ways a back-end takes where it depends on the CPU which is faster: on what its
/// *ports*, the parts that start one instruction a cycle each, can start beside AES rounds. The
/// results are the same. See [`Backend::ports`](crate::Backend::ports).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ports {
    /// Whether vectors of XTS and EME2 masks are multiplied by powers of x with shifts of bits.
    /// Otherwise bytes take their bits from anywhere (`vpmultishiftqb`), and on some CPUs that
    /// takes the turns of AES rounds; XTS of pairs of 512-byte sectors puts them together by sums then, and otherwise by
    /// `vpermt2b`. `None` of a back-end that has one way: all but `vaes512`.
    pub shifts: Option<bool>,
    /// Whether FAST's BRW hash makes a product of two blocks from three products of halves and
    /// some sums (Karatsuba), for CPUs that start few products. Otherwise from four.
    pub three_products: bool,
    /// Whether Adiantum, which is integers but for one AES call a sector, has vectors of AVX2, which
    /// are longer than those of AES. `None` of a back-end whose vectors are equally long: all but `aes-ni`.
    pub long_integers: Option<bool>,
    /// How the first two are known.
    pub source: PortsSource,
}

/// How [`Ports`] are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortsSource {
    /// A CPU of this maker, family and model has been measured by the crate's authors. Family and model
    /// are as CPUID has them.
    Table {
        /// `Intel` or `AMD`.
        maker: &'static str,
        /// The number that `/proc/cpuinfo` calls `cpu family`.
        family: u32,
        /// The number that `/proc/cpuinfo` calls `model`.
        model: u32,
    },
    /// Both ways were timed when this process asked for a back-end first, for some 40 to 80
    /// microseconds if nothing else took the CPU. The way that is not the usual one had to take a twentieth less.
    Measured,
    /// Somebody has set them, for a test.
    Set,
}

impl fmt::Display for Ports {
    /// One line: what is done, and why.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shifts {
            Some(true) => f.write_str("masks by shifts, ")?,
            Some(false) => f.write_str("masks without shifts, ")?,
            None => {}
        }
        match self.long_integers {
            Some(true) => f.write_str("AVX2 for Adiantum, ")?,
            Some(false) => f.write_str("no AVX2, ")?,
            None => {}
        }
        let products = if self.three_products { "three" } else { "four" };
        write!(f, "{products} products for one of blocks ({})", self.source)
    }
}

impl fmt::Display for PortsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table {
                maker,
                family,
                model,
            } => write!(f, "known of {maker}'s family {family}, model {model}"),
            Self::Measured => f.write_str("measured"),
            Self::Set => f.write_str("set"),
        }
    }
}
