//! What the kernel's refusals mean here, and what to do about them.

use std::io;

use devicemapper::DmError;

use crate::error::{EBUSY, io_error};
use crate::{Error, ErrorKind, Name, Table, Target};

const ENOENT: i32 = 2;
const EINVAL: i32 = 22;

pub(crate) fn no_device_mapper(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Error::new(ErrorKind::Permission, "the device mapper requires root")
            .advise("Anybody can `xtent serve`, or `xtent mount --file-only`.")
            .because(error);
    }
    Error::new(
        ErrorKind::Unsupported,
        "this kernel has no device mapper, or has not loaded it: /dev/mapper/control \
         cannot be opened",
    )
    .advise("As root, `modprobe dm_mod` loads it. `xtent serve` and `xtent mount` need none.")
    .because(error)
}

pub(crate) fn not_created(name: &Name, error: &DmError) -> Error {
    let source = io_error(error);
    if source.raw_os_error() == Some(EBUSY) {
        return taken(name);
    }
    Error::refused(format!("cannot make the mapping {name}"), error)
}

/// A name that is in use.
pub(crate) fn taken(name: &Name) -> Error {
    Error::new(
        ErrorKind::Exists,
        format!("there is a mapping {name} already"),
    )
    .advise(format!(
        "Choose another name, or `xtent close {name}` first."
    ))
}

pub(crate) fn no_such(name: &Name) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no mapping {name}"))
        .advise("`dmsetup ls` lists those that there are.")
}

pub(crate) fn not_to_grow(name: &Name) -> Error {
    Error::new(
        ErrorKind::Foreign,
        format!("{name} has a table that cannot be made larger here"),
    )
    .advise(format!("`cryptsetup resize {name}` may know it."))
}

/// What is resumed by whoever has suspended it, with the key that may have been taken away.
pub(crate) fn suspended(name: &Name) -> Error {
    Error::new(ErrorKind::Busy, format!("{name} is suspended")).advise(format!(
        "`xtent resume {name}` first, if it was `xtent suspend` or `cryptsetup luksSuspend`; else `dmsetup resume {name}`."
    ))
}

/// The advice for what is not to be suspended here.
pub(crate) fn see_foreign(name: &Name) -> String {
    format!(
        "`dmsetup info {name}` tells what it is; a volume with integrity protection is suspended by `cryptsetup luksSuspend {name}`."
    )
}

pub(crate) fn not_to_suspend(name: &Name) -> Error {
    Error::new(
        ErrorKind::Foreign,
        format!("{name} has a table of which no key can be taken away, or given back, here"),
    )
    .advise(see_foreign(name))
}

pub(crate) fn has_two_tables(name: &Name) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!("a second table waits in {name}, to be taken when it is resumed"),
    )
    .advise(format!(
        "If nobody is about to change it, `dmsetup clear {name}` takes that away."
    ))
}

pub(crate) fn suspended_before(name: &Name) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!("{name} is suspended already, and its key is wiped"),
    )
    .advise(give_key(name))
}

pub(crate) fn runs(name: &Name) -> Error {
    Error::new(ErrorKind::Argument, format!("{name} is not suspended"))
        .advise("There is nothing to do: its key is there, and nobody waits.")
}

pub(crate) fn changed(name: &Name) -> Error {
    Error::new(ErrorKind::Busy, format!("{name} has changed meanwhile"))
        .advise("Give the command again.")
}

pub(crate) fn not_suspended(name: &Name, error: &DmError) -> Error {
    Error::refused(
        format!("{name} cannot be suspended, and is in use as before"),
        error,
    )
    .advise("The kernel's log (`dmesg`) may say why: a file system that cannot be frozen, for instance.")
}

/// The target has not wiped its key; `state` is what the mapping is, therefore.
pub(crate) fn not_wiped(name: &Name, error: io::Error, state: &str) -> Error {
    Error::refused_for(
        format!("the key of {name} could not be wiped: {name} is {state}"),
        error,
    )
    .advise(format!(
        "The kernel's log (`dmesg`) may say why. `xtent close {name}`, or turning the machine off, takes the key away."
    ))
}

/// The advice where somebody waits for a key.
pub(crate) fn give_key(name: &Name) -> String {
    format!("`xtent resume {name}` lets those go on who wait.")
}

pub(crate) fn no_key(name: &Name, error: io::Error) -> Error {
    Error::refused_for(
        format!("{name} does not take the key, and stays suspended"),
        error,
    )
    .advise("The kernel's log (`dmesg`) says why.")
}

pub(crate) fn stays(name: &Name, error: io::Error) -> Error {
    Error::refused_for(
        format!("{name} cannot be resumed: it stays suspended, and its key is wiped again"),
        error,
    )
    .advise("The kernel's log (`dmesg`) may say why.")
}

pub(crate) fn not_removed(name: &Name, users: i32, error: &DmError) -> Error {
    let source = io_error(error);
    if source.raw_os_error() != Some(EBUSY) {
        return Error::refused(format!("{name} cannot be closed"), error);
    }
    Error::new(
        ErrorKind::Busy,
        format!("{name} is in use: it is open {} time(s)", users.max(1)),
    )
    .advise(format!(
        "Unmount what is on it (`lsblk {}` shows that); --deferred closes it when its last user goes.",
        name.path().display()
    ))
    .because(source)
}

/// `is_there` tells whether the kernel has the target.
pub(crate) fn not_loaded(
    target: Target,
    table: &Table,
    source: io::Error,
    is_there: impl Fn() -> bool,
) -> Error {
    let module = target.module();
    let without = "`xtent serve` and `xtent mount` need nothing of the kernel's.";
    let told = match source.raw_os_error() {
        Some(EBUSY) => Error::new(
            ErrorKind::Busy,
            "the device is in use: mounted, mapped, or a part of an array",
        )
        .advise("Unmount it, or close what is on it (`lsblk` shows that), and try again."),
        Some(ENOENT) => Error::new(
            ErrorKind::Unsupported,
            format!("the kernel does not have the cipher {}", table.cipher),
        )
        .advise(if table.cipher.starts_with("capi:fast") {
            format!("`insmod kernel/xtent_fast.ko` adds it. {without}")
        } else {
            without.to_owned()
        }),
        Some(EINVAL) if !is_there() => Error::new(
            ErrorKind::Unsupported,
            format!("the kernel has no {module}"),
        )
        .advise(format!("`modprobe {module}` may load it. {without}")),
        _ => {
            return Error::refused_for(format!("{module} refuses the volume"), source)
                .advise("The kernel's log (`dmesg`) says why.");
        }
    };
    told.because(source)
}
