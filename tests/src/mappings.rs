//! Mappings that become larger while they are used, by the target that is there.

use std::path::Path;

use crate::header::edit_json;
use crate::luks::{KEY, Maker, OTHER_KEY, Shape};
use crate::scratch::assert_same;
use crate::uml::Job;
use crate::{Scratch, pattern};

const MIB: usize = 1 << 20;

/// Fails unless `xtent resize` lets mappings grow with images and devices, keeps what their tables say and what is on
/// them while somebody writes, and changes nothing where it cannot. With `modules`, the folder of our
/// kernel modules, those of xtent are dm-xtent's.
pub fn assert_mappings_grow(modules: Option<&Path>) {
    let scratch = Scratch::new();
    let volume = |shape: Shape| shape.image(Maker::Cryptsetup, &scratch, MIB as u64);
    let small = volume(Shape::LUKS2_4096).image;
    let image = std::fs::read(&small).unwrap();
    let old = volume(Shape::LUKS1).image;
    let data = pattern(MIB, 81);
    let job = Job::new(
        "[ ! -e /in/dm-xtent.ko ] || insmod /in/dm-xtent.ko
         size() { blockdev --getsize64 /dev/mapper/$1; }
         key=\"--key-file /in/key\"

         # An image, by its mapping's name, under a load.
         xtent open $key --perf-no_read_workqueue g /in/image
         dmsetup table g | cut -d' ' -f3- >before
         dd if=/in/data of=/dev/mapper/g bs=64k conv=fsync 2>/dev/null
         (while [ ! -e /tmp/stop ]; do
             dd if=/in/data of=/dev/mapper/g bs=64k conv=fsync 2>/dev/null || touch /tmp/failed
         done; touch /tmp/stopped) &
         for round in 1 2 3; do
             head -c 1048576 /dev/zero >>/in/image
             xtent --json resize $key g >told
         done
         large=$(stat -c %s /in/image)
         touch /tmp/stop
         while [ ! -e /tmp/stopped ]; do usleep 1000; done
         [ ! -e /tmp/failed ]
         [ $(size g) = 4194304 ]
         dmsetup table g | cut -d' ' -f3- >after
         dd if=/in/data of=/dev/mapper/g bs=1M seek=3 conv=fsync 2>/dev/null
         cat /dev/mapper/g >grown
         no_key
         # Nothing to do takes no passphrase.
         [ \"$(xtent resize g)\" = '4 MiB as before' ]
         # Neither does a wrong one do anything.
         head -c 1048576 /dev/zero >>/in/image
         fails 2 xtent resize --key-file /in/other g
         fails 1 xtent resize --size 1M --key-file /in/other g
         fails 4 xtent resize --header /in/header $key g
         fails 4 xtent resize nothing
         [ $(size g) = 4194304 ]
         dmsetup table --inactive g >inactive
         # Smaller than it was, and as it was.
         truncate -s 1M /in/image
         fails 4 xtent resize $key g
         [ $(size g) = 4194304 ]
         truncate -s $large /in/image
         xtent close g

         # A device, by its path, and a mapping of cryptsetup's.
         dmsetup create below --noudevrules --noudevsync --table \"0 5120 linear $(readlink -f /d/old) 0\"
         dmsetup mknodes below
         cryptsetup open $key /dev/mapper/below c
         first=$(size c)
         dd if=/in/data of=/dev/mapper/c bs=64k count=8 conv=fsync 2>/dev/null
         dmsetup reload below --table \"0 $(blockdev --getsz /d/old) linear $(readlink -f /d/old) 0\"
         dmsetup resume below --noudevrules --noudevsync
         # The key is in the table: nobody is asked.
         xtent resize /dev/mapper/below
         [ $first = 524288 ]
         [ $(size c) = 1048576 ]
         cat /dev/mapper/c >old
         cryptsetup close c",
    );
    let outcome = with_modules(job, modules)
        .disk("old", &old)
        .file("image", &image)
        .file("header", &std::fs::read(&old).unwrap()[..2 * MIB])
        .file("data", &data)
        .file("key", KEY)
        .file("other", OTHER_KEY)
        .run();
    let text = |name: &str| String::from_utf8(outcome.file(name)).unwrap();
    let target = modules.map_or("crypt ", |_| "xtent ");
    assert!(text("before").starts_with(target), "{}", text("before"));
    assert!(text("before").contains("no_read_workqueue"));
    assert_eq!(text("before"), text("after"));
    assert_eq!(text("inactive").trim(), "");
    let told: serde_json::Value = serde_json::from_str(&text("told")).unwrap();
    let expected = serde_json::json!({ "mapping": "g", "before": 3 * MIB, "size": 4 * MIB });
    assert_eq!(told, expected);
    let grown = outcome.file("grown");
    assert_same(&grown[..MIB], &data, "what was there");
    assert_same(&grown[3 * MIB..], &data, "what was added");
    let old = outcome.file("old");
    assert_same(&old[..MIB / 2], &data[..MIB / 2], "of cryptsetup's");
}

/// Fails unless `xtent resize` leaves mappings alone that are suspended, that change while it waits for a
/// passphrase, or whose new table the kernel refuses, and leaves none suspended.
pub fn assert_growth_is_refused(modules: Option<&Path>) {
    let scratch = Scratch::new();
    let image = Shape::LUKS2_4096.image(Maker::Cryptsetup, &scratch, MIB as u64);
    let old = Shape::LUKS1.image(Maker::Cryptsetup, &scratch, MIB as u64);
    let old = std::fs::read(old.image).unwrap();
    // Another key under the same UUID, which LUKS1 has there.
    let apart = Scratch::new();
    let other = Shape::LUKS1.image(Maker::Cryptsetup, &apart, MIB as u64);
    let mut other = std::fs::read(other.image).unwrap()[..2 * MIB].to_vec();
    other[168..208].copy_from_slice(&old[168..208]);
    // Half a sector of 4 KiB at the end.
    let fixed = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, MIB as u64);
    edit_json(&fixed.image, |header| {
        header["segments"]["0"]["size"] = serde_json::json!("524288");
    });
    let data = pattern(MIB / 2, 83);
    let job = Job::new(REFUSED);
    let outcome = with_modules(job, modules)
        .disk("wide", &scratch.image("wide", 17 * MIB as u64))
        .file("image", &std::fs::read(image.image).unwrap())
        .file("old", &old)
        .file("otherkey", &other)
        .file("fixed", &std::fs::read(fixed.image).unwrap())
        .file("data", &data)
        .file("key", KEY)
        .run();
    for name in ["locked", "wide", "moved"] {
        assert_same(&outcome.file(name), &data, name);
    }
}

/// What [`assert_growth_is_refused`] has the guest do.
const REFUSED: &str = r#"
[ ! -e /in/dm-xtent.ko ] || insmod /in/dm-xtent.ko
key="--key-file /in/key"
size() { blockdev --getsize64 /dev/mapper/$1; }
grow() { head -c 1048576 /dev/zero >>$1; }
write() { dd if=/in/data of=/dev/mapper/$1 bs=64k conv=fsync 2>/dev/null; }
read_back() {
    echo 3 >/proc/sys/vm/drop_caches
    head -c $(stat -c %s /in/data) /dev/mapper/$1
}
# is STATE NAME: it is ACTIVE or SUSPENDED, and no table waits to be resumed
is() {
    dmsetup info $2 | grep "^State: *$1"
    [ -z "$(dmsetup table --inactive $2)" ]
}
# begun NAME: it is being resized, by a command that has looked at all and waits for the passphrase
mkfifo /tmp/passphrase
begun() {
    xtent resize --key-file /tmp/passphrase $1 2>/tmp/said &
    exec 3>/tmp/passphrase
}
# ended STATUS WORDS: that command gets its passphrase, and ends with that
ended() {
    cat /in/key >&3
    exec 3>&-
    status=0
    wait $! || status=$?
    cat /tmp/said
    [ $status = $1 ]
    grep -q "$2" /tmp/said
}

# Suspended with its key taken away, which is in the table: the kernel shows zeros in its place.
cryptsetup open $key /in/old locked
write locked
cryptsetup luksSuspend locked
grow /in/old
fails 5 xtent resize locked
grep "xtent resume" /tmp/said
is SUSPENDED locked
cryptsetup luksResume $key locked
# Another volume's header with the same UUID.
fails 4 xtent resize --header /in/otherkey locked
[ $(size locked) = 1048576 ]
xtent resize locked
[ $(size locked) = 2097152 ]
read_back locked >locked
cryptsetup close locked

# Suspended, for a copy perhaps; before and while the passphrase is waited for.
cp /in/image /in/copy
xtent open $key g /in/image
grow /in/image
dmsetup suspend g
fails 5 xtent resize $key g
is SUSPENDED g
dmsetup resume g
begun g
dmsetup suspend g
ended 5 'is suspended'
is SUSPENDED g
dmsetup resume g
[ $(size g) = 1048576 ]

# The length is what it is when the passphrase is there.
begun g
grow /in/image
ended 0 resize2fs
[ $(size g) = 3145728 ]

# Somebody else was faster.
grow /in/image
begun g
grow /in/image
xtent resize $key g
ended 5 'changed meanwhile'
is ACTIVE g
[ $(size g) = 5242880 ]

# What is below has become smaller.
loop=/dev/loop$(dmsetup table g | cut -d' ' -f7 | cut -d: -f2)
grow /in/image
begun g
truncate -s 17M /in/image
losetup -c $loop
ended 4 'no smaller'
is ACTIVE g
[ $(size g) = 5242880 ]
truncate -s 22M /in/image
losetup -c $loop

# Another one has the name.
begun g
xtent close g
xtent open $key g /in/copy
write g
dmsetup table g >before
ended 5 'changed meanwhile'
is ACTIVE g
dmsetup table g | cmp before -
read_back g >moved
# None has it.
grow /in/copy
begun g
xtent close g
ended 4 'no mapping g'
no_key

# A device of sectors of 4 KiB, and a length of which the kernel sees only when the table is to be used that it is
# no multiple.
digits=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde0
wide() {
    echo "0 $(blockdev --getsz /d/wide) crypt aes-xts-plain64 $digits 0 $(readlink -f /d/wide) 0 1 sector_size:4096"
}
dmsetup create disk --noudevrules --noudevsync --table "$(wide)"
dmsetup mknodes disk
dd if=/in/fixed of=/dev/mapper/disk bs=1M conv=fsync 2>/dev/null
xtent open $key w /dev/mapper/disk
write w
xtent resize --size 524800 /dev/mapper/disk
fails 4 xtent resize $key w
grep 'keeps its size' /tmp/said
is ACTIVE w
[ $(size w) = 524288 ]
read_back w >wide
xtent close w
no_key
"#;

/// With our kernel modules, where there are any, and the command.
pub(crate) fn with_modules(job: Job, modules: Option<&Path>) -> Job {
    let job = job.with_xtent();
    match modules {
        Some(modules) => job.file(
            "dm-xtent.ko",
            &std::fs::read(modules.join("dm-xtent.ko")).unwrap(),
        ),
        None => job,
    }
}
