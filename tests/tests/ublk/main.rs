//! A volume as a block device that a process serves: `xtent open --ublk`, in User Mode Linux, whose
//! driver is the kernel's own, and in QEMU, where there are several processors and newer kernels.
#![allow(clippy::unwrap_used, reason = "tests")]

mod lost;
mod qemu;
mod soak;

use xtent_tests::luks::{Container, KEY, Maker, Shape};
use xtent_tests::uml::{Job, kernel_612_fast};
use xtent_tests::{Cmd, Scratch, pattern};

const SIZE: usize = 24 << 20;

fn container(shape: Shape, scratch: &Scratch) -> Container {
    shape.image(Maker::Cryptsetup, scratch, SIZE as u64)
}

/// A library of this folder's C files, for the guest.
fn library(source: &str, scratch: &Scratch) -> Vec<u8> {
    let built = scratch.join("library.so");
    Cmd::peer("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Werror", "-O1", "-o"])
        .arg(&built)
        .arg(format!("{}/src/{source}", env!("CARGO_MANIFEST_DIR")))
        .ok();
    std::fs::read(built).unwrap()
}

/// A file system is made, filled, read again and looked at outside; with the page cache and past it,
/// where every request is carried out on another thread.
fn assert_a_file_system_lies_in_cryptsetup_s_volume(kernel: Option<&'static str>) {
    let (one, two) = (Scratch::new(), Scratch::new());
    let old = container(Shape::LUKS1, &one);
    let new = container(Shape::LUKS2_4096, &two);
    let data = pattern(5 << 20, 3);
    let outcome = Job::new(
        "for name in old new; do
             options=
             [ $name = old ] || options=--direct-io
             served --allow-discards $options $name /d/$name
             [ $(readlink -f /dev/xtent/$name) = /dev/ublkb0 ]
             cat /sys/block/ublkb0/queue/logical_block_size >sector-$name
             mkfs.ext4 -q -b 4096 /dev/xtent/$name
             mount -t ext4 /dev/xtent/$name /mnt
             cp /in/data /mnt/data
             sync
             # Odd places and sizes.
             dd if=/in/data of=/mnt/odd bs=3571 count=997 conv=fsync 2>/dev/null
             rm /mnt/odd
             fstrim /mnt
             umount /mnt
             echo 3 >/proc/sys/vm/drop_caches
             mount -t ext4 -o ro /dev/xtent/$name /mnt
             cmp /in/data /mnt/data
             umount /mnt
             xtent status --json $name >status-$name
             xtent close $name
             never ls /dev/ublkb0 2>/dev/null
             never xtent status $name 2>/dev/null
         done
         # Nothing is written to what is read-only.
         served --read-only old /d/old
         [ $(cat /sys/block/ublkb0/ro) = 1 ]
         never dd if=/dev/zero of=/dev/xtent/old bs=4096 count=1 conv=fsync 2>/dev/null
         md5sum </dev/xtent/old >read-only
         xtent close old
         cryptsetup open --key-file /in/key --readonly /d/old theirs
         md5sum </dev/mapper/theirs >theirs
         cryptsetup close theirs
         cmp read-only theirs
         ! dmesg | grep -i 'i/o error\\|error, dev'",
    )
    .with_ublk(kernel)
    .disk("old", &old.image)
    .disk("new", &new.image)
    .file("data", &data)
    .file("key", KEY)
    .run();
    for (name, container, sector) in [("old", &old, "512"), ("new", &new, "4096")] {
        let text = |file: &str| String::from_utf8(outcome.file(&format!("{file}-{name}"))).unwrap();
        assert_eq!(text("sector").trim(), sector);
        let status: serde_json::Value = serde_json::from_str(&text("status")).unwrap();
        assert_eq!(status["volumes"][0]["kind"], "ublk");
        assert_eq!(status["volumes"][0]["name"], name);
        container.assert_has_file("data", &data);
    }
}

#[test]
#[ignore = "builds a module, for which it fetches a kernel's source: make kernel-test"]
fn a_file_system_lies_in_cryptsetup_s_volume() {
    assert_a_file_system_lies_in_cryptsetup_s_volume(None);
}

#[test]
#[ignore = "builds a kernel for many minutes: make test-uml612"]
fn linux_612_has_a_file_system_in_cryptsetup_s_volume() {
    assert_a_file_system_lies_in_cryptsetup_s_volume(Some(kernel_612_fast()));
}

/// By its own volume in its own place only; closed when nobody uses it, or taken from its users.
fn assert_a_device_is_taken_over_and_closed(kernel: Option<&'static str>) {
    let (one, two) = (Scratch::new(), Scratch::new());
    let volume = container(Shape::LUKS2, &one);
    let other = container(Shape::LUKS2, &two);
    let zeros = two.image("zeros", 1 << 20);
    // The same header, so the same UUID and key.
    let copy = std::fs::read(&volume.image).unwrap();
    let copy = two.file("copy", &copy);
    let data = pattern(5 << 20, 4);
    Job::new(
        "served v /d/v
         mkfs.ext4 -q -b 4096 /dev/xtent/v
         mount -t ext4 /dev/xtent/v /mnt
         fails 5 xtent close v
         grep -q 'in use' /tmp/said && grep -q Unmount /tmp/said
         # Neither its name nor its volume is given twice.
         fails 5 xtent open --ublk --key-file /in/key v /d/other
         fails 5 xtent open --key-file /in/key v /d/other
         fails 5 xtent open --ublk --key-file /in/key w /d/v
         grep -q 'xtent close v' /tmp/said
         fails 1 xtent close --deferred v
         dd if=/in/data of=/mnt/data bs=64k 2>/dev/null &
         writer=$!
         killed
         fails 4 xtent status v
         grep -q 'takes it over' /tmp/said
         fails 5 xtent open --ublk --key-file /in/key v /d/other
         grep -q 'another volume' /tmp/said
         fails 5 xtent open --ublk --key-file /in/key v /d/copy
         grep -q 'another place' /tmp/said
         fails 1 xtent open --ublk --read-only --key-file /in/key v /d/v
         (sync && echo synced >/tmp/synced) &
         served v /d/v
         grep -q '\"taken_over\": *true' /tmp/served
         wait $writer
         sync
         # One that ends in order leaves it, too.
         kill $pid
         ended
         echo 3 >/proc/sys/vm/drop_caches
         cmp /in/data /mnt/data &
         reader=$!
         served v /d/v
         wait $reader
         umount /mnt
         xtent close v
         never ls /dev/xtent/v 2>/dev/null
         # Killed, and not wanted any more.
         served v /d/v
         killed
         xtent close v
         fails 4 xtent close v
         # Taken away from its users: its server is gone, or does not answer.
         for signal in KILL STOP; do
             served v /d/v
             mount -t ext4 -o ro /dev/xtent/v /mnt
             kill -$signal $pid
             [ $signal != KILL ] || ended
             (dd if=/dev/xtent/v of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null || touch /tmp/let-go) &
             reader=$!
             [ $signal = KILL ] || until grep -q '[1-9]' /sys/block/ublkb0/inflight; do usleep 1000; done
             xtent --json close --force v >/tmp/closed
             grep -q '\"closed\": *false' /tmp/closed
             ended
             wait $reader
             rm /tmp/let-go
             umount /mnt
             xtent --json close v >/tmp/closed
             grep -q '\"closed\": *true' /tmp/closed
             never ls /dev/ublkc* 2>/dev/null
         done
         # Open without a claim, which QEMU, dd and loop devices do without.
         served v /d/v
         sleep 1000 </dev/xtent/v &
         sleeper=$!
         until [ $(cat /proc/$sleeper/comm) = sleep ]; do usleep 1000; done
         fails 5 xtent close v
         grep -q \"sleep (process $sleeper)\" /tmp/said
         kill $sleeper
         losetup /dev/loop0 /dev/xtent/v
         fails 5 xtent close v
         grep -q 'in use by /dev/loop0' /tmp/said
         cmp -n 4096 /dev/loop0 /dev/xtent/v
         losetup -d /dev/loop0
         xtent close v
         never ls /dev/ublkc* 2>/dev/null
         # One without a header does not wait for a passphrase that nobody could tell from the right one.
         key=/in/raw
         served --type plain --cipher aes-xts-plain64 --key-size 512 p /d/zeros
         killed
         never dd if=/dev/xtent/p of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null
         xtent close p",
    )
    .with_ublk(kernel)
    .disk("v", &volume.image)
    .disk("other", &other.image)
    .disk("copy", &copy)
    .disk("zeros", &zeros)
    .file("raw", &pattern(64, 6))
    .file("data", &data)
    .file("key", KEY)
    .run();
    volume.assert_has_file("data", &data);
}

#[test]
#[ignore = "builds a module, for which it fetches a kernel's source: make kernel-test"]
fn a_device_is_taken_over_by_its_volume_and_closed_when_nobody_uses_it() {
    assert_a_device_is_taken_over_and_closed(None);
}

#[test]
#[ignore = "builds a kernel for many minutes: make test-uml612"]
fn linux_612_has_a_device_taken_over_and_closed() {
    assert_a_device_is_taken_over_and_closed(Some(kernel_612_fast()));
}

/// One command at a time has a name, and a link that was left leads to nobody else's device. What takes
/// long says what it waits for.
fn assert_commands_take_turns(kernel: Option<&'static str>) {
    let (one, two) = (Scratch::new(), Scratch::new());
    let volume = container(Shape::LUKS2, &one);
    let other = container(Shape::LUKS2, &two);
    Job::new(
        "umask 077
         served --direct-io v /d/v
         umask 022
         [ $(stat -c %a /dev/xtent) = 755 ]
         # PF_MEMALLOC_NOIO: those of the store, too.
         dd if=/dev/xtent/v of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null
         [ $(ls /proc/$pid/task | wc -l) -gt 3 ]
         for task in /proc/$pid/task/*/stat; do
             flags=$(sed 's/.*) //' $task | cut -d ' ' -f 7)
             [ $((flags & 0x80000)) != 0 ] || { cat $task; false; }
         done
         # Nobody waits without a word: for the server, for whoever is first.
         kill -STOP $pid
         xtent close v 2>/tmp/first &
         first=$!
         until grep -q \"Waiting for process $pid\" /tmp/first; do usleep 10000; done
         xtent close v 2>/tmp/second &
         second=$!
         until grep -q 'Waiting for another command' /tmp/second; do usleep 10000; done
         kill -CONT $pid
         wait $first
         wait $second
         never ls /dev/ublkc* /dev/xtent/v 2>/dev/null
         for round in 1 2 3; do
             (xtent open --ublk --key-file /in/key v /d/v || echo $? >/tmp/one) >/dev/null 2>&1 &
             one=$!
             (xtent open --ublk --key-file /in/key v /d/other || echo $? >/tmp/other) >/dev/null 2>&1 &
             other=$!
             wait $one
             wait $other
             [ $(cat /tmp/one /tmp/other 2>/dev/null) = 5 ]
             rm -f /tmp/one /tmp/other
             [ $(ls /dev/ublkc* | wc -l) = 1 ]
             [ -b $(readlink -f /dev/xtent/v) ]
             xtent close v &
             closer=$!
             (xtent open --ublk --key-file /in/key v /d/v || echo $? >/tmp/one) >/dev/null 2>&1 &
             one=$!
             wait $closer
             wait $one
             if [ -e /tmp/one ]; then
                 [ $(cat /tmp/one) = 5 ]
                 rm /tmp/one
             else
                 [ -b $(readlink -f /dev/xtent/v) ]
                 xtent close v
             fi
             never ls /dev/ublkc* /dev/xtent/v 2>/dev/null
         done
         # Numbers are given again.
         served v /d/v
         ln -s ../ublkb0 /dev/xtent/left
         xtent close left 2>/tmp/said
         grep -q 'gone already' /tmp/said
         never ls /dev/xtent/left 2>/dev/null
         ln -s ../ublkb0 /dev/xtent/left
         xtent close --force left
         [ -b $(readlink -f /dev/xtent/v) ]
         kill -0 $pid
         ln -s ../ublkb0 /dev/xtent/left
         xtent open --ublk --key-file /in/key left /d/other
         [ $(readlink -f /dev/xtent/left) = /dev/ublkb1 ]
         xtent close left
         # This kernel's devices do not grow.
         fails 4 xtent resize v
         grep -q 'Linux 6.16' /tmp/said && grep -q 'closed and opened' /tmp/said
         # They are taken over all the same.
         of_v=$pid
         cp /d/other /tmp/grows
         served g /tmp/grows
         before=$(cat /sys/block/ublkb1/size)
         killed
         truncate -s $(($(stat -c %s /tmp/grows) + (4 << 20))) /tmp/grows
         served g /tmp/grows
         grep -q '\"taken_over\": *true' /tmp/served
         [ $(cat /sys/block/ublkb1/size) = $before ]
         xtent close g
         served g /tmp/grows
         [ $(cat /sys/block/ublkb1/size) = $((before + 8192)) ]
         xtent close g
         pid=$of_v
         # Who takes it from everybody waits for nobody.
         kill -STOP $pid
         (fails 4 xtent close v; mv /tmp/said /tmp/ended) &
         closer=$!
         until grep -q \"Waiting for process $pid\" /tmp/said; do usleep 10000; done
         xtent close --force v 2>/tmp/forced
         cat /tmp/forced
         grep -q 'not waited for' /tmp/forced
         wait $closer
         grep -q 'cannot be flushed' /tmp/ended
         xtent close v
         never ls /dev/ublkc* /dev/xtent/v 2>/dev/null
         # A signal ends the wait for users where the kernel does not hold on to the process.
         served v /d/v
         mkfs.ext4 -q -b 4096 /dev/xtent/v
         mount -t ext4 -o ro /dev/xtent/v /mnt
         xtent close --force v
         ended
         xtent close v 2>/tmp/said &
         closer=$!
         until grep -q 'Waiting for those who have /dev/ublkb0 open' /tmp/said; do usleep 10000; done
         kill $closer
         case $(uname -r) in 6.1.*) umount /mnt ;; esac
         status=0
         wait $closer || status=$?
         [ $status = 143 ]
         umount /mnt 2>/dev/null || true
         xtent close v
         never ls /dev/ublkc* /dev/xtent/v 2>/dev/null",
    )
    .with_ublk(kernel)
    .disk("v", &volume.image)
    .disk("other", &other.image)
    .file("key", KEY)
    .run();
}

#[test]
#[ignore = "builds a module, for which it fetches a kernel's source: make kernel-test"]
fn commands_for_one_name_take_turns_and_say_what_they_wait_for() {
    assert_commands_take_turns(None);
}

#[test]
#[ignore = "builds a kernel for many minutes: make test-uml612"]
fn linux_612_has_commands_take_turns() {
    assert_commands_take_turns(Some(kernel_612_fast()));
}

/// A takeover that fails between the hand-over and the server's first word, as one would that is killed
/// there: the driver's node is away. And a volume on an NBD server, which is not taken over.
#[test]
#[ignore = "builds a module, for which it fetches a kernel's source: make kernel-test"]
fn a_device_that_cannot_be_taken_over_says_so_and_lets_its_users_go() {
    let (one, two, three) = (Scratch::new(), Scratch::new(), Scratch::new());
    let volume = container(Shape::LUKS2, &one);
    let inner = Shape::LUKS1.image(Maker::Cryptsetup, &two, 1 << 20);
    let inner = std::fs::read(inner.image).unwrap();
    let outer = Shape::LUKS1.image(Maker::Cryptsetup, &three, inner.len() as u64);
    outer.encrypt(&inner);
    Job::new(
        "served v /d/v
         mkfs.ext4 -q -b 4096 /dev/xtent/v
         mount -t ext4 /dev/xtent/v /mnt
         killed
         (dd if=/dev/xtent/v of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null || touch /tmp/let-go) &
         reader=$!
         mv /dev/ublkc0 /dev/away
         fails 4 xtent open --ublk --key-file /in/key v /d/v
         grep -q 'taken over any more' /tmp/said && grep -q 'close --force v' /tmp/said
         mv /dev/away /dev/ublkc0
         # Nothing is tried with what the driver has of the last one.
         fails 4 xtent open --ublk --key-file /in/key v /d/v
         grep -q 'taken over any more' /tmp/said && grep -q 'close --force v' /tmp/said
         [ ! -e /tmp/let-go ]
         xtent close --force v
         wait $reader
         [ -e /tmp/let-go ]
         umount /mnt
         xtent close v
         never ls /dev/ublkc* 2>/dev/null
         # What cannot be told is not made.
         fails 4 sh -c 'xtent open --ublk --key-file /in/key v /d/v >/dev/full'
         never ls /dev/ublkc* /dev/xtent/v 2>/dev/null
         served v /d/v
         killed
         fails 4 sh -c 'xtent open --ublk --key-file /in/key v /d/v >/dev/full'
         grep -q 'waits for a server again' /tmp/said
         served v /d/v
         grep -q '\"taken_over\": *true' /tmp/served
         xtent close v
         xtent serve --key-file /in/key --nbd unix:/tmp/socket /d/outer &
         server=$!
         until [ -S /tmp/socket ]; do kill -0 $server; usleep 10000; done
         served n 'nbd+unix:///?socket=/tmp/socket'
         dd if=/dev/xtent/n of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null
         killed
         never dd if=/dev/xtent/n of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null
         served n 'nbd+unix:///?socket=/tmp/socket'
         grep -q '\"taken_over\": *false' /tmp/served
         xtent close n
         kill $server
         wait",
    )
    .with_ublk(None)
    .disk("v", &volume.image)
    .disk("outer", &outer.image)
    .file("key", KEY)
    .run();
}
