//! Which tokens are tried, on what, and what others get to see.

use serde_json::{Value, json};

use super::*;

/// Three keyslots that open (0 "ignore", 1 normal, 2 preferred) and tokens for them.
fn image() -> Vec<u8> {
    let image = changed(volume(), |device| {
        let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
        for key in ["one", "two"] {
            device
                .add_key(&unlocked, &word(key), None, &fast())
                .unwrap();
        }
    });
    let mut document: Value = serde_json::from_str(&text(&image)).unwrap();
    document["keyslots"]["0"]["priority"] = json!(0);
    document["keyslots"]["2"]["priority"] = json!(2);
    document["tokens"] = json!({
        "0": {"type": "a", "keyslots": ["0"], "n": 1},
        "1": {"type": "b", "keyslots": ["1", "0"]},
        "2": {"type": "c", "keyslots": []},
        "7": {"type": "d", "keyslots": ["1", "2", "1", "2"]},
    });
    sealed(&image, &document.to_string())
}

fn found(token: Option<u32>, keyslot: Option<u32>) -> Vec<(u32, Vec<u32>)> {
    read(&image())
        .unwrap()
        .openers(token, keyslot)
        .unwrap()
        .into_iter()
        .map(|token| (token.id, token.keyslots))
        .collect()
}

#[test]
fn tokens_come_by_the_priority_of_their_keyslots() {
    assert_eq!(found(None, None), [(7, vec![2, 1]), (1, vec![1])]);
}

#[test]
fn keyslots_to_be_ignored_count_when_something_is_named() {
    assert_eq!(found(Some(0), None), [(0, vec![0])]);
    assert_eq!(found(None, Some(0)), [(0, vec![0]), (1, vec![0])]);
    assert_eq!(found(Some(1), Some(2)), []);
    assert_eq!(found(Some(9), None), []);
}

#[test]
fn a_token_is_given_as_it_is_written() {
    let header = read(&image()).unwrap();
    let token = &header.openers(Some(0), None).unwrap()[0];
    assert_eq!(token.kind, "a");
    let json: Value = serde_json::from_str(&token.json).unwrap();
    assert_eq!(json, json!({"type": "a", "keyslots": ["0"], "n": 1}));
}

/// Plugins get a header that reads as the volume's, and no byte of a keyslot.
#[test]
fn the_copy_for_others_has_the_metadata_and_nothing_else() {
    let image = image();
    let header = read(&image).unwrap();
    let mut copy = header.without_key_material().unwrap().unwrap();
    assert_eq!(copy.len(), AREAS);
    copy.resize(SIZE, 0);
    let again = read(&copy).unwrap();
    assert_eq!(text(&copy), text(&image));
    assert_eq!(again.uuid(), header.uuid());
    assert!(!again.is_recovered());
}
