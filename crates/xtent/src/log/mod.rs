//! Logs for people who look for a fault, on standard error: what happened, with
//! its values as `name=value`. Where that is systemd's journal, the values are
//! fields of the entry as well. Never a secret.

mod journal;

use std::fmt;
use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Format, Full, Writer, debug_fn};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

use self::journal::Journal;
use crate::cli::Global;
use crate::output::in_one_line;

/// Starts logging as `-v` and `--quiet` say.
pub(crate) fn start(global: &Global) {
    let level = match (global.quiet, global.verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, 2) => LevelFilter::DEBUG,
        (false, _) => LevelFilter::TRACE,
    };
    let is_journal = is_journal();
    if is_journal && let Ok(journal) = Journal::new(global.verbose > 1) {
        let subscriber = tracing_subscriber::registry().with(journal).with(level);
        // Nothing else in this process sets one.
        let _ = tracing::subscriber::set_global_default(subscriber);
        return;
    }
    // Without the journal's socket, as in a container, its lines have a priority at least.
    let format = Prioritized {
        inner: tracing_subscriber::fmt::format()
            .without_time()
            .with_target(global.verbose > 1),
        is_journal,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // Its complaint about a closed terminal would be a panic.
        .log_internal_errors(false)
        .fmt_fields(in_one_line_each())
        .event_format(format)
        .finish();
    // Nothing else in this process sets one.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Fields as ever, but with nothing in them that a terminal would obey, nor a line's end: names
/// of files and texts of headers may come from somebody else.
fn in_one_line_each() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
    debug_fn(|writer, field, value| {
        let text = format!("{value:?}");
        let text = in_one_line(&text);
        match field.name() {
            "message" => write!(writer, "{text}"),
            name => write!(writer, "{name}={text}"),
        }
    })
    .delimited(" ")
}

/// Whether standard error goes to systemd's journal (systemd.exec(5),
/// `$JOURNAL_STREAM`).
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    rustix::fs::fstat(rustix::stdio::stderr())
        .is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Lines as ever, for the journal with their priority in front (sd-daemon(3)).
struct Prioritized {
    inner: Format<Full, ()>,
    is_journal: bool,
}

impl<S, N> FormatEvent<S, N> for Prioritized
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.is_journal {
            write!(writer, "<{}>", priority(*event.metadata().level()))?;
        }
        self.inner.format_event(context, writer, event)
    }
}

/// syslog(3)'s number.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}
