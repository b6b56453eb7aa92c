//! Connections that are made anew while all is well, since a connection has the size of its beginning.
//!
//! The server may carry out a request for as long as it has not been answered, and may lose what it was not
//! told to flush. So everything is answered and flushed before a connection is given up. From then on
//! it is as with lost connections, with nothing to be sent again.

use super::{Phase, State, Todo};

impl State {
    /// Has all connections made anew once everything under way has been answered. What comes
    /// meanwhile waits.
    ///
    /// # Errors
    /// If there are none, or flushes fail: why.
    pub(crate) fn renew(&mut self, todo: &mut Todo) -> Result<(), String> {
        if !matches!(self.phase, Phase::Serving) {
            return Err(format!("the connection was lost: {}", self.why));
        }
        if let Some(why) = &self.flush_failure {
            return Err(why.clone());
        }
        self.is_renewing = true;
        self.go_on_renewing(todo);
        Ok(())
    }

    /// Whether that is still waited for.
    pub(crate) fn is_renewing(&self) -> bool {
        self.is_renewing
    }

    /// Stays with the connections that there are.
    pub(crate) fn stop_renewing(&mut self, todo: &mut Todo) {
        self.is_renewing = false;
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
            self.lost("it is made anew, since the export has grown".to_owned());
            todo.wake = true;
        }
    }
}

#[cfg(test)]
mod tests;
