//! The JSON text, exactly as stored. Edits replace the members they are about
//! and keep every other value byte for byte: number formats, escapes, order,
//! members that nobody here knows.

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;

use crate::Error;

/// Levels of nesting, of which a number or a text is one; cryptsetup's parser has the same limit.
const DEPTH: usize = 32;

/// Finds the text in a JSON area: it starts with `{`, ends with `}`, and
/// nothing but NULs follows, at least one.
pub(crate) fn text_in(area: &[u8]) -> Result<&str, Error> {
    let end = area
        .iter()
        .position(|&byte| byte == 0)
        .ok_or_else(|| Error::corrupt("the LUKS2 JSON area is not terminated"))?;
    let (text, rest) = area.split_at(end);
    if rest.iter().any(|&byte| byte != 0) {
        return Err(Error::corrupt(
            "the LUKS2 JSON area has bytes behind its end",
        ));
    }
    let text = std::str::from_utf8(text)
        .map_err(|error| Error::corrupt("the LUKS2 JSON area is not UTF-8").caused_by(error))?;
    if !text.starts_with('{') || !text.ends_with('}') {
        return Err(Error::corrupt(
            "the LUKS2 JSON area does not hold one object",
        ));
    }
    Ok(text)
}

/// Parses a whole document. Stricter than JSON: a name that occurs twice in
/// an object is refused, because readers disagree which one counts.
pub(crate) fn parse(text: &str) -> Result<Value, Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Strict(DEPTH)
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(not_json)?;
    Ok(value)
}

/// The member `name` of the object at `path`, as it is written.
pub(crate) fn raw(text: &str, path: &[&str], name: &str) -> Result<String, Error> {
    let mut members: Members = serde_json::from_str(text).map_err(not_json)?;
    match path {
        [] => members.find(name).map(|raw| raw.get().to_owned()),
        [first, rest @ ..] => raw(members.find(first)?.get(), rest, name),
    }
}

/// `text` with the member `name` of the object at `path` set to `value`, a
/// JSON text; a new member comes last. An empty path is the document itself.
pub(crate) fn set(text: &str, path: &[&str], name: &str, value: String) -> Result<String, Error> {
    let value = RawValue::from_string(value).map_err(not_json)?;
    edit(text, path, |members| {
        match members.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = value,
            None => members.0.push((name.to_owned(), value)),
        }
    })
}

/// `text` without the member `name` of the object at `path`.
pub(crate) fn remove(text: &str, path: &[&str], name: &str) -> Result<String, Error> {
    edit(text, path, |members| {
        members.0.retain(|(key, _)| key != name);
    })
}

/// `text` with the string `item` added to the end of the array at `path`.
pub(crate) fn push_item(text: &str, path: &[&str], item: &str) -> Result<String, Error> {
    edit_items(text, path, |items| {
        let item = serde_json::to_string(item).and_then(RawValue::from_string)?;
        items.push(item);
        Ok(())
    })
}

/// `text` without the string `item` in the array at `path`.
pub(crate) fn remove_item(text: &str, path: &[&str], item: &str) -> Result<String, Error> {
    edit_items(text, path, |items| {
        items.retain(|raw| {
            serde_json::from_str::<String>(raw.get()).map_or(true, |text| text != item)
        });
        Ok(())
    })
}

fn edit(text: &str, path: &[&str], change: impl FnOnce(&mut Members)) -> Result<String, Error> {
    let mut members: Members = serde_json::from_str(text).map_err(not_json)?;
    match path {
        [] => change(&mut members),
        [first, rest @ ..] => {
            let inner = members.find(first)?;
            let edited = edit(inner.get(), rest, change)?;
            *inner = RawValue::from_string(edited).map_err(not_json)?;
        }
    }
    serde_json::to_string(&members).map_err(not_json)
}

fn edit_items(
    text: &str,
    path: &[&str],
    change: impl FnOnce(&mut Vec<Box<RawValue>>) -> Result<(), serde_json::Error>,
) -> Result<String, Error> {
    match path {
        [] => {
            let mut items: Vec<Box<RawValue>> = serde_json::from_str(text).map_err(not_json)?;
            change(&mut items).map_err(not_json)?;
            serde_json::to_string(&items).map_err(not_json)
        }
        [first, rest @ ..] => {
            let mut members: Members = serde_json::from_str(text).map_err(not_json)?;
            let inner = members.find(first)?;
            let edited = edit_items(inner.get(), rest, change)?;
            *inner = RawValue::from_string(edited).map_err(not_json)?;
            serde_json::to_string(&members).map_err(not_json)
        }
    }
}

fn not_json(error: serde_json::Error) -> Error {
    Error::corrupt("the LUKS2 metadata is not valid JSON").caused_by(error)
}

/// An object's members in their order, values as they are written.
struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    fn find(&mut self, name: &str) -> Result<&mut Box<RawValue>, Error> {
        self.0
            .iter_mut()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
            .ok_or_else(|| Error::corrupt(format!("the LUKS2 metadata has no \"{name}\"")))
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// Builds a [`Value`], refusing names that occur twice and nesting deeper
/// than the number inside.
struct Strict(usize);

impl Strict {
    /// What is inside of it.
    fn inner(&self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.0 {
            0 => Err(de::Error::custom(format_args!(
                "nested deeper than {DEPTH} levels"
            ))),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.inner())? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if members.contains_key(&key) {
                return Err(de::Error::custom(format_args!("\"{key}\" occurs twice")));
            }
            let value = map.next_value_seed(self.inner())?;
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ODD: &str = r#"{ "keyslots":{"7":{"type" : "odd","f":1.50,"big":123456789012345678901234567890}},"tokens":{"0":{"s":"a\/b\u00e9","keyslots":[ "1" ,"7"]}},"e":1E+2}"#;

    #[test]
    fn edits_keep_other_values_byte_for_byte() {
        let added = set(ODD, &["keyslots"], "1", "{\"new\":1}".into()).unwrap();
        assert_eq!(
            added,
            r#"{"keyslots":{"7":{"type" : "odd","f":1.50,"big":123456789012345678901234567890},"1":{"new":1}},"tokens":{"0":{"s":"a\/b\u00e9","keyslots":[ "1" ,"7"]}},"e":1E+2}"#
        );
        let removed = remove(&added, &["keyslots"], "1").unwrap();
        assert_eq!(removed.replace("{\"keyslots", "{ \"keyslots"), ODD);
        let fewer = remove_item(ODD, &["tokens", "0", "keyslots"], "1").unwrap();
        assert!(fewer.contains(r#""s":"a\/b\u00e9","keyslots":["7"]"#));
        let more = push_item(&fewer, &["tokens", "0", "keyslots"], "3").unwrap();
        assert!(more.contains(r#""keyslots":["7","3"]"#));
        assert_eq!(raw(ODD, &["keyslots", "7"], "f").unwrap(), "1.50");
        assert_eq!(raw(ODD, &[], "e").unwrap(), "1E+2");
        assert!(raw(ODD, &["keyslots"], "8").is_err());
        let replaced = set(&more, &[], "e", "2".into()).unwrap();
        assert!(replaced.ends_with(r#","e":2}"#));
    }

    #[test]
    fn hostile_text_is_refused() {
        for bad in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":{"b":1,"b":1}}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"a":1}}"#,
            r#"{"a":1,}"#,
            r#"{'a':1}"#,
            r#"{"a":NaN}"#,
            r#"{"a":01}"#,
            "{\"a\":\"\n\"}",
            "{",
            "",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let deep = |levels| format!("{}{}", "{\"a\":".repeat(levels), "1") + &"}".repeat(levels);
        // The number is a level as well; a list of nothing has none inside.
        assert!(parse(&deep(DEPTH - 1)).is_ok());
        assert!(parse(&deep(DEPTH)).is_err());
        assert!(parse(&deep(DEPTH - 1).replace('1', "[]")).is_ok());
        assert!(parse(&deep(DEPTH - 1).replace('1', "[1]")).is_err());
        assert!(parse(&deep(100_000)).is_err());
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn the_area_ends_in_nuls() {
        assert_eq!(text_in(b"{}\0\0").unwrap(), "{}");
        for bad in [
            &b"{}"[..],
            b"{}\0x",
            b" {}\0",
            b"{} \0",
            b"\0\0",
            b"[]\0",
            b"{\xff}\0",
            b"",
        ] {
            assert!(text_in(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn strict_parsing_agrees_with_serde_json(text in "[\\[\\]{}:,\"a0-9.e-]{0,40}") {
            if let Ok(strict) = parse(&text) {
                prop_assert_eq!(strict, serde_json::from_str::<Value>(&text).unwrap());
            }
        }
    }
}
