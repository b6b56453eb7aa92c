//! The ciphers of `sector-cipher` against other libraries and against the
//! CPU's AES unit, in one process, in turns.

mod chosen;
mod contestant;
mod goals;
mod measure;
mod options;
mod peers;
mod plot;
mod report;
mod runs;
mod sharing;
mod verify;

#[allow(unsafe_code)]
#[path = "../../../crates/sector-cipher/examples/throughput/limit.rs"]
mod limit;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let options = options::Options::parse();
    match runs::all(&options) {
        Ok(met) if met => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cipher-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
