//! An image in a Ceph cluster that another client has been given: what is served from it ends.

use xtent_tests::luks::{KEY, Shape};
use xtent_tests::uml::{Job, kernel_612_fast};
use xtent_tests::{Scratch, pattern};

use super::{container, library};

/// Errors for its users, at once; and nothing waits to be written later over what the other client has
/// written, whether the server ends by itself, is asked to, or is killed. By a stand-in for Ceph's libraries.
fn assert_a_lost_image_has_no_successor(kernel: Option<&'static str>) {
    let scratch = Scratch::new();
    let library = library("standin.c", &scratch);
    let volume = container(Shape::LUKS2, &scratch);
    let data = pattern(2 << 20, 9);
    Job::new(
        r#"
        mkdir /tmp/lib
        cp /in/standin.so /tmp/lib/librados.so.2
        cp /in/standin.so /tmp/lib/librbd.so.1
        export LD_LIBRARY_PATH=/tmp/lib
        lose() { echo >/tmp/lost; }
        find_again() { : >/tmp/lost; }
        served v rbd:d/v
        mkfs.ext4 -q -b 4096 /dev/xtent/v
        mount -t ext4 /dev/xtent/v /mnt
        cp /in/data /mnt/data
        sync
        md5sum </d/v >/tmp/before
        # Asked for, and not written before the volume is lost.
        dd if=/in/data of=/mnt/late bs=64k 2>/dev/null
        lose
        never dd if=/dev/null of=/mnt/late conv=notrunc,fsync 2>/dev/null
        ended
        never touch /mnt/new 2>/dev/null
        # There is nothing that would go on.
        find_again
        umount /mnt
        served v rbd:d/v
        grep -q '"taken_over": *false' /tmp/served
        xtent close v
        never ls /dev/ublkc* 2>/dev/null
        md5sum </d/v >/tmp/after
        cmp /tmp/before /tmp/after
        # Reads tell of it too; where nobody asks for anything, a look at the lock does.
        served v rbd:d/v
        lose
        [ $(dd if=/dev/xtent/v bs=4096 skip=1000 count=1 2>/dev/null | wc -c) = 0 ]
        ended
        find_again
        xtent close v
        # One that is killed before it knows waits, and goes on.
        served v rbd:d/v
        mount -t ext4 /dev/xtent/v /mnt
        cmp /in/data /mnt/data
        killed
        cp /in/data /mnt/late &
        writer=$!
        served v rbd:d/v
        wait $writer
        umount /mnt
        xtent close v
        # A mount.
        mounted rbd:d/v /mnt
        cmp /in/data /mnt/late
        grep -q ublk /proc/mounts
        dd if=/in/data of=/mnt/later bs=64k 2>/dev/null
        lose
        never dd if=/dev/null of=/mnt/later conv=notrunc,fsync 2>/dev/null
        until ! cat /mnt/data >/dev/null 2>&1; do usleep 1000; done
        umount /mnt
        ended
        find_again
        never ls /dev/ublkc* 2>/dev/null
        mounted rbd:d/v /mnt
        cmp /in/data /mnt/late
        never cmp /in/data /mnt/later 2>/dev/null
        xtent umount /mnt"#,
    )
    .with_ublk(kernel)
    .disk("v", &volume.image)
    .file("standin.so", &library)
    .file("data", &data)
    .file("key", KEY)
    .run();
    volume.assert_has_file("late", &data);
}

#[test]
#[ignore = "builds a module, for which it fetches a kernel's source: make kernel-test"]
fn a_lost_image_has_no_successor() {
    assert_a_lost_image_has_no_successor(None);
}

#[test]
#[ignore = "builds a kernel for many minutes: make test-uml612"]
fn linux_612_has_no_successor_of_a_lost_image() {
    assert_a_lost_image_has_no_successor(Some(kernel_612_fast()));
}
