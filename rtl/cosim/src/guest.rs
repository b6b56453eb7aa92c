//! A guest that has connected over vhost-user, and the PCI function that it sees.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::function::{self, Command, Function, Registers};
use crate::mappings::Mappings;
use crate::vhost_user::{Event, Session};
use crate::virtqueue::{Chain, Wrong};

/// The queue of commands.
pub const COMMANDS: usize = 0;
/// The queue of interrupts.
pub const INTERRUPTS: usize = 1;

/// A connected guest.
#[derive(Debug)]
pub struct Guest {
    /// Its connection.
    pub session: Session,
    function: Function,
    memory: Arc<Mappings>,
}

/// A command that waits to be carried out.
#[derive(Debug)]
pub struct Pending {
    chain: Chain,
    command: Command,
}

impl Pending {
    /// Whether it has an answer that the guest waits for.
    pub fn is_read(&self) -> bool {
        self.command.answer() != 0
    }
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

impl Guest {
    /// A guest that has just connected to a device after power-on, with so many vectors.
    pub fn new(stream: UnixStream, vectors: u16, memory: &Arc<Mappings>) -> Self {
        Self {
            session: Session::new(stream, Arc::clone(memory)),
            function: Function::new(vectors),
            memory: Arc::clone(memory),
        }
    }

    /// The next command, if there is one.
    ///
    /// # Errors
    /// The queue, or the command, is not in order.
    pub fn next_command(&mut self) -> io::Result<Option<Pending>> {
        let mut next = || -> Result<Option<Pending>, String> {
            let Some(chain) = self.session.queues[COMMANDS].pop(&self.memory)? else {
                return Ok(None);
            };
            let command = Command::parse(&chain.read(&self.memory, function::MOST)?)?;
            if chain.room() < command.answer() as u64 {
                return Err("a command without room for its answer".into());
            }
            Ok(Some(Pending { chain, command }))
        };
        next().map_err(invalid)
    }

    /// Carries out a command, and answers it.
    ///
    /// # Errors
    /// The model has stopped, or the queue is not in order.
    pub fn carry_out(
        &mut self,
        pending: &Pending,
        registers: &mut impl Registers,
    ) -> io::Result<()> {
        let answer = self.function.carry_out(&pending.command, registers)?;
        self.memory.set_master(self.function.is_bus_master());
        let written = u32::try_from(answer.len()).unwrap_or(u32::MAX);
        let queue = &mut self.session.queues[COMMANDS];
        pending
            .chain
            .write(&self.memory, &answer)
            .and_then(|()| queue.push(&self.memory, &pending.chain, written))
            .map_err(invalid)
    }

    /// An interrupt comes; [`Guest::send_interrupts`] sends what is not masked.
    pub fn raise(&mut self, vector: usize) {
        self.function.raise(vector);
    }

    /// Sends messages of interrupts, as far as the guest has left room for them. Whether there were any.
    ///
    /// # Errors
    /// The queue is not in order.
    pub fn send_interrupts(&mut self) -> io::Result<bool> {
        let mut sent = false;
        loop {
            let queue = &mut self.session.queues[INTERRUPTS];
            // What does not fit stays pending, as a mask would have it.
            if queue.waiting(&self.memory).map_err(invalid)? == 0 {
                return Ok(sent);
            }
            let Some(message) = self.function.next_message() else {
                return Ok(sent);
            };
            let bytes = function::interrupt(message);
            let mut send = || -> Result<(), Wrong> {
                if let Some(chain) = queue.pop(&self.memory)? {
                    chain.write(&self.memory, &bytes)?;
                    queue.push(&self.memory, &chain, function::INTERRUPT)?;
                }
                Ok(())
            };
            send().map_err(invalid)?;
            sent = true;
        }
    }

    /// Which queues the guest wants to hear of, of those that something was given back in.
    ///
    /// # Errors
    /// The queue is not in order.
    pub fn wants_call(&self, queue: usize) -> io::Result<bool> {
        self.session.queues[queue]
            .wants_calls(&self.memory)
            .map_err(invalid)
    }

    /// Deals with what the guest has put into a queue, when nobody counts its time.
    ///
    /// # Errors
    /// The queue, or a command, is not in order; the model has stopped; the socket's.
    pub fn serve(&mut self, event: Event, registers: &mut impl Registers) -> io::Result<()> {
        if event == Event::Kick(COMMANDS) {
            let mut any = false;
            while let Some(pending) = self.next_command()? {
                self.carry_out(&pending, registers)?;
                any = true;
            }
            if any && self.wants_call(COMMANDS)? {
                self.session.call(COMMANDS)?;
            }
        }
        self.deliver()
    }

    /// Sends interrupts, and tells of them.
    ///
    /// # Errors
    /// The queue is not in order; the socket's.
    pub fn deliver(&mut self) -> io::Result<()> {
        if self.send_interrupts()? && self.wants_call(INTERRUPTS)? {
            self.session.call(INTERRUPTS)?;
        }
        Ok(())
    }
}
