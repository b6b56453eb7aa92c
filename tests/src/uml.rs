//! The kernel's own dm-crypt: shell scripts as root inside User Mode Linux
//! (`scripts/guest.sh`), or QEMU. No privileges on the host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::luks::{KEY, Maker, Shape};
use crate::process::peer;
use crate::scratch::assert_same;
use crate::{Cmd, Scratch, pattern};

/// User Mode Linux 6.12, as `scripts/guest.sh --on` names it. It is built if it has
/// not yet been: that takes many minutes.
pub fn kernel_612() -> &'static str {
    built("uml-6.12")
}

/// The same without checkers, but with ext4 and ublk devices.
pub fn kernel_612_fast() -> &'static str {
    built("uml-6.12-fast")
}

/// Debian's kernel 6.12 for x86-64, in QEMU with two processors. It is downloaded if it has not yet been.
pub fn kernel_x86_612() -> &'static str {
    built("x86-6.12")
}

/// Debian's newest kernel for x86-64, of sid, in the same way; the first time that takes root.
pub fn kernel_x86_7() -> &'static str {
    built("x86-7")
}

fn built(bed: &'static str) -> &'static str {
    Cmd::new(crate::bed::root_folder().join("scripts/kernel.sh"))
        .arg(bed)
        .env("CARGO_TARGET_DIR", crate::bed::target_folder())
        .limit(Duration::from_secs(2 * 3600))
        .ok();
    bed
}

/// The folder with our kernel modules for Debian's User Mode Linux, built if need be.
pub fn kernel_modules() -> PathBuf {
    let built = Cmd::new(crate::bed::root_folder().join("kernel/test/build.sh"))
        .arg("uml")
        .env("CARGO_TARGET_DIR", crate::bed::target_folder())
        .limit(Duration::from_secs(1800))
        .ok();
    built.out().trim().into()
}

/// Names in the guest: of the mapping and of the key file.
const PRELUDE: &str = r#"
set -e
# open_luks NAME KEY: /d/NAME becomes /dev/mapper/NAME
open_luks() {
    cryptsetup open --disable-keyring --key-file "/in/$2" "/d/$1" "$1"
}
# open_xtent NAME KEY: the same, but through dm-xtent
open_xtent() {
    open_luks "$1" "$2"
    dmsetup table --showkeys "$1" | sed 's/ crypt / xtent /' >/tmp/table
    cryptsetup close "$1"
    dmsetup create "$1" --noudevrules --noudevsync /tmp/table
    dmsetup mknodes "$1"
}
# fails STATUS COMMAND...: it ends with that, and says why; its passphrase file is /in/key
fails() {
    wanted=$1
    shift
    status=0
    "$@" 2>/tmp/said || status=$?
    cat /tmp/said
    [ $status = $wanted ] || { echo "$status, not $wanted: $*"; return 1; }
    [ -s /tmp/said ]
}
# never COMMAND...: it fails; a "!" before it would not count for "set -e"
never() {
    if "$@"; then
        echo "not expected: $*"
        return 1
    fi
}
# no_key: none of a volume's keys is in a keyring, or they are revoked
no_key() {
    grep cryptsetup: /proc/keys | never grep -v '^[0-9a-f]* .R'
}
"#;

/// The driver of ublk devices, where the kernel has not got it.
const UBLK: &str = r#"
if [ -e /in/ublk_drv.ko ]; then
    insmod /in/ublk_drv.ko
elif [ ! -e /dev/ublk-control ]; then
    modprobe ublk_drv
fi
# served OPTIONS...: xtent open --ublk by the key file, or by $key; its process is in $pid
served() {
    xtent --json open --ublk --key-file "${key:-/in/key}" "$@" >/tmp/served
    pid=$(sed 's/.*"pid": *\([0-9]*\).*/\1/' /tmp/served | grep -x '[0-9]*')
}
# mounted OPTIONS... DEVICE DIR: xtent mount by the same key; its daemon is in $pid
mounted() {
    xtent --json mount --key-file "${key:-/in/key}" "$@" >/tmp/mounted
    pid=$(sed 's/.*"pid": *\([0-9]*\).*/\1/' /tmp/mounted | grep -x '[0-9]*')
}
# ended: the process of the last one that was served or mounted is gone, with all its threads: the first may be
# a zombie long before the last
ended() {
    while grep -qs '^State:.[^Z]' /proc/$pid/task/*/status; do usleep 1000; done
}
killed() {
    kill -9 $pid
    ended
}
"#;

/// The command `xtent`. Wider registers than those of SSE do not survive in guests on
/// CPUs with AMX (scripts/uml-exec.c), so it has to do without.
const XTENT: &str = r#"
chmod +x /in/xtent
printf '#!/bin/sh\nexec /in/xtent --cpu portable "$@"\n' >/bin/xtent
chmod +x /bin/xtent
"#;

/// udev, with the rules that the device mapper's package brings. What it starts gets
/// its environment from the rules alone.
const UDEV: &str = r#"
mkdir -p /etc/udev/rules.d
cp /in/*.rules /etc/udev/rules.d/
echo "ENV{GLIBC_TUNABLES}=\"$GLIBC_TUNABLES\"" >/etc/udev/rules.d/00-registers.rules
chmod +x /in/udevadm
ln -s /in/udevadm /bin/systemd-udevd
LD_LIBRARY_PATH=/in systemd-udevd --daemon
udevadm() {
    LD_LIBRARY_PATH=/in /in/udevadm "$@"
}
"#;

/// fio, with the libraries that it came with. `of_fio`: the same requests for the same seed: four jobs, each several at a
/// time, of random sizes in random order, past the cache, with flushes between; then all is read and compared.
const FIO: &str = r#"
chmod +x /in/ld-linux*.so*
fio() {
    /in/ld-linux*.so* --library-path /in /in/fio "$@"
}
of_fio() {
    fio --name=verify --numjobs=4 --thread --ioengine=libaio --iodepth=4 --direct=1 \
        --rw=randwrite --bssplit=4k/30:12k/30:20k/20:128k/15:512k/5 --fsync=16 \
        --verify=crc32c --verify_fatal=1 "$@" >/tmp/fio 2>&1 || { cat /tmp/fio; return 1; }
}
"#;

/// A script and what it works on.
#[derive(Default)]
pub struct Job {
    script: String,
    disks: Vec<(String, PathBuf)>,
    served: Vec<(String, PathBuf)>,
    files: Vec<(String, Vec<u8>)>,
    kernel: Option<&'static str>,
    migrates_at: Option<&'static str>,
    memory: Option<u32>,
}

/// What came of it.
pub struct Outcome {
    /// What the script printed.
    pub console: String,
    results: Scratch,
}

impl Job {
    /// A script for busybox's `sh -e`, in the folder `/out`.
    pub fn new(script: &str) -> Self {
        Self {
            script: format!("{PRELUDE}{script}"),
            ..Self::default()
        }
    }

    /// An image that the script sees as the block device `/d/NAME`.
    pub fn disk(mut self, name: &str, image: &Path) -> Self {
        self.disks.push((name.to_owned(), image.to_owned()));
        self
    }

    /// A disk that a server has at a socket; the script sees it as `/d/NAME`.
    pub fn served(mut self, name: &str, socket: &Path) -> Self {
        self.served.push((name.to_owned(), socket.to_owned()));
        self
    }

    /// A file that the script sees as `/in/NAME`.
    pub fn file(mut self, name: &str, bytes: &[u8]) -> Self {
        self.files.push((name.to_owned(), bytes.to_vec()));
        self
    }

    /// The script has the command `xtent`.
    pub fn with_xtent(mut self) -> Self {
        // Without what only a debugger needs, which is most of it.
        let small = Scratch::new();
        let path = small.join("xtent");
        Cmd::peer("strip")
            .arg("-o")
            .args([path.as_path(), crate::xtent::binary()])
            .ok();
        self.script = format!("{XTENT}{}", self.script);
        let bytes = std::fs::read(path).unwrap();
        self.file("xtent", &bytes)
    }

    /// The script makes ublk devices with the command `xtent`, on this kernel, or on Debian's, whose
    /// driver is built here first: for that its source is fetched.
    pub fn with_ublk(self, kernel: Option<&'static str>) -> Self {
        let job = self.with_xtent();
        let job = Self {
            script: format!("{UBLK}{}", job.script),
            ..job
        };
        match kernel {
            Some(kernel) => job.kernel(kernel),
            None => {
                let built = Cmd::new(crate::bed::root_folder().join("kernel/test/ublk.sh"))
                    .env("CARGO_TARGET_DIR", crate::bed::target_folder())
                    .limit(Duration::from_secs(1800))
                    .ok();
                let module = std::fs::read(built.out().trim()).unwrap();
                job.file("ublk_drv.ko", &module)
            }
        }
    }

    /// udev runs.
    pub fn with_udev(mut self) -> Self {
        self.script = format!("{UDEV}{}", self.script);
        let program = peer("udevadm");
        let rules = ["55-dm", "60-persistent-storage-dm", "95-dm-notify"]
            .map(|name| format!("/usr/lib/udev/rules.d/{name}.rules"));
        for path in &rules {
            self = self.copy_of(Path::new(path));
        }
        self.with_program(&program)
    }

    /// The script has fio, which verifies what it writes: `fio OPTIONS...`, and `of_fio PLACE OPTIONS...`.
    pub fn with_fio(mut self) -> Self {
        self.script = format!("{FIO}{}", self.script);
        self.with_program(&peer("fio"))
    }

    /// A program of this machine, and its libraries.
    fn with_program(mut self, program: &Path) -> Self {
        let needed = Cmd::peer("ldd").arg(program).ok().out();
        // The loader comes without an arrow.
        for word in needed
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
        {
            self = self.copy_of(Path::new(word));
        }
        self.copy_of(program)
    }

    /// A file of this machine, as `/in/NAME`.
    fn copy_of(self, path: &Path) -> Self {
        let name = path.file_name().unwrap().to_str().unwrap();
        let bytes =
            std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.file(name, &bytes)
    }

    /// Another kernel than Debian's 6.1.
    pub fn kernel(mut self, bed: &'static str) -> Self {
        self.kernel = Some(bed);
        self
    }

    /// The guest moves to another QEMU when the script has printed a line that begins with the word;
    /// then the script can read a line.
    pub fn migrates_at(mut self, word: &'static str) -> Self {
        self.migrates_at = Some(word);
        self
    }

    /// The guest has so many megabytes of memory.
    pub fn memory(mut self, megabytes: u32) -> Self {
        self.memory = Some(megabytes);
        self
    }

    /// Boots, runs, fails with the console log if the script fails.
    pub fn run(self) -> Outcome {
        let results = Scratch::new();
        let inputs = Scratch::new();
        let mut command = Cmd::new(crate::bed::root_folder().join("scripts/guest.sh"))
            .args(["--timeout", "900", "--out"])
            .arg(results.path())
            .limit(Duration::from_secs(1000));
        if let Some(kernel) = self.kernel {
            command = command.args(["--on", kernel]);
        }
        if let Some(word) = self.migrates_at {
            command = command.args(["--migrate", word]);
        }
        if let Some(memory) = self.memory {
            command = command.args(["--memory", &memory.to_string()]);
        }
        for (name, image) in &self.disks {
            command = command.args(["--disk", &format!("{name}={}", image.display())]);
        }
        for (name, socket) in &self.served {
            command = command.args(["--vhost-user", &format!("{name}={}", socket.display())]);
        }
        for (name, bytes) in &self.files {
            let path = inputs.file(name, bytes);
            command = command.args(["--file", &format!("{name}={}", path.display())]);
        }
        let script = inputs.file("job-script", self.script.as_bytes());
        let done = command
            .env("CARGO_TARGET_DIR", crate::bed::target_folder())
            .arg(script)
            .ok();
        Outcome {
            console: done.out(),
            results,
        }
    }
}

impl Outcome {
    /// A file that the script left in `/out`.
    pub fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.results.join(name))
            .unwrap_or_else(|error| panic!("{name}: {error}; console:\n{}", self.console))
    }
}

/// Fails unless `xtent open` makes of cryptsetup's volumes what cryptsetup makes of
/// them, each closes what the other has opened, and the data is right. With `modules`,
/// the folder of our kernel modules, dm-xtent is loaded, of which cryptsetup knows
/// nothing and leaves it alone. Returns what was said.
pub fn assert_opens_like_cryptsetup(shapes: &[Shape], modules: Option<&Path>) -> String {
    const DATA: usize = (1 << 20) + 3 * 4096;
    let scratch = Scratch::new();
    let (target, status, close) = match modules {
        None => (
            "crypt",
            "cryptsetup status $name >status-$name",
            "cryptsetup close $name",
        ),
        Some(_) => (
            "xtent",
            "dmsetup info $name >status-$name; never cryptsetup status $name",
            "never cryptsetup close $name; xtent close $name",
        ),
    };
    let mut job = Job::new(&format!(
        "[ ! -e /in/dm-xtent.ko ] || insmod /in/dm-xtent.ko
         for name in $(cat /in/names); do
             cryptsetup open --key-file /in/key /d/$name $name
             dmsetup table $name | sed 's/ crypt / {target} /' >theirs-$name
             dmsetup info -c --noheadings -o uuid $name >>theirs-$name
             xtent close $name
             [ ! -e /dev/mapper/$name ]
             [ \"$(xtent open --key-file /in/key $name /d/$name)\" = /dev/mapper/$name ]
             dmsetup table $name >ours-$name
             dmsetup info -c --noheadings -o uuid $name >>ours-$name
             no_key
             {status}
             cat /dev/mapper/$name >$name
             dd if=/in/data-$name of=/dev/mapper/$name bs=64k conv=fsync 2>/dev/null
             {close}
             never dmsetup info $name 2>/dev/null
         done"
    ));
    job = job.with_xtent();
    if let Some(modules) = modules {
        let module = std::fs::read(modules.join("dm-xtent.ko")).unwrap();
        job = job.file("dm-xtent.ko", &module);
    }
    let mut names = String::new();
    let mut volumes = Vec::new();
    for (shape, seed) in shapes.iter().zip(60..) {
        let container = shape.image(Maker::Cryptsetup, &scratch, DATA as u64);
        let (before, after) = (pattern(DATA, seed), pattern(DATA, seed + 100));
        container.encrypt(&before);
        let name = shape.to_string();
        names.push_str(&format!("{name}\n"));
        job = job
            .disk(&name, &container.image)
            .file(&format!("data-{name}"), &after);
        volumes.push((shape, name, container, before, after));
    }
    let outcome = job.file("names", names.as_bytes()).file("key", KEY).run();
    for (shape, name, container, before, after) in volumes {
        let text = |name: String| String::from_utf8(outcome.file(&name)).unwrap();
        let (ours, theirs) = (text(format!("ours-{name}")), text(format!("theirs-{name}")));
        if shape.version == 2 {
            assert_eq!(ours, theirs, "{name}");
        } else {
            // Of LUKS1, cryptsetup has the key in the table, which dmsetup hides.
            let (start, rest) = ours.split_once(" :64:logon:cryptsetup:").unwrap();
            let (_, rest) = rest.split_once(' ').unwrap();
            let zeros = "0".repeat(128);
            assert_eq!(format!("{start} {zeros} {rest}"), theirs, "{name}");
        }
        let status = text(format!("status-{name}"));
        let wanted = modules.map_or("is active", |_| "ACTIVE");
        assert!(status.contains(wanted), "{status}");
        assert_same(&outcome.file(&name), &before, &format!("{name}, read"));
        assert_same(&container.decrypt(), &after, &format!("{name}, written"));
    }
    outcome.console
}

/// Which kernel reads and writes a volume.
pub enum Peer {
    /// dm-crypt of Debian's kernel.
    DmCrypt,
    /// dm-crypt of another kernel.
    Kernel(&'static str),
    /// dm-crypt of Debian's kernel with our ciphers, from this folder of modules.
    OurCiphers(PathBuf),
    /// dm-xtent, and our ciphers, from this folder.
    DmXtent(PathBuf),
}

/// Fails unless Xtent and a kernel read what the other has written. The volumes
/// are Xtent's: cryptsetup cannot format with every cipher that dm-crypt has.
pub fn assert_both_ways(shapes: &[Shape], peer: &Peer) {
    // Not a power of two, so that no rounding hides.
    const DATA: usize = (1 << 20) + 3 * 4096;
    let scratch = Scratch::new();
    let (modules, open) = match peer {
        Peer::DmCrypt | Peer::Kernel(_) => (None, "open_luks"),
        Peer::OurCiphers(modules) => (Some(modules), "open_luks"),
        Peer::DmXtent(modules) => (Some(modules), "open_xtent"),
    };
    let mut job = Job::new(&format!(
        "for module in /in/*.ko; do
             [ ! -e $module ] || insmod $module
         done
         for name in $(cat /in/names); do
             {open} $name key
             cat /dev/mapper/$name >$name
             dd if=/in/data-$name of=/dev/mapper/$name bs=64k conv=fsync 2>/dev/null
             dmsetup remove $name --noudevrules --noudevsync
         done"
    ));
    if let Peer::Kernel(kernel) = peer {
        job = job.kernel(kernel);
    }
    for name in ["dm-xtent.ko", "xtent_fast.ko"] {
        if let Some(modules) = modules {
            let module = std::fs::read(modules.join(name)).unwrap();
            job = job.file(name, &module);
        }
    }
    let mut names = String::new();
    let mut volumes = Vec::new();
    for (shape, seed) in shapes.iter().zip(95..) {
        let container = shape.image(Maker::Xtent, &scratch, DATA as u64);
        let (ours, theirs) = (pattern(DATA, seed), pattern(DATA, seed + 100));
        container.encrypt(&ours);
        let name = shape.to_string();
        names.push_str(&format!("{name}\n"));
        job = job
            .disk(&name, &container.image)
            .file(&format!("data-{name}"), &theirs);
        volumes.push((name, container, ours, theirs));
    }
    let outcome = job.file("names", names.as_bytes()).file("key", KEY).run();
    for (name, container, ours, theirs) in volumes {
        assert_same(&outcome.file(&name), &ours, &format!("{name}, read"));
        assert_same(&container.decrypt(), &theirs, &format!("{name}, written"));
    }
}
