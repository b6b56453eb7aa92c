//! Tokens (LUKS2 on-disk format, section 3.5): what tells some program how to
//! get at the passphrase of a keyslot. Apart from type and keyslots, what is in
//! one is the business of the program that made it, and stays byte for byte.

use serde_json::Value;

use super::document;
use super::edit::update;
use super::model::{self, MAX_OBJECTS};
use super::read::Header;
use crate::{Device, Error, ErrorKind, Token};

/// Types that begin so belong to the format itself.
const BUILTIN: &str = "luks2-";

/// The one builtin type: the passphrase is in the kernel's keyring.
const KEYRING: &str = "luks2-keyring";

impl Header {
    /// See [`crate::Header::tokens`].
    pub(crate) fn tokens(&self) -> Result<Vec<Token>, Error> {
        self.metadata
            .tokens
            .iter()
            .map(|(&id, token)| {
                Ok(Token {
                    id,
                    kind: token.kind.clone(),
                    keyslots: token.keyslots.clone(),
                    json: document::raw(&self.text, &["tokens"], &id.to_string())?,
                })
            })
            .collect()
    }

    fn token(&self, id: u32) -> Result<&model::Token, Error> {
        self.metadata
            .tokens
            .get(&id)
            .ok_or_else(|| Error::new(ErrorKind::Token, format!("token {id} is not in use")))
    }

    /// `wanted` if it may be written, or the first free one.
    fn free_token(&self, wanted: Option<u32>, replace: bool) -> Result<u32, Error> {
        let used = |id: &u32| self.metadata.tokens.contains_key(id);
        match wanted {
            Some(wanted) if wanted >= MAX_OBJECTS => Err(Error::new(
                ErrorKind::Token,
                format!(
                    "there is no token {wanted}: LUKS2 has 0 to {}",
                    MAX_OBJECTS - 1
                ),
            )),
            Some(wanted) if used(&wanted) && !replace => Err(Error::new(
                ErrorKind::Token,
                format!("token {wanted} is in use: remove it first, or choose another one"),
            )),
            Some(wanted) => Ok(wanted),
            None => (0..MAX_OBJECTS).find(|id| !used(id)).ok_or_else(|| {
                Error::new(
                    ErrorKind::Full,
                    "all 32 tokens are in use: remove one first",
                )
            }),
        }
    }

    fn keyslot_in_use(&self, keyslot: u32) -> Result<(), Error> {
        if self.metadata.keyslots.contains_key(&keyslot) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Keyslot,
            format!("keyslot {keyslot} is not in use: no token can be for it"),
        ))
    }
}

/// See [`Device::import_token`].
pub(crate) fn import(
    device: &Device,
    json: &str,
    id: Option<u32>,
    replace: bool,
) -> Result<u32, Error> {
    let json = json.trim();
    let token = check(json)?;
    update(device, |header| {
        let id = header.free_token(id, replace)?;
        for &keyslot in &token.keyslots {
            header.keyslot_in_use(keyslot)?;
        }
        let text = document::set(&header.text, &["tokens"], &id.to_string(), json.to_owned())?;
        Ok((header.with_text(text)?, id))
    })
}

/// See [`Device::add_keyring_token`].
pub(crate) fn add_keyring(
    device: &Device,
    description: &str,
    keyslots: Option<&[u32]>,
    id: Option<u32>,
) -> Result<u32, Error> {
    if description.is_empty() || description.contains('\0') {
        return Err(Error::options(
            "the description of a key in the kernel's keyring is some text",
        ));
    }
    update(device, |header| {
        let id = header.free_token(id, false)?;
        let all: Vec<u32>;
        let keyslots = match keyslots {
            Some(keyslots) => keyslots,
            None => {
                all = header.keyslots();
                &all
            }
        };
        let mut names = Vec::new();
        for &keyslot in keyslots {
            header.keyslot_in_use(keyslot)?;
            names.push(keyslot.to_string());
        }
        let json = serde_json::json!({
            "type": KEYRING,
            "keyslots": names,
            "key_description": description,
        });
        let text = document::set(&header.text, &["tokens"], &id.to_string(), json.to_string())?;
        Ok((header.with_text(text)?, id))
    })
}

/// See [`Device::remove_token`].
pub(crate) fn remove(device: &Device, id: u32) -> Result<(), Error> {
    update(device, |header| {
        header.token(id)?;
        let text = document::remove(&header.text, &["tokens"], &id.to_string())?;
        Ok((header.with_text(text)?, ()))
    })
}

/// See [`Device::assign_token`].
pub(crate) fn assign(device: &Device, id: u32, keyslot: Option<u32>) -> Result<(), Error> {
    update(device, |header| {
        let token = header.token(id)?;
        let keyslots = match keyslot {
            Some(keyslot) => {
                header.keyslot_in_use(keyslot)?;
                vec![keyslot]
            }
            None => header.keyslots(),
        };
        let mut text = header.text.clone();
        for keyslot in keyslots {
            if !token.keyslots.contains(&keyslot) {
                text = document::push_item(
                    &text,
                    &["tokens", &id.to_string(), "keyslots"],
                    &keyslot.to_string(),
                )?;
            }
        }
        Ok((header.with_text(text)?, ()))
    })
}

/// See [`Device::unassign_token`].
pub(crate) fn unassign(device: &Device, id: u32, keyslot: u32) -> Result<(), Error> {
    update(device, |header| {
        if !header.token(id)?.keyslots.contains(&keyslot) {
            return Err(Error::new(
                ErrorKind::Token,
                format!("token {id} is not for keyslot {keyslot}"),
            ));
        }
        let text = document::remove_item(
            &header.text,
            &["tokens", &id.to_string(), "keyslots"],
            &keyslot.to_string(),
        )?;
        Ok((header.with_text(text)?, ()))
    })
}

/// What every token has to be, and a builtin one besides, as cryptsetup has it.
fn check(json: &str) -> Result<model::Token, Error> {
    let refused = |what: String| Error::options(format!("this is no token: {what}"));
    let in_it = |error: Error| Error {
        source: error.source,
        ..refused(error.message)
    };
    let value = document::parse(json).map_err(in_it)?;
    let Some(members) = value.as_object() else {
        return Err(refused("it is not a JSON object".into()));
    };
    let token = model::Token::parse_alone(&value).map_err(in_it)?;
    if !token.kind.starts_with(BUILTIN) {
        return Ok(token);
    }
    if token.kind != KEYRING {
        return Err(refused(format!(
            "types that begin with \"{BUILTIN}\" are LUKS2's own, and \"{}\" is none of them",
            token.kind.escape_debug()
        )));
    }
    let is_described = members
        .get("key_description")
        .and_then(Value::as_str)
        .is_some_and(|description| !description.is_empty());
    if !is_described || members.len() != 3 {
        return Err(refused(format!(
            "one of type \"{KEYRING}\" has \"key_description\", a text, \"type\" and \"keyslots\", and nothing else"
        )));
    }
    Ok(token)
}
