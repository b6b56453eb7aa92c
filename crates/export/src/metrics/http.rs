//! As much of HTTP/1.1 as a scraper needs: `GET` and `HEAD` of one page, a connection each.
//!
//! Nothing of it can ask for more than the page, and nobody holds up another for longer than
//! [`PATIENCE`]: clients are served beside each other, a few at a time.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::Error;
use crate::Shutdown;
use crate::nbd::Listener;

/// Longest request that is read, in bytes: its first line and headers.
const LONGEST: usize = 8 << 10;
/// Most headers.
const HEADERS: usize = 64;
/// How long a client may take to send its request, and again to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a client that could not be accepted, before the next look.
const PAUSE: Duration = Duration::from_millis(100);
/// Clients at a time; more are disconnected.
const CLIENTS: usize = 8;
const METRICS: &str = "/metrics";

/// What a request is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// More of it is needed.
    Incomplete,
    /// The metrics; without the page itself if only the head was asked for.
    Metrics {
        /// Whether only the head was asked for.
        head: bool,
    },
    /// An error, by its number and text in HTTP.
    Refusal(u16, &'static str),
}

/// What is to be answered to a request of which these bytes have come.
pub fn answer(request: &[u8]) -> Answer {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if request.len() < LONGEST => return Answer::Incomplete,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Answer::Refusal(431, "Request Header Fields Too Large");
        }
        Err(_) => return Answer::Refusal(400, "Bad Request"),
    }
    let path = parsed.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    match (path, parsed.method) {
        (METRICS, Some("GET")) => Answer::Metrics { head: false },
        (METRICS, Some("HEAD")) => Answer::Metrics { head: true },
        (METRICS, _) => Answer::Refusal(405, "Method Not Allowed"),
        _ => Answer::Refusal(404, "Not Found"),
    }
}

/// Answers scrapers with what `page` makes, until `shutdown`.
///
/// # Errors
/// A listening socket that cannot be waited for.
pub fn serve(
    listeners: &[Listener],
    page: &(dyn Fn() -> String + Sync),
    shutdown: &Shutdown,
) -> Result<(), Error> {
    for listener in listeners {
        listener
            .set_nonblocking()
            .map_err(|error| Error::io("cannot set up the socket for metrics", error))?;
    }
    let clients = AtomicUsize::new(0);
    thread::scope(|scope| {
        let mut pause = None;
        while !shutdown.is_triggered() {
            let mut fds = vec![PollFd::from_borrowed_fd(shutdown.event(), PollFlags::IN)];
            let sockets = listeners.iter().map(AsFd::as_fd);
            if pause.is_none() {
                fds.extend(sockets.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            }
            match poll(&mut fds, pause.take().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(Error::io("cannot wait for scrapers", error)),
            }
            for listener in listeners {
                // A scraper that cannot be had will try again.
                let socket = match listener.accept() {
                    Ok(socket) => socket,
                    Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => continue,
                    // It stays there, and the next look would find it at once.
                    Err(_) => {
                        pause = Timespec::try_from(PAUSE).ok();
                        continue;
                    }
                };
                if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS {
                    clients.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let clients = &clients;
                let talk = move || {
                    if let Err(error) = talk(listener, socket, page) {
                        tracing::debug!(%error, "a scraper went away");
                    }
                    clients.fetch_sub(1, Ordering::Relaxed);
                };
                let builder = thread::Builder::new().name("metrics".into());
                if builder.spawn_scoped(scope, talk).is_err() {
                    clients.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    })
}

fn talk(listener: &Listener, socket: OwnedFd, page: &dyn Fn() -> String) -> io::Result<()> {
    match listener {
        Listener::Unix(_) => {
            let mut socket = UnixStream::from(socket);
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))?;
            exchange(&mut socket, page)
        }
        Listener::Tcp(_) => {
            let mut socket = TcpStream::from(socket);
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))?;
            exchange(&mut socket, page)
        }
    }
}

fn exchange(socket: &mut (impl Read + Write), page: &dyn Fn() -> String) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    let answer = loop {
        match answer(&request) {
            Answer::Incomplete if Instant::now() >= until => {
                break Answer::Refusal(408, "Request Timeout");
            }
            Answer::Incomplete => match socket.read(&mut part)? {
                0 => return Ok(()),
                read => request.extend_from_slice(&part[..read]),
            },
            answer => break answer,
        }
    };
    let (status, kind, body, head) = match answer {
        Answer::Metrics { head } => (
            "200 OK".to_owned(),
            "text/plain; version=0.0.4; charset=utf-8",
            page(),
            head,
        ),
        Answer::Refusal(number, text) => (
            format!("{number} {text}"),
            "text/plain; charset=utf-8",
            format!("{text}. The metrics are at {METRICS}.\n"),
            false,
        ),
        Answer::Incomplete => return Ok(()),
    };
    let length = body.len();
    let mut reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    if !head {
        reply.push_str(&body);
    }
    // However slowly it reads.
    let until = Instant::now() + PATIENCE;
    let mut rest = reply.as_bytes();
    while !rest.is_empty() {
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match socket.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_is_there_and_nothing_else() {
        let get = |text: &str| answer(text.as_bytes());
        let metrics = |head| Answer::Metrics { head };
        assert_eq!(
            get("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
            metrics(false)
        );
        assert_eq!(get("GET /metrics?a=b HTTP/1.0\r\n\r\n"), metrics(false));
        assert_eq!(get("HEAD /metrics HTTP/1.1\r\n\r\n"), metrics(true));
        assert_eq!(get("GET /metrics HTTP/1.1\r\nHost:"), Answer::Incomplete);
        for (number, text) in [
            (404, "GET / HTTP/1.1\r\n\r\n"),
            (404, "GET /metrics/../etc HTTP/1.1\r\n\r\n"),
            (405, "POST /metrics HTTP/1.1\r\n\r\n"),
            (400, "\u{1}\u{2}\r\n\r\n"),
            (
                431,
                &format!("GET /metrics HTTP/1.1\r\nA: {}", "a".repeat(LONGEST)),
            ),
            (
                431,
                &format!(
                    "GET /metrics HTTP/1.1\r\n{}\r\n",
                    "A: b\r\n".repeat(HEADERS + 1)
                ),
            ),
        ] {
            assert!(
                matches!(get(text), Answer::Refusal(found, _) if found == number),
                "{text:.60}"
            );
        }
    }

    #[test]
    fn an_answer_has_the_length_that_it_says() {
        struct Client<'a>(&'a [u8], Vec<u8>);
        impl Read for Client<'_> {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                // A few bytes at a time, as slow networks bring them.
                let len = into.len().min(7);
                self.0.read(&mut into[..len])
            }
        }
        impl Write for Client<'_> {
            fn write(&mut self, from: &[u8]) -> io::Result<usize> {
                self.1.write(from)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut client = Client(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n", Vec::new());
        exchange(&mut client, &|| "page\n".into()).unwrap();
        let reply = String::from_utf8(client.1).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Length: 5\r\n"), "{head}");
        assert_eq!(body, "page\n");
    }
}
