//! The vectors by which Linux tests its ciphers, read from `crypto/testmgr.h` of a kernel's
//! source. That file is under the GPL: nothing of it is kept here.
extern crate std;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

/// Those of one template, of the file that the environment variable `XTENT_TESTMGR` names.
/// There are `least` in Linux 6.1. The tests of these vectors are called `kernel_vectors`, and
/// `make kernel-test` runs them.
///
/// # Panics
/// If the variable is not set, or the file is not as the kernel's, or there are fewer.
pub(crate) fn kernel(template: &str, least: usize) -> Vec<Value> {
    let Some(path) = std::env::var_os("XTENT_TESTMGR") else {
        panic!("XTENT_TESTMGR names no crypto/testmgr.h of a kernel's source");
    };
    let source = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("XTENT_TESTMGR={}: {error}", path.display()));
    let vectors = template_of(&source, template);
    assert!(
        vectors.len() >= least,
        "{template}: {} vectors, fewer than {least}",
        vectors.len()
    );
    vectors
}

/// A word of C.
#[derive(PartialEq, Debug)]
enum Token {
    Text(Vec<u8>),
    Word(String),
    Mark(char),
}

/// The vectors of `struct cipher_testvec` in the template of that name.
fn template_of(source: &str, name: &str) -> Vec<Value> {
    let head = format!("struct cipher_testvec {name}[] = {{");
    let start = source.find(&head).unwrap_or_else(|| panic!("no {name}"));
    let body = &source[start + head.len()..];
    let mut tokens = Tokens(body);
    let mut vectors = Vec::new();
    loop {
        match tokens.next() {
            Token::Mark('{') => vectors.push(vector(&mut tokens)),
            Token::Mark(',') => {}
            Token::Mark('}') => return vectors,
            other => panic!("{name}: {other:?} where a vector should begin"),
        }
    }
}

/// One vector, behind its opening brace.
fn vector(tokens: &mut Tokens<'_>) -> Value {
    let mut texts = BTreeMap::new();
    let mut numbers = BTreeMap::new();
    loop {
        match tokens.next() {
            Token::Mark('}') => break,
            Token::Mark(',') => {}
            Token::Mark('.') => field(tokens, &mut texts, &mut numbers),
            other => panic!("{other:?} in a vector"),
        }
    }
    for (text, number) in [("key", "klen"), ("ptext", "len"), ("ctext", "len")] {
        assert_eq!(texts[text].len(), numbers[number], "length of .{text}");
    }
    let hex = |name: &str| {
        let mut hex = String::new();
        for byte in &texts[name] {
            write!(hex, "{byte:02x}").unwrap();
        }
        hex
    };
    json!({ "key": hex("key"), "tweak": hex("iv"), "pt": hex("ptext"), "ct": hex("ctext") })
}

/// `name = value`, behind its dot and up to the mark that ends it.
fn field(
    tokens: &mut Tokens<'_>,
    texts: &mut BTreeMap<String, Vec<u8>>,
    numbers: &mut BTreeMap<String, usize>,
) {
    let (Token::Word(name), Token::Mark('=')) = (tokens.next(), tokens.next()) else {
        panic!("no field");
    };
    // An error that is expected, for one, would be a vector of another kind.
    let known = [
        "key",
        "klen",
        "iv",
        "iv_out",
        "ptext",
        "ctext",
        "len",
        "fips_skip",
    ];
    assert!(known.contains(&name.as_str()), "unknown field .{name}");
    loop {
        match tokens.next() {
            Token::Text(bytes) => texts.entry(name.clone()).or_default().extend(bytes),
            Token::Word(number) => {
                *numbers.entry(name.clone()).or_default() += number.parse::<usize>().unwrap();
            }
            Token::Mark('+') => {}
            Token::Mark(',') => return,
            other => panic!(".{name}: {other:?}"),
        }
    }
}

/// What is left of the source.
struct Tokens<'a>(&'a str);

impl Tokens<'_> {
    fn next(&mut self) -> Token {
        self.0 = self.0.trim_start();
        while let Some(comment) = self.0.strip_prefix("/*") {
            self.0 = comment.split_once("*/").unwrap().1.trim_start();
        }
        let first = self.0.chars().next().expect("the source goes on");
        if first == '"' {
            return Token::Text(self.text());
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let len = self.0.find(|c| !is_word(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(len.max(first.len_utf8()));
        self.0 = rest;
        if is_word(first) {
            Token::Word(word.to_string())
        } else {
            Token::Mark(first)
        }
    }

    /// A string, in its quotes.
    fn text(&mut self) -> Vec<u8> {
        let source = self.0.as_bytes();
        let mut bytes = Vec::new();
        let mut at = 1;
        while source[at] != b'"' {
            if source[at] != b'\\' {
                bytes.push(source[at]);
                at += 1;
            } else if source[at + 1] == b'x' {
                let digits = &self.0[at + 2..at + 4];
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                at += 4;
                // C would take a third digit for one of the same byte.
                assert!(!source[at].is_ascii_hexdigit(), "\\x{digits} goes on");
            } else {
                bytes.push(match source[at + 1] {
                    b'n' => b'\n',
                    b'0' => 0,
                    other => panic!("escape {}", char::from(other)),
                });
                at += 2;
            }
        }
        self.0 = &self.0[at + 1..];
        bytes
    }
}

#[test]
fn templates_are_read_as_c_has_them() {
    let source = r#"
        static const struct cipher_testvec other[] = { { .key = "x", } };
        /* ours */
        static const struct cipher_testvec ours[] = {
            { /* one */
                .key = "\x00\xfF"
                       "ab", /* } */
                .klen = 2 + 2,
                .iv = "\x01",
                .fips_skip = 1,
                .ptext = "a,}\n",
                .ctext = "\x10\x11\x12\x13",
                .len = 4,
            }, {
                .key = "k", .klen = 1, .iv = "", .ptext = "p", .ctext = "c", .len = 1,
            },
        };
        static const struct cipher_testvec another[] = { };
    "#;
    assert_eq!(
        template_of(source, "ours"),
        [
            json!({"key": "00ff6162", "tweak": "01", "pt": "612c7d0a", "ct": "10111213"}),
            json!({"key": "6b", "tweak": "", "pt": "70", "ct": "63"}),
        ]
    );
    assert_eq!(template_of(source, "another"), [Value::Null; 0]);
}
