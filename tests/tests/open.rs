//! `xtent open` and `close` with the kernel's dm-crypt, in User Mode Linux: what
//! cryptsetup would have made, and each closes what the other has opened.
#![allow(clippy::unwrap_used, reason = "tests")]

use xtent_tests::header::edit_json;
use xtent_tests::luks::{KEY, Maker, OTHER_KEY, Shape, detached_header};
use xtent_tests::mappings::{assert_growth_is_refused, assert_mappings_grow};
use xtent_tests::scratch::assert_same;
use xtent_tests::suspended::assert_keys_are_taken_and_given;
use xtent_tests::uml::{Job, assert_opens_like_cryptsetup};
use xtent_tests::xtent::xtent;
use xtent_tests::{Scratch, pattern};

const DATA: usize = (1 << 20) + 3 * 4096;

#[test]
fn mappings_are_those_of_cryptsetup() {
    let cbc = Shape {
        cipher: "aes-cbc-essiv:sha256",
        key_bits: 256,
        ..Shape::LUKS2
    };
    let shapes = [Shape::LUKS1, Shape::LUKS2, Shape::LUKS2_4096, cbc];
    let consoles = assert_opens_like_cryptsetup(&shapes, None);
    assert!(
        consoles.contains("Opening with dm-crypt: dm-xtent is not loaded."),
        "{consoles}"
    );
}

#[test]
fn options_and_persistent_flags_reach_the_table() {
    let scratch = Scratch::new();
    let volume = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, DATA as u64);
    let outcome = Job::new(
        "xtent open --key-file /in/key --read-only v /d/v
         blockdev --getro /dev/mapper/v >ro
         blockdev --getro /dev/ubdc >ro-below
         xtent close v
         xtent open --key-file /in/key --perf-no_read_workqueue --perf-same_cpu_crypt v /d/v
         dmsetup table v | cut -d' ' -f9- >asked
         xtent close v
         cryptsetup open --key-file /in/key --persistent --allow-discards --perf-no_write_workqueue /d/v v
         dmsetup table v >theirs
         cryptsetup close v
         xtent --json open --key-file /in/key --target crypt v /d/v >json
         dmsetup table v >ours
         # Suspended and resumed by cryptsetup, which puts the key there again.
         cryptsetup luksSuspend v
         cryptsetup luksResume --key-file /in/key v
         cat /dev/mapper/v >/dev/null
         cryptsetup close v",
    )
    .with_xtent()
    .disk("v", &volume.image)
    .file("key", KEY)
    .run();
    let text = |name: &str| String::from_utf8(outcome.file(name)).unwrap();
    assert_eq!(text("ro"), "1\n");
    assert_eq!(text("asked"), "2 same_cpu_crypt no_read_workqueue\n");
    assert_eq!(text("ours"), text("theirs"));
    assert!(text("ours").contains("2 allow_discards no_write_workqueue"));
    let json: serde_json::Value = serde_json::from_str(&text("json")).unwrap();
    assert_eq!(json["target"], "crypt");
    assert_eq!(json["path"], "/dev/mapper/v");
    assert_eq!(json["allow_discards"], true);
}

#[test]
fn image_files_and_detached_headers_open() {
    let scratch = Scratch::new();
    let plain = pattern(DATA, 31);
    let image = Shape::LUKS2_4096.image(Maker::Cryptsetup, &scratch, DATA as u64);
    image.encrypt(&plain);
    let data = scratch.image("data", DATA as u64);
    let key = scratch.file("key", KEY);
    let header = detached_header(&scratch, "header", &key, &data);
    let bytes = std::fs::read(&image.image).unwrap();
    let outcome = Job::new(
        "xtent open --key-file /in/key v /in/image
         cat /dev/mapper/v >image
         cat /sys/block/loop0/loop/backing_file >attached
         xtent status --json v >listed
         xtent status /in/image >/dev/null
         # Not through a second loop device, nor through the same one twice.
         fails 5 xtent open --key-file /in/key w /in/image
         fails 5 xtent open --key-file /in/key w /dev/loop0
         echo changed | dd of=/dev/mapper/v conv=fsync 2>/dev/null
         xtent close v
         fails 4 xtent status v
         ls /sys/block/loop0/loop 2>/dev/null >detached || true
         xtent decrypt --key-file /in/key /in/image /tmp/plain
         head -c 8 /tmp/plain >after
         xtent open --key-file /in/key --header /d/header v /d/data
         cat /dev/mapper/v >/dev/null
         cryptsetup status v >shown
         cryptsetup close v",
    )
    .with_xtent()
    .disk("header", &header)
    .disk("data", &data)
    .file("image", &bytes)
    .file("key", KEY)
    .run();
    assert_same(&outcome.file("image"), &plain, "through a loop device");
    let text = |name: &str| String::from_utf8(outcome.file(name)).unwrap();
    assert_eq!(text("attached"), "/in/image\n");
    let status: serde_json::Value = serde_json::from_str(&text("listed")).unwrap();
    let volumes = status["volumes"].as_array();
    let Some([mapping]) = volumes.map(Vec::as_slice) else {
        panic!("not one mapping: {status}")
    };
    let uuid = xtent_tests::Cmd::peer("cryptsetup")
        .arg("luksUUID")
        .arg(&image.image)
        .ok()
        .out();
    assert_eq!(mapping["uuid"], uuid.trim());
    for (field, value) in [
        ("kind", "mapping"),
        ("name", "v"),
        ("device", "/in/image"),
        ("loop_device", "/dev/loop0"),
        ("cipher", "aes-xts-plain64"),
    ] {
        assert_eq!(mapping[field], value, "{field} in {mapping}");
    }
    assert_eq!(mapping["size"], DATA);
    assert_eq!(mapping["sector_size"], 4096);
    assert_eq!(text("detached"), "");
    assert_eq!(text("after"), "changed\n");
    assert!(text("shown").contains("is active"), "{}", text("shown"));
}

/// What `xtent resize --size` has written counts to the byte here, and a mapping grows by cryptsetup.
#[test]
fn sizes_of_headers_and_devices_are_those_of_mappings() {
    let scratch = Scratch::new();
    let fixed = Shape::LUKS2_4096.image(Maker::Cryptsetup, &scratch, DATA as u64);
    edit_json(&fixed.image, |header| {
        header["segments"]["0"]["size"] = serde_json::json!("524288");
    });
    xtent()
        .args(["resize", "--size", "1052672"])
        .arg(&fixed.image)
        .ok();
    let image = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, DATA as u64);
    let outcome = Job::new(
        "cryptsetup open --key-file /in/key /d/v v
         blockdev --getsize64 /dev/mapper/v >theirs
         cryptsetup close v
         xtent open --key-file /in/key v /d/v
         blockdev --getsize64 /dev/mapper/v >ours
         xtent --json resize v >kept
         xtent close v
         xtent open --key-file /in/key g /in/image
         head -c 1048576 /dev/zero >>/in/image
         losetup -c /dev/loop0
         cryptsetup resize --key-file /in/key g
         blockdev --getsize64 /dev/mapper/g >grown
         xtent close g",
    )
    .with_xtent()
    .disk("v", &fixed.image)
    .file("image", &std::fs::read(&image.image).unwrap())
    .file("key", KEY)
    .run();
    let size = |name: &str| String::from_utf8(outcome.file(name)).unwrap();
    assert_eq!(size("ours"), "1052672\n");
    let kept: serde_json::Value = serde_json::from_str(&size("kept")).unwrap();
    assert_eq!(
        (&kept["before"], &kept["size"]),
        (&1_052_672.into(), &1_052_672.into())
    );
    // cryptsetup opens all of the device, whatever size the header fixes.
    assert_eq!(size("theirs").trim(), DATA.to_string());
    assert_eq!(size("grown").trim(), (DATA + (1 << 20)).to_string());
}

#[test]
fn mappings_take_the_size_of_what_has_grown() {
    assert_mappings_grow(None);
}

#[test]
fn mappings_that_change_or_are_suspended_keep_their_size() {
    assert_growth_is_refused(None);
}

#[test]
fn keys_are_taken_away_and_given_back() {
    assert_keys_are_taken_and_given(None);
}

/// As systemd: who has a key file that does not do is asked.
#[test]
fn a_key_file_of_crypttab_that_does_not_open_asks() {
    let scratch = Scratch::new();
    let volume = Shape::LUKS2.image_with_key(Maker::Cryptsetup, &scratch, DATA as u64, b"typed");
    let table = "right /d/v /in/key x-xtent\n\
                 missing /d/v /in/none x-xtent,luks\n\
                 wrong /d/v /in/other x-xtent,keyfile-size=3\n\
                 short /d/v /in/other x-xtent,keyfile-size=3000\n\
                 headless /d/v /in/none x-xtent,headless\n\
                 plain /d/plain /in/long x-xtent,plain,cipher=aes-xts-plain64,size=512,sector-size=4096\n";
    let outcome = Job::new(
        "printf '#!/bin/sh\\necho \"$1\" >>/tmp/asked\\ncat /in/key\\n' >/bin/ask
         chmod +x /bin/ask
         by_table() { xtent crypttab open --file /in/table --ask-with /bin/ask $1; }
         by_table right
         xtent close right
         [ ! -e /tmp/asked ]
         for name in missing wrong short; do
             rm -f /tmp/asked
             by_table $name
             cat /tmp/asked
             cat /dev/mapper/$name >/dev/null
             xtent close $name
         done
         fails 4 by_table headless
         # The person gives up, too.
         printf '#!/bin/sh\\nexit 1\\n' >/bin/ask
         fails 2 by_table missing
         # On the terminal, or as here where there is none, a line of standard input.
         xtent open --or-ask --key-file /in/none line /d/v </in/key
         xtent close line
         fails 1 xtent open --type plain --cipher aes-xts-plain64 --key-size 512 \\
             --or-ask --key-file /in/long plain /d/plain
         by_table plain
         dmsetup table plain >ours
         cryptsetup close plain
         cryptsetup open --type plain --key-file /in/long --cipher aes-xts-plain64 --key-size 512 \\
             --sector-size 4096 /d/plain plain
         dmsetup table plain >theirs
         cryptsetup close plain
         cmp ours theirs",
    )
    .with_xtent()
    .disk("v", &volume.image)
    .disk("plain", &scratch.image("plain", 1 << 20))
    .file("key", b"typed")
    .file("other", OTHER_KEY)
    .file("long", &pattern(64, 3))
    .file("table", table.as_bytes())
    .run();
    let asked = outcome.console.matches("\nPassphrase for /d/v:\n").count();
    assert_eq!(asked, 3, "{}", outcome.console);
    for told in [
        "cannot open key file /in/none",
        "no keyslot opens with this passphrase",
        "of the 3000 bytes",
        "Asking for the passphrase instead.",
        "--or-ask is for LUKS",
    ] {
        assert!(
            outcome.console.contains(told),
            "{told:?} is not in\n{}",
            outcome.console
        );
    }
}

#[test]
fn what_fails_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let image = |shape: Shape, maker: Maker| shape.image(maker, &scratch, DATA as u64).image;
    let volume = image(Shape::LUKS2, Maker::Cryptsetup);
    let hctr2 = image(Shape::wide("aes-hctr2-plain64", 256), Maker::Xtent);
    let eme2 = image(Shape::wide("capi:eme2(aes)-plain64", 512), Maker::Xtent);
    let fast = image(Shape::wide("capi:fast(aes)-plain64", 256), Maker::Xtent);
    let aead = image(Shape::LUKS2_4096, Maker::Cryptsetup);
    edit_json(&aead, |header| {
        header["segments"]["0"]["integrity"] = serde_json::json!({
            "type": "hmac(sha256)",
            "journal_encryption": "none",
            "journal_integrity": "none",
        });
    });
    let zeros = scratch.image("zeros", 1 << 20);
    let outcome = Job::new(
        "nothing_left() {
             [ \"$(dmsetup ls)\" = 'No devices found' ]
             [ \"$(ls /dev/mapper)\" = control ]
             no_key
         }
         fails 2 xtent open --key-file /in/other v /d/v
         fails 1 xtent open --key-file /in/key --key-slot 3 v /d/v
         fails 4 xtent open --key-file /in/key v /d/zeros
         fails 4 xtent open --key-file /in/key v /d/none
         fails 1 xtent open --key-file /in/key a/b /d/v
         # This kernel has no driver for it.
         fails 4 xtent open --ublk --key-file /in/key v /d/v
         grep -q 'modprobe ublk_drv' /tmp/said
         fails 1 xtent open --holes zero --key-file /in/key v /d/v
         fails 4 xtent open --key-file /in/key --target xtent v /d/v
         # Without asking for a passphrase.
         fails 4 xtent open v /d/eme2 </dev/null
         fails 4 xtent open v /d/aead </dev/null
         fails 4 xtent open --key-file /in/key v /d/hctr2
         fails 4 xtent open --key-file /in/key v /d/fast
         fails 4 xtent close v
         nothing_left
         echo '0 100 error' | dmsetup create --noudevsync other
         fails 1 xtent close other
         dmsetup remove --noudevsync other
         rm -f /dev/mapper/other

         xtent open --key-file /in/key v /d/v
         no_key
         fails 5 xtent open --key-file /in/key v /d/v
         fails 5 xtent open --key-file /in/key w /d/v
         fails 5 xtent serve --key-file /in/key --nbd unix:/tmp/s /d/v
         exec 9</dev/mapper/v
         fails 5 xtent close v
         xtent close --deferred v
         dmsetup info v >/dev/null
         exec 9<&-
         never dmsetup info v 2>/dev/null
         rm -f /dev/mapper/v
         nothing_left

         chmod 644 /in/key
         echo 'user:x:1000:1000::/:/bin/sh' >/etc/passwd
         fails 2 su user -c '/in/xtent open --key-file /in/key v /d/v'
         rm /dev/mapper/control
         fails 4 xtent open --key-file /in/key v /d/v",
    )
    .with_xtent()
    .disk("v", &volume)
    .disk("hctr2", &hctr2)
    .disk("eme2", &eme2)
    .disk("aead", &aead)
    .disk("fast", &fast)
    .disk("zeros", &zeros)
    .file("key", KEY)
    .file("other", OTHER_KEY)
    .run();
    for told in [
        "dm-xtent is not loaded",
        "the kernel does not have the cipher aes-hctr2-plain64",
        "insmod kernel/xtent_fast.ko",
        "which no kernel has",
        "the volume has integrity protection (\"hmac(sha256)\"), which Xtent does not have",
        "`cryptsetup open DEVICE NAME` opens it",
        "there is no mapping v",
        "other is no mapping of an encrypted volume",
        "there is a mapping v already",
        "v is in use",
        "it will be closed when its last user is gone",
        "the device mapper requires root",
        "modprobe dm_mod",
    ] {
        assert!(
            outcome.console.contains(told),
            "{told:?} is not in\n{}",
            outcome.console
        );
    }
}

#[test]
fn udev_is_told_and_waited_for_as_by_cryptsetup() {
    let scratch = Scratch::new();
    let volume = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, DATA as u64);
    let outcome = Job::new(
        r#"# seen FILE: what is to be seen of the mapping, but for what counts up, and links in no order
         seen() {
             [ "$(readlink /dev/mapper/v)" = ../dm-0 ]
             ls -l /dev/disk/by-id | sed 's/.* dm-/dm-/' >$1
             udevadm info --query=property /dev/dm-0 | grep -v -e DISKSEQ -e USEC -e DEVLINKS >>$1
         }
         nothing_left() {
             [ "$(dmsetup ls)" = 'No devices found' ]
             [ "$(ls /dev/mapper)" = control ]
             dmsetup udevcookies | never grep 0x
         }
         cryptsetup open --key-file /in/key /d/v v
         seen theirs
         xtent close v
         nothing_left
         xtent open --key-file /in/key v /d/v
         seen ours
         cryptsetup close v
         nothing_left
         # udev looks into what has been written to when it is closed: the mapping is busy then.
         for i in 1 2 3; do
             xtent open --key-file /in/key v /d/v
             dd if=/dev/zero of=/dev/mapper/v bs=4k count=1 conv=notrunc 2>/dev/null
             xtent close v
             nothing_left
         done"#,
    )
    .with_udev()
    .with_xtent()
    .disk("v", &volume.image)
    .file("key", KEY)
    .run();
    let text = |name: &str| String::from_utf8(outcome.file(name)).unwrap();
    assert_eq!(text("ours"), text("theirs"));
    assert!(text("ours").contains("DM_UDEV_PRIMARY_SOURCE_FLAG=1"));
}

#[test]
fn a_signal_leaves_a_whole_mapping_or_none() {
    let scratch = Scratch::new();
    let volume = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, DATA as u64);
    // Of udev there is only its socket, so that whoever waits for udev waits for us.
    let outcome = Job::new(
        r#"cookie() {
             dmsetup udevcookies | sed -n 's/^\(0x[0-9a-f]*\).*/\1/p'
         }
         # pelted COMMAND...: it ends well, although signals come while it waits
         pelted() {
             "$@" &
             while [ -z "$(cookie)" ]; do kill -0 $!; done
             # The last lets go on what the one before has stopped.
             for signal in HUP QUIT INT TERM USR1 ALRM TSTP CONT; do kill -$signal $!; done
             dmsetup udevcomplete $(cookie)
             wait $!
             [ -z "$(cookie)" ]
         }
         held() {
             until grep -q '^SigBlk:.f' /proc/$!/status; do :; done
         }
         nothing_left() {
             [ "$(dmsetup ls)" = 'No devices found' ]
             [ "$(ls /dev/mapper)" = control ]
         }
         mkdir /run/udev
         : >/run/udev/control
         pelted xtent open --key-file /in/key v /d/v
         no_key
         dmsetup info v | grep -q 'State: *ACTIVE'
         cat /dev/mapper/v >/dev/null
         pelted xtent close v
         nothing_left

         # In use by what might be udev: closing goes on trying until a signal comes.
         rm /run/udev/control
         xtent open --key-file /in/key v /d/v
         : >/run/udev/control
         exec 9</dev/mapper/v
         /in/xtent close v 9<&- &
         held
         kill -TERM $!
         never wait $!
         # Or until it is not.
         /in/xtent close v 9<&- &
         held
         exec 9<&-
         while kill -0 $! 2>/dev/null; do
             dmsetup udevcomplete $(cookie) 2>/dev/null || true
         done
         wait $!
         nothing_left

         # What SIGKILL leaves.
         rm /run/udev/control
         uuid=CRYPT-LUKS2-00000000000000000000000000000000-v
         dmsetup create v --notable --uuid $uuid --noudevrules --noudevsync
         xtent close v
         nothing_left"#,
    )
    .with_xtent()
    .disk("v", &volume.image)
    .file("key", KEY)
    .run();
    let told = "v is in use: it is open 1 time(s)";
    assert!(outcome.console.contains(told), "{}", outcome.console);
}
