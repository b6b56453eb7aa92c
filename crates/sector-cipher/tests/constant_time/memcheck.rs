//! Valgrind's memcheck with secrets that count as undefined: it reports every
//! branch and address that depends on one. Its CPU has AES-NI and AVX2 but
//! neither VAES nor AVX-512, so that this covers `portable` and `aes-ni`.

use super::{Case, LONGEST, RUNS, Secrets, leaks_a_branch, leaks_an_address};
use sector_cipher::{Backend, Cipher};
use std::hint::black_box;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::process::{Command, Output};

/// The exit status that memcheck gives if it had anything to report.
const REPORTED: i32 = 77;

const RUNNING_ON_VALGRIND: usize = 0x1001;
const MAKE_MEM_UNDEFINED: usize = 0x4d43_0001;
const MAKE_MEM_DEFINED: usize = 0x4d43_0002;

/// A client request (Valgrind manual, section 3.1): rotations that change
/// nothing, and an exchange of a register with itself, which Valgrind knows.
/// Outside Valgrind it gives 0.
fn request(request: usize, a: usize, b: usize) -> usize {
    let arguments = [request, a, b, 0, 0, 0];
    let mut result = 0_usize;
    // SAFETY: without Valgrind this does nothing; with it, the requests made
    // here mark memory as defined or not.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            inout("rdx") result,
            in("rax") arguments.as_ptr(),
            in("rdi") 0,
            options(nostack),
        );
    }
    result
}

fn mark(kind: usize, bytes: &[u8]) {
    request(kind, bytes.as_ptr() as usize, bytes.len());
}

/// Runs a test of this program under memcheck.
fn memcheck(test: &str) -> Output {
    let output = Command::new("valgrind")
        .args(["--quiet", &format!("--error-exitcode={REPORTED}")])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            test,
            "--test-threads=1",
            "--nocapture",
        ])
        .output();
    match output {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("this test needs valgrind: install the package of that name")
        }
        output => output.unwrap(),
    }
}

#[test]
fn no_branch_and_no_address_depends_on_undefined_secrets() {
    let output = memcheck("memcheck::all_ciphers");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
    for backend in [Backend::Portable, Backend::AesNi] {
        assert!(
            text.contains(&format!("{backend}: ok")),
            "{backend} was not run"
        );
    }
}

#[test]
fn memcheck_shows_a_secret_address_and_a_secret_branch() {
    for leak in ["memcheck::secret_address", "memcheck::secret_branch"] {
        let output = memcheck(leak);
        assert_eq!(output.status.code(), Some(REPORTED), "{leak}: {output:?}");
    }
    assert!(memcheck("memcheck::no_leak").status.success());
}

fn undefined() -> Secrets {
    assert_ne!(request(RUNNING_ON_VALGRIND, 0, 0), 0, "not under Valgrind");
    let secrets = Secrets {
        key: vec![0x5a; 64],
        data: vec![0xa5; LONGEST],
    };
    mark(MAKE_MEM_UNDEFINED, &secrets.key);
    mark(MAKE_MEM_UNDEFINED, &secrets.data);
    secrets
}

#[test]
#[ignore = "runs under Valgrind, for no_branch_and_no_address_depends_on_undefined_secrets"]
fn all_ciphers() {
    for &backend in Backend::available() {
        // Software has one way for a sector alone and one for several.
        let runs: &[_] = match backend {
            Backend::Portable => &[(512, 1), (512, 2), (4096, 1)],
            _ => &RUNS,
        };
        for case in Case::all(backend, runs) {
            println!("{}", case.name());
            let mut place = MaybeUninit::<Cipher>::uninit();
            case.run(&mut place, &mut undefined());
            // SAFETY: the cipher is there. Its drop wipes the schedule.
            unsafe { place.assume_init_drop() };
        }
        println!("{backend}: ok");
    }
}

#[test]
#[ignore = "runs under Valgrind, for memcheck_shows_a_secret_address_and_a_secret_branch"]
fn secret_address() {
    black_box(leaks_an_address(&undefined()));
}

#[test]
#[ignore = "runs under Valgrind, for memcheck_shows_a_secret_address_and_a_secret_branch"]
fn secret_branch() {
    black_box(leaks_a_branch(&undefined()));
}

#[test]
#[ignore = "runs under Valgrind, for memcheck_shows_a_secret_address_and_a_secret_branch"]
fn no_leak() {
    let secrets = undefined();
    black_box(secrets.key[0] ^ secrets.data[5]);
    mark(MAKE_MEM_DEFINED, &secrets.key);
    assert_eq!(secrets.key[3], 0x5a);
}
