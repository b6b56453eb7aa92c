//! The UUID of a new header, which both formats keep as text.

use crate::Error;

/// The user's UUID in lower case, or a random one.
pub(crate) fn choose(given: Option<&str>) -> Result<String, Error> {
    match given {
        None => random(),
        Some(uuid) if is_uuid(uuid) => Ok(uuid.to_ascii_lowercase()),
        Some(other) => Err(Error::options(format!(
            "'{}' is no UUID; one looks like 12345678-1234-1234-1234-123456789abc",
            other.escape_debug()
        ))),
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// RFC 9562, version 4.
fn random() -> Result<String, Error> {
    let mut bytes = [0; 16];
    xtent_secret::fill_random(&mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    Ok(format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ones_are_valid_and_differ() {
        let uuid = choose(None).unwrap();
        assert!(is_uuid(&uuid), "{uuid}");
        assert_eq!(&uuid[14..15], "4");
        assert_ne!(uuid, choose(None).unwrap());
    }

    #[test]
    fn given_ones_are_checked_and_lowered() {
        let given = "22B51BD9-f269-4cc7-94f2-dd5abdc517e9";
        assert_eq!(choose(Some(given)).unwrap(), given.to_lowercase());
        for bad in [
            "",
            "22b51bd9-f269-4cc7-94f2-dd5abdc517e",
            "22b51bd9-f269-4cc7-94f2-dd5abdc517eg",
            "22b51bd9f269-4cc7-94f2-dd5abdc517e9-",
        ] {
            assert!(choose(Some(bad)).is_err(), "{bad}");
        }
    }
}
