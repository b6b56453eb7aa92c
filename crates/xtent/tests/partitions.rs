//! A volume in a partition of a disk image.
#![allow(clippy::unwrap_used, reason = "a panic is how tests fail")]

mod common;

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use common::Bed;

const MIB: u64 = 1 << 20;

/// A partition for fdisk: `p`rimary, `e`xtended or `l`ogical, first and count of MiB.
type Part = (char, u64, u64);

/// A disk of 64 MiB with such a table (`g` for GPT, `o` for DOS), and the volume
/// `disk.img` copied to byte `start`.
fn disk(table: char, parts: &[Part], sector: u64, start: u64) -> Bed {
    let bed = Bed::with_luks2();
    let file = std::fs::File::create_new(bed.path("whole")).unwrap();
    file.set_len(64 * MIB).unwrap();
    let mut script = format!("{table}\n");
    for (number, (kind, first, count)) in (1..).zip(parts) {
        // GPT knows no kinds, and logical partitions are numbered by fdisk.
        let which = match (table, kind) {
            ('g', _) => format!("{number}\n"),
            (_, 'l') => "l\n".to_owned(),
            _ => format!("{kind}\n{number}\n"),
        };
        let sectors = MIB / sector;
        let (first, last) = (first * sectors, (first + count) * sectors - 1);
        script += &format!("n\n{which}{first}\n{last}\n");
    }
    script += "w\n";
    let mut fdisk = Command::new("/usr/sbin/fdisk")
        .args(["-b", &sector.to_string(), "whole"])
        .current_dir(bed.dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("fdisk, of package fdisk");
    let mut stdin = fdisk.stdin.take().unwrap();
    stdin.write_all(script.as_bytes()).unwrap();
    drop(stdin);
    let output = fdisk.wait_with_output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    file.write_all_at(&std::fs::read(bed.path("disk.img")).unwrap(), start)
        .unwrap();
    bed
}

#[test]
fn a_volume_in_every_kind_of_table() {
    let two = &[('p', 1, 2), ('p', 4, 20)][..];
    let logical = &[
        ('p', 1, 2),
        ('e', 3, 60),
        ('l', 4, 1),
        ('l', 6, 1),
        ('l', 8, 20),
    ][..];
    for (table, parts, sector, number, start) in [
        ('g', two, 512, 2, 4),
        ('g', two, 4096, 2, 4),
        ('o', two, 512, 2, 4),
        ('o', two, 4096, 2, 4),
        ('o', logical, 512, 7, 8),
        ('o', logical, 4096, 7, 8),
    ] {
        let bed = disk(table, parts, sector, start * MIB);
        let before = std::fs::read(bed.path("whole")).unwrap();
        let option = format!("--partition {number}");
        bed.run(&format!("key test --key-file key {option} whole"))
            .ok();
        bed.run("key test --key-file key whole")
            .failed(4, &[&format!("{option} (20 MiB)")]);
        bed.run("key test --key-file key --partition 1 whole")
            .failed(4, &[]);
        bed.run("key test --key-file key --partition 99 whole")
            .failed(4, &["no partition 99", &option]);
        // Data and keys change inside the partition only. The volume takes all of it.
        std::fs::write(bed.path("plain"), vec![7; 3 << 20]).unwrap();
        bed.run(&format!("encrypt --key-file key {option} plain whole"))
            .ok();
        bed.run(&format!("decrypt --key-file key {option} whole out"))
            .ok();
        let out = std::fs::read(bed.path("out")).unwrap();
        assert_eq!(out.len() as u64, 4 * MIB, "{table}");
        assert!(out[..3 << 20] == vec![7; 3 << 20]);
        bed.run(&format!("header backup {option} whole saved")).ok();
        // What is asked about names it, and so does what was done.
        let name = format!("partition {number} of whole");
        bed.run(&format!("header erase {option} whole"))
            .failed(1, &[&name]);
        bed.run(&format!("header restore {option} whole saved"))
            .failed(1, &[&name]);
        bed.run(&format!("key kill --even-last {option} whole 0"))
            .failed(1, &[&name]);
        let said = bed.run(&format!("header erase -q {option} whole")).ok();
        assert!(said.out.contains(&name), "{said:?}");
        bed.run(&format!("header restore -q {option} whole saved"))
            .ok();
        bed.run(&format!("key test --key-file key {option} whole"))
            .ok();
        let after = std::fs::read(bed.path("whole")).unwrap();
        let at = usize::try_from(start * MIB).unwrap();
        assert!(after[..at] == before[..at], "before the partition: {table}");
        let end = usize::try_from((start + 20) * MIB).unwrap();
        assert!(
            after[end..] == before[end..],
            "after the partition: {table}"
        );
        assert_eq!(after.len(), before.len());
    }
}

/// Whoever writes a DOS table need not know that there was another one.
#[test]
fn a_gpt_that_was_left_behind_is_not_in_force() {
    let bed = disk('g', &[('p', 1, 20), ('p', 40, 20)], 512, 24 * MIB);
    let test = "key test --key-file key --partition 1 whole";
    bed.run(test).failed(4, &[]);
    let mut entry = [0, 0, 0, 0, 0x83, 0, 0, 0].to_vec();
    for sectors in [24 << 11, 20 << 11] {
        entry.extend(u32::to_le_bytes(sectors));
    }
    bed.damage("whole", 446, &entry);
    bed.run(test).ok();
}

#[test]
fn partitions_of_one_image_are_used_at_once() {
    let bed = disk('g', &[('p', 1, 20), ('p', 24, 20)], 512, MIB);
    let volume = std::fs::read(bed.path("disk.img")).unwrap();
    let whole = std::fs::File::options()
        .write(true)
        .open(bed.path("whole"))
        .unwrap();
    whole.write_all_at(&volume, 24 * MIB).unwrap();
    let serve = |number: u32| {
        let line = format!("serve --key-file key --partition {number} --nbd unix:s{number} whole");
        let mut server = bed
            .command(line.split(' '))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut uri = String::new();
        let out = server.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut uri).unwrap();
        assert!(uri.contains("nbd+unix"), "{uri}");
        server
    };
    let mut servers = [serve(1), serve(2)];
    for number in [1, 2] {
        // The one that is in the way is named, and not the other.
        let said = bed
            .run(&format!(
                "encrypt --key-file key --partition {number} key whole"
            ))
            .failed(5, &[&format!("/s{number}"), "xtent serve"]);
        assert!(!said.err.contains(&format!("/s{}", 3 - number)), "{said:?}");
    }
    bed.run("format -q --key-file key whole").failed(5, &[]);
    let said = bed.run("status whole").ok();
    for number in [1, 2] {
        let told = format!("Partition {number} of ");
        assert!(said.out.contains(&told), "{said:?}");
    }
    // One alone leaves the other free.
    servers[0].kill().unwrap();
    servers[0].wait().unwrap();
    bed.run("encrypt --key-file key --partition 1 key whole")
        .ok();
    bed.run("encrypt --key-file key --partition 2 key whole")
        .failed(5, &["/s2"]);
    servers[1].kill().unwrap();
    servers[1].wait().unwrap();
}

#[test]
fn bench_reads_partitions_too() {
    let bed = disk('g', &[('p', 1, 2)], 512, MIB);
    bed.run("bench --key-file key --partition 9 whole")
        .failed(4, &["no partition 9"]);
    bed.run("bench --partition 1").failed(1, &["DEVICE"]);
}

#[test]
fn a_partition_that_was_cut_off() {
    let bed = disk('o', &[('p', 4, 50)], 512, 4 * MIB);
    bed.truncate("whole", 40 * MIB);
    bed.run("key test --key-file key --partition 1 whole")
        .failed(4, &["cut off"]);
}
