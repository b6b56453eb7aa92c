//! A key in an engine.

use std::future::Future;

use crate::{Direction, Error, ErrorKind};

/// A key in an engine, wiped there when dropped.
pub struct Keyed;

impl Keyed {
    /// Encrypts or decrypts whole sectors in place, the first of which has the tweak `first_tweak` (as a number, as dm-crypt's
    /// `plain64` counts). The memory comes back with the result. After an error it is not to be used: some of its
    /// sectors may be done and others not.
    ///
    /// # Errors
    /// [`ErrorKind::Request`], [`ErrorKind::Failed`], [`ErrorKind::Dead`].
    pub fn crypt<T>(
        &self,
        _direction: Direction,
        _first_tweak: u128,
        data: T,
    ) -> impl Future<Output = (T, Result<(), Error>)> + Send + 'static
    where
        T: AsMut<[u8]> + Send + 'static,
    {
        async move { (data, Err(Error::new(ErrorKind::Dead, "no engine"))) }
    }
}
