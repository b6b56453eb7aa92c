//! A table on its way into the kernel. Not by way of the crate `devicemapper`, which
//! copies and logs what it loads: of a volume without a header, that has the key in it.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::io;

use devicemapper::DmFlags;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use xtent_secret::SecretBytes;

use crate::table::Place;
use crate::{Error, ErrorKind, Name, Table, Target};

/// Bytes of `struct dm_ioctl`, and where its fields are (linux/dm-ioctl.h).
const HEADER: usize = 312;
const VERSION: usize = 0;
const DATA_SIZE: usize = 12;
const DATA_START: usize = 16;
const TARGET_COUNT: usize = 20;
const FLAGS: usize = 28;
const NAME: usize = 48;

/// Bytes of `struct dm_target_spec`, and where its fields are behind the header.
const SPEC: usize = 40;
const LENGTH: usize = 8;
const NEXT: usize = 20;
const TARGET_TYPE: usize = 24;

/// A table on its way: who encrypts, how many 512-byte units, and the parts of its line.
pub(crate) struct Loaded<'a> {
    pub(crate) target: Target,
    pub(crate) sectors: u64,
    pub(crate) line: &'a [&'a [u8]],
}

/// Loads `table` as the inactive one of the mapping `name`.
///
/// # Errors
/// The kernel's refusal as `Ok(Err(_))`; that there is no memory for the line.
pub(crate) fn load(
    control: &File,
    name: &Name,
    target: Target,
    table: &Table,
    key: &SecretBytes,
    read_only: bool,
) -> Result<io::Result<()>, Error> {
    let (before, after) = table.around_key();
    let word = key_word(table, key)?;
    let loaded = Loaded {
        target,
        sectors: table.sectors(),
        line: &[before.as_bytes(), &word, after.as_bytes()],
    };
    load_line(control, name, &loaded, read_only)
}

/// The same of a line that somebody else has made.
pub(crate) fn load_line(
    control: &File,
    name: &Name,
    loaded: &Loaded<'_>,
    read_only: bool,
) -> Result<io::Result<()>, Error> {
    let mut request = request(name, loaded, read_only)?;
    Ok(call(control, TABLE_LOAD, &mut request))
}

/// A table that is in use.
#[derive(PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) target: Target,
    /// 512-byte units.
    pub(crate) sectors: u64,
    /// May have the key in it.
    pub(crate) line: SecretBytes,
}

/// The table of the mapping `name` that is in use, if it is one line of a target that is known here.
pub(crate) fn active(control: &File, name: &Name) -> Result<Option<Found>, Error> {
    let mut answer = secret(ANSWER)?;
    let flags = DmFlags::DM_SECURE_DATA | DmFlags::DM_STATUS_TABLE | DmFlags::DM_NOFLUSH;
    fill_header(&mut answer, name, flags);
    call(control, TABLE_STATUS, &mut answer)
        .map_err(|e| Error::refused_for(format!("cannot look at {name}"), e))?;
    let word = |at: usize| {
        let bytes = answer.get(at..at + 4).and_then(|it| it.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    };
    let start = word(DATA_START) as usize;
    let is_whole = word(TARGET_COUNT) == 1 && word(FLAGS) & DmFlags::DM_BUFFER_FULL.bits() == 0;
    let behind = answer.get(start..).filter(|it| is_whole && it.len() > SPEC);
    let Some((spec, line)) = behind.map(|it| it.split_at(SPEC)) else {
        return Ok(None);
    };
    let until_zero = |bytes: &[u8]| bytes.iter().position(|&byte| byte == 0);
    let sectors = spec[LENGTH..LENGTH + 8].try_into();
    let target = [Target::Crypt, Target::Xtent].into_iter().find(|it| {
        let name = &spec[TARGET_TYPE..];
        until_zero(name).is_some_and(|end| &name[..end] == it.name().as_bytes())
    });
    let (Some(target), Ok(sectors), Some(end)) = (target, sectors, until_zero(line)) else {
        return Ok(None);
    };
    let mut copy = secret(end)?;
    copy.copy_from_slice(&line[..end]);
    Ok(Some(Found {
        target,
        sectors: u64::from_ne_bytes(sectors),
        line: copy,
    }))
}

/// Has the target of the mapping `name` do what `message` says.
pub(crate) fn tell(control: &File, name: &Name, message: &str) -> Result<io::Result<()>, Error> {
    // The number of a sector, by which the target is found, comes before the words.
    let words = HEADER + size_of::<u64>();
    let mut request = secret(words + message.len() + 1)?;
    fill_header(&mut request, name, DmFlags::DM_SECURE_DATA);
    request[words..words + message.len()].copy_from_slice(message.as_bytes());
    Ok(call(control, TARGET_MSG, &mut request))
}

/// Numbers of the calls (linux/dm-ioctl.h).
const TABLE_LOAD: u8 = 9;
const TABLE_STATUS: u8 = 12;
const TARGET_MSG: u8 = 14;
/// Bytes for a table: its line has a key of 8 KiB at most, in two digits each.
const ANSWER: usize = 32 << 10;

fn call(control: &File, number: u8, request: &mut SecretBytes) -> io::Result<()> {
    // SAFETY: `Call` describes the ioctls as linux/dm-ioctl.h has them.
    unsafe { ioctl(control, Call(number, request)) }.map_err(io::Error::from)
}

/// A call of the device mapper, with a buffer that is one request and has room for the answer.
struct Call<'a>(u8, &'a mut SecretBytes);

// SAFETY: the kernel reads and writes `data_size` bytes from the pointer on, which is the
// length of the buffer that it points to.
unsafe impl Ioctl for Call<'_> {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<[u8; HEADER]>(0xfd, self.0)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.1.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// The request's bytes: header, target, line. `DM_SECURE_DATA` has the kernel wipe its copy
/// of them.
fn request(name: &Name, loaded: &Loaded<'_>, read_only: bool) -> Result<SecretBytes, Error> {
    let line = loaded.line;
    let length: usize = line.iter().map(|part| part.len()).sum();
    // With the zero at the end of the line.
    let behind = (SPEC + length + 1).next_multiple_of(8);
    let mut request = secret(HEADER + behind)?;
    let mut flags = DmFlags::DM_SECURE_DATA;
    if read_only {
        flags |= DmFlags::DM_READONLY;
    }
    fill_header(&mut request, name, flags);
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    put(TARGET_COUNT, &number(1));
    put(HEADER + LENGTH, &loaded.sectors.to_ne_bytes());
    put(HEADER + NEXT, &number(behind));
    put(HEADER + TARGET_TYPE, loaded.target.name().as_bytes());
    let mut at = HEADER + SPEC;
    for part in line {
        put(at, part);
        at += part.len();
    }
    Ok(request)
}

fn number(n: usize) -> [u8; 4] {
    u32::try_from(n).unwrap_or(u32::MAX).to_ne_bytes()
}

/// What every request begins with.
fn fill_header(request: &mut SecretBytes, name: &Name, flags: DmFlags) {
    let size = number(request.len());
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    // The oldest version that has the calls: of newer kernels, too.
    put(VERSION, &number(4));
    put(DATA_SIZE, &size);
    put(DATA_START, &number(HEADER));
    put(FLAGS, &flags.bits().to_ne_bytes());
    put(NAME, name.to_string().as_bytes());
}

/// The key as the line has it: where it is, or itself.
fn key_word(table: &Table, key: &SecretBytes) -> Result<SecretBytes, Error> {
    match &table.key {
        Place::Keyring { .. } => {
            let place = format!(
                ":{}:logon:{}",
                key.len(),
                table.key_name().unwrap_or_default()
            );
            let mut word = secret(place.len())?;
            word.copy_from_slice(place.as_bytes());
            Ok(word)
        }
        Place::Line => {
            let mut word = secret(2 * key.len())?;
            for (digits, byte) in word.chunks_exact_mut(2).zip(key.iter()) {
                digits.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
            }
            Ok(word)
        }
    }
}

/// The hexadecimal digit, by no table that the cache would tell of.
fn digit(nibble: u8) -> u8 {
    // All ones above nine.
    let is_letter = 9_u8.wrapping_sub(nibble) >> 7;
    nibble + b'0' + is_letter * (b'a' - b'0' - 10)
}

/// The bytes of a key in a line, in constant time; `None` if it is something else.
pub(crate) fn key_of(word: &[u8]) -> Result<Option<SecretBytes>, Error> {
    let mut key = secret(word.len() / 2)?;
    let mut is_key = word.len().is_multiple_of(2) && !word.is_empty();
    for (byte, digits) in key.iter_mut().zip(word.chunks_exact(2)) {
        let (high, low) = (value(digits[0]), value(digits[1]));
        *byte = (high << 4) | low;
        is_key &= (digit(high) == digits[0]) & (digit(low) == digits[1]);
    }
    Ok(is_key.then_some(key))
}

/// What a digit stands for; the kernel writes small letters.
fn value(digit: u8) -> u8 {
    let is_letter = (digit >> 6) & 1;
    ((digit & 15) + is_letter * 9) & 15
}

fn secret(length: usize) -> Result<SecretBytes, Error> {
    SecretBytes::zeroed(length).map_err(|e| {
        Error::new(ErrorKind::Io, "no memory for the mapping's table").because(e.source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    fn table(key: Place) -> Table {
        Table {
            cipher: "aes-xts-plain64".to_owned(),
            key,
            iv_offset: 0,
            device: rustix::fs::makedev(98, 32),
            offset: 4096,
            length: 1 << 20,
            sector_size: 512,
            iv_large_sectors: false,
            options: Options::default(),
        }
    }

    fn line_of(request: &SecretBytes) -> String {
        let line = &request[HEADER + SPEC..];
        let end = line.iter().position(|&byte| byte == 0).unwrap();
        String::from_utf8(line[..end].to_vec()).unwrap()
    }

    #[test]
    fn a_key_is_itself_or_its_place() {
        let key = SecretBytes::copy_of(&[0x00, 0x9a, 0xf5]).unwrap();
        let name: Name = "v".parse().unwrap();
        let of = |place| {
            let table = table(place);
            let (before, after) = table.around_key();
            let word = key_word(&table, &key).unwrap();
            let loaded = Loaded {
                target: Target::Crypt,
                sectors: table.sectors(),
                line: &[before.as_bytes(), &word, after.as_bytes()],
            };
            line_of(&request(&name, &loaded, true).unwrap())
        };
        assert_eq!(of(Place::Line), "aes-xts-plain64 009af5 0 98:32 8");
        let uuid = "2c2e6a3c-6f1d-4f6e-9d8b-7a54a52d1c11";
        assert_eq!(
            of(Place::Keyring {
                header_uuid: uuid.to_owned()
            }),
            format!("aes-xts-plain64 :3:logon:cryptsetup:{uuid}-d0 0 98:32 8")
        );
    }

    #[test]
    fn a_key_is_had_back() {
        let of = |word: &[u8]| key_of(word).unwrap().map(|key| key.to_vec());
        let all: Vec<u8> = (0..=255).collect();
        let digits: String = all.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(of(digits.as_bytes()), Some(all));
        for word in [
            &b""[..],
            b"-",
            b"0",
            b"000",
            b"0g",
            b"0A",
            b"`0",
            b":0",
            b"\xff0",
        ] {
            assert_eq!(of(word), None, "{word:?}");
        }
    }

    #[test]
    fn a_request_ends_where_it_says() {
        let name: Name = "n".repeat(127).parse().unwrap();
        let loaded = Loaded {
            target: Target::Xtent,
            sectors: 2048,
            line: &[b"aes-xts-plain64 ", &[b'0'; 128], b" 0 98:32 8"],
        };
        let request = request(&name, &loaded, false).unwrap();
        let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        assert_eq!(number(DATA_SIZE) as usize, request.len());
        assert_eq!(number(HEADER + NEXT) as usize, request.len() - HEADER);
        assert_eq!(request[NAME + 126..][..2], [b'n', 0]);
        assert_eq!(&request[HEADER + TARGET_TYPE..][..6], b"xtent\0");
        assert_eq!(request.last(), Some(&0));
    }
}
