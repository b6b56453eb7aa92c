//! Single steps: the instructions that a process runs and the addresses that
//! they touch. Works for all instructions, as the CPU itself runs them: with
//! its trap flag set it raises a signal after each, and the handler notes the
//! registers.
//!
//! Processes forked one after the other from the same place have the same
//! memory at the same addresses, but for the secrets.

use super::{Case, LONGEST, RUNS, Secrets, leaks_a_branch, leaks_an_address};
use crate::common::Random;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, Register, UsedMemory};
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use sector_cipher::Backend;
use std::collections::HashMap;
use std::hint::black_box;
use std::io::Write;
use std::mem::{MaybeUninit, zeroed};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An instruction run.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Step {
    at: u64,
    /// A digest of the addresses, and of the operands of a division, whose
    /// time depends on them.
    touched: u64,
}

/// What an instruction touches, as far as it is the same each time.
struct Decoded {
    memory: Vec<UsedMemory>,
    divisor: Option<Register>,
    repeats: bool,
}

/// Decodes instructions of this program, which are those of its children.
#[derive(Default)]
struct Code {
    info: Option<InstructionInfoFactory>,
    known: HashMap<u64, Decoded>,
}

impl Code {
    fn step(&mut self, registers: &Registers) -> Step {
        let at = registers.get(libc::REG_RIP);
        let info = self.info.get_or_insert_with(InstructionInfoFactory::new);
        let decoded = self.known.entry(at).or_insert_with(|| decode(info, at));
        let mut touched = 0_u64;
        let mut mix = |value: u64| {
            touched = (touched.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        };
        for memory in &decoded.memory {
            // Gathers, which compilers make of loads at regular distances, have
            // their indices in vectors, which are not noted.
            let address = memory
                .virtual_address(0, |register, _, _| registers.part(register))
                .or_else(|| registers.part(memory.base()));
            let address = address.unwrap_or_else(|| panic!("{at:#x}: no base: {memory:?}"));
            mix(address);
        }
        if let Some(divisor) = decoded.divisor {
            // One in memory is not looked at; what it divides is.
            mix(registers.part(divisor).unwrap_or(0));
            mix(registers.get(libc::REG_RAX));
            mix(registers.get(libc::REG_RDX));
        }
        if decoded.repeats {
            mix(registers.get(libc::REG_RCX));
        }
        Step { at, touched }
    }
}

fn decode(info: &mut InstructionInfoFactory, at: u64) -> Decoded {
    let to_page_end = usize::try_from(4096 - at % 4096).unwrap();
    let decode = |len: usize| {
        // SAFETY: the child is about to run the instruction, so that it is in
        // readable memory, and of no more bytes than it has are any behind the
        // page; the program's code does not change.
        let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, len) };
        Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode()
    };
    let mut instruction = decode(to_page_end.min(15));
    if instruction.is_invalid() && to_page_end < 15 {
        instruction = decode(15);
    }
    assert!(!instruction.is_invalid(), "not decoded: {at:#x}");
    let divides = matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv);
    Decoded {
        memory: info.info(&instruction).used_memory().to_vec(),
        divisor: divides.then(|| instruction.op0_register()),
        repeats: instruction.has_rep_prefix(),
    }
}

/// The general registers before an instruction.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Registers([i64; 23]);

impl Registers {
    fn get(&self, index: c_int) -> u64 {
        self.0[usize::try_from(index).unwrap()].cast_unsigned()
    }

    /// The part of an address that comes from a register. Segments start at
    /// zero, or at the same place in all processes.
    fn part(&self, register: Register) -> Option<u64> {
        let index = match register.full_register() {
            Register::RAX => libc::REG_RAX,
            Register::RBX => libc::REG_RBX,
            Register::RCX => libc::REG_RCX,
            Register::RDX => libc::REG_RDX,
            Register::RSI => libc::REG_RSI,
            Register::RDI => libc::REG_RDI,
            Register::RBP => libc::REG_RBP,
            Register::RSP => libc::REG_RSP,
            Register::R8 => libc::REG_R8,
            Register::R9 => libc::REG_R9,
            Register::R10 => libc::REG_R10,
            Register::R11 => libc::REG_R11,
            Register::R12 => libc::REG_R12,
            Register::R13 => libc::REG_R13,
            Register::R14 => libc::REG_R14,
            Register::R15 => libc::REG_R15,
            Register::RIP => libc::REG_RIP,
            register if register.is_segment_register() => return Some(0),
            _ => return None,
        };
        Some(self.get(index))
    }
}

/// What the handler notes, in memory that the child shares with its parent.
#[repr(C)]
struct Notes {
    len: usize,
    steps: [Registers; MOST],
}

/// The most instructions that can be noted.
const MOST: usize = 1 << 21;

/// The notes of this process.
static NOTES: AtomicPtr<Notes> = AtomicPtr::new(null_mut());

extern "C" fn note(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    let notes = NOTES.load(Ordering::Relaxed);
    // SAFETY: the kernel passes the context; the notes are there for as long as
    // this handler is, and only this thread of a traced process has them.
    unsafe {
        let registers = Registers((*context.cast::<ucontext_t>()).uc_mcontext.gregs);
        let len = (*notes).len;
        if len == MOST {
            libc::_exit(3);
        }
        (*notes).steps[len] = registers;
        (*notes).len = len + 1;
        repeat(&mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs);
    }
}

/// Does what an instruction that repeats itself is about to do, at once: it
/// would raise the signal for each byte of a copy. Nothing is left for it.
///
/// # Safety
/// The registers are those that the instruction is to be run with.
unsafe fn repeat(registers: &mut [i64; 23]) {
    let [rip, rcx, rsi, rdi] = [libc::REG_RIP, libc::REG_RCX, libc::REG_RSI, libc::REG_RDI]
        .map(|register| register.cast_unsigned() as usize);
    let code = registers[rip] as *const u8;
    // SAFETY: an instruction with the prefix has no fewer bytes.
    let (wide, operation) = unsafe {
        match (code.read(), code.add(1).read()) {
            (0xf3, 0x48) => (true, code.add(2).read()),
            (0xf3, operation) => (false, operation),
            _ => return,
        }
    };
    // Another instruction may have any number there.
    let bytes = registers[rcx].wrapping_mul(if wide { 8 } else { 1 });
    let len = usize::try_from(bytes).unwrap_or(0);
    let (from, to) = (registers[rsi] as *const u8, registers[rdi] as *mut u8);
    // SAFETY: the caller's promise; upwards, as all compilers leave the
    // direction flag clear. Copies that overlap are not made this way.
    unsafe {
        match (operation, wide) {
            (0xa4, false) | (0xa5, true) => {
                from.copy_to(to, len);
                registers[rsi] += bytes;
            }
            (0xaa, false) => to.write_bytes(
                registers[libc::REG_RAX.cast_unsigned() as usize].to_le_bytes()[0],
                len,
            ),
            _ => return,
        }
    }
    registers[rdi] += bytes;
    registers[rcx] = 0;
}

/// Does `work` with the trap flag set; in a traced process only.
fn step_through(work: &mut dyn FnMut()) {
    const STACK: usize = 64 << 10;
    // SAFETY: installs a handler, with a stack of its own, that only notes
    // registers. The trap flag changes nothing but that the handler is called.
    unsafe {
        let stack = libc::stack_t {
            ss_sp: (&raw mut *NOTES.load(Ordering::Relaxed)).add(1).cast(),
            ss_flags: 0,
            ss_size: STACK,
        };
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = note as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaltstack(&raw const stack, null_mut()) != 0
            || libc::sigaction(libc::SIGTRAP, &raw const action, null_mut()) != 0
        {
            libc::_exit(2);
        }
        std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
    }
    work();
    // SAFETY: as above.
    unsafe { std::arch::asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq") };
}

/// What a child of this process does in `work`, which must not allocate or
/// take locks: other threads may have held some when it was made.
#[inline(never)]
fn trace(code: &mut Code, work: &mut dyn FnMut()) -> Vec<Step> {
    // Behind the notes, the handler's stack.
    let len = size_of::<Notes>() + (64 << 10);
    let (access, flags) = (
        ProtFlags::READ | ProtFlags::WRITE,
        MapFlags::SHARED | MapFlags::NORESERVE,
    );
    // SAFETY: fresh memory, all zero, which is valid for the notes.
    let notes: *mut Notes = unsafe { mmap_anonymous(null_mut(), len, access, flags) }
        .unwrap()
        .cast();
    // SAFETY: the child stays within what is safe after a fork, see above, and
    // ends here, without running anything that the parent has registered.
    let child = unsafe { libc::fork() };
    assert!(child != -1, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        NOTES.store(notes, Ordering::Relaxed);
        let failed = catch_unwind(AssertUnwindSafe(|| step_through(work))).is_err();
        // SAFETY: see above.
        unsafe { libc::_exit(c_int::from(failed)) };
    }
    let mut status = 0;
    // SAFETY: a place for the status.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0), "the traced process failed");
    // SAFETY: the child has ended; it has written as many as it says.
    let noted = unsafe { &(&(*notes).steps)[..(*notes).len] };
    let steps = noted.iter().map(|registers| code.step(registers)).collect();
    // SAFETY: nothing refers to the notes any more.
    unsafe { rustix::mm::munmap(notes.cast(), len) }.unwrap();
    steps
}

/// Where this program was loaded.
fn base() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let exe = std::env::current_exe().unwrap();
    let line = maps
        .lines()
        .find(|line| line.ends_with(exe.to_str().unwrap()));
    u64::from_str_radix(line.unwrap().split('-').next().unwrap(), 16).unwrap()
}

/// How the traces of `work` with two sets of secrets differ; the number of
/// instructions if they do not.
fn compare(mut work: impl FnMut(&mut Secrets)) -> Result<usize, String> {
    let mut random = Random::new(17);
    let mut secrets = Secrets {
        key: vec![0; 64],
        data: vec![0; LONGEST],
    };
    let mut code = Code::default();
    let mut traces = Vec::new();
    for _ in 0..2 {
        traces.push(trace(&mut code, &mut || work(&mut secrets)));
        // The places stay where they are.
        secrets.key.copy_from_slice(&random.bytes(64));
        secrets.data.copy_from_slice(&random.bytes(LONGEST));
    }
    let [a, b] = [&traces[0], &traces[1]];
    if a == b {
        return Ok(a.len());
    }
    let first = a.iter().zip(b).position(|(a, b)| a != b);
    let first = first.unwrap_or(a.len().min(b.len()) - 1);
    let (at, before) = (a[first].at, a[first.saturating_sub(1)].at);
    let what = if at == b[first].at {
        "address"
    } else {
        "branch"
    };
    Err(format!(
        "a secret {what} after {first} instructions; look at: addr2line -fie {} {:#x} {:#x}",
        std::env::current_exe().unwrap().display(),
        before.wrapping_sub(base()),
        at.wrapping_sub(base())
    ))
}

fn check_backend(backend: Backend) {
    if !backend.is_supported() {
        // Past the test runner's capture.
        let line = format!("NOT RUN on this machine: traces of {backend}: this CPU lacks it\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        return;
    }
    let mut place = MaybeUninit::uninit();
    // What memcheck sees to is not stepped through as well: software takes long.
    let runs: &[_] = match backend {
        Backend::Portable => &[(512, 1), (512, 2)],
        Backend::AesNi => &RUNS[..1],
        _ => &RUNS,
    };
    for case in Case::all(backend, runs) {
        // Key lengths differ in the number of rounds only: all of them over one run are
        // enough, and of software the longest.
        if !case.has_longest_key() && (backend == Backend::Portable || case.run != RUNS[0]) {
            continue;
        }
        match compare(|secrets| case.run(&mut place, secrets)) {
            Ok(instructions) => println!("{}: {instructions} instructions", case.name()),
            Err(difference) => panic!("{}: {difference}", case.name()),
        }
    }
}

#[test]
#[ignore = "takes minutes where single steps are slow: make test-constant-time"]
fn portable_traces_do_not_depend_on_secrets() {
    check_backend(Backend::Portable);
}

#[test]
#[ignore = "takes minutes where single steps are slow: make test-constant-time"]
fn aes_ni_traces_do_not_depend_on_secrets() {
    check_backend(Backend::AesNi);
}

#[test]
#[ignore = "takes minutes where single steps are slow: make test-constant-time"]
fn vaes256_traces_do_not_depend_on_secrets() {
    check_backend(Backend::Vaes256);
}

#[test]
#[ignore = "takes minutes where single steps are slow: make test-constant-time"]
fn vaes512_traces_do_not_depend_on_secrets() {
    check_backend(Backend::Vaes512);
}

#[test]
fn a_trace_shows_a_secret_address_and_a_secret_branch() {
    let difference = compare(|secrets| {
        black_box(leaks_an_address(secrets));
    });
    assert!(difference.unwrap_err().contains("secret address"));
    let difference = compare(|secrets| {
        black_box(leaks_a_branch(secrets));
    });
    assert!(difference.unwrap_err().contains("secret branch"));
    // And nothing where there is nothing.
    let difference = compare(|secrets| {
        black_box(secrets.key[0] ^ secrets.data[5]);
    });
    assert!(difference.is_ok());
}
