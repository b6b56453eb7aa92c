//! A minimal NBD client, and a server over a store that tests can slow down
//! and break.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use sector_cipher::{SectorCount, SectorSize};
use xtent_secret::SecretBytes;
use xtent_store::testing::{FaultStore, LaterStore, MemStore};
use xtent_store::{Limits, Store};
use xtent_tls::{Channel, Handshake, Next};
use xtent_volume::testing::LaterEngine;
use xtent_volume::{Config, DiscardPolicy, Holes, Threshold, Volume};

use crate::Shutdown;
use crate::nbd::port::Timeouts;
use crate::nbd::proto::constants::*;
use crate::nbd::proto::{be16, be32, be64};
use crate::nbd::server::serve_with;
use crate::nbd::{Export, Exports, Options, bind_unix};

/// Long enough for a loaded machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of the exports in these tests.
pub(super) const SIZE: usize = 48 << 20;

/// A store on which some reads have to wait for a disk that stands still.
pub(super) struct SlowStore {
    pub(super) inner: FaultStore<MemStore>,
    slow: Mutex<Range<u64>>,
    /// Writes wait, too, wherever they are.
    writes_wait: AtomicBool,
    /// Flushes wait, too.
    flushes_wait: AtomicBool,
    /// Reads, writes and flushes that wait now.
    waiting: Mutex<usize>,
    /// Successful writes when the last flush began.
    writes_before_flush: AtomicU64,
    changed: Condvar,
    /// Reads by connections' threads panic.
    pub(super) panics: AtomicBool,
}

impl SlowStore {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: FaultStore::new(MemStore::new(SIZE)),
            slow: Mutex::new(0..0),
            writes_wait: AtomicBool::new(false),
            flushes_wait: AtomicBool::new(false),
            writes_before_flush: AtomicU64::new(0),
            waiting: Mutex::new(0),
            changed: Condvar::new(),
            panics: AtomicBool::new(false),
        })
    }

    /// From now on reads in `range` wait; an empty range lets all go on.
    pub(super) fn stop_disk(&self, range: Range<u64>) {
        *self.slow.lock().unwrap() = range;
        self.changed.notify_all();
    }

    /// From now on every write waits, or none.
    pub(super) fn stop_writes(&self, stop: bool) {
        self.writes_wait.store(stop, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// From now on every flush waits, or none.
    pub(super) fn stop_flushes(&self, stop: bool) {
        self.flushes_wait.store(stop, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// How many writes had succeeded when the last flush began.
    pub(super) fn writes_before_flush(&self) -> u64 {
        self.writes_before_flush.load(Ordering::SeqCst)
    }

    /// Waits while `is_stopped`.
    fn wait_while(&self, is_stopped: impl Fn() -> bool) {
        let mut waiting = self.waiting.lock().unwrap();
        *waiting += 1;
        self.changed.notify_all();
        while is_stopped() {
            waiting = self
                .changed
                .wait_timeout(waiting, Duration::from_millis(5))
                .unwrap()
                .0;
        }
        *waiting -= 1;
    }

    fn is_slow(&self, offset: u64, len: usize) -> bool {
        let slow = self.slow.lock().unwrap();
        offset < slow.end && slow.start < offset + len as u64
    }

    /// Returns when `count` calls wait.
    pub(super) fn await_waiting(&self, count: usize) {
        let waiting = self.waiting.lock().unwrap();
        let (waiting, _) = self
            .changed
            .wait_timeout_while(waiting, PATIENCE, |waiting| *waiting < count)
            .unwrap();
        assert!(*waiting >= count, "only {waiting} wait");
    }

    pub(super) fn flushes(&self) -> u64 {
        self.inner.inner().flushes()
    }
}

impl Store for SlowStore {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
    fn limits(&self) -> Limits {
        self.inner.limits()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), xtent_store::Error> {
        self.wait_while(|| self.is_slow(offset, buf.len()));
        self.inner.read_at(buf, offset)
    }
    fn try_read_at(&self, buf: &mut [u8], offset: u64) -> Result<bool, xtent_store::Error> {
        assert!(!self.panics.load(Ordering::SeqCst), "as the test wants it");
        match self.is_slow(offset, buf.len()) {
            true => Ok(false),
            false => self.inner.read_at(buf, offset).map(|()| true),
        }
    }
    /// As a page cache does, which reads the rest of a page that is written in part.
    fn takes_write_at_once(&self, offset: u64, len: u64) -> Result<bool, xtent_store::Error> {
        let end = offset + len;
        let page = xtent_store::PAGE as u64;
        for (edge, byte) in [(offset, offset), (end, end.saturating_sub(1))] {
            if !edge.is_multiple_of(page) && !self.try_read_at(&mut [0], byte)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), xtent_store::Error> {
        if self.writes_wait.load(Ordering::SeqCst) {
            self.wait_while(|| self.writes_wait.load(Ordering::SeqCst));
        }
        self.inner.write_at(data, offset)
    }
    fn flush(&self) -> Result<(), xtent_store::Error> {
        self.writes_before_flush
            .store(self.inner.inner().writes(), Ordering::SeqCst);
        if self.flushes_wait.load(Ordering::SeqCst) {
            self.wait_while(|| self.flushes_wait.load(Ordering::SeqCst));
        }
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), xtent_store::Error> {
        self.inner.discard(offset, len)
    }
}

/// A volume on all of `store`.
pub(super) fn volume(store: Arc<dyn Store>, read_only: bool) -> Arc<Volume> {
    Arc::new(opened(store, read_only).0)
}

/// The same with an engine that takes requests from so many bytes on.
fn volume_with_engine(store: Arc<dyn Store>, least: usize) -> (Arc<Volume>, Arc<LaterEngine>) {
    let (volume, config, key) = opened(store, false);
    let engine = LaterEngine::new(&config, &key, 9);
    let volume = volume.with_engine(Arc::clone(&engine) as _, Threshold::Bytes(least));
    engine.take_done();
    (Arc::new(volume.unwrap()), engine)
}

fn opened(store: Arc<dyn Store>, read_only: bool) -> (Volume, Config, Vec<u8>) {
    let key: Vec<u8> = (0..32).collect();
    let config = Config {
        cipher: "aes-xts-plain64".parse().unwrap(),
        sector_size: SectorSize::new(512).unwrap(),
        sector_count: SectorCount::Units512,
        offset: 0,
        length: store.size(),
        iv_offset: 0,
        read_only,
        discard: DiscardPolicy::Zero,
        holes: Holes::Noise,
        backend: None,
    };
    let secret = SecretBytes::copy_of(&key).unwrap();
    (Volume::open(store, &secret, &config).unwrap(), config, key)
}

/// A volume under a name.
pub(super) fn export(name: &str, volume: &Arc<Volume>) -> Export {
    Export {
        name: name.into(),
        description: String::new(),
        volume: Arc::clone(volume),
        allowed: Vec::new(),
    }
}

/// A running server.
pub(super) struct Rig {
    pub(super) store: Arc<SlowStore>,
    pub(super) shutdown: Shutdown,
    /// The default export's volume.
    pub(super) volume: Arc<Volume>,
    pub(super) exports: Exports,
    path: PathBuf,
    /// How clients have TLS.
    pub(super) tls: Option<xtent_tls::Client>,
    thread: Option<JoinHandle<Result<(), crate::Error>>>,
    _dir: tempfile::TempDir,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(Options::default(), super::PATIENT)
    }

    /// The smallest amount of memory for `connections`: nothing for workers.
    pub(super) fn tight(connections: usize) -> Options {
        Options {
            connections,
            workers: 2,
            memory: 2 * connections * Options::memory_per_connection(false),
            ..Options::default()
        }
    }

    pub(super) fn with(options: Options, timeouts: Timeouts) -> Self {
        let store = SlowStore::new();
        Self::over(Arc::clone(&store) as _, store, options, timeouts)
    }

    /// Over a store that completes its operations later.
    pub(super) fn far(options: Options) -> (Self, Arc<LaterStore<SlowStore>>) {
        let store = SlowStore::new();
        let far = Arc::new(LaterStore::new(Arc::clone(&store), 5));
        let rig = Self::over(Arc::clone(&far) as _, store, options, super::PATIENT);
        (rig, far)
    }

    /// With a cipher engine that takes requests from so many bytes on.
    pub(super) fn with_engine(options: Options, least: usize) -> (Self, Arc<LaterEngine>) {
        let store = SlowStore::new();
        let under = Arc::clone(&store) as Arc<dyn Store>;
        let (default, engine) = volume_with_engine(Arc::clone(&under), least);
        let rig = Self::of(default, under, store, options, super::PATIENT);
        (rig, engine)
    }

    fn over(
        under: Arc<dyn Store>,
        store: Arc<SlowStore>,
        options: Options,
        timeouts: Timeouts,
    ) -> Self {
        let default = volume(Arc::clone(&under), false);
        Self::of(default, under, store, options, timeouts)
    }

    fn of(
        default: Arc<Volume>,
        under: Arc<dyn Store>,
        store: Arc<SlowStore>,
        options: Options,
        timeouts: Timeouts,
    ) -> Self {
        let read_only = volume(under, true);
        let exports = Exports::new();
        for (name, volume) in [("", &default), ("ro", &read_only)] {
            exports.add(export(name, volume)).unwrap();
        }
        let offered = exports.clone();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let (listener, file) = bind_unix(&path).unwrap();
        let shutdown = Shutdown::new().unwrap();
        let theirs = shutdown.clone();
        let thread = std::thread::spawn(move || {
            let _file = file;
            serve_with(vec![listener], &offered, options, &theirs, timeouts)
        });
        Self {
            store,
            shutdown,
            volume: default,
            exports,
            path,
            tls: None,
            thread: Some(thread),
            _dir: dir,
        }
    }

    /// A connection before the handshake.
    pub(super) fn dial(&self) -> UnixStream {
        let socket = UnixStream::connect(&self.path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// A client in transmission.
    pub(super) fn connect(&self, export: &str, structured: bool) -> Client {
        let mut client = Client {
            socket: self.dial(),
            tls: None,
            structured,
        };
        let bytes = handshake(export, structured);
        let (flags, options) = bytes.split_at(4);
        client.send(flags);
        client.take(18);
        if let Some(tls) = &self.tls {
            client.start_tls(tls);
        }
        client.send(options);
        client.take(if structured { 20 } else { 0 } + 32);
        let ack = client.take(20);
        assert_eq!(be32(&ack, 12), REP_ACK);
        client
    }

    /// Stops the server; what `serve` returned.
    pub(super) fn stop(self) -> Result<(), crate::Error> {
        self.shutdown.trigger();
        self.wait()
    }

    /// Waits for the server's own end; what `serve` returned.
    pub(super) fn wait(mut self) -> Result<(), crate::Error> {
        self.thread.take().unwrap().join().unwrap()
    }
}

/// What a client sends to get into transmission.
pub(super) fn handshake(export: &str, structured: bool) -> Vec<u8> {
    let option = |kind: u32, data: &[u8]| {
        let len = u32::try_from(data.len()).unwrap().to_be_bytes();
        [
            &OPTION_MAGIC.to_be_bytes(),
            &kind.to_be_bytes()[..],
            &len,
            data,
        ]
        .concat()
    };
    let mut bytes = vec![0, 0, 0, 3];
    if structured {
        bytes.extend(option(OPT_STRUCTURED_REPLY, &[]));
    }
    let len = u32::try_from(export.len()).unwrap().to_be_bytes();
    bytes.extend(option(OPT_GO, &[&len, export.as_bytes(), &[0, 0]].concat()));
    bytes
}

/// A request header.
pub(super) fn header(kind: u16, flags: u16, cookie: u64, offset: u64, len: usize) -> Vec<u8> {
    let len = u32::try_from(len).unwrap();
    [
        &REQUEST_MAGIC.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &kind.to_be_bytes(),
        &cookie.to_be_bytes(),
        &offset.to_be_bytes(),
        &len.to_be_bytes(),
    ]
    .concat()
}

/// All the bytes of a read, or the error code.
pub(super) type ReadResult = Result<Vec<u8>, u32>;

/// One message from the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    Simple {
        cookie: u64,
        error: u32,
    },
    Chunk {
        cookie: u64,
        kind: u16,
        done: bool,
        payload: Vec<u8>,
    },
}

impl Message {
    pub(super) fn cookie(&self) -> u64 {
        match *self {
            Self::Simple { cookie, .. } | Self::Chunk { cookie, .. } => cookie,
        }
    }

    /// The error of a final message, 0 for success.
    pub(super) fn error(&self) -> u32 {
        match self {
            Self::Simple { error, .. } => *error,
            Self::Chunk { kind, payload, .. } if kind & (1 << 15) != 0 => be32(payload, 0),
            Self::Chunk { .. } => 0,
        }
    }
}

pub(super) struct Client {
    pub(super) socket: UnixStream,
    pub(super) tls: Option<Channel>,
    structured: bool,
}

impl Client {
    fn start_tls(&mut self, tls: &xtent_tls::Client) {
        self.send(b"IHAVEOPT\0\0\0\x05\0\0\0\0");
        assert_eq!(be32(&self.take(20), 12), REP_ACK);
        let mut handshake = Handshake::client(tls).unwrap();
        loop {
            let next = handshake.step().unwrap();
            self.send(&handshake.take_output());
            if next == Next::Done {
                break;
            }
            let n = self.socket.read(handshake.room()).unwrap();
            handshake.received(n);
        }
        self.tls = Some(handshake.into_channel());
    }

    pub(super) fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut at = 0;
        while at < len {
            let n = match &self.tls {
                None => self.socket.read(&mut bytes[at..]),
                Some(tls) => tls.receive(&mut bytes[at..], |room| self.socket.read(room)),
            };
            match n {
                Ok(0) => panic!("the server closed the connection"),
                Ok(n) => at += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.tls.is_some() => {}
                Err(error) => panic!("{error}"),
            }
        }
        bytes
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        let Some(tls) = &self.tls else {
            return self.socket.write_all(bytes).unwrap();
        };
        let mut at = 0;
        while at < bytes.len() {
            let socket = &mut self.socket;
            at += tls
                .send(&[IoSlice::new(&bytes[at..])], |records| {
                    socket.write(records)
                })
                .unwrap();
        }
    }

    pub(super) fn message(&mut self) -> Message {
        let head = self.take(16);
        match be32(&head, 0) {
            SIMPLE_REPLY_MAGIC => Message::Simple {
                cookie: be64(&head, 8),
                error: be32(&head, 4),
            },
            STRUCTURED_REPLY_MAGIC => {
                let len = be32(&self.take(4), 0);
                Message::Chunk {
                    cookie: be64(&head, 8),
                    kind: be16(&head, 6),
                    done: be16(&head, 4) & REPLY_FLAG_DONE != 0,
                    payload: self.take(len as usize),
                }
            }
            other => panic!("magic {other:#x}"),
        }
    }

    /// A command without data either way; its error.
    pub(super) fn command(&mut self, kind: u16, flags: u16, offset: u64, len: usize) -> u32 {
        self.send(&header(kind, flags, 77, offset, len));
        self.final_error(77)
    }

    fn final_error(&mut self, cookie: u64) -> u32 {
        let message = self.message();
        assert_eq!(message.cookie(), cookie);
        message.error()
    }

    pub(super) fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        self.send(&header(CMD_WRITE, flags, 78, offset, data.len()));
        self.send(data);
        self.final_error(78)
    }

    pub(super) fn read(&mut self, flags: u16, offset: u64, len: usize) -> ReadResult {
        self.send(&header(CMD_READ, flags, 79, offset, len));
        if self.structured {
            let chunks = self.chunks(79);
            let data = chunks
                .iter()
                .filter(|chunk| chunk.0 == REPLY_TYPE_OFFSET_DATA)
                .count();
            assert!(flags & CMD_FLAG_DF == 0 || data <= 1, "fragmented");
            assemble(offset, len, &chunks)
        } else {
            match self.final_error(79) {
                0 => Ok(self.take(len)),
                error => Err(error),
            }
        }
    }

    /// All chunks of one reply, which must be the only one.
    pub(super) fn chunks(&mut self, expected: u64) -> Vec<(u16, Vec<u8>)> {
        let mut chunks = Vec::new();
        loop {
            match self.message() {
                Message::Chunk {
                    cookie,
                    kind,
                    done,
                    payload,
                } => {
                    assert_eq!(cookie, expected);
                    chunks.push((kind, payload));
                    if done {
                        return chunks;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Final replies of two requests, in any order; how many came without an error.
    pub(super) fn chunks_of_either(&mut self, one: u64, other: u64) -> usize {
        (0..2)
            .map(|_| self.message())
            .filter(|reply| [one, other].contains(&reply.cookie()) && reply.error() == 0)
            .count()
    }

    /// Whether the server has closed the connection.
    pub(super) fn is_closed(&mut self) -> bool {
        matches!(self.socket.read(&mut [0]), Ok(0) | Err(_))
    }
}

/// Puts chunks together: they may come in any order, but cover everything
/// once, or there is an error.
pub(super) fn assemble(offset: u64, len: usize, chunks: &[(u16, Vec<u8>)]) -> ReadResult {
    let mut data = vec![None; len];
    let mut error = Ok(());
    for (kind, payload) in chunks {
        match *kind {
            REPLY_TYPE_OFFSET_DATA => {
                let start = usize::try_from(be64(payload, 0) - offset).unwrap();
                for (place, byte) in data[start..].iter_mut().zip(&payload[8..]) {
                    assert_eq!(place.replace(*byte), None, "overlap");
                }
                assert!(start + payload.len() - 8 <= len);
            }
            REPLY_TYPE_NONE => assert!(payload.is_empty()),
            REPLY_TYPE_ERROR | REPLY_TYPE_ERROR_OFFSET => error = Err(be32(payload, 0)),
            other => panic!("chunk type {other}"),
        }
    }
    error?;
    Ok(data.into_iter().map(|byte| byte.expect("a gap")).collect())
}
