//! Single steps: the instructions that a process runs and the addresses that
//! they touch. Works for all instructions, as the CPU itself runs them.
//!
//! Processes forked one after the other from the same place have the same
//! memory at the same addresses, but for the secrets.

use super::{Case, SECTORS, Secrets, leaks_a_branch, leaks_an_address};
use crate::common::Random;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, Register, UsedMemory};
use libc::{c_int, c_void, pid_t, user_regs_struct};
use sector_cipher::Backend;
use std::collections::HashMap;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

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
    /// The register, or none for one in memory.
    divisor: Option<Register>,
    /// The instruction behind one that repeats itself: a step would be one
    /// repetition.
    behind: Option<u64>,
}

/// Decodes instructions of this program, which are those of its children.
#[derive(Default)]
struct Code {
    info: Option<InstructionInfoFactory>,
    known: HashMap<u64, Decoded>,
}

impl Code {
    /// The step that the child is about to make, and where the instruction
    /// behind it is if it repeats itself.
    fn step(&mut self, child: pid_t, registers: &user_regs_struct) -> (Step, Option<u64>) {
        let at = registers.rip;
        let info = self.info.get_or_insert_with(InstructionInfoFactory::new);
        let decoded = self.known.entry(at).or_insert_with(|| decode(info, at));
        let mut touched = 0_u64;
        let mut mix = |value: u64| {
            touched = (touched.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        };
        let mut address = 0;
        for memory in &decoded.memory {
            address = memory
                .virtual_address(0, |register, _, _| value(registers, register))
                .unwrap_or_else(|| panic!("{at:#x}: its addresses are in vectors: {memory:?}"));
            mix(address);
        }
        if let Some(divisor) = decoded.divisor {
            mix(value(registers, divisor).unwrap_or_else(|| peek(child, address)));
            mix(registers.rax);
            mix(registers.rdx);
        }
        if decoded.behind.is_some() {
            mix(registers.rcx);
        }
        (Step { at, touched }, decoded.behind)
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
        behind: (instruction.has_rep_prefix() && instruction.is_string_instruction())
            .then(|| instruction.next_ip()),
    }
}

/// The part of an address that comes from a register.
fn value(registers: &user_regs_struct, register: Register) -> Option<u64> {
    Some(match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::RIP => registers.rip,
        Register::FS => registers.fs_base,
        Register::GS => registers.gs_base,
        Register::ES | Register::CS | Register::SS | Register::DS => 0,
        _ => return None,
    })
}

fn check(result: i64, what: &str) {
    assert!(result != -1, "{what}: {}", std::io::Error::last_os_error());
}

fn wait_for(child: pid_t) -> c_int {
    let mut status = 0;
    // SAFETY: a place for the status.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    check(waited.into(), "waitpid");
    status
}

fn request(request: libc::c_uint, child: pid_t, data: *mut c_void) {
    // SAFETY: the requests made here write at most one `user_regs_struct` to
    // `data`, which has room for it then.
    let result = unsafe { libc::ptrace(request, child, null_mut::<c_void>(), data) };
    check(result, "ptrace");
}

/// Eight bytes of the child's memory.
fn peek(child: pid_t, address: u64) -> u64 {
    let place = address as *mut c_void;
    // SAFETY: reads the child's memory; it is there, as the child is about to
    // use it.
    let word = unsafe { libc::ptrace(libc::PTRACE_PEEKDATA, child, place, null_mut::<c_void>()) };
    word.cast_unsigned()
}

/// Lets the child run up to `end`, where a breakpoint stands meanwhile.
fn run_to(child: pid_t, end: u64) {
    let code = peek(child, end);
    let poke = |code: u64| {
        let (place, code) = (end as *mut c_void, code as *mut c_void);
        // SAFETY: changes the child's own copy of the code, for a while.
        let result = unsafe { libc::ptrace(libc::PTRACE_POKETEXT, child, place, code) };
        check(result, "ptrace");
    };
    poke(code & !0xff | 0xcc);
    request(libc::PTRACE_CONT, child, null_mut());
    let status = wait_for(child);
    assert!(libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP);
    poke(code);
    let mut registers = registers(child);
    registers.rip = end;
    request(libc::PTRACE_SETREGS, child, (&raw mut registers).cast());
}

fn registers(child: pid_t) -> user_regs_struct {
    let mut registers = MaybeUninit::<user_regs_struct>::uninit();
    request(libc::PTRACE_GETREGS, child, registers.as_mut_ptr().cast());
    // SAFETY: the request has filled it.
    unsafe { registers.assume_init() }
}

/// What a child of this process does in `work`, which must not allocate or
/// take locks: other threads may have held some when it was made.
#[inline(never)]
fn trace(code: &mut Code, work: &mut dyn FnMut()) -> Vec<Step> {
    // SAFETY: the child stays within what is safe after a fork, see above.
    let child = unsafe { libc::fork() };
    check(child.into(), "fork");
    if child == 0 {
        // SAFETY: no pointers; the child ends here, without running anything
        // that the parent has registered.
        unsafe {
            if libc::ptrace(libc::PTRACE_TRACEME) == -1 {
                libc::_exit(2);
            }
            libc::raise(libc::SIGSTOP);
            let failed = catch_unwind(AssertUnwindSafe(work)).is_err();
            libc::_exit(c_int::from(failed));
        }
    }
    let status = wait_for(child);
    assert!(
        libc::WIFSTOPPED(status),
        "tracing is forbidden here: {status:#x}"
    );
    // Not left behind when this process dies.
    request(
        libc::PTRACE_SETOPTIONS,
        child,
        libc::PTRACE_O_EXITKILL as *mut c_void,
    );
    let mut steps = Vec::new();
    loop {
        let (step, behind) = code.step(child, &registers(child));
        steps.push(step);
        if let Some(end) = behind {
            run_to(child, end);
            continue;
        }
        request(libc::PTRACE_SINGLESTEP, child, null_mut());
        let status = wait_for(child);
        if !libc::WIFSTOPPED(status) {
            assert_eq!(status, 0, "the traced process failed");
            return steps;
        }
        assert_eq!(
            libc::WSTOPSIG(status),
            libc::SIGTRAP,
            "the traced process got a signal"
        );
    }
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
        data: vec![0; SECTORS * 512],
    };
    let mut code = Code::default();
    let mut traces = Vec::new();
    for _ in 0..2 {
        traces.push(trace(&mut code, &mut || work(&mut secrets)));
        // The places stay where they are.
        secrets.key.copy_from_slice(&random.bytes(64));
        secrets.data.copy_from_slice(&random.bytes(SECTORS * 512));
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
        println!("this CPU lacks {backend}");
        return;
    }
    let mut place = MaybeUninit::uninit();
    for case in Case::all(backend) {
        match compare(|secrets| case.run(&mut place, secrets)) {
            Ok(instructions) => println!("{}: {instructions} instructions", case.name()),
            Err(difference) => panic!("{}: {difference}", case.name()),
        }
    }
}

#[test]
fn portable_traces_do_not_depend_on_secrets() {
    check_backend(Backend::Portable);
}

#[test]
fn aes_ni_traces_do_not_depend_on_secrets() {
    check_backend(Backend::AesNi);
}

#[test]
fn vaes256_traces_do_not_depend_on_secrets() {
    check_backend(Backend::Vaes256);
}

#[test]
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
