//! Reading both copies and choosing the good one. Nothing here writes.

use xtent_store::Store;
use xtent_store::chain;

use super::binary::{BINARY_SIZE, Binary, COPY_SIZES, Which};
use super::model::Metadata;
use super::{document, signature, validate};
use crate::{Device, Error, ErrorKind};

/// A header as read: the good copy, and how the other one stands.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) binary: Binary,
    /// The JSON text as stored.
    pub(crate) text: String,
    pub(crate) metadata: Metadata,
    /// The copy that all this comes from.
    pub(crate) chosen: Which,
    /// What is wrong with the other copy, if anything is.
    pub(crate) other: OtherCopy,
}

/// How the copy that was not chosen stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherCopy {
    /// Valid and the same.
    Same,
    /// Valid, but older (or of the same age with another text).
    Stale,
    /// Not valid.
    Bad,
}

/// Whether a damaged copy under something else's signature is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// Yes: writing the copy anew would destroy what is there now.
    Refuse,
    /// No: the user asked for a repair.
    Overwrite,
}

/// Reads, recovering in memory. The primary copy counts if it is valid and
/// not older than the secondary. A secondary copy is looked for where the
/// primary says or, if the primary is damaged, at every place where one may
/// lie, nearest first.
pub(crate) fn read(store: &dyn Store, foreign: Foreign) -> Result<Header, Error> {
    let (primary, size) = match Copy::read(store, Which::Primary, 0) {
        Ok(found) => (found.parse(), Some(found.binary.size)),
        Err(error) => (Err(error), None),
    };
    let secondary = match size {
        Some(size) => Copy::read(store, Which::Secondary, size).and_then(|found| found.parse()),
        None => find_secondary(store),
    };
    let header = choose(primary, secondary)?;
    let needed = header.size();
    if needed > store.size() {
        return Err(Error::new(
            ErrorKind::TooShort,
            format!(
                "the LUKS2 header and its keyslots have {needed} bytes, the device has {}; \
                 if it was cut off, restore it from a backup of the whole device",
                store.size()
            ),
        ));
    }
    if header.other == OtherCopy::Bad
        && foreign == Foreign::Refuse
        && let Some(name) = signature::find(store)
    {
        return Err(Error::new(
            ErrorKind::Refused,
            format!(
                "the {} LUKS2 header is gone and there is a {name} signature on the device: \
                 if the LUKS2 volume is what counts, repair the header explicitly",
                header.chosen.other().name()
            ),
        ));
    }
    Ok(header)
}

/// As [`read`], and fails on a header that is not what the device is expected to have.
pub(crate) fn read_expected(device: &Device, foreign: Foreign) -> Result<Header, Error> {
    let header = read(&*device.store, foreign)?;
    device.expect(|| crate::Header::luks2(header.clone()))?;
    Ok(header)
}

/// Reads what a restore would replace, whatever else is on the device.
pub(crate) fn read_present(store: &dyn Store) -> Result<Header, Error> {
    read(store, Foreign::Overwrite)
}

impl Header {
    /// Bytes of both copies and the keyslots area.
    pub(crate) fn size(&self) -> u64 {
        validate::keyslots_area(self.binary.size, self.metadata.config.keyslots_size).end()
    }
}

/// The nearest good secondary copy.
fn find_secondary(store: &dyn Store) -> Result<Parsed, Error> {
    let mut first = None;
    for offset in COPY_SIZES {
        match Copy::read(store, Which::Secondary, offset).and_then(|found| found.parse()) {
            Ok(copy) => return Ok(copy),
            // The most telling error is the first that is about a header.
            Err(error) => match &first {
                Some(Error { kind, .. }) if *kind != ErrorKind::NotLuks => {}
                _ => first = Some(error),
            },
        }
    }
    Err(first.unwrap_or_else(|| Error::new(ErrorKind::NotLuks, "no secondary LUKS2 header")))
}

/// One copy with a good checksum.
struct Copy {
    which: Which,
    binary: Binary,
    bytes: Vec<u8>,
}

/// One copy, good in every way.
struct Parsed {
    binary: Binary,
    text: String,
    metadata: Metadata,
}

impl Copy {
    fn read(store: &dyn Store, which: Which, offset: u64) -> Result<Self, Error> {
        let name = which.name();
        let cut_short = |end: u64| {
            Error::new(
                ErrorKind::NotLuks,
                format!(
                    "the device has {} bytes, the {name} LUKS2 header would end at {end}",
                    store.size()
                ),
            )
        };
        let room = store.size().saturating_sub(offset);
        if room < BINARY_SIZE as u64 {
            return Err(cut_short(offset + BINARY_SIZE as u64));
        }
        let mut block = [0; BINARY_SIZE];
        store.read_at(&mut block, offset)?;
        let binary = Binary::parse(&block, which, offset)?;
        if room < binary.size {
            let mut error = cut_short(offset + binary.size);
            error.kind = ErrorKind::TooShort;
            return Err(error);
        }
        // A copy has at most 4 MiB.
        let mut bytes = vec![0; usize::try_from(binary.size).unwrap_or(usize::MAX)];
        store.read_at(&mut bytes, offset)?;
        if !binary.checksum_matches(&bytes) {
            return Err(Error::corrupt(format!(
                "the {name} LUKS2 header at byte {offset} has a wrong checksum"
            )));
        }
        Ok(Self {
            which,
            binary,
            bytes,
        })
    }

    fn parse(&self) -> Result<Parsed, Error> {
        let parse = || {
            let text = document::text_in(&self.bytes[BINARY_SIZE..])?;
            let metadata = Metadata::parse(&document::parse(text)?)?;
            metadata.validate(self.binary.size)?;
            Ok(Parsed {
                binary: self.binary.clone(),
                text: text.to_owned(),
                metadata,
            })
        };
        parse().map_err(|mut error: Error| {
            error.message = format!("{} header: {}", self.which.name(), error.message);
            error
        })
    }
}

fn choose(
    primary: Result<Parsed, Error>,
    secondary: Result<Parsed, Error>,
) -> Result<Header, Error> {
    let (good, chosen, other) = match (primary, secondary) {
        (Ok(primary), Ok(secondary)) => {
            if primary.binary.seqid < secondary.binary.seqid {
                (secondary, Which::Secondary, OtherCopy::Stale)
            } else if primary.binary == secondary.binary && primary.text == secondary.text {
                (primary, Which::Primary, OtherCopy::Same)
            } else {
                (primary, Which::Primary, OtherCopy::Stale)
            }
        }
        (Ok(primary), Err(_)) => (primary, Which::Primary, OtherCopy::Bad),
        (Err(_), Ok(secondary)) => (secondary, Which::Secondary, OtherCopy::Bad),
        (Err(primary), Err(secondary)) => return Err(neither(primary, secondary)),
    };
    Ok(Header {
        binary: good.binary,
        text: good.text,
        metadata: good.metadata,
        chosen,
        other,
    })
}

/// The error for two bad copies: about the one that looks most like LUKS2.
fn neither(primary: Error, secondary: Error) -> Error {
    match (primary.kind, secondary.kind) {
        (ErrorKind::NotLuks, ErrorKind::NotLuks) => Error::new(
            ErrorKind::NotLuks,
            "no LUKS header on the device, neither at its start nor where a second copy would be",
        ),
        (ErrorKind::NotLuks, _) => secondary,
        (_, ErrorKind::NotLuks) => primary,
        // What could not be read may be in the best of health: no reason to restore anything.
        (ErrorKind::Store(_), _) => primary,
        (_, ErrorKind::Store(_)) => secondary,
        _ => {
            let message = format!(
                "both LUKS2 headers are unusable, restore them from a backup: {}; {}",
                chain(&primary),
                chain(&secondary)
            );
            Error {
                message,
                source: None,
                ..primary
            }
        }
    }
}
