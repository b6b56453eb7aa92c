//! Nobody is timed whose output is wrong.

use sector_cipher::Backend;

use crate::contestant::{Entry, Task, UNIT};
use crate::measure::Buffer;

/// More than a back-end has in flight, and no power of two.
const SECTORS: usize = 70;

/// Every contestant's ciphertext is that of our portable back-end, if it claims
/// to be the same cipher, and every one gets its plaintext back.
pub(crate) fn verify(task: &Task, entries: &mut [Entry]) -> Result<(), String> {
    let len = SECTORS * task.sector;
    // Across a number that needs more than 32 bits.
    let first = (1 << 32) - 8 * (task.sector / UNIT) as u64;
    let plain: Vec<u8> = (0..=u8::MAX).cycle().step_by(167).take(len).collect();
    let mut expected = plain.clone();
    task.cipher(Backend::Portable).encrypt(first, &mut expected);
    let mut buffer = Buffer::new(len);
    for entry in entries {
        let wrong = |what| {
            Err(format!(
                "{}: {} in runs of {}: {what} is wrong",
                task.title(),
                entry.name,
                entry.run
            ))
        };
        let data = buffer.get(len);
        data.copy_from_slice(&plain);
        entry.contestant.crypt(true, first, data);
        let cipher = entry.contestant.result(data).to_vec();
        if entry.same_cipher && cipher != expected {
            return wrong("its ciphertext");
        }
        if cipher == plain {
            return wrong("its ciphertext");
        }
        let data = buffer.get(len);
        data.copy_from_slice(&cipher);
        entry.contestant.crypt(false, first, data);
        if entry.contestant.result(data) != plain {
            return wrong("its plaintext");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::Contestant;

    /// Flips a bit of every byte, or none.
    struct Flip(u8);

    impl Contestant for Flip {
        fn crypt(&mut self, _encrypt: bool, _first: u64, data: &mut [u8]) {
            data.iter_mut().for_each(|byte| *byte ^= self.0);
        }
    }

    fn verdict(mask: u8, same_cipher: bool) -> bool {
        let task = Task {
            spec: "aes-xts-plain64".parse().unwrap(),
            key_len: 64,
            sector: 512,
        };
        let entry = Entry {
            name: "flip".to_owned(),
            backend: None,
            run: 1,
            same_cipher,
            contestant: Box::new(Flip(mask)),
        };
        verify(&task, &mut [entry]).is_ok()
    }

    #[test]
    fn wrong_ciphertext_is_noticed() {
        assert!(!verdict(1, true));
        assert!(!verdict(0, false));
        // Another cipher has only to undo what it does.
        assert!(verdict(1, false));
    }
}
