//! Buffers that end, or start, exactly at a page that must not be touched: a
//! kernel that reads or writes one byte outside its sectors dies here.
#![cfg(unix)]
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

mod common;

use common::{Random, SIZES, Way, cipher, lengths, names, spec};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use sector_cipher::{Backend, Run};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::ptr;

/// Memory between two pages without any access.
struct Fenced {
    base: *mut u8,
    page: usize,
    len: usize,
}

impl Fenced {
    fn new(len: usize) -> Self {
        let page = rustix::param::page_size();
        let len = len.next_multiple_of(page);
        // SAFETY: a fresh mapping at an address of the system's choosing.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len + 2 * page,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .unwrap()
        .cast::<u8>();
        for fence in [base, base.wrapping_add(page + len)] {
            // SAFETY: a page of the mapping, to which there is no reference.
            unsafe { mprotect(fence.cast(), page, MprotectFlags::empty()) }.unwrap();
        }
        Self { base, page, len }
    }

    /// The last `len` bytes before the fence, or the first behind the other.
    fn slice(&mut self, at_end: bool, len: usize) -> &mut [u8] {
        assert!(len <= self.len);
        let start = self.page + if at_end { self.len - len } else { 0 };
        // SAFETY: inside the accessible part; borrowed for as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(start), len) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing refers to it any more.
        unsafe { munmap(self.base.cast(), self.len + 2 * self.page) }.unwrap();
    }
}

#[test]
fn nothing_outside_the_sectors_is_touched() {
    let mut random = Random::new(5);
    let mut source = Fenced::new(70 * 4096);
    let mut dest = Fenced::new(70 * 4096);
    // One name for each mode: IVs are nothing to a kernel.
    let modes = |name: &String| name.ends_with("-plain64") || name.ends_with("-essiv:sha256");
    for name in names().filter(modes) {
        for &key_len in spec(&name).key_lengths() {
            let key = random.bytes(key_len);
            for bytes in SIZES {
                let ways = |&backend: &Backend| {
                    let ways = Way::all(backend, spec(&name).mode());
                    ways.into_iter().map(move |way| (backend, way))
                };
                for (backend, way) in Backend::available().iter().flat_map(ways) {
                    way.take();
                    // Software takes long, and goes from batch to batch of eight.
                    let most = match (backend, bytes) {
                        (Backend::Portable, 1024..) => 20,
                        _ => 70,
                    };
                    let cipher = cipher(&name, bytes, &key, backend);
                    for sectors in lengths().into_iter().filter(|&sectors| sectors <= most) {
                        for at_end in [true, false] {
                            let len = sectors * bytes;
                            let source = source.slice(at_end, len);
                            let dest = dest.slice(at_end, len);
                            source.fill(0x33);
                            cipher.encrypt_to(8, source, dest);
                            cipher.encrypt(8, source);
                            assert!(source == dest);
                            cipher.decrypt_to(8, source, dest);
                            cipher.decrypt(8, source);
                            assert!(source == dest && dest.iter().all(|&byte| byte == 0x33));
                            let mut runs: Vec<_> = source
                                .chunks_exact_mut(bytes)
                                .map(|data| Run { first: 8, data })
                                .collect();
                            cipher.encrypt_runs(&mut runs);
                            cipher.decrypt_runs(&mut runs);
                            assert!(source == dest);
                        }
                    }
                }
            }
        }
    }
}

/// The fence works at all: a process that steps over it dies.
#[test]
fn the_fence_is_there() {
    for step in ["step_behind_the_end", "step_ahead_of_the_start"] {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", step])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.signal().is_some(), "{step}: {status}");
    }
}

#[test]
#[ignore = "dies on purpose, for the_fence_is_there"]
fn step_behind_the_end() {
    let mut fenced = Fenced::new(4096);
    let end = fenced.slice(true, 0).as_ptr();
    // SAFETY: none; the process is meant to die of it.
    unsafe { ptr::read_volatile(end) };
}

#[test]
#[ignore = "dies on purpose, for the_fence_is_there"]
fn step_ahead_of_the_start() {
    let mut fenced = Fenced::new(4096);
    let start = fenced.slice(false, 0).as_ptr();
    // SAFETY: none; the process is meant to die of it.
    unsafe { ptr::read_volatile(start.wrapping_sub(1)) };
}
