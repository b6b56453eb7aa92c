//! The test of an engine before its use: each operation, cipher, sector size and key length that it says it has, both
//! ways, against the CPU; and one run that is cut.

use std::sync::Arc;

use sector_cipher::{Backend, Cipher, CipherSpec, IvMode, Mode, SectorCount, SectorSize};

use crate::keyed::Purpose;
use crate::{Direction, Engine, Error, ErrorKind, Keyed, Model, OnFailure, RequestSize, Tweaks};

/// Sectors of a test: tweaks are counted, and two batches of any core are not enough.
const SECTORS: usize = 3;

/// The first sector's number; a carry from the lowest 32 bits follows.
const FIRST: u64 = (1 << 32) - 8;

pub(crate) fn run(engine: &Arc<Engine>) -> Result<(), Error> {
    for &mode in Mode::ALL {
        let Ok(spec) = CipherSpec::new(mode, IvMode::Plain64) else {
            continue;
        };
        for &len in spec.key_lengths() {
            for &size in SectorSize::ALL {
                for model in models(engine) {
                    Case { spec, size, len }.test(engine, model)?;
                }
            }
        }
    }
    test_cuts(engine)
}

/// Encrypts a run of a sector before the tweaks of `plain` begin again, the largest request that is made, and a sector
/// behind it. Only once, and one way, since it takes a simulation a good part of a second: what is cut and counted is
/// the same in all ciphers, sizes and directions.
fn test_cuts(engine: &Arc<Engine>) -> Result<(), Error> {
    let specs = Mode::ALL
        .iter()
        .filter_map(|&mode| CipherSpec::new(mode, IvMode::Plain).ok());
    let all = specs.flat_map(|spec| SectorSize::ALL.iter().map(move |&size| (spec, size)));
    for (spec, size) in all {
        for &len in spec.key_lengths() {
            let (case, key) = (Case { spec, size, len }, pattern(len, 0x5a));
            let Some(keyed) = case.load(engine, Model::Runs, &key)? else {
                continue;
            };
            let bytes = size.bytes();
            let step = (bytes / 512) as u64;
            let cipher = case.on_cpu(&key)?;
            let plain = pattern(keyed.largest() + 2 * bytes, 0xc3);
            let mut expected = plain.clone();
            let (before, behind) = expected.split_at_mut(bytes);
            cipher.encrypt((1 << 32) - step, before);
            cipher.encrypt(0, behind);
            let first = (1 << 32) - u128::from(step);
            let (data, result) = engine.finish(keyed.crypt(Direction::Encrypt, first, plain));
            result?;
            return match data == expected {
                true => Ok(()),
                false => Err(case.wrong("encryption of a long run", Model::Runs)),
            };
        }
    }
    Ok(())
}

/// Every operation is in one of them.
fn models(engine: &Engine) -> [Model; 3] {
    let tweaks = match engine.facts().slots {
        1 => Tweaks::Cpu,
        _ => Tweaks::Engine,
    };
    [
        Model::Runs,
        Model::Units(tweaks),
        Model::Mixed(tweaks, RequestSize::Run),
    ]
}

/// Bytes that are all different in a row, and from row to row.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    let bytes = (0_u32..).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 24).to_le_bytes()[0] ^ seed);
    bytes.take(len).collect()
}

/// What is tested.
struct Case {
    spec: CipherSpec,
    size: SectorSize,
    /// Bytes of the key.
    len: usize,
}

impl Case {
    /// The key in the engine, if that says that it can do this.
    fn load(&self, engine: &Arc<Engine>, model: Model, key: &[u8]) -> Result<Option<Keyed>, Error> {
        let purpose = Purpose {
            spec: self.spec,
            size: self.size,
            count: SectorCount::Units512,
            model,
            on_failure: OnFailure::Fail,
        };
        match Keyed::new(engine, purpose, key) {
            Ok(keyed) => Ok(Some(keyed)),
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn on_cpu(&self, key: &[u8]) -> Result<Cipher, Error> {
        let (count, backend) = (SectorCount::Units512, Some(Backend::best()));
        Cipher::new(self.spec, self.size, count, key, backend)
            .map_err(|e| Error::by(ErrorKind::Unsupported, "cannot test the engine", e))
    }

    fn wrong(&self, what: &str, model: Model) -> Error {
        Error::new(
            ErrorKind::Dead,
            format!(
                "the engine failed its test: {what} by {} with a key of {} bytes and sectors of {} bytes ({model:?})",
                self.spec,
                self.len,
                self.size.bytes()
            ),
        )
    }

    fn test(&self, engine: &Arc<Engine>, model: Model) -> Result<(), Error> {
        let key = pattern(self.len, 0x5a);
        let Some(keyed) = self.load(engine, model, &key)? else {
            return Ok(());
        };
        let plain = pattern(SECTORS * self.size.bytes(), 0xc3);
        let mut expected = plain.clone();
        self.on_cpu(&key)?.encrypt(FIRST, &mut expected);
        let crypt = |direction, data: Vec<u8>| {
            let (data, result) = engine.finish(keyed.crypt(direction, FIRST.into(), data));
            result.map(|_| data)
        };
        if crypt(Direction::Encrypt, plain.clone())? != expected {
            return Err(self.wrong("encryption", model));
        }
        if crypt(Direction::Decrypt, expected)? != plain {
            return Err(self.wrong("decryption", model));
        }
        Ok(())
    }
}
