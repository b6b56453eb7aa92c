//! A connection's handshake, until its client has chosen an export.

use std::io::IoSlice;

use super::Shared;
use crate::nbd::exports::Visit;
use crate::nbd::input::Input;
use crate::nbd::port::{Closed, For, Port};
use crate::nbd::proto::{self, Handshake, Progress, Session};

/// What was settled, and the client's time with its export, which has begun.
pub(super) fn handshake(
    shared: &Shared,
    port: &mut Port,
    input: &mut Input,
) -> Result<(Session, Visit), Closed> {
    let tls = shared.tls.as_ref();
    let mut handshake = Handshake::new(
        &[],
        match tls.map(|tls| tls.required) {
            None => proto::Tls::Off,
            Some(false) => proto::Tls::Allowed,
            Some(true) => proto::Tls::Required,
        },
    );
    loop {
        if port.check_stop() {
            handshake.shut_down();
        }
        let (served, infos) = shared.exports.offered();
        handshake.set_exports(infos);
        let (used, progress) = handshake.step(input.bytes());
        input.consume(used);
        let visit = match &progress {
            Progress::Transmission(session) => {
                let served = served.get(session.export);
                let visit = served
                    .and_then(|it| Visit::begin(&shared.exports, it, &port.link, shared.workers));
                // Before it is told that it may go on.
                Some(visit.ok_or(Closed::Handshake("the export is ending"))?)
            }
            _ => None,
        };
        let output = handshake.take_output();
        if !output.is_empty() {
            let (mut turn, ()) = port.take_turn(|| ())?;
            turn.send(port, &mut [IoSlice::new(&output)])?;
        }
        match (progress, visit) {
            (Progress::Transmission(session), Some(visit)) => {
                port.choose(visit.served());
                return Ok((session, visit));
            }
            // Whoever is in between could have put it there, to be taken for the client's own words.
            (Progress::StartTls, _) if !input.bytes().is_empty() => {
                return Err(Closed::Handshake(
                    "data in the clear behind the wish for TLS",
                ));
            }
            (Progress::StartTls, _) => {
                if let Some(tls) = tls {
                    handshake.secured(port.start_tls(&tls.server)?);
                }
            }
            (Progress::Close(reason), _) => return Err(Closed::Handshake(reason)),
            (Progress::Continue, _) if used > 0 => {}
            _ => {
                if port.expired() {
                    return Err(Closed::TimedOut("handshake"));
                }
                let room = input.room_for_messages();
                let received = loop {
                    match port.try_receive(room, "in the handshake")? {
                        Some(received) => break received,
                        None if port.check_stop() => return Err(Closed::Stopping),
                        None => port.wait(For::Input)?,
                    }
                };
                input.received(received);
            }
        }
    }
}
