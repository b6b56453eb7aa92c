//! Connections that are made anew while all is well, since a connection has the size of its beginning.
//!
//! The server may carry out a request for as long as it has not been answered, and may lose what it was not
//! told to flush. So everything is answered and flushed before a connection is given up. From then on
//! it is as with lost connections, with nothing to be sent again.
//!
//! Where connections see each other's writes and flushes, one that was made before may take the place of the first: then
//! nothing depends on whether the server takes another.

use std::sync::Arc;

use xtent_nbd::client::Negotiated;

use super::{Phase, State, Todo};
use crate::connection::Connection;

/// A connection that is to be the first, and what was agreed on with it.
pub(crate) type Successor = (Arc<Connection>, Negotiated);

impl State {
    /// Has all connections made anew once everything under way has been answered, the first as that one, if
    /// there is one. What comes meanwhile waits.
    ///
    /// # Errors
    /// If there are none, or flushes fail: why.
    pub(crate) fn renew(
        &mut self,
        successor: Option<Successor>,
        todo: &mut Todo,
    ) -> Result<(), String> {
        if !matches!(self.phase, Phase::Serving) {
            return Err(format!("the connection was lost: {}", self.why));
        }
        if let Some(why) = &self.flush_failure {
            return Err(why.clone());
        }
        self.is_renewing = true;
        self.successor = successor;
        self.go_on_renewing(todo);
        Ok(())
    }

    /// Whether that is still waited for.
    pub(crate) fn is_renewing(&self) -> bool {
        self.is_renewing
    }

    /// Whether connections were given up to be made anew, and none has taken their place yet.
    pub(crate) fn is_between(&self) -> bool {
        self.is_between
    }

    /// Whether the first of them is there already.
    pub(crate) fn has_successor(&self) -> bool {
        self.is_between && self.successor.is_some()
    }

    /// What is to be the first connection, if the old ones are gone and it was made before.
    pub(crate) fn take_successor(&mut self) -> Option<Successor> {
        match self.is_between {
            true => self.successor.take(),
            false => None,
        }
    }

    /// Stays with the connections that there are.
    pub(crate) fn stop_renewing(&mut self, todo: &mut Todo) {
        self.is_renewing = false;
        if let Some((connection, _)) = self.successor.take() {
            connection.say_goodbye();
        }
        self.tend_journal(todo);
        todo.wake = true;
    }

    /// Does what comes next once everything has been answered.
    pub(super) fn go_on_renewing(&mut self, todo: &mut Todo) {
        if !self.is_renewing || !self.pending.is_empty() {
            return;
        }
        if self.flush_failure.is_some() {
            self.stop_renewing(todo);
        } else if self.journal.bytes() > 0 {
            self.flush_journal(todo);
        } else {
            for connection in self.connections.iter().flatten() {
                connection.say_goodbye();
            }
            let successor = self.successor.take();
            self.lost("it is made anew, since the export has grown".to_owned());
            (self.successor, self.is_between) = (successor, true);
            todo.wake = true;
        }
    }
}

#[cfg(test)]
mod tests;
