//! A volume's file system mounted from a block device that the daemon serves: `xtent mount` by ublk, in User
//! Mode Linux.
#![allow(clippy::unwrap_used, reason = "tests")]

use xtent_tests::luks::{Container, KEY, Maker, Shape};
use xtent_tests::uml::{Job, kernel_612_fast};
use xtent_tests::{Scratch, pattern};

const SIZE: u64 = 24 << 20;

/// What the scripts share: an ext4 on /d/v, and the end of a mount.
const PRELUDE: &str = r#"
served v /d/v
mkfs.ext4 -q -b 4096 /dev/xtent/v
xtent close v
mkdir -p /mnt /other
# closed: daemon, device and state are gone
closed() {
    ended
    never ls /dev/ublkc* 2>/dev/null
    [ -z "$(ls /run/xtent/mounts)" ]
    never grep ublk /proc/mounts
}
# run COMMAND...: in the background, in $running, as that command from now on
run() {
    "$@" &
    running=$!
    until [ $(cat /proc/$running/comm) = $1 ]; do usleep 1000; done
}
"#;

fn container(shape: Shape, scratch: &Scratch) -> Container {
    shape.image(Maker::Cryptsetup, scratch, SIZE)
}

fn job(script: &str, volume: &Container, kernel: Option<&'static str>) -> Job {
    Job::new(&format!("{PRELUDE}{script}"))
        .with_ublk(kernel)
        .disk("v", &volume.image)
        .file("key", KEY)
}

/// It ends with its last user, wherever that is: by `umount` of either kind, in another place, in a program
/// that was in it, or past the file system.
fn assert_a_mount_ends_with_its_last_user(shape: Shape, kernel: Option<&'static str>) {
    let scratch = Scratch::new();
    let volume = container(shape, &scratch);
    let data = pattern(3 << 20, 7);
    job(
        r#"
        mounted /d/v /mnt
        grep -q '"ublk_device": *"/dev/ublkb0"' /tmp/mounted
        grep -q '"loop_device": *null' /tmp/mounted
        xtent status /mnt | grep -q 'through */dev/ublkb0'
        cp /in/data /mnt/data
        fails 5 xtent mount --key-file /in/key /d/v /mnt
        fails 5 xtent mount --key-file /in/key /d/v /other
        # It has the size that it has.
        fails 4 xtent resize /mnt
        grep -q -e '--by fuse' /tmp/said
        xtent umount /mnt
        closed
        mounted --by ublk -o noatime /d/v /mnt
        grep ublkb0 /proc/mounts | grep -q noatime
        cmp /in/data /mnt/data
        umount /mnt
        closed
        # Somebody is in it: refused, and then detached.
        mounted /d/v /mnt
        cd /mnt
        run sleep 1000
        cd /
        fails 5 xtent umount /mnt
        grep -q "sleep (process $running)" /tmp/said
        xtent umount --lazy /mnt 2>/tmp/said
        grep -q 'closed when they are done' /tmp/said
        never grep ublk /proc/mounts
        kill -0 $pid
        kill $running
        closed
        # Two places, of which one is in another namespace.
        mounted /d/v /mnt
        mkfifo /tmp/go
        unshare -m sh -c 'mount --make-rprivate / && touch /tmp/there && read go </tmp/go && cp /in/data /mnt/two' &
        namespace=$!
        until [ -e /tmp/there ]; do usleep 1000; done
        mount -o bind /mnt /other
        umount /mnt
        cp /in/data /other/one
        umount /other
        [ -e /dev/ublkb0 ] && kill -0 $pid
        echo go >/tmp/go
        wait $namespace
        closed
        # Open without a claim.
        mounted /d/v /mnt
        cmp /in/data /mnt/one && cmp /in/data /mnt/two
        run sleep 1000 3</dev/ublkb0
        umount /mnt
        [ -e /dev/ublkb0 ] && kill -0 $pid
        kill $running
        closed
        # Asked to end.
        mounted /d/v /mnt
        kill $pid
        closed
        mounted --read-only /d/v /mnt
        [ $(cat /sys/block/ublkb0/ro) = 1 ]
        cmp /in/data /mnt/data
        never touch /mnt/new 2>/dev/null
        xtent umount /d/v
        closed
        # No file system.
        fails 4 xtent mount -t nosuchfs --key-file /in/key /d/v /mnt
        never ls /dev/ublkc* 2>/dev/null
        [ -z "$(ls /run/xtent/mounts)" ]
        never sh -c "dmesg | grep -i 'i/o error\|error, dev'"
        # Asked to end while somebody uses it: not before it is asked twice.
        mounted /d/v /mnt
        cp /in/data /mnt/three
        run sleep 1000 3</mnt/three
        kill $pid
        fails 5 xtent umount /mnt
        kill -0 $pid
        kill $pid
        # Taken away; Linux 6.1 has the process wait for the last user all the same.
        while [ -e /dev/ublkb0 ]; do usleep 1000; done
        never cat /mnt/three 2>/dev/null
        kill $running
        closed
        # What cryptsetup makes of it.
        cryptsetup open --key-file /in/key /d/v theirs
        mount -t ext4 /dev/mapper/theirs /mnt
        for name in data one two three; do cmp /in/data /mnt/$name; done
        umount /mnt
        cryptsetup close theirs"#,
        &volume,
        kernel,
    )
    .file("data", &data)
    .run();
    volume.assert_has_file("data", &data);
}

#[test]
#[ignore = "builds a module, for which it fetches a kernel's source: make kernel-test"]
fn a_mount_ends_with_its_last_user() {
    assert_a_mount_ends_with_its_last_user(Shape::LUKS2_4096, None);
}

#[test]
#[ignore = "builds a kernel for many minutes: make test-uml612"]
fn linux_612_ends_a_mount_with_its_last_user() {
    assert_a_mount_ends_with_its_last_user(Shape::LUKS1, Some(kernel_612_fast()));
}

/// Its users wait, and go on with the next one; or they are given up.
fn assert_a_killed_daemon_has_a_successor(kernel: Option<&'static str>) {
    let (one, two) = (Scratch::new(), Scratch::new());
    let volume = container(Shape::LUKS2, &one);
    let other = container(Shape::LUKS2, &two);
    let plain = two.image("plain", 8 << 20);
    let data = pattern(5 << 20, 8);
    job(
        r#"
        mounted /d/v /mnt
        dd if=/in/data of=/mnt/data bs=64k 2>/dev/null &
        writer=$!
        killed
        fails 4 xtent status /mnt
        grep -q 'umount --force /mnt' /tmp/said
        # Nobody takes it for something else, nor away.
        fails 5 xtent umount /mnt
        grep -q 'xtent mount' /tmp/said && grep -q 'umount --force /mnt' /tmp/said
        fails 5 xtent mount --key-file /in/key /d/v /other
        fails 5 xtent open --ublk --key-file /in/key v /d/v
        grep -q 'waits for its server' /tmp/said
        # Nor does anybody write to it in another way; who reads is told.
        fails 5 xtent serve --key-file /in/key /d/v --run true
        grep -q 'waits for its server' /tmp/said
        fails 5 xtent mount --by fuse --key-file /in/key /d/v /other
        fails 5 xtent open --key-file /in/key v /d/v
        grep -q 'waits for its server' /tmp/said
        fails 5 xtent encrypt --key-file /in/key /in/data /d/v
        grep -q 'waits for its server' /tmp/said
        xtent decrypt --key-file /in/key /d/v - 2>/tmp/said >/dev/null
        grep -q 'what waits there is not read' /tmp/said
        fails 5 xtent mount --key-file /in/key /d/other /mnt
        fails 5 xtent mount --by fuse --key-file /in/key /d/v /mnt
        fails 1 xtent mount --read-only --key-file /in/key /d/v /mnt
        (sync && touch /tmp/synced) &
        mounted /d/v /mnt
        grep -q '"taken_over": *true' /tmp/mounted
        wait $writer
        sync
        echo 3 >/proc/sys/vm/drop_caches
        cmp /in/data /mnt/data
        # One that waits to be unmounted is, by the next one.
        cp /in/data /mnt/one
        killed
        umount /mnt &
        unmounting=$!
        while grep -q ublk /proc/mounts; do usleep 1000; done
        fails 5 xtent mount --key-file /in/key /d/v /mnt
        grep -q 'nothing is mounted on /mnt' /tmp/said
        wait $unmounting
        closed
        mounted /d/v /mnt
        cmp /in/data /mnt/one
        # What is mounted nowhere any more has its last words with the next one.
        cd /mnt
        run sleep 1000
        cd /
        umount -l /mnt
        killed
        fails 5 xtent umount /mnt
        kill $running
        fails 5 xtent mount --key-file /in/key /d/v /mnt
        grep -q 'not mounted on /mnt any more' /tmp/said
        closed
        # Given up, while somebody waits.
        mounted /d/v /mnt
        cp /in/data /mnt/lost
        killed
        umount /mnt &
        unmounting=$!
        xtent umount --force /mnt 2>/tmp/said
        grep -q 'had died' /tmp/said
        wait $unmounting || true
        closed
        mounted /d/v /mnt
        cmp /in/data /mnt/one
        xtent umount /mnt
        closed
        # One without a header does not wait: its users see errors, and it is cleared away.
        key=/in/raw
        served --type plain --cipher aes-xts-plain64 --key-size 512 p /d/plain
        mkfs.ext4 -q /dev/xtent/p
        xtent close p
        mounted --type plain --cipher aes-xts-plain64 --key-size 512 /d/plain /mnt
        killed
        xtent umount /mnt 2>/tmp/said
        grep -q 'had died' /tmp/said
        closed"#,
        &volume,
        kernel,
    )
    .disk("other", &other.image)
    .disk("plain", &plain)
    .file("raw", &pattern(64, 6))
    .file("data", &data)
    .run();
    volume.assert_has_file("one", &data);
}

#[test]
#[ignore = "builds a module, for which it fetches a kernel's source: make kernel-test"]
fn a_killed_daemon_has_a_successor() {
    assert_a_killed_daemon_has_a_successor(None);
}

#[test]
#[ignore = "builds a kernel for many minutes: make test-uml612"]
fn linux_612_has_a_successor_of_a_killed_daemon() {
    assert_a_killed_daemon_has_a_successor(Some(kernel_612_fast()));
}

/// FUSE, where there is no driver, no io_uring, or a /dev that has not got the driver's devices.
#[test]
#[ignore = "builds a module, for which it fetches a kernel's source: make kernel-test"]
fn without_ublk_it_is_fuse() {
    let scratch = Scratch::new();
    let volume = container(Shape::LUKS2, &scratch);
    job(
        r#"
        modprobe fuse
        # by_fuse WHY: that is mounted by it, and why is said
        by_fuse() {
            xtent -v --json mount --key-file /in/key /d/v /mnt >/tmp/mounted 2>/tmp/said
            cat /tmp/said
            grep -q "mounting by FUSE.*$1" /tmp/said
            grep -q '"loop_device": *"/dev/loop' /tmp/mounted
            grep -q '"ublk_device": *null' /tmp/mounted
            pid=$(sed 's/.*"pid": *\([0-9]*\).*/\1/' /tmp/mounted | grep -x '[0-9]*')
            grep ' /mnt ' /proc/mounts | grep -q /dev/loop
            touch /mnt/file
            xtent umount /mnt
            closed
        }
        mounted --by fuse /d/v /mnt
        grep -q '"loop_device": *"/dev/loop' /tmp/mounted
        xtent umount /mnt
        closed
        # As in a container.
        mkdir /tmp/dev
        cp -a /dev/* /tmp/dev
        mount -o bind /tmp/dev /dev
        by_fuse 'not the system'
        fails 4 xtent mount --by ublk --key-file /in/key /d/v /mnt
        never ls /sys/block/ublk* 2>/dev/null
        umount /dev
        rmmod ublk_drv
        by_fuse ublk-control
        fails 4 xtent mount --by ublk --key-file /in/key /d/v /mnt
        grep -q 'modprobe ublk_drv' /tmp/said"#,
        &volume,
        None,
    )
    .run();
}
