//! Keys in the device's slots.

use std::sync::{MutexGuard, PoisonError};

use xtent_secret::SecretBytes;
use zeroize::Zeroizing;

use crate::registers as reg;
use crate::reset::Trouble;
use crate::shared::{Life, Shared, dead};
use crate::{Error, ErrorKind};

/// A key slot.
enum Place {
    Free,
    /// Nothing is in it any more, but the device may still have requests for it.
    Cleared,
    Loaded(Loaded),
    /// A command for it did not end: whatever is in it, only a reset takes it away. It may be held as one that is cleared.
    Unsure {
        is_held: bool,
    },
}

/// What is in a slot. The key is kept for after a reset, which wipes the slots.
struct Loaded {
    cipher: u8,
    is_aes256: bool,
    key: SecretBytes,
}

/// All key slots.
pub(crate) struct Keys {
    places: Vec<Place>,
}

impl Keys {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            places: (0..slots).map(|_| Place::Free).collect(),
        }
    }

    /// Nobody holds a slot any more that was cleared, or was to be.
    pub(crate) fn free(&mut self, slot: u8) {
        match self.places.get_mut(usize::from(slot)) {
            Some(Place::Unsure { is_held }) => *is_held = false,
            Some(place) => *place = Place::Free,
            None => {}
        }
    }

    /// A reset has wiped all slots.
    pub(crate) fn wiped(&mut self) {
        for place in &mut self.places {
            match place {
                Place::Unsure { is_held: true } => *place = Place::Cleared,
                Place::Unsure { is_held: false } => *place = Place::Free,
                _ => {}
            }
        }
    }
}

impl Shared {
    pub(crate) fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads a key into a slot that is free, and gives its number.
    pub(crate) fn load_key(&self, cipher: u8, is_aes256: bool, key: &[u8]) -> Result<u8, Error> {
        let mut keys = self.keys();
        match &self.lock().life {
            Life::Up => {}
            Life::Dead(reason) => return Err(dead(reason)),
            // The reset is about to begin, and may be the last one.
            Life::Resetting => {
                let message = "the engine is about to be reset";
                return Err(Error::new(ErrorKind::Dead, message));
            }
        }
        let free = keys
            .places
            .iter()
            .position(|place| matches!(place, Place::Free));
        let Some((number, slot)) = free.and_then(|n| Some((n, u8::try_from(n).ok()?))) else {
            let message = format!(
                "all {} key slots of the engine are taken",
                keys.places.len()
            );
            return Err(Error::new(ErrorKind::Slots, message));
        };
        let key = SecretBytes::copy_of(key)
            .map_err(|e| Error::by(ErrorKind::Memory, "cannot keep the key", e))?;
        let loaded = Loaded {
            cipher,
            is_aes256,
            key,
        };
        if let Err(error) = self.command(slot, 1, Some(&loaded)) {
            // What it refuses it has not loaded; of what it does not answer to nobody knows.
            if error.kind() != ErrorKind::Unsupported {
                keys.places[number] = Place::Unsure { is_held: false };
                self.reset_soon(&error);
            }
            return Err(error);
        }
        keys.places[number] = Place::Loaded(loaded);
        Ok(slot)
    }

    /// Loads all keys again, after a reset.
    pub(crate) fn load_again(&self, keys: &Keys) -> Result<(), Error> {
        for (slot, place) in (0_u8..).zip(&keys.places) {
            if let Place::Loaded(loaded) = place {
                self.command(slot, 1, Some(loaded))?;
            }
        }
        Ok(())
    }

    /// Wipes a slot. It is not free before [`Keys::free`].
    pub(crate) fn clear_key(&self, slot: u8) {
        let mut keys = self.keys();
        let Some(place) = keys.places.get_mut(usize::from(slot)) else {
            return;
        };
        *place = Place::Cleared;
        if !matches!(self.lock().life, Life::Up) {
            // A reset has wiped it, or waits for the keys to do it.
            return;
        }
        if let Err(error) = self.command(slot, 2, None) {
            *place = Place::Unsure { is_held: true };
            self.reset_soon(&error);
        }
    }

    /// Has the device reset that did not carry out a key command.
    fn reset_soon(&self, error: &Error) {
        let mut core = self.lock();
        core.note(Trouble::of_key(error));
        drop(core);
        self.kick();
    }

    /// Carries out a key command, with the keys' lock held.
    fn command(&self, slot: u8, command: u32, loaded: Option<&Loaded>) -> Result<(), Error> {
        let mut word =
            u32::from(slot) << reg::KEY_CMD_SLOT_LOW | command << reg::KEY_CMD_COMMAND_LOW;
        if let Some(loaded) = loaded {
            for (register, bytes) in (reg::REG_KEY_DATA..).step_by(4).zip(loaded.key.chunks(4)) {
                let mut value = Zeroizing::new([0; 4]);
                value[..bytes.len()].copy_from_slice(bytes);
                self.port.write_secret(register, &value)?;
            }
            word |= u32::from(loaded.cipher) << reg::KEY_CMD_CIPHER_LOW
                | u32::from(loaded.is_aes256) << reg::KEY_CMD_KEY_BITS_LOW;
        }
        self.port.write(reg::REG_KEY_CMD, word)?;
        let status = self.read_until(reg::REG_KEY_STATUS, "carry out a key command", |status| {
            status >> reg::KEY_STATUS_BUSY_LOW & 1 == 0
        })?;
        let result =
            status >> reg::KEY_STATUS_RESULT_LOW & ((1 << reg::KEY_STATUS_RESULT_BITS) - 1);
        let what = match u8::try_from(result).unwrap_or(u8::MAX) {
            reg::KEY_RESULT_DONE => return Ok(()),
            reg::KEY_RESULT_EQUAL => "the two halves of the key are the same",
            reg::KEY_RESULT_SLOT => "no such slot",
            reg::KEY_RESULT_CIPHER => "no such cipher",
            reg::KEY_RESULT_LENGTH => "no such key length",
            _ => "no such command",
        };
        let message = format!("the engine refuses the key: {what}");
        Err(Error::new(ErrorKind::Unsupported, message))
    }
}
