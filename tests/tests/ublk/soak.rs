//! Kills under load, many of them.

use xtent_tests::Scratch;
use xtent_tests::luks::{KEY, Shape};
use xtent_tests::uml::Job;

use super::container;

/// The kernel keeps what is under way: fio writes and reads in `$place` all the time, past its cache, while the
/// process that `start` starts is killed and started again. dm-crypt has what was written last, and `end` is
/// when it can be asked.
fn assert_kills_are_not_seen(script: &str) {
    let rounds = xtent_tests::soak_rounds();
    let scratch = Scratch::new();
    let volume = container(Shape::LUKS2, &scratch);
    let outcome = Job::new(&format!(
        r#"{script}
         work() {{
             pass=0
             while [ ! -e /tmp/stop ]; do
                 pass=$((pass + 1))
                 of_fio $place --randseed=$pass || touch /tmp/wrong
                 # Renamed, so that nobody reads half of it.
                 echo $pass >/tmp/pass
                 mv /tmp/pass /tmp/passes
             done
             cp /tmp/passes /out/
         }}
         # Without a process of its own: they are what takes the time.
         looked() {{
             read -r reads one two three writes rest </sys/block/ublkb0/stat
             requests=$((reads + writes))
             read -r reads writes </sys/block/ublkb0/inflight
             under_way=$((reads + writes))
         }}
         start
         work &
         worker=$!
         round=0
         until [ $round = {rounds} ]; do
             looked
             enough=$((requests + 100))
             until [ $requests -ge $enough ] && [ $under_way != 0 ]; do
                 [ ! -e /tmp/wrong ]
                 usleep 5000
                 looked
             done
             killed
             # Linux 6.1 sees it when it is asked for something more, or after five seconds.
             dd if=/dev/ublkb0 of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null &
             reader=$!
             start
             wait $reader
             round=$((round + 1))
             echo $round of {rounds} kills
         done
         touch /tmp/stop
         wait $worker
         [ ! -e /tmp/wrong ]
         end
         never sh -c "dmesg | grep -i 'i/o error\|error, dev\|warning'"
         cryptsetup open --key-file /in/key /d/v theirs
         theirs
         of_fio $place --verify_only --randseed=$(cat /tmp/passes)
         # It finds what is not as it should be.
         dd if=/dev/urandom of=$spoilt bs=16 seek=4321 count=1 conv=notrunc,fsync 2>/dev/null
         never of_fio $place --verify_only --randseed=$(cat /tmp/passes)"#
    ))
    .with_fio()
    .with_ublk(None)
    .disk("v", &volume.image)
    .file("key", KEY)
    .run();
    let passes = String::from_utf8(outcome.file("passes")).unwrap();
    println!("{} passes of fio under {rounds} kills", passes.trim());
}

#[test]
#[ignore = "long: make soak"]
fn soak_kills_under_a_block_device() {
    assert_kills_are_not_seen(
        "each='--size=6M --offset_increment=6M'
         place=\"--filename=/dev/xtent/v $each\"
         start() {
             served v /d/v
         }
         end() {
             xtent close v
         }
         theirs() {
             spoilt=/dev/mapper/theirs
             place=\"--filename=$spoilt $each\"
         }",
    );
}

/// Of a mount's daemon.
#[test]
#[ignore = "long: make soak"]
fn soak_kills_under_a_file_system() {
    assert_kills_are_not_seen(
        "served v /d/v
         mkfs.ext4 -q -b 4096 /dev/xtent/v
         xtent close v
         mkdir -p /mnt
         place='--directory=/mnt --size=4M'
         start() {
             mounted /d/v /mnt
         }
         end() {
             xtent umount /mnt
         }
         theirs() {
             spoilt=/mnt/verify.2.0
             mount -t ext4 /dev/mapper/theirs /mnt
         }",
    );
}
