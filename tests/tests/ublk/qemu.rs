//! On Linux 6.12 and newer in QEMU: several processors, and devices that grow.

use xtent_tests::luks::{KEY, Shape};
use xtent_tests::uml::{Job, kernel_x86_7, kernel_x86_612};
use xtent_tests::{Scratch, pattern};

use super::{container, library};

/// Each processor's requests have a queue and a thread of their own; all of them are taken over.
fn assert_has_several_queues(kernel: &'static str) {
    let scratch = Scratch::new();
    let hold = library("hold.c", &scratch);
    let volume = container(Shape::LUKS2, &scratch);
    let data = pattern(5 << 20, 4);
    Job::new(
        "# switches N: how often the thread of that queue has waited.
         switches() {
             for task in /proc/$pid/task/*; do
                 if [ $(cat $task/comm) = ublk$1 ]; then sed -n 's/^voluntary.*:.//p' $task/status; fi
             done
         }
         served --queues 1 v /d/v
         grep -q '\"queues\": *1' /tmp/served
         [ $(ls /sys/block/ublkb0/mq | wc -l) = 1 ]
         xtent close v
         # No more than processors.
         xtent open --ublk --key-file /in/key --queues 3 v /d/v 2>/tmp/said
         grep -q 'as many queues as there are CPUs: 2' /tmp/said
         xtent close v
         served v /d/v
         grep -q '\"queues\": *2' /tmp/served
         [ $(ls /sys/block/ublkb0/mq | wc -l) = 2 ]
         for queue in 0 1; do
             before=$(switches $queue)
             for cpu in 0 1; do
                 taskset -c $cpu dd if=/dev/xtent/v of=/dev/null bs=4096 count=50 iflag=direct 2>/dev/null
             done
             [ $(switches $queue) -ge $((before + 25)) ]
         done
         mkfs.ext4 -q -b 4096 /dev/xtent/v
         mount -t ext4 /dev/xtent/v /mnt
         for round in 1 2 3 4 5; do
             for cpu in 0 1; do
                 taskset -c $cpu dd if=/in/data of=/mnt/data$cpu bs=64k oflag=direct 2>/dev/null &
                 writers=\"$writers $!\"
             done
             until [ -s /mnt/data0 ] && [ -s /mnt/data1 ]; do usleep 1000; done
             killed
             served --queues 1 v /d/v
             grep -q '\"taken_over\": *true' /tmp/served
             grep -q '\"queues\": *2' /tmp/served
             wait $writers
             writers=
             cmp /in/data /mnt/data0
             cmp /in/data /mnt/data1
             rm /mnt/data1
             sync
         done
         # A takeover that is killed when the driver has heard of one of its queues: nothing is tried with that.
         killed
         LD_PRELOAD=/in/hold.so xtent open --ublk --key-file /in/key v /d/v 2>/dev/null &
         opener=$!
         # in_call QUEUE NUMBER: its thread is in that system call; its process is in $pid.
         in_call() {
             for task in /proc/[0-9]*/task/*; do
                 if [ \"$(cat $task/comm)\" = ublk$1 ]; then
                     pid=$(echo $task | cut -d / -f 3)
                     grep -q \"^$2 \" $task/syscall
                     return
                 fi
             done 2>/dev/null
             false
         }
         # pause and io_uring_enter
         until [ -s /run/xtent/ublk/v ] && in_call 1 34 && in_call 0 426; do usleep 10000; done
         killed
         never wait $opener
         fails 4 xtent open --ublk --key-file /in/key v /d/v
         grep -q 'taken over any more' /tmp/said
         xtent close --force v
         umount /mnt
         xtent close v
         never ls /dev/ublkc* 2>/dev/null
         served v /d/v
         mount -t ext4 /dev/xtent/v /mnt
         cp /in/data /mnt/data
         umount /mnt
         xtent close v
         ! dmesg | grep -i 'warning:\\|bug:\\|oops:'",
    )
    .with_ublk(Some(kernel))
    .disk("v", &volume.image)
    .file("data", &data)
    .file("key", KEY)
    .file("hold.so", &hold)
    .run();
    volume.assert_has_file("data", &data);
}

#[test]
#[ignore = "emulates a machine: make test-ublk"]
fn qemu_has_several_queues_on_linux_612() {
    assert_has_several_queues(kernel_x86_612());
}

#[test]
#[ignore = "emulates a machine, and makes a Debian system in a folder: make test-ublk"]
fn qemu_has_several_queues_on_linux_7() {
    assert_has_several_queues(kernel_x86_7());
}

/// A device grows with its image while a file system on it is mounted: when told to, and when it is taken over.
#[test]
#[ignore = "emulates a machine, and makes a Debian system in a folder: make test-ublk"]
fn qemu_has_a_device_grow_on_linux_7() {
    let scratch = Scratch::new();
    let volume = container(Shape::LUKS2, &scratch);
    let image = std::fs::read(&volume.image).unwrap();
    let data = pattern(40 << 20, 7);
    let resize2fs = std::fs::read(xtent_tests::process::peer("resize2fs")).unwrap();
    Job::new(
        "chmod +x /in/resize2fs
         size() { cat /sys/block/ublkb0/size; }
         # enlarge MEBIBYTES: the image.
         enlarge() { truncate -s $(($(stat -c %s /d/v) + ($1 << 20))) /d/v; }
         mount -t tmpfs -o size=300m image /d
         cp /in/image /d/v
         served v /d/v
         first=$(size)
         # In the sandbox, without any privilege; but for the kernel's own threads.
         until [ -z \"$(grep -L '^Seccomp:.2' /proc/$pid/task/*/status)\" ]; do usleep 1000; done
         for task in /proc/$pid/task/*/status; do
             grep -q '^Name:.iou-' $task || grep -q '^CapEff:.0*$' $task
         done
         mkfs.ext4 -q -b 4096 /dev/xtent/v
         mount -t ext4 /dev/xtent/v /mnt
         # Nothing has changed.
         xtent --json resize v >resized
         [ $(size) = $first ]
         enlarge 16
         [ $(size) = $first ]
         xtent resize v 2>/tmp/said
         grep -q 'resize2fs /dev/xtent/v' /tmp/said
         [ $(size) = $((first + 32768)) ]
         [ $(blockdev --getsz /dev/xtent/v) = $((first + 32768)) ]
         xtent status --json v >status
         enlarge 16
         kill -HUP $pid
         until [ $(size) = $((first + 65536)) ]; do kill -0 $pid; usleep 1000; done
         # By its path, too, and not twice.
         [ \"$(xtent resize /dev/xtent/v)\" = '56 MiB as before' ]
         # It never becomes smaller.
         enlarge -1
         xtent resize v
         [ $(size) = $((first + 65536)) ]
         enlarge 1
         # Without a server nobody can be told; the next one looks.
         killed
         enlarge 16
         served v /d/v
         until [ $(size) = $((first + 98304)) ]; do kill -0 $pid; usleep 1000; done
         /in/resize2fs /dev/xtent/v
         head -c 40m /in/data >/mnt/data
         sync
         echo 3 >/proc/sys/vm/drop_caches
         cmp /in/data /mnt/data
         umount /mnt
         xtent close v
         never ls /dev/ublkc* 2>/dev/null
         # A mount by ublk grows in the same way.
         mounted --by ublk /d/v /mnt
         cmp /in/data /mnt/data
         enlarge 16
         xtent resize /mnt
         [ $(size) = $((first + 131072)) ]
         /in/resize2fs /dev/ublkb0
         enlarge 16
         kill -HUP $pid
         until [ $(size) = $((first + 163840)) ]; do kill -0 $pid; usleep 1000; done
         xtent umount /mnt
         never ls /dev/ublkc* 2>/dev/null
         cryptsetup open --key-file /in/key /d/v theirs
         [ $(blockdev --getsz /dev/mapper/theirs) = $((first + 163840)) ]
         mount -t ext4 -o ro /dev/mapper/theirs /mnt
         cmp /in/data /mnt/data
         umount /mnt
         cryptsetup close theirs
         ! dmesg | grep -i 'warning:\\|bug:\\|oops:\\|i/o error'",
    )
    .with_ublk(Some(kernel_x86_7()))
    .memory(1536)
    .file("image", &image)
    .file("data", &data)
    .file("resize2fs", &resize2fs)
    .file("key", KEY)
    .run();
}
