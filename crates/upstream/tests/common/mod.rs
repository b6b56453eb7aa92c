//! An NBD server of the tests' own, with a disk that loses what was not flushed, and with
//! faults to order.
#![allow(dead_code, missing_docs, unused_imports)] // each test uses a part of it

mod program;

pub(crate) use program::Program;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv};
use xtent_nbd::constants::*;
use xtent_nbd::{ExportInfo, Handshake, NbdError, Progress, Request};
use xtent_upstream::Uri;

pub(crate) const SIZE: usize = 1 << 20;

/// Bytes of a sector that survives whole or not at all.
pub(crate) const SECTOR: usize = 512;

/// A disk with a cache that a crash loses in any part.
#[derive(Default)]
pub(crate) struct Disk {
    /// What survives everything.
    pub(crate) durable: Vec<u8>,
    /// Sectors in the cache, by number.
    cache: BTreeMap<usize, Vec<u8>>,
    random: u64,
}

impl Disk {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            durable: vec![0; SIZE],
            cache: BTreeMap::new(),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn read(&self, offset: usize, data: &mut [u8]) {
        for (n, sector) in data.chunks_mut(SECTOR).enumerate() {
            let at = offset + n * SECTOR;
            match self.cache.get(&(at / SECTOR)) {
                Some(cached) => sector.copy_from_slice(cached),
                None => sector.copy_from_slice(&self.durable[at..at + SECTOR]),
            }
        }
    }

    fn write(&mut self, offset: usize, data: &[u8], durably: bool) {
        for (n, sector) in data.chunks(SECTOR).enumerate() {
            let at = offset + n * SECTOR;
            match durably {
                true => {
                    self.cache.remove(&(at / SECTOR));
                    self.durable[at..at + SECTOR].copy_from_slice(sector);
                }
                false => {
                    self.cache.insert(at / SECTOR, sector.to_vec());
                }
            }
        }
    }

    pub(crate) fn flush(&mut self) {
        for (sector, data) in std::mem::take(&mut self.cache) {
            self.durable[sector * SECTOR..][..SECTOR].copy_from_slice(&data);
        }
    }

    /// Any part of the cache is lost.
    pub(crate) fn crash(&mut self) {
        for (sector, data) in std::mem::take(&mut self.cache) {
            if self.random().is_multiple_of(2) {
                self.durable[sector * SECTOR..][..SECTOR].copy_from_slice(&data);
            }
        }
    }
}

/// What the server does to the next requests.
pub(crate) type Fault = Box<dyn Fn(&Request) -> Action + Send + Sync>;

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Serve,
    /// The server crashes before it does it.
    CrashBefore,
    /// It does it and crashes before it answers.
    CrashAfter,
    /// It does it, and ends this client's connection before it answers; the others stay.
    Cut,
    /// It does it, and answers after the next request of this client.
    AnswerLate,
    /// It does nothing, and never answers.
    Silent,
    /// It answers with this error.
    Fail(NbdError),
    /// It does it once its client has given the connection up, and the test has said so, or after a while.
    Stall,
    /// It does it once the test has said so, and answers; if its client gives the connection up before that, it closes it
    /// at once, and does it when the test says so all the same, as qemu-nbd.
    Hold,
}

/// A server on a Unix socket that goes on after each crash.
pub(crate) struct Server {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) disk: Arc<Mutex<Disk>>,
    pub(crate) connections: Arc<AtomicU64>,
    pub(crate) requests: Arc<AtomicU64>,
    pub(crate) flushes: Arc<AtomicU64>,
    /// Connections that have ended.
    pub(crate) ended: Arc<AtomicU64>,
    /// Bytes that the next client finds.
    size: Arc<AtomicU64>,
    /// Bytes that clients find after the next one.
    size_after_next: Arc<Mutex<Option<u64>>>,
    /// The sockets of all clients now.
    clients: Arc<Mutex<Vec<UnixStream>>>,
    gone: Arc<AtomicBool>,
    /// Clients are told that they see each other's writes.
    is_shared: Arc<AtomicBool>,
    /// Clients are not spoken to, until they have gone.
    holds_off: Arc<AtomicBool>,
    /// After the next client this socket leads to the other one.
    swap: Arc<Mutex<Option<PathBuf>>>,
    /// Clients that have asked for something.
    active: Arc<AtomicU64>,
    /// Clients whose request has been stalled.
    stalled: Arc<Mutex<Vec<UnixStream>>>,
    /// What is stalled need wait no longer.
    pub(crate) released: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn new(seed: u64, minimum_block: u32, fault: Fault) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let server = Self {
            directory,
            disk: Arc::new(Mutex::new(Disk::new(seed))),
            connections: Arc::default(),
            requests: Arc::default(),
            flushes: Arc::default(),
            ended: Arc::default(),
            size: Arc::new(AtomicU64::new(SIZE as u64)),
            size_after_next: Arc::default(),
            clients: Arc::default(),
            gone: Arc::default(),
            is_shared: Arc::new(AtomicBool::new(true)),
            holds_off: Arc::default(),
            swap: Arc::default(),
            active: Arc::default(),
            stalled: Arc::default(),
            released: Arc::default(),
        };
        let worker = Worker {
            disk: Arc::clone(&server.disk),
            requests: Arc::clone(&server.requests),
            flushes: Arc::clone(&server.flushes),
            clients: Arc::clone(&server.clients),
            fault: Arc::new(fault),
            minimum_block,
            is_shared: Arc::clone(&server.is_shared),
            holds_off: Arc::clone(&server.holds_off),
            active: Arc::clone(&server.active),
            stalled: Arc::clone(&server.stalled),
            released: Arc::clone(&server.released),
        };
        let (connections, gone) = (Arc::clone(&server.connections), Arc::clone(&server.gone));
        let (size, after) = (
            Arc::clone(&server.size),
            Arc::clone(&server.size_after_next),
        );
        let ended = Arc::clone(&server.ended);
        let (swap, socket) = (Arc::clone(&server.swap), server.directory.path().join("s"));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if gone.load(Ordering::SeqCst) {
                    return;
                }
                let client = client.unwrap();
                if let Some(other) = swap.lock().unwrap().take() {
                    std::fs::rename(&socket, socket.with_file_name("t")).unwrap();
                    std::os::unix::fs::symlink(other, &socket).unwrap();
                }
                connections.fetch_add(1, Ordering::SeqCst);
                worker
                    .clients
                    .lock()
                    .unwrap()
                    .push(client.try_clone().unwrap());
                let (worker, ended) = (worker.clone(), Arc::clone(&ended));
                let found = size.load(Ordering::SeqCst);
                if let Some(next) = after.lock().unwrap().take() {
                    size.store(next, Ordering::SeqCst);
                }
                std::thread::spawn(move || {
                    worker.serve(&client, found);
                    let _ = client.shutdown(std::net::Shutdown::Both);
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    pub(crate) fn uri(&self) -> Uri {
        uri(&self.directory.path().join("s"))
    }

    /// The next client is the last for now: whoever comes after it finds `other`.
    pub(crate) fn swap_after_next(&self, other: &Self) {
        *self.swap.lock().unwrap() = Some(other.directory.path().join("s"));
    }

    /// The disk grows, and clients from the next on find that.
    pub(crate) fn grow(&self, size: usize) {
        self.disk.lock().unwrap().durable.resize(size, 0);
        self.size.store(size as u64, Ordering::SeqCst);
    }

    /// Clients from the next on find this size, whatever the disk has.
    pub(crate) fn say(&self, size: usize) {
        self.size.store(size as u64, Ordering::SeqCst);
    }

    /// Clients from the next on wait for the beginning of their handshake.
    pub(crate) fn hold_off(&self) {
        self.holds_off.store(true, Ordering::SeqCst);
    }

    /// Clients from the next on are not told that they see each other's writes.
    pub(crate) fn shares_nothing(&self) {
        self.is_shared.store(false, Ordering::SeqCst);
    }

    /// The disk grows, and clients after the next one find that.
    pub(crate) fn grow_after_next(&self, size: usize) {
        self.disk.lock().unwrap().durable.resize(size, 0);
        *self.size_after_next.lock().unwrap() = Some(size as u64);
    }

    /// Ends every connection at once, and the disk's cache with it.
    pub(crate) fn crash(&self) {
        let mut disk = self.disk.lock().unwrap();
        cut(&self.clients);
        disk.crash();
    }

    /// Clients that have asked for something.
    pub(crate) fn active(&self) -> u64 {
        self.active.load(Ordering::SeqCst)
    }

    /// Whether a request is stalled.
    pub(crate) fn is_stalled(&self) -> bool {
        !self.stalled.lock().unwrap().is_empty()
    }

    /// Whether a client whose request is stalled has given its connection up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.stalled.lock().unwrap().iter().any(is_at_end)
    }

    /// Ends the connections whose requests are not stalled.
    pub(crate) fn cut_others(&self) {
        let stalled = self.stalled.lock().unwrap();
        self.clients.lock().unwrap().retain(|client| {
            let stays = stalled.iter().any(|other| same(other, client));
            if !stays {
                let _ = client.shutdown(std::net::Shutdown::Both);
            }
            stays
        });
    }

    /// Nobody listens any more.
    pub(crate) fn stop(&self) {
        std::fs::rename(
            self.directory.path().join("s"),
            self.directory.path().join("t"),
        )
        .unwrap();
        cut(&self.clients);
    }

    /// It listens again.
    pub(crate) fn start(&self) {
        std::fs::rename(
            self.directory.path().join("t"),
            self.directory.path().join("s"),
        )
        .unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::SeqCst);
        for name in ["s", "t"] {
            let _ = UnixStream::connect(self.directory.path().join(name));
        }
        cut(&self.clients);
    }
}

fn cut(clients: &Mutex<Vec<UnixStream>>) {
    for client in clients.lock().unwrap().drain(..) {
        let _ = client.shutdown(std::net::Shutdown::Both);
    }
}

pub(crate) fn uri(path: &std::path::Path) -> Uri {
    format!("nbd+unix:///?socket={}", path.display())
        .parse()
        .unwrap()
}

#[derive(Clone)]
struct Worker {
    disk: Arc<Mutex<Disk>>,
    requests: Arc<AtomicU64>,
    flushes: Arc<AtomicU64>,
    clients: Arc<Mutex<Vec<UnixStream>>>,
    fault: Arc<Fault>,
    minimum_block: u32,
    is_shared: Arc<AtomicBool>,
    holds_off: Arc<AtomicBool>,
    active: Arc<AtomicU64>,
    stalled: Arc<Mutex<Vec<UnixStream>>>,
    released: Arc<AtomicBool>,
}

impl Worker {
    /// Serves one client to its end; [`None`] is that end.
    fn serve(&self, mut client: &UnixStream, size: u64) -> Option<()> {
        if self.holds_off.load(Ordering::SeqCst) {
            client.read_exact(&mut [0]).ok()?;
        }
        let is_shared = self.is_shared.load(Ordering::SeqCst);
        handshake_of(client, self.minimum_block, size, is_shared)?;
        let mut late = Vec::new();
        let mut has_asked = false;
        loop {
            let mut header = [0; REQUEST_LEN];
            client.read_exact(&mut header).ok()?;
            let request = Request::parse(&header).unwrap();
            let mut payload = vec![0; request.payload_len()];
            client.read_exact(&mut payload).ok()?;
            if request.kind == CMD_DISC {
                return None;
            }
            assert!(
                (request.offset | u64::from(request.length))
                    .is_multiple_of(self.minimum_block.into())
            );
            self.requests.fetch_add(1, Ordering::SeqCst);
            if !std::mem::replace(&mut has_asked, true) {
                self.active.fetch_add(1, Ordering::SeqCst);
            }
            let action = (self.fault)(&request);
            match action {
                Action::Stall => self.stall(client),
                Action::Hold if !self.hold(client) => {
                    let (worker, client) = (self.clone(), client.try_clone().unwrap());
                    std::thread::spawn(move || {
                        worker.wait_for_release();
                        let _ =
                            worker.perform(&mut worker.disk.lock().unwrap(), &request, &payload);
                        worker
                            .stalled
                            .lock()
                            .unwrap()
                            .retain(|it| !same(it, &client));
                    });
                    return None;
                }
                _ => {}
            }
            let mut disk = self.disk.lock().unwrap();
            // One that was cut off while it waited is of no effect.
            let mut alive = self
                .clients
                .lock()
                .unwrap()
                .iter()
                .any(|other| same(other, client));
            if action == Action::CrashBefore {
                cut(&self.clients);
                disk.crash();
                alive = false;
            }
            if !alive {
                return None;
            }
            let answer = match action {
                Action::Silent => continue,
                Action::Fail(error) => xtent_nbd::error_chunk(request.cookie, error, "as ordered")
                    .as_bytes()
                    .to_vec(),
                _ => self.perform(&mut disk, &request, &payload),
            };
            if action == Action::CrashAfter {
                cut(&self.clients);
                disk.crash();
                return None;
            }
            if action == Action::Cut {
                return None;
            }
            // Under the disk's lock, so that nothing is acknowledged after a crash.
            match action {
                Action::AnswerLate => late = answer,
                _ => client
                    .write_all(&[answer, std::mem::take(&mut late)].concat())
                    .ok()?,
            }
        }
    }

    fn stall(&self, client: &UnixStream) {
        let clone = client.try_clone().unwrap();
        self.stalled.lock().unwrap().push(clone);
        while recv(client, &mut [0; 1][..], RecvFlags::PEEK).unwrap().0 != 0 {
            std::thread::yield_now();
        }
        let given_up = Instant::now();
        while !self.released.load(Ordering::SeqCst) && given_up.elapsed() < SHORT {
            std::thread::yield_now();
        }
    }

    /// Whether its client was still there when it was released.
    fn hold(&self, client: &UnixStream) -> bool {
        let clone = client.try_clone().unwrap();
        self.stalled.lock().unwrap().push(clone);
        while !self.released.load(Ordering::SeqCst) {
            if is_at_end(client) {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn wait_for_release(&self) {
        while !self.released.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }

    fn perform(&self, disk: &mut Disk, request: &Request, payload: &[u8]) -> Vec<u8> {
        let offset = usize::try_from(request.offset).unwrap();
        match request.kind {
            CMD_READ => {
                let mut data = vec![0; request.length as usize];
                disk.read(offset, &mut data);
                let head =
                    xtent_nbd::offset_data(request.cookie, request.offset, request.length, true);
                return [head.as_bytes(), &data].concat();
            }
            CMD_WRITE => disk.write(offset, payload, request.flags & CMD_FLAG_FUA != 0),
            CMD_FLUSH => {
                self.flushes.fetch_add(1, Ordering::SeqCst);
                disk.flush();
            }
            _ => {}
        }
        xtent_nbd::no_data_reply(request.cookie).as_bytes().to_vec()
    }
}

/// Whether nothing is left to be received, and nothing will come.
fn is_at_end(client: &UnixStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(recv(client, &mut [0; 1][..], flags), Ok((0, _)))
}

fn same(one: &UnixStream, other: &UnixStream) -> bool {
    // Clones of one socket have one peer; the socket is known by its inode.
    use std::os::fd::AsRawFd;
    let inode = |stream: &UnixStream| {
        std::fs::read_link(format!("/proc/self/fd/{}", stream.as_raw_fd())).ok()
    };
    inode(one) == inode(other)
}

/// The server's side of a handshake.
pub(crate) fn handshake(client: &UnixStream, minimum_block: u32) -> Option<()> {
    handshake_of(client, minimum_block, SIZE as u64, true)
}

/// The same for an export of that many bytes.
fn handshake_of(
    mut client: &UnixStream,
    minimum_block: u32,
    size: u64,
    is_shared: bool,
) -> Option<()> {
    let exports = [ExportInfo {
        name: String::new(),
        description: String::new(),
        size,
        read_only: false,
        minimum_block,
        allowed: Vec::new(),
    }];
    let mut handshake = Handshake::new(&exports, xtent_nbd::Tls::Off);
    let mut input = Vec::new();
    loop {
        let (used, progress) = handshake.step(&input);
        let mut output = handshake.take_output();
        if !is_shared {
            not_shared(&mut output, size);
        }
        client.write_all(&output).ok()?;
        input.drain(..used);
        match progress {
            Progress::Transmission(_) => return Some(()),
            Progress::Close(_) | Progress::StartTls => return None,
            Progress::Continue if used == 0 => {
                let mut byte = [0];
                client.read_exact(&mut byte).ok()?;
                input.push(byte[0]);
            }
            Progress::Continue => {}
        }
    }
}

/// Takes `NBD_FLAG_CAN_MULTI_CONN` out of what is said of an export of that size.
fn not_shared(output: &mut [u8], size: u64) {
    let info = [&INFO_EXPORT.to_be_bytes()[..], &size.to_be_bytes()].concat();
    let at = output.windows(info.len()).position(|it| it == info);
    if let Some(at) = at.map(|at| at + info.len()) {
        let flags = u16::from_be_bytes([output[at], output[at + 1]]) & !FLAG_CAN_MULTI_CONN;
        output[at..at + 2].copy_from_slice(&flags.to_be_bytes());
    }
}

pub(crate) const SHORT: Duration = Duration::from_millis(300);
