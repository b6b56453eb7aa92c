//! A volume as the disk of a virtual machine: `xtent serve --vhost-user` under User Mode Linux, whose
//! driver is the kernel's own.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use xtent_tests::luks::{Container, Maker, Shape};
use xtent_tests::nbd::nbdsh;
use xtent_tests::process::Background;
use xtent_tests::scratch::assert_same;
use xtent_tests::uml::{Job, Outcome};
use xtent_tests::xtent::xtent;
use xtent_tests::{Cmd, PATIENCE, Scratch, pattern};

const SIZE: usize = 24 << 20;

/// A server of a virtual machine's disk; killed when dropped.
struct Machine {
    process: Background,
    socket: PathBuf,
}

impl Machine {
    fn start(container: &Container, socket: &Path, options: &[&str]) -> Self {
        let mut process = xtent()
            .args(["serve", "--vhost-user"])
            .arg(socket)
            .arg("--key-file")
            .args([&container.key, &container.image])
            .args(options)
            .spawn();
        process.wait_for_line(|line| line.starts_with("vhost-user:"));
        Self {
            process,
            socket: socket.to_owned(),
        }
    }

    /// Waits until it has written so often, or the guest has ended.
    fn wait_for_writes(&self, count: u64, has_ended: impl Fn() -> bool) {
        let start = Instant::now();
        let writes = || {
            let status = xtent().args(["status", "--json"]).ok().json();
            let volumes = status["volumes"].as_array().unwrap();
            let pid = self.process.id();
            let ours = volumes.iter().find(|volume| volume["pid"] == pid);
            ours.and_then(|volume| volume["metrics"]["requests"]["write"]["count"].as_u64())
        };
        while writes() < Some(count) && !has_ended() {
            assert!(start.elapsed() < PATIENCE, "nothing goes on");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends it in order.
    fn stop(self) {
        self.process.signal(Signal::TERM);
        let done = self.process.finish();
        assert_eq!(done.code(), Some(0), "{}", done.text());
        assert!(!self.socket.exists());
    }
}

/// A plain image with an ext4 that has a file in it.
fn file_system(scratch: &Scratch) -> Vec<u8> {
    let image = scratch.image("ext4", SIZE as u64);
    Cmd::peer("mkfs.ext4")
        .args(["-q", "-b", "4096"])
        .arg(&image)
        .ok();
    std::fs::read(image).unwrap()
}

#[test]
fn a_guest_s_file_system_lies_in_cryptsetup_s_volume() {
    for shape in [Shape::LUKS1, Shape::LUKS2_4096] {
        let scratch = Scratch::new();
        let container = shape.image(Maker::Cryptsetup, &scratch, SIZE as u64);
        container.encrypt(&file_system(&scratch));
        let machine = Machine::start(&container, &scratch.join("disk.sock"), &["--discard=zero"]);
        let data = pattern(5 << 20, 3);
        let outcome = Job::new(
            "mkdir -p /mnt
             mount -t ext4 /d/disk /mnt
             cp /in/data /mnt/data
             sync
             # Odd places and sizes, past the cache.
             dd if=/in/data of=/mnt/odd bs=3571 count=997 conv=fsync 2>/dev/null
             rm /mnt/odd
             fstrim /mnt
             umount /mnt
             echo 3 >/proc/sys/vm/drop_caches
             mount -t ext4 -o ro /d/disk /mnt
             cmp /in/data /mnt/data
             umount /mnt
             cat /sys/block/vda/serial >serial
             cat /sys/block/vda/queue/logical_block_size >sector",
        )
        .served("disk", &machine.socket)
        .file("data", &data)
        .run();
        machine.stop();
        let text = |name: &str| String::from_utf8(outcome.file(name)).unwrap();
        let uuid = Cmd::peer("cryptsetup")
            .arg("luksUUID")
            .arg(&container.image)
            .ok();
        assert_eq!(text("serial").trim(), &uuid.out().replace('-', "")[..20]);
        assert_eq!(text("sector").trim(), shape.sector.to_string());
        // What the kernel has written through us is what cryptsetup's format says.
        container.assert_has_file("data", &data);
    }
}

#[test]
fn a_guest_sees_its_disk_grow_and_a_read_only_one_stays_as_it_is() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, SIZE as u64);
    let machine = Machine::start(&container, &scratch.join("disk.sock"), &[]);
    let image = std::fs::OpenOptions::new()
        .write(true)
        .open(&container.image)
        .unwrap();
    let length = image.metadata().unwrap().len();
    // It can be told before the guest looks, or after: both are seen.
    let grown = std::thread::scope(|scope| {
        let guest = scope.spawn(|| {
            Job::new(&format!(
                "echo up
                 until [ $(cat /sys/block/vda/size) = {} ]; do usleep 20000; done
                 dd if=/dev/zero of=/d/disk bs=1M seek={} count=1 conv=fsync 2>/dev/null
                 echo seen >seen",
                (SIZE + (1 << 20)) / 512,
                SIZE >> 20,
            ))
            .served("disk", &machine.socket)
            .run()
        });
        image.set_len(length + (1 << 20)).unwrap();
        machine.process.signal(Signal::HUP);
        guest.join().unwrap()
    });
    assert_eq!(grown.file("seen"), b"seen\n");
    machine.stop();

    let before = std::fs::read(&container.image).unwrap();
    let machine = Machine::start(&container, &scratch.join("disk.sock"), &["--read-only"]);
    Job::new(
        "[ $(cat /sys/block/vda/ro) = 1 ]
         never dd if=/dev/zero of=/d/disk bs=4096 count=1 conv=fsync 2>/dev/null
         cat /d/disk >/dev/null",
    )
    .served("disk", &machine.socket)
    .run();
    machine.stop();
    assert_same(
        &std::fs::read(&container.image).unwrap(),
        &before,
        "the container",
    );
}

#[test]
fn the_disk_of_a_machine_is_not_taken_away_while_it_is_served() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, 1 << 20);
    let machine = Machine::start(&container, &scratch.join("disk.sock"), &[]);
    let pid = machine.process.id().to_string();
    xtent()
        .args(["detach", "--server", &pid])
        .arg(&container.image)
        .fails(5)
        .says(&["virtual machine"]);
    let status = xtent().args(["status", "--json"]).ok().json();
    assert!(status.to_string().contains(&pid), "{status}");
    machine.stop();
}

/// The guest goes on, all that it has written is there, and what was read while it moved is right.
#[test]
#[ignore = "QEMU, half a minute: make kernel-test"]
fn a_guest_moves_to_another_machine_while_it_works() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, SIZE as u64);
    container.encrypt(&file_system(&scratch));
    let machine = Machine::start(&container, &scratch.join("disk.sock"), &[]);
    let data = pattern(6 << 20, 7);
    let outcome = Job::new(
        "mount -t ext4 /d/disk /mnt
         cp /in/data /mnt/data
         sync
         # Blocks that say whose they are and which turn it is, read back past the cache.
         write() {
             n=0
             while [ ! -e /tmp/stop ]; do
                 n=$((n + 1))
                 yes \"$1 $n\" | head -c 65536 >/tmp/wrote$1
                 dd if=/tmp/wrote$1 of=/mnt/$1.$((n % 8)) bs=64k conv=fsync 2>/dev/null
                 dd if=/mnt/$1.$((n % 8)) of=/tmp/read$1 bs=64k iflag=direct 2>/dev/null
                 cmp /tmp/wrote$1 /tmp/read$1 || touch /tmp/wrong
                 echo $n >/tmp/new$1
                 mv /tmp/new$1 /tmp/turns$1
             done
         }
         # The cache is filled by the disk, bit by bit, and compared when it is full.
         fill() {
             while [ ! -e /tmp/stop ]; do
                 echo 3 >/proc/sys/vm/drop_caches
                 for part in $(seq 0 23); do
                     dd if=/mnt/data of=/dev/null bs=256k skip=$part count=1 2>/dev/null
                 done
                 cmp /in/data /mnt/data || touch /tmp/wrong
             done
         }
         turns() { cat /tmp/turns$1 2>/dev/null || echo 0; }
         # Each has made so many turns more.
         go_on() {
             for i in 0 1; do
                 until=$(($(turns $i) + $1))
                 while [ $(turns $i) -lt $until ]; do usleep 20000; done
             done
         }
         write 0 &
         write 1 &
         fill &
         go_on 2
         echo moving
         read -r word
         [ $word = moved ]
         go_on 3
         touch /tmp/stop
         wait
         [ ! -e /tmp/wrong ]
         umount /mnt
         mount -t ext4 -o ro /d/disk /mnt
         cmp /in/data /mnt/data
         for i in 0 1; do
             last=$(turns $i)
             n=$((last > 8 ? last - 7 : 1))
             while [ $n -le $last ]; do
                 yes \"$i $n\" | head -c 65536 | cmp - /mnt/$i.$((n % 8))
                 n=$((n + 1))
             done
         done
         umount /mnt
         ! dmesg | grep -i 'i/o error'",
    )
    .kernel("x86-6.1")
    .migrates_at("moving")
    .served("disk", &machine.socket)
    .file("data", &data)
    .run();
    println!("{}", outcome.console);
    machine.stop();
    container.assert_has_file("data", &data);
}

/// Kills the server of a guest's disk again and again, whenever it has written so often; QEMU keeps a
/// list of what is under way, and connects again. The guest's script has `enough`, which says when
/// it is to end, and sees no error.
fn under_kills(
    script: &str,
    (size, rounds, writes): (usize, u64, u64),
    with_more: impl FnOnce(Job) -> Job,
) -> Outcome {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, size as u64);
    let socket = scratch.join("disk.sock");
    let mut machine = Machine::start(&container, &socket, &[]);
    // The server says when it is enough: the last block begins with a letter.
    let job = Job::new(&format!(
        "enough() {{
             dd if=/d/disk bs=4096 skip={} count=1 iflag=direct 2>/dev/null | grep -q enough
         }}
         {script}
         ! dmesg | grep -i 'i/o error'",
        size / 4096 - 1
    ));
    let job = with_more(job.kernel("x86-6.1").served("disk", &socket));
    std::thread::scope(|scope| {
        let guest = scope.spawn(|| job.run());
        for round in 0..rounds {
            machine.wait_for_writes(writes, || guest.is_finished());
            machine.process.kill();
            machine = Machine::start(&container, &socket, &[]);
            println!("{} of {rounds} kills", round + 1);
            assert!(!guest.is_finished(), "the guest has ended");
        }
        machine.wait_for_writes(writes, || guest.is_finished());
        machine.stop();
        // Another client of the last one says that it is enough.
        let nbd = scratch.join("nbd.sock");
        let listen = format!("unix:{}", nbd.display());
        let last = Machine::start(&container, &socket, &["--nbd", &listen]);
        let write = format!("h.pwrite(b'enough'.ljust(4096, b'.'), {})", size - 4096);
        nbdsh(&format!("nbd+unix:///?socket={}", nbd.display()), &write);
        let outcome = guest.join().unwrap();
        last.stop();
        outcome
    })
}

/// The guest writes and reads past its cache all the time, several at once.
#[test]
#[ignore = "long: make soak"]
fn soak_kills_under_a_virtual_machine() {
    let guest = under_kills(
        "work() {
             n=0
             while [ ! -e /tmp/stop ]; do
                 n=$((n + 1))
                 # 64 KiB that say which turn and whose they are.
                 yes \"$1 $n\" | head -c 65536 >/tmp/wrote$1
                 dd if=/tmp/wrote$1 of=/d/disk bs=64k seek=$(($1 * 8 + n % 8)) oflag=direct conv=fsync,notrunc 2>/dev/null
                 dd if=/d/disk of=/tmp/read$1 bs=64k skip=$(($1 * 8 + n % 8)) count=1 iflag=direct 2>/dev/null
                 cmp /tmp/wrote$1 /tmp/read$1 || { touch /tmp/wrong; echo wrong $1 $n; }
             done
             echo $n >/out/turns$1
         }
         for i in 0 1 2 3; do work $i & done
         until enough; do usleep 100000; done
         touch /tmp/stop
         wait
         [ ! -e /tmp/wrong ]",
        (SIZE, xtent_tests::soak_rounds(), 10),
        |job| job,
    );
    for who in 0..4 {
        let turns = String::from_utf8(guest.file(&format!("turns{who}"))).unwrap();
        println!("writer {who}: {} turns", turns.trim());
    }
}

/// fio has dozens of requests of odd sizes and places under way, and looks at each block that it
/// has written.
#[test]
#[ignore = "long: make soak"]
fn soak_fio_under_kills_in_a_virtual_machine() {
    let guest = under_kills(
        "n=0
         until enough; do
             n=$((n + 1))
             fio --name=verify --filename=/d/disk --numjobs=4 --thread --size=2m --offset_increment=4m \
                 --rw=randwrite --bssplit=512/20:3584/20:4k/30:20k/20:128k/10 --direct=1 --fsync=16 \
                 --ioengine=libaio --iodepth=16 --randseed=$n \
                 --verify=crc32c --verify_backlog=64 --verify_fatal=1 >/tmp/fio 2>&1 || {
                 cat /tmp/fio
                 exit 1
             }
         done
         grep -o 'err= *[0-9]*' /tmp/fio | sort | uniq -c >errors
         echo $n >passes",
        (SIZE, xtent_tests::soak_rounds(), 100),
        Job::with_fio,
    );
    let text = |name: &str| String::from_utf8(guest.file(name)).unwrap();
    assert_eq!(text("errors").trim(), "4 err= 0", "{}", guest.console);
    println!("fio: {} passes", text("passes").trim());
}

/// Written while its server is killed, and filled to the last block then, the file system is as it
/// should be.
#[test]
#[ignore = "QEMU, half a minute: make kernel-test"]
fn xfs_is_clean_after_kills() {
    // The least that mkfs.xfs makes, and a place for what says that it is enough.
    const SIZE: usize = 301 << 20;
    let data = pattern(3 << 20, 9);
    let outcome = under_kills(
        "modprobe xfs
         mkfs.xfs -q -K -d size=300m /d/disk
         mount -t xfs /d/disk /mnt
         n=0
         until enough; do
             n=$((n + 1))
             rm -rf /mnt/$((n % 8))
             mkdir /mnt/$((n % 8))
             cp /in/data /mnt/$((n % 8))/data
             for i in $(seq 20); do echo $n $i >/mnt/$((n % 8))/$i; done
             sync
         done
         never dd if=/dev/zero of=/mnt/full bs=1M 2>full
         sync
         umount /mnt
         xfs_repair -n /d/disk >repair 2>&1 || {
             cat repair
             exit 1
         }
         mount -t xfs /d/disk /mnt
         for folder in /mnt/[0-7]; do
             cmp /in/data $folder/data
             [ $(ls $folder | wc -l) = 21 ]
         done
         umount /mnt
         echo $n >turns",
        (SIZE, 3, 40),
        |job| job.file("data", &data),
    );
    let text = |name: &str| String::from_utf8(outcome.file(name)).unwrap();
    assert!(text("full").contains("No space left"), "{}", text("full"));
    println!("{} turns", text("turns").trim());
}
