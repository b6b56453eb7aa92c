//! Mappings whose key is taken away while they are used, and given back, by the target that is there.

use std::path::Path;

use crate::luks::{KEY, Maker, OTHER_KEY, Shape, detached_header};
use crate::mappings::with_modules;
use crate::scratch::assert_same;
use crate::uml::Job;
use crate::{Scratch, pattern};

const MIB: usize = 1 << 20;

/// Fails unless `xtent suspend` has whoever uses a mapping wait, with no key to be seen, and `xtent resume` lets all
/// go on by the right key, whatever was tried or killed before. With `modules`, the folder of our kernel modules,
/// mappings of xtent are dm-xtent's.
pub fn assert_keys_are_taken_and_given(modules: Option<&Path>) {
    let scratch = Scratch::new();
    let large = Shape::LUKS2_4096.image(Maker::Cryptsetup, &scratch, 16 * MIB as u64);
    let image = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, MIB as u64);
    let old = Shape::LUKS1.image(Maker::Cryptsetup, &scratch, MIB as u64);
    let elsewhere = Scratch::new();
    let other = Shape::LUKS2_4096.image(Maker::Cryptsetup, &elsewhere, MIB as u64);
    let ground = Shape::LUKS2.image(Maker::Cryptsetup, &elsewhere, 128 * MIB as u64);
    let apart = scratch.image("apart", MIB as u64);
    let key = scratch.file("key", KEY);
    let header = detached_header(&scratch, "header", &key, &apart);
    let data = pattern(MIB, 91);
    let outcome = with_modules(Job::new(SCRIPT), modules)
        .disk("large", &large.image)
        .disk("ground", &ground.image)
        .disk("old", &old.image)
        .disk("other", &other.image)
        .disk("apart", &apart)
        .disk("header", &header)
        .file("image", &std::fs::read(&image.image).unwrap())
        .file("data", &data)
        .file("key", KEY)
        .file("otherkey", OTHER_KEY)
        .run();
    for name in [
        "waited",
        "loaded",
        "image-after",
        "old-after",
        "apart-after",
    ] {
        assert_same(&outcome.file(name), &data, name);
    }
    let table = String::from_utf8(outcome.file("table")).unwrap();
    let target = modules.map_or(" crypt ", |_| " xtent ");
    assert!(table.contains(target), "{table}");
    for (name, expected) in [
        (
            "taken",
            serde_json::json!({ "name": "v", "suspended": true, "was_suspended": false }),
        ),
        (
            "given",
            serde_json::json!({ "name": "v", "suspended": false, "keyslot": 0, "token": null }),
        ),
    ] {
        let told: serde_json::Value = serde_json::from_slice(&outcome.file(name)).unwrap();
        assert_eq!(told, expected);
    }
}

/// What [`assert_keys_are_taken_and_given`] has the guest do.
const SCRIPT: &str = r#"
[ ! -e /in/dm-xtent.ko ] || insmod /in/dm-xtent.ko
key="--key-file /in/key"
write() { dd if=/in/data of=/dev/mapper/$1 bs=64k conv=fsync 2>/dev/null; }
forget() { echo 3 >/proc/sys/vm/drop_caches; }
read_back() {
    forget
    head -c $(stat -c %s /in/data) /dev/mapper/$1
}
# is STATE NAME: it is ACTIVE or SUSPENDED
is() { dmsetup info $2 | grep "^State: *$1"; }
# shown NAME: what the table shows in the key's place
shown() { dmsetup table --showkeys $1 | cut -d' ' -f5; }
has_key() { shown $1 | grep '^:64:logon:cryptsetup:.*-d0$'; }
keyless() {
    is SUSPENDED $1
    shown $1 | grep -x -e - -e '0*'
    no_key
}
# waits PID: it waits in the kernel
waits() {
    until grep -q '^State:.D' /proc/$1/status; do kill -0 $1; done
}
told() { grep -q "$1" /tmp/said; }

# A reader waits, whatever is tried, until the right key is there.
xtent open $key v /d/large
dmsetup table v >table
write v
if [ -e /in/dm-xtent.ko ]; then
    never cryptsetup luksSuspend v
    is ACTIVE v
fi
forget
xtent --json suspend v >taken
keyless v
xtent status v | grep 'mapped, and suspended'
head -c $(stat -c %s /in/data) /dev/mapper/v >waited &
reader=$!
waits $reader
fails 5 xtent suspend v
told 'suspended already'
fails 2 xtent resume --key-file /in/otherkey v
fails 4 xtent resume --header /d/other $key v
told 'the UUID differs'
fails 4 xtent resume $key v /d/other
told 'does not lie on'
fails 5 xtent resize $key v
told 'xtent resume v'
keyless v
kill -0 $reader
[ ! -s waited ]
xtent --json resume $key v >given
wait $reader
has_key v
no_key
fails 1 xtent resume $key v
told 'not suspended'
is ACTIVE v

# A file system under load, which never sees an error.
mkfs.ext4 -q /dev/mapper/v
mount -t ext4 /dev/mapper/v /mnt
(while [ ! -e /tmp/stop ]; do
    dd if=/in/data of=/mnt/new bs=64k conv=fsync 2>/dev/null && mv /mnt/new /mnt/loaded || touch /tmp/failed
done; touch /tmp/stopped) &
until [ -e /mnt/loaded ]; do usleep 1000; done
for round in 1 2 3; do
    xtent suspend v
    keyless v
    xtent resume $key v
done
touch /tmp/stop
until [ -e /tmp/stopped ]; do usleep 1000; done
[ ! -e /tmp/failed ]
umount /mnt
forget
mount -t ext4 -o ro /dev/mapper/v /mnt
cat /mnt/loaded >loaded
umount /mnt

# What is said goes to a file system that waits by then, and keeps no turn that the resume would wait for.
mount -t ext4 /dev/mapper/v /mnt
xtent suspend v >/mnt/said 2>&1 &
writer=$!
until is SUSPENDED v; do usleep 1000; done
waits $writer
keyless v
xtent resume $key v
wait $writer
grep 'its key is wiped' /mnt/said
# Who waited for a passphrase meanwhile finds nothing to do.
umount /mnt
xtent suspend v
mkfifo /tmp/late
fails 1 xtent resume --key-file /tmp/late v &
late=$!
exec 3>/tmp/late
xtent resume $key v
cat /in/key >&3
exec 3>&-
wait $late
told 'not suspended'

# Nobody could be started to resume these.
mkswap /dev/mapper/v
swapon /dev/mapper/v
fails 5 xtent suspend v
told 'swap space'
is ACTIVE v
swapoff /dev/mapper/v
xtent open $key b /d/ground
mkfs.btrfs -q /dev/mapper/b
mount -t btrfs /dev/mapper/b /mnt
btrfs subvolume create /mnt/below
cp /in/xtent /mnt/below
modprobe overlay
mkdir /run/empty /run/over
mount -t overlay -o lowerdir=/mnt/below:/run/empty over /run/over
for folder in /mnt/below /run/over; do
    fails 5 $folder/xtent --cpu portable suspend b
    told 'this program'
    is ACTIVE b
done
umount /run/over
umount /mnt
xtent close b

# What would take another table with it stays.
dmsetup reload v --table '0 8 error'
fails 5 xtent suspend v
told 'dmsetup clear v'
is ACTIVE v
dmsetup clear v
xtent close v

# An image. Suspended by others, or by a command that was killed before it had wiped the key.
xtent open $key i /in/image
write i
dmsetup suspend i
has_key i
xtent suspend i
keyless i
xtent resume $key i /in/image
dmsetup suspend i
xtent resume $key i
is ACTIVE i
# Killed anywhere, later and later, until it has come to its end before.
turns=2000
status=137
while [ $status = 137 ]; do
    /in/xtent suspend i &
    left=$turns
    while [ $left -gt 0 ]; do left=$((left - 1)); done
    kill -9 $! 2>/dev/null || true
    status=0
    wait $! || status=$?
    is ACTIVE i || xtent resume $key i
    is ACTIVE i
    turns=$((turns * 11 / 10))
done
[ $status = 0 ]
read_back i >image-after
# A key that is gone is no reason to keep a mapping.
xtent suspend i
xtent close i
never dmsetup info i 2>/dev/null

# cryptsetup's, with the key in the table; and each resumes what the other has suspended.
cryptsetup open $key /d/old o
write o
xtent suspend o
keyless o
xtent resume $key o
has_key o
cryptsetup luksSuspend o
xtent resume $key o
xtent suspend o
cryptsetup luksResume $key o
read_back o >old-after
cryptsetup close o

# The header is elsewhere.
xtent open $key --header /d/header a /d/apart
write a
xtent suspend a
fails 4 xtent resume $key a
keyless a
xtent resume $key --header /d/header a
read_back a >apart-after
xtent close a

# What has no key of a volume with a header.
fails 4 xtent suspend nothing
fails 4 xtent resume $key nothing
dmsetup create disk --noudevrules --noudevsync --table '0 8 error'
fails 1 xtent suspend disk
fails 1 xtent resume $key disk
is ACTIVE disk
dmsetup remove --noudevrules --noudevsync disk
cryptsetup open --type plain --key-file /in/data --cipher aes-xts-plain64 --key-size 512 /d/apart p
fails 1 xtent suspend p
told 'of the type PLAIN'
is ACTIVE p
cryptsetup close p
uuid=CRYPT-LUKS2-00000000000000000000000000000000-c
dmsetup create c --uuid $uuid --noudevrules --noudevsync \
    --table "0 8 crypt aes-ecb-null 000102030405060708090a0b0c0d0e0f 0 $(readlink -f /d/apart) 0"
fails 1 xtent suspend c
told 'luksSuspend c'
is ACTIVE c
dmsetup remove --noudevrules --noudevsync c
no_key
"#;
