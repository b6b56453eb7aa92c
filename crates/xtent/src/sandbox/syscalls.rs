//! The system calls that a server needs, by seccomp; every other one fails
//! with EPERM.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use super::Missing;

/// Calls that are allowed whatever their arguments are: I/O on what is open,
/// memory, threads, time. glibc's and musl's choices both.
const ALLOWED: &[i64] = &[
    // I/O on open files and sockets.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_splice,
    // Rings were made before, and do reads, writes and flushes only.
    libc::SYS_io_uring_enter,
    libc::SYS_unlinkat,
    // Waiting.
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_restart_syscall,
    // Memory; mmap and mprotect are below.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_membarrier,
    // Threads; clone is below.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_geteuid,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // The end of the command of --run.
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
];

/// Calls that only x86-64 has, which its C libraries still use.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[i64] = &[
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_unlink,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[i64] = &[];

/// Calls by which librados becomes a client of a cluster. Without the former it ends the process, and
/// the latter tells the machine's name.
#[cfg(target_arch = "x86_64")]
const OF_CLIENTS: &[i64] = &[libc::SYS_epoll_create, libc::SYS_uname];
#[cfg(not(target_arch = "x86_64"))]
const OF_CLIENTS: &[i64] = &[libc::SYS_uname];

/// `BLKDISCARD`, `BLKZEROOUT`, `BLKGETSIZE64`, of devices that are handed over `BLKROGET`,
/// `BLKSSZGET` and `BLKPBSZGET`, and `FIONBIO`, `FIONREAD`, `TCGETS`:
/// nothing that changes a device's settings. (C libraries give the constants
/// different types.)
const IOCTLS: &[u64] = &[
    0x1277,
    0x127f,
    0x8008_1272,
    0x125e,
    0x1268,
    0x127b,
    0x5421,
    0x541b,
    0x5401,
];

/// Commands of fcntl: flags, and locks on what is open. Not those by which the kernel
/// sends signals in this process's name (`F_SETOWN`, `F_SETSIG`).
const FCNTLS: &[i32] = &[
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_OFD_GETLK,
    libc::F_OFD_SETLK,
];

/// `VFIO_IOMMU_UNMAP_DMA` and `VFIO_GROUP_UNSET_CONTAINER`: by which a device is let go.
const OF_DEVICES: &[u64] = &[0x3b72, 0x3b69];

/// Calls by which the driver of a device finds its group again when it lets go of it.
#[cfg(target_arch = "x86_64")]
const LINKS: &[i64] = &[libc::SYS_readlinkat, libc::SYS_readlink];
#[cfg(not(target_arch = "x86_64"))]
const LINKS: &[i64] = &[libc::SYS_readlinkat];

/// What else is allowed, to those that need it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wider {
    /// To make connections to servers on this machine: to any of their Unix sockets, which nothing tells apart.
    pub(super) connects_here: bool,
    /// To make those to servers elsewhere.
    pub(super) connects_far: bool,
    /// To make those that librados makes to its cluster.
    pub(super) has_image: bool,
    /// To make memory for others.
    pub(super) makes_memory: bool,
    /// To let go of a PCI device.
    pub(super) has_device: bool,
}

/// Filters every thread of the process from now on.
pub(super) fn filter(wider: Wider) -> Result<(), Missing> {
    seccompiler::apply_filter_all_threads(&no_clone3()?)?;
    seccompiler::apply_filter_all_threads(&allow_list(wider)?)?;
    Ok(())
}

fn allow_list(wider: Wider) -> Result<BpfProgram, Missing> {
    let Wider {
        connects_here,
        connects_far,
        has_image,
        makes_memory,
        has_device,
    } = wider;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED
        .iter()
        .chain(ALLOWED_HERE)
        .map(|&call| (call, Vec::new()))
        .collect();
    let exec = u64::try_from(libc::PROT_EXEC)?;
    let thread = u64::try_from(libc::CLONE_THREAD)?;
    rules.insert(libc::SYS_mmap, vec![masked(2, exec, 0)?]);
    rules.insert(libc::SYS_mprotect, vec![masked(2, exec, 0)?]);
    rules.insert(libc::SYS_clone, vec![masked(0, thread, thread)?]);
    rules.insert(
        libc::SYS_prctl,
        vec![equal(0, u64::try_from(libc::PR_SET_NAME)?)?],
    );
    rules.insert(
        libc::SYS_ioctl,
        IOCTLS
            .iter()
            .chain(if has_device { OF_DEVICES } else { &[] })
            .map(|&request| equal(1, request))
            .collect::<Result<_, _>>()?,
    );
    let seals: &[i32] = match makes_memory {
        true => &[libc::F_ADD_SEALS, libc::F_GET_SEALS],
        false => &[],
    };
    if makes_memory {
        rules.insert(libc::SYS_memfd_create, Vec::new());
    }
    rules.insert(
        libc::SYS_fcntl,
        FCNTLS
            .iter()
            .chain(seals)
            .map(|&command| equal(1, u64::try_from(command)?))
            .collect::<Result<_, _>>()?,
    );
    let is_far = connects_far || has_image;
    let families = [
        (libc::AF_UNIX, connects_here),
        (libc::AF_INET, is_far),
        (libc::AF_INET6, is_far),
    ];
    let allowed = families.into_iter().filter(|(_, is_allowed)| *is_allowed);
    let sockets: Vec<_> = allowed
        .map(|(family, _)| equal(0, u64::try_from(family)?))
        .collect::<Result<_, _>>()?;
    if !sockets.is_empty() {
        rules.insert(libc::SYS_socket, sockets);
        rules.insert(libc::SYS_connect, Vec::new());
    }
    if has_device {
        rules.extend(LINKS.iter().map(|&call| (call, Vec::new())));
    }
    if has_image {
        rules.extend(OF_CLIENTS.iter().map(|&call| (call, Vec::new())));
    }
    // Signals to the process itself only: abort().
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![equal(0, own)?]);
    compile(
        rules,
        SeccompAction::Errno(u32::try_from(libc::EPERM)?),
        SeccompAction::Allow,
    )
}

/// `clone3` takes its flags in memory, where a filter cannot see them. "No
/// such call" makes the C library use `clone`.
fn no_clone3() -> Result<BpfProgram, Missing> {
    compile(
        BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(u32::try_from(libc::ENOSYS)?),
    )
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, Missing> {
    let arch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, otherwise, matched, arch)?.try_into()?)
}

fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompRule, Missing> {
    rule(argument, Op::MaskedEq(mask), value)
}

fn equal(argument: u8, value: u64) -> Result<SeccompRule, Missing> {
    rule(argument, Op::Eq, value)
}

fn rule(argument: u8, op: Op, value: u64) -> Result<SeccompRule, Missing> {
    let condition = SeccompCondition::new(argument, Len::Dword, op, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_filters_compile() {
        let length = |wider| allow_list(wider).unwrap().len();
        let none = Wider::default();
        let least = length(none);
        assert!(least > ALLOWED.len());
        let here = Wider {
            connects_here: true,
            ..none
        };
        let far = Wider {
            connects_far: true,
            ..none
        };
        let to_clusters = Wider {
            has_image: true,
            ..none
        };
        assert!(length(here) > least && length(far) > length(here));
        assert!(length(to_clusters) > length(far));
        let to_both = Wider {
            connects_far: true,
            ..here
        };
        assert!(length(to_both) > length(far));
        for wider in [
            Wider {
                makes_memory: true,
                ..none
            },
            Wider {
                has_device: true,
                ..none
            },
        ] {
            assert!(length(wider) > least, "{wider:?}");
        }
        assert!(!no_clone3().unwrap().is_empty());
    }
}
