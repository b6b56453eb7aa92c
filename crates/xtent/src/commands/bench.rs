//! `xtent bench`: stub
use crate::{cli::Global, failure::Result};
/// Measure ciphers and key derivations
#[derive(clap::Args, Debug)]
pub(crate) struct Args {}
pub(crate) fn run(_: &Args, _: &Global) -> Result<()> {
    Ok(())
}
