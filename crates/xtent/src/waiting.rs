//! The servers that this process may be waiting for, for whoever asks it to end.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use xtent_upstream::{Upstream, Uri, Waiting};

use crate::output::complain;

/// Every server's client that was opened. Signals come from outside to all of the process.
static SERVERS: Mutex<Vec<Weak<Upstream>>> = Mutex::new(Vec::new());

/// How often the one who waits is told anew whether there is something to say.
const AGAIN: Duration = Duration::from_millis(500);

/// From now on the end may wait for this one.
pub(crate) fn may_wait_for(upstream: &Arc<Upstream>) {
    servers().push(Arc::downgrade(upstream));
}

/// The end has been asked for: says what it waits for, now or once it does, until the process is
/// gone, and which signal ends it all the same.
pub(crate) fn tell(last: &'static str) {
    if servers().is_empty() {
        return;
    }
    // Without the thread nothing is said, and everything ends as it would have.
    let _ = thread::Builder::new()
        .name("waiting".to_owned())
        .spawn(move || {
            let mut said = String::new();
            loop {
                if let Some((uri, waiting)) = longest()
                    && said != kind(&waiting)
                {
                    complain(&format!(
                        "xtent: waiting for {uri}, {} seconds at most before it counts as gone \
                         ({}); a {last} signal ends at once, and what was not flushed may be lost",
                        waiting.at_most.as_secs() + 1,
                        waiting.why
                    ));
                    said = kind(&waiting).to_owned();
                }
                thread::sleep(AGAIN);
            }
        });
}

/// What it is about: how a try to connect failed is no news.
fn kind(waiting: &Waiting) -> &str {
    waiting.why.split(':').next().unwrap_or_default()
}

/// Whether the end would wait now.
pub(crate) fn is_waiting() -> bool {
    longest().is_some()
}

fn longest() -> Option<(Uri, Waiting)> {
    let servers: Vec<_> = servers().iter().filter_map(Weak::upgrade).collect();
    servers
        .iter()
        .filter_map(|server| Some((server.uri().clone(), server.waiting()?)))
        .max_by_key(|(_, waiting)| waiting.at_most)
}

fn servers() -> std::sync::MutexGuard<'static, Vec<Weak<Upstream>>> {
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}
