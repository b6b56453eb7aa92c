//! Options of the commands that have a cipher engine do the work of a volume.

use clap::{Args, ValueEnum};
use sector_cipher::{Mode, SectorSize};
use xtent_coprocessor::{Address, Facts, Model, OnFailure, RequestSize, Tweaks};
use xtent_volume::Threshold;

use crate::size::parse_size;

/// How engine and CPU share the work, without the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Runs,
    Units,
    Mixed(RequestSize),
}

impl Share {
    /// With the tweaks, where somebody has to encrypt them.
    fn model(self, tweaks: Tweaks) -> Model {
        match self {
            Self::Runs => Model::Runs,
            Self::Units => Model::Units(tweaks),
            Self::Mixed(size) => Model::Mixed(tweaks, size),
        }
    }
}

/// Who encrypts tweaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TweaksBy {
    /// The engine, by requests of their own
    Engine,
    /// The CPU
    Cpu,
}

/// What becomes of a request that an engine fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Failing {
    /// The CPU carries it out, and the log has a warning
    Cpu,
    /// It ends with an I/O error
    Error,
}

/// The engine, and how it shares the work.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cipher engine")]
pub(crate) struct EngineChoice {
    /// Have an engine encrypt and decrypt: vfio-user:PATH, a socket, or vfio:0000:03:00.0, a PCI device
    ///
    /// The co-processor of the project's rtl/engine, or a simulation of it. It is given the key, and sees the data in
    /// the clear: what is at the other end of the socket is trusted as this process is. It is tested when it is opened.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) engine: Option<Address>,
    /// How engine and CPU share the work: runs, units, mixed or mixed:BYTES [default: by what the engine can]
    ///
    /// runs: whole runs of sectors are a request, of which the engine counts the tweaks. units: a sector of at most
    /// 512 bytes is one (XTS). mixed: the engine has AES alone, of 512 or 4096 bytes or of whole runs at a time, and
    /// the CPU does the rest of XTS. The bytes are the same.
    #[arg(long, value_name = "MODEL", value_parser = parse_share, requires = "engine")]
    engine_model: Option<Share>,
    /// Who encrypts tweaks where the engine does not count them itself [default: engine]
    #[arg(long, value_name = "WHO", requires = "engine")]
    engine_tweaks: Option<TweaksBy>,
}

impl EngineChoice {
    /// How the work is shared: as was said, or as well as the engine can.
    pub(crate) fn model(&self, mode: Mode, sector_size: SectorSize, facts: &Facts) -> Model {
        let best = || {
            if facts.takes_runs(mode, sector_size) {
                Share::Runs
            } else if facts.level >= 2 && sector_size.bytes() <= facts.xts_bytes {
                Share::Units
            } else {
                Share::Mixed(RequestSize::Run)
            }
        };
        let tweaks = match self.engine_tweaks {
            Some(TweaksBy::Cpu) => Tweaks::Cpu,
            Some(TweaksBy::Engine) | None => Tweaks::Engine,
        };
        self.engine_model.unwrap_or_else(best).model(tweaks)
    }
}

/// The engine of a volume, and what goes to it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cipher engine")]
pub(crate) struct EngineArgs {
    #[command(flatten)]
    pub(crate) choice: EngineChoice,
    /// Requests of so many bytes and more go to the engine, 0 for all [default: measured]
    ///
    /// The others are the CPU's, which has the key as well. Without this it is measured when the volume is opened from
    /// which size on the engine is faster than the CPU here. Where it never is, as with a simulation, nothing goes to it.
    #[arg(long, value_name = "BYTES", value_parser = parse_size, requires = "engine")]
    engine_threshold: Option<u64>,
    /// What becomes of requests that the engine fails [default: cpu]
    #[arg(long, value_name = "WHAT", requires = "engine")]
    engine_failure: Option<Failing>,
}

impl EngineArgs {
    pub(crate) fn threshold(&self) -> Threshold {
        match self.engine_threshold {
            // No request is longer than what there is a number for.
            Some(bytes) => Threshold::Bytes(usize::try_from(bytes).unwrap_or(usize::MAX)),
            None => Threshold::Measured,
        }
    }

    pub(crate) fn on_failure(&self) -> OnFailure {
        match self.engine_failure {
            Some(Failing::Error) => OnFailure::Fail,
            Some(Failing::Cpu) | None => OnFailure::Cpu,
        }
    }
}

fn parse_address(text: &str) -> Result<Address, String> {
    text.parse().map_err(|error: xtent_coprocessor::Error| {
        let advice = error.advice().map(|advice| format!(": {advice}"));
        format!("{error}{}", advice.unwrap_or_default())
    })
}

fn parse_share(text: &str) -> Result<Share, String> {
    Ok(match text {
        "runs" => Share::Runs,
        "units" => Share::Units,
        "mixed" => Share::Mixed(RequestSize::Run),
        "mixed:512" => Share::Mixed(RequestSize::Bytes512),
        "mixed:4096" => Share::Mixed(RequestSize::Bytes4096),
        _ => {
            return Err("possible are runs, units, mixed, mixed:512 and mixed:4096".to_owned());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_go_by_name() {
        let model = |text| parse_share(text).map(|share| share.model(Tweaks::Cpu));
        assert_eq!(model("runs"), Ok(Model::Runs));
        assert_eq!(model("units"), Ok(Model::Units(Tweaks::Cpu)));
        for (text, size) in [
            ("mixed", RequestSize::Run),
            ("mixed:512", RequestSize::Bytes512),
            ("mixed:4096", RequestSize::Bytes4096),
        ] {
            assert_eq!(model(text), Ok(Model::Mixed(Tweaks::Cpu, size)));
        }
        for text in ["", "run", "mixed:", "mixed:1024", "units:512"] {
            assert!(model(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_that_is_none_is_told_what_one_is() {
        assert!(parse_address("vfio:0000:03:00.0").is_ok());
        let error = parse_address("/run/engine.sock").unwrap_err();
        assert!(error.contains("vfio-user:PATH"), "{error}");
    }
}
