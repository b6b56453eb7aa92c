//! The test of an engine before its use: each operation, cipher, sector size and key length that it says it has, both
//! ways, against the CPU.

use std::sync::Arc;

use sector_cipher::{Backend, Cipher, CipherSpec, IvMode, Mode, SectorCount, SectorSize};

use crate::keyed::Purpose;
use crate::{Direction, Engine, Error, ErrorKind, Keyed, Model, OnFailure, RequestSize, Tweaks};

/// Sectors of a test: tweaks are counted, and two batches of any core are not enough.
const SECTORS: usize = 3;

/// The first sector's number; a carry from the lowest 32 bits follows.
const FIRST: u64 = (1 << 32) - 8;

pub(crate) fn run(engine: &Arc<Engine>) -> Result<(), Error> {
    for mode in Mode::ALL {
        let Ok(spec) = CipherSpec::new(mode, IvMode::Plain64) else {
            continue;
        };
        for &len in spec.key_lengths() {
            for size in SectorSize::ALL {
                for model in models(engine) {
                    test(engine, spec, len, size, model)?;
                }
            }
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

fn test(
    engine: &Arc<Engine>,
    spec: CipherSpec,
    key_len: usize,
    size: SectorSize,
    model: Model,
) -> Result<(), Error> {
    let key = pattern(key_len, 0x5a);
    let count = SectorCount::Units512;
    let on_failure = OnFailure::Fail;
    let purpose = Purpose {
        spec,
        size,
        count,
        model,
        on_failure,
    };
    let keyed = match Keyed::new(engine, purpose, &key) {
        Ok(keyed) => keyed,
        // It does not say that it can.
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
        Err(error) => return Err(error),
    };
    let wrong = |what: &str| {
        Error::new(
            ErrorKind::Dead,
            format!(
                "the engine failed its test: {what} by {spec} with a key of {key_len} bytes and sectors of {} bytes \
                 ({model:?})",
                size.bytes()
            ),
        )
    };
    let cipher = Cipher::new(spec, size, count, &key, Some(Backend::best()))
        .map_err(|e| Error::by(ErrorKind::Unsupported, "cannot test the engine", e))?;
    let plain = pattern(SECTORS * size.bytes(), 0xc3);
    let mut expected = plain.clone();
    cipher.encrypt(FIRST, &mut expected);
    let crypt = |direction, data: Vec<u8>| {
        let (data, result) = engine.finish(keyed.crypt(direction, FIRST.into(), data));
        result.map(|()| data)
    };
    if crypt(Direction::Encrypt, plain.clone())? != expected {
        return Err(wrong("encryption"));
    }
    if crypt(Direction::Decrypt, expected)? != plain {
        return Err(wrong("decryption"));
    }
    Ok(())
}
