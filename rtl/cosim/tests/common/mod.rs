//! A simulated co-processor, and the least of a driver for it.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

pub mod expected;
pub mod guest;

use std::fs::{File, read_dir, read_to_string};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use tempfile::TempDir;
use vfio_user::Client;
use xtent_engine_sim::registers::*;

/// Where the device sees the driver's memory.
pub const BASE: u64 = 0x12_3450_0000;
pub const MEMORY: u64 = 4 << 20;
/// Places in it.
pub const SQ: u64 = 0;
pub const CQ: u64 = 0x1_0000;
pub const LISTS: u64 = 0x2_0000;
pub const DATA: u64 = 0x10_0000;
pub const OUT: u64 = 0x20_0000;
pub const LOG_RING: u32 = 4;
/// A key command that was carried out.
pub const DONE: u32 = KEY_RESULT_DONE as u32;
/// Seconds after which a test gives up: a model that works is never that slow.
const PATIENCE: i64 = 120;

pub const BAR0: u32 = 0;
pub const CONFIG: u32 = 7;
const MSIX: u32 = 2;
const EVENTFDS: u32 = 0x24;

pub fn models() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
            PathBuf::from,
        )
        .join("rtl/cosim")
}

/// Where the device sees a place in the memory.
pub fn place(at: u64) -> u64 {
    BASE + at
}

/// A running `xtent-engine-sim`.
pub struct Simulator {
    child: Child,
    folder: TempDir,
}

impl Simulator {
    /// For a client that speaks vfio-user.
    pub fn start(design: &str, options: &[&str]) -> Self {
        Self::start_with(design, |folder, command| {
            command
                .arg("--socket")
                .arg(folder.join("socket"))
                .args(options);
        })
    }

    /// For a guest, whose time is simulated or not.
    pub fn start_for_guest(design: &str, options: &[&str], timed: bool) -> Self {
        Self::start_with(design, |folder, command| {
            command
                .arg("--vhost-user")
                .arg(folder.join("socket"))
                .args(options);
            if timed {
                command.arg("--time").arg(folder.join("time"));
            }
        })
    }

    fn start_with(design: &str, arguments: impl FnOnce(&Path, &mut Command)) -> Self {
        assert!(
            models().join(format!("{design}.so")).exists(),
            "no model of {design}: run rtl/cosim/test.sh, or rtl/cosim/model.sh {design}"
        );
        let folder = tempfile::tempdir().unwrap();
        let mut command = command_of(&models(), design);
        arguments(folder.path(), &mut command);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.starts_with("listening on "), "{line:?}");
        Self { child, folder }
    }

    pub fn time_socket(&self) -> PathBuf {
        self.folder.path().join("time")
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Stops the thread that steps the model, as what it waits for and does not come would; its number.
    pub fn hold_clock(&self) -> Pid {
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_clock = |task: &Path| read_to_string(task.join("comm")).unwrap() == "clock\n";
        let clock = read_dir(tasks)
            .unwrap()
            .map(|task| task.unwrap().path())
            .find(|task| is_clock(task))
            .unwrap();
        let clock = clock.file_name().unwrap().to_str().unwrap();
        let clock = Pid::from_raw(clock.parse().unwrap());
        ptrace::seize(clock, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(clock).unwrap();
        waitpid(clock, Some(WaitPidFlag::__WALL)).unwrap();
        clock
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        // One that has ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn command(design: &str, socket: &Path) -> Command {
    command_with(&models(), design, socket)
}

pub fn command_with(models: &Path, design: &str, socket: &Path) -> Command {
    let mut command = command_of(models, design);
    command.arg("--socket").arg(socket);
    command
}

fn command_of(models: &Path, design: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtent-engine-sim"));
    command.args(["--design", design, "--models"]).arg(models);
    command
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    pub cookie: u64,
    pub units: u32,
    pub status: u8,
    pub sq_head: u16,
}

impl Completion {
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            cookie: u64::from_le_bytes(bytes[..8].try_into().unwrap()),
            units: u32::from_le_bytes(bytes[8..12].try_into().unwrap()),
            status: bytes[CQE_STATUS],
            sq_head: u16::from_le_bytes(bytes[14..].try_into().unwrap()),
        }
    }
}

/// A submission: what is not said is zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct Submission {
    pub op: u8,
    pub flags: u8,
    pub slot: u8,
    pub log2_unit: u8,
    pub step: u16,
    pub units: u32,
    pub tweak: u128,
    pub source: u64,
    pub destination: u64,
    pub source_entries: u32,
    pub destination_entries: u32,
    pub cookie: u64,
}

impl Submission {
    pub fn bytes(&self) -> [u8; SQE_BYTES] {
        let mut bytes = [0; SQE_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(SQE_OP, &[self.op, self.flags, self.slot, self.log2_unit]);
        put(SQE_STEP, &self.step.to_le_bytes());
        put(SQE_UNITS, &self.units.to_le_bytes());
        put(SQE_TWEAK, &self.tweak.to_le_bytes());
        put(SQE_SOURCE, &self.source.to_le_bytes());
        put(SQE_DESTINATION, &self.destination.to_le_bytes());
        put(SQE_SOURCE_ENTRIES, &self.source_entries.to_le_bytes());
        put(
            SQE_DESTINATION_ENTRIES,
            &self.destination_entries.to_le_bytes(),
        );
        put(SQE_COOKIE, &self.cookie.to_le_bytes());
        bytes
    }
}

/// A ring as the driver sees it.
#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    tail: u16,
    head: u16,
}

/// A client of the device.
pub struct Driver {
    pub client: Client,
    pub memory: File,
    pub eventfds: Vec<File>,
    rings: Vec<Ring>,
}

impl Driver {
    /// Connects, shows its memory and its eventfds.
    pub fn new(simulator: &Simulator) -> Self {
        let mut client = Client::new(&simulator.socket()).unwrap();
        let memory = File::from(memfd_create("driver", MemfdFlags::CLOEXEC).unwrap());
        memory.set_len(MEMORY).unwrap();
        client.dma_map(0, BASE, MEMORY, memory.as_raw_fd()).unwrap();
        let vectors = client.get_irq_info(MSIX).unwrap().count;
        let eventfds: Vec<File> = (0..vectors)
            .map(|_| eventfd(0, EventfdFlags::CLOEXEC).unwrap().into())
            .collect();
        // Memory space and bus mastering.
        client
            .region_write(CONFIG, 4, &6_u16.to_le_bytes())
            .unwrap();
        let mut driver = Self {
            client,
            memory,
            rings: vec![Ring::default(); vectors as usize - 1],
            eventfds,
        };
        driver.show_eventfds();
        assert_eq!(driver.read(REG_ID), ID);
        driver
    }

    /// Gives the device its eventfds, where lines that are up are signalled.
    pub fn show_eventfds(&mut self) {
        let numbers: Vec<_> = self.eventfds.iter().map(AsRawFd::as_raw_fd).collect();
        let count = numbers.len().try_into().unwrap();
        self.client
            .set_irqs(MSIX, EVENTFDS, 0, count, &numbers)
            .unwrap();
    }

    /// How often a line was signalled since somebody looked.
    pub fn signals(&mut self, line: usize) -> u64 {
        let eventfd = &mut self.eventfds[line];
        let mut files = [PollFd::new(&*eventfd, PollFlags::IN)];
        if poll(&mut files, Some(&Timespec::default())).unwrap() == 0 {
            return 0;
        }
        let mut count = [0; 8];
        eventfd.read_exact(&mut count).unwrap();
        u64::from_ne_bytes(count)
    }

    pub fn read(&mut self, register: u32) -> u32 {
        let mut bytes = [0; 4];
        self.client
            .region_read(BAR0, register.into(), &mut bytes)
            .unwrap();
        u32::from_le_bytes(bytes)
    }

    pub fn write(&mut self, register: u32, value: u32) {
        self.client
            .region_write(BAR0, register.into(), &value.to_le_bytes())
            .unwrap();
    }

    pub fn field(&mut self, register: u32, low: u32, bits: u32) -> u32 {
        self.read(register) >> low & ((1 << bits) - 1)
    }

    /// Loads a key; the result.
    pub fn key(&mut self, slot: u32, cipher: u8, key_bits: u32, key: &[u8]) -> u32 {
        for (register, word) in (REG_KEY_DATA..).step_by(4).zip(key.as_chunks().0) {
            self.write(register, u32::from_le_bytes(*word));
        }
        let long = u32::from(key_bits == 256) << KEY_CMD_KEY_BITS_LOW;
        self.write(
            REG_KEY_CMD,
            slot | u32::from(cipher) << KEY_CMD_CIPHER_LOW | long | 1 << KEY_CMD_COMMAND_LOW,
        );
        while self.read(REG_KEY_STATUS) >> KEY_STATUS_BUSY_LOW & 1 != 0 {}
        self.field(
            REG_KEY_STATUS,
            KEY_STATUS_RESULT_LOW,
            KEY_STATUS_RESULT_BITS,
        )
    }

    /// Turns a ring on, and its interrupts and those of faults.
    pub fn ring(&mut self, ring: usize) {
        let zeros = vec![0; CQE_BYTES << LOG_RING];
        self.memory.write_all_at(&zeros, completions(ring)).unwrap();
        for (register, value) in [
            (RING_SQ_LO, low(BASE + submissions(ring))),
            (RING_SQ_HI, high(BASE)),
            (RING_CQ_LO, low(BASE + completions(ring))),
            (RING_CQ_HI, high(BASE)),
            (RING_SIZE, LOG_RING),
            (RING_CONTROL, 1),
        ] {
            self.write(ring_register(ring, register), value);
        }
        self.rings[ring] = Ring::default();
        self.write(REG_INT_SET, 1 << ring | 1 << INT_STATUS_FAULT_LOW);
        self.write(REG_CTRL, 1);
    }

    /// Puts a submission into the ring; [`Driver::doorbell`] tells the device.
    pub fn submit(&mut self, ring: usize, submission: &Submission) {
        let index = u64::from(self.rings[ring].tail) % (1 << LOG_RING);
        self.memory
            .write_all_at(
                &submission.bytes(),
                submissions(ring) + index * SQE_BYTES as u64,
            )
            .unwrap();
        self.rings[ring].tail = self.rings[ring].tail.wrapping_add(1);
    }

    pub fn doorbell(&mut self, ring: usize) {
        self.write(ring_register(ring, RING_TAIL), self.rings[ring].tail.into());
    }

    /// Waits for an interrupt of the line.
    pub fn interrupt(&mut self, line: usize) -> u64 {
        let patience = Timespec {
            tv_sec: PATIENCE,
            tv_nsec: 0,
        };
        let eventfd = &mut self.eventfds[line];
        let ready = poll(
            &mut [PollFd::new(&*eventfd, PollFlags::IN)],
            Some(&patience),
        )
        .unwrap();
        if ready != 1 {
            let state: Vec<_> = [
                REG_STATUS,
                REG_INT_STATUS,
                REG_FAULT,
                RINGS_OFFSET + RING_STATE,
                RINGS_OFFSET + RING_COMPLETED,
            ]
            .map(|register| format!("{:#x}", self.read(register)))
            .into();
            panic!(
                "no interrupt {line}: STATUS, INT_STATUS, FAULT, ring 0's STATE and COMPLETED are {state:?}"
            );
        }
        let eventfd = &mut self.eventfds[line];
        let mut count = [0; 8];
        eventfd.read_exact(&mut count).unwrap();
        u64::from_ne_bytes(count)
    }

    /// The next completion, waiting for an interrupt if it is not there.
    pub fn completion(&mut self, ring: usize) -> Completion {
        loop {
            if let Some(completion) = self.completed(ring) {
                return completion;
            }
            self.interrupt(ring);
            self.acknowledge(1 << ring);
        }
    }

    /// Clears interrupts. The write is posted: until it has arrived, a completion that comes
    /// would raise no line anew, so what is looked at before may be too old.
    pub fn acknowledge(&mut self, lines: u32) {
        self.write(REG_INT_STATUS, lines);
        self.read(REG_INT_STATUS);
    }

    /// The next completion if it is there.
    pub fn completed(&mut self, ring: usize) -> Option<Completion> {
        let head = self.rings[ring].head;
        let index = u64::from(head) % (1 << LOG_RING);
        let mut bytes = [0; CQE_BYTES];
        self.memory
            .read_exact_at(&mut bytes, completions(ring) + index * CQE_BYTES as u64)
            .unwrap();
        let phase = 1 - (head >> LOG_RING & 1);
        if u16::from(bytes[CQE_PHASE]) != phase {
            return None;
        }
        self.rings[ring].head = head.wrapping_add(1);
        self.write(
            ring_register(ring, RING_CQ_HEAD),
            self.rings[ring].head.into(),
        );
        Some(Completion::of(&bytes))
    }

    /// One request from submission to completion.
    pub fn run(&mut self, ring: usize, submission: &Submission) -> Completion {
        self.submit(ring, submission);
        self.doorbell(ring);
        let completion = self.completion(ring);
        assert_eq!(completion.cookie, submission.cookie);
        completion
    }

    pub fn put(&self, at: u64, data: &[u8]) {
        self.memory.write_all_at(data, at).unwrap();
    }

    pub fn get(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.memory.read_exact_at(&mut data, at).unwrap();
        data
    }

    /// Writes a list of (place, bytes); its address.
    pub fn list(&self, at: u64, entries: &[(u64, u32)]) -> u64 {
        for (i, &(place, bytes)) in (0..).zip(entries) {
            let mut entry = [0; ENTRY_BYTES];
            entry[..8].copy_from_slice(&(BASE + place).to_le_bytes());
            entry[ENTRY_LENGTH..ENTRY_LENGTH + 4].copy_from_slice(&bytes.to_le_bytes());
            self.put(at + i * ENTRY_BYTES as u64, &entry);
        }
        BASE + at
    }

    /// A counter of the last snapshot.
    pub fn counter(&mut self, register: u32) -> u64 {
        u64::from(self.read(register)) | u64::from(self.read(register + 4)) << 32
    }
}

pub fn ring_register(ring: usize, register: u32) -> u32 {
    RINGS_OFFSET + RINGS_STRIDE * u32::try_from(ring).unwrap() + register
}

fn submissions(ring: usize) -> u64 {
    SQ + 0x1000 * ring as u64
}

fn completions(ring: usize) -> u64 {
    CQ + 0x1000 * ring as u64
}

#[allow(clippy::cast_possible_truncation)]
fn low(address: u64) -> u32 {
    address as u32
}

fn high(address: u64) -> u32 {
    u32::try_from(address >> 32).unwrap()
}

/// Bytes that look random, always the same for a seed.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..bytes).map(|_| next()).collect()
}
