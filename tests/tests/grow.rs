//! Volumes that grow with their devices while they are in use.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use xtent_tests::far::Far;
use xtent_tests::luks::{Container, Maker, Shape};
use xtent_tests::mount::{Cleaner, make_ext4, mount, umount};
use xtent_tests::nbd::{Raw, Request, command};
use xtent_tests::random::Random;
use xtent_tests::scratch::assert_same;
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{Cmd, PATIENCE, Scratch, bed, pattern};

const MIB: u64 = 1 << 20;

fn set_len(image: &Path, data: u64) {
    let file = File::options().write(true).open(image).unwrap();
    file.set_len(Shape::LUKS2.data_offset() + data).unwrap();
}

fn hang_up(process: u32) {
    let process = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(process, Signal::HUP).unwrap();
}

fn resize(volume: impl AsRef<std::ffi::OsStr>) -> Cmd {
    xtent().args(["--json", "resize"]).arg(volume)
}

/// Sizes before and after.
fn sizes(done: Cmd) -> (u64, u64) {
    let told = done.ok().json();
    let number = |name: &str| told[name].as_u64().unwrap();
    (number("before"), number("size"))
}

/// A MiB of its own for each seed.
fn piece(seed: u64) -> Vec<u8> {
    pattern(1 << 20, seed)
}

fn write(offset: u64, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    let head = Request::new(command::WRITE, offset, len).bytes();
    [head.as_slice(), data].concat()
}

/// Tells others to end when dropped.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_volume_grows_under_a_load_that_compares() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2_4096.image(Maker::Cryptsetup, &scratch, MIB);
    grows_under_load(&container.image, &container);
}

/// A connection has the size of its beginning, so there are new ones.
#[test]
fn so_does_one_behind_an_nbd_server() {
    // With several connections, and with one.
    for (filter, mode) in [
        (None, None),
        (Some("--filter=multi-conn"), Some("multi-conn-mode=disable")),
    ] {
        let scratch = Scratch::new();
        let container = Shape::LUKS2_4096.image(Maker::Cryptsetup, &scratch, MIB);
        let image = container.image.to_string_lossy();
        let options: Vec<&str> = [filter, Some("file"), Some(&*image), mode]
            .into_iter()
            .flatten()
            .collect();
        let far = Far::nbdkit(&options);
        grows_under_load(&container.image, &far.container(&container.key));
        far.stop();
    }
}

/// Clients write, read and compare all the while. `image` is where the container's ciphertext is.
fn grows_under_load(image: &Path, container: &Container) {
    const BLOCK: usize = 8192;
    const BLOCKS: usize = 64;
    const CLIENTS: u64 = 2;
    const ROUNDS: u64 = 6;
    let server = Server::start(container);
    let (ends, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let load = |client: u64| {
        let mut random = Random::new(client);
        let mut blocks = vec![vec![0; BLOCK]; BLOCKS];
        let mut connection = Raw::connect(&server.socket);
        connection.greet();
        assert!(connection.go() >= MIB);
        let place = |index: usize| client * MIB / CLIENTS + (index * BLOCK) as u64;
        for index in (0..blocks.len()).cycle() {
            blocks[index] = random.bytes(BLOCK);
            connection.send(&write(place(index), &blocks[index]));
            assert_eq!(connection.reply(), 0);
            let other = usize::try_from(random.below(index as u64 + 1)).unwrap();
            connection.request(command::READ, place(other), 8192);
            assert_eq!(connection.reply(), 0);
            let read = connection.receive(BLOCK);
            assert_same(&read, &blocks[other], "under way");
            let rounds = written.fetch_add(1, Ordering::Relaxed);
            if ends.load(Ordering::Relaxed) && rounds > 1000 && index + 1 == blocks.len() {
                return blocks.concat();
            }
        }
        unreachable!()
    };
    let grow = || {
        // Also if something is wrong here.
        let _end = Ending(&ends);
        for round in 1..=ROUNDS {
            let size = (round + 1) * MIB;
            set_len(image, size);
            match round % 2 {
                0 => assert_eq!(sizes(resize(&container.image)), (size - MIB, size)),
                _ => hang_up(server.id()),
            }
            // The signal takes a moment.
            let mut client = loop {
                let mut client = Raw::connect(&server.socket);
                client.greet();
                match client.go() {
                    now if now == size => break client,
                    now => assert!(round % 2 == 1 && now == size - MIB),
                }
            };
            client.send(&write(round * MIB, &piece(round)));
            assert_eq!(client.reply(), 0);
        }
    };
    let mut expected = std::thread::scope(|scope| {
        let clients = [0, 1].map(|client| scope.spawn(move || load(client)));
        grow();
        clients.map(|client| client.join().unwrap()).concat()
    });
    server.stop();
    for round in 1..=ROUNDS {
        expected.extend(piece(round));
    }
    assert_same(&container.decrypt(), &expected, "all of it");
}

/// It takes the time between two looks, or twice that.
#[test]
fn what_has_grown_is_noticed_without_a_word() {
    let test = "what_has_grown_is_noticed_without_a_word";
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let said_at_once = |command: Cmd| {
        let shell = ["-c", "exec \"$@\" 2>&1", "sh"];
        Cmd::peer("sh").args(shell).wrapping(command).spawn()
    };
    let others = Scratch::new();
    let mounted = Shape::LUKS2_4096.image(Maker::Xtent, &others, MIB);
    let folder = scratch.folder("mnt");
    let mounted_there = bed::has_fuse(test).then(|| {
        let options = ["--file-only", "--foreground", "-v"];
        let mut mount = said_at_once(mount(&mounted, &folder, &options));
        mount.wait_for_line(|line| line.contains(&*folder.to_string_lossy()));
        set_len(&mounted.image, 2 * MIB);
        mount
    });
    let served = Shape::LUKS2_4096.image(Maker::Xtent, &scratch, MIB);
    let third = Scratch::new();
    let behind = Shape::LUKS2_4096.image(Maker::Xtent, &third, MIB);
    // It takes one client, so that nobody can ask it how large it is by now.
    let far = Far::qemu(&behind.image, &["--format=raw"]);
    let serve = |container: &Container, name: &str| {
        let socket = scratch.join(name);
        let command = Server::command(container, &socket, &["--reconnect", "300"]);
        let mut server = said_at_once(command);
        server.wait_for_line(|line| line.contains("nbd+unix://"));
        (server, socket)
    };
    let servers = [
        serve(&served, "one"),
        serve(&far.container(&behind.key), "two"),
    ];
    set_len(&served.image, 2 * MIB);
    // It has the size of its own start.
    far.kill();
    set_len(&behind.image, 2 * MIB);
    far.start_again();
    for (mut server, socket) in servers {
        server.wait_for_line(|line| line.contains("has grown from 1 MiB to 2 MiB"));
        let mut client = Raw::connect(&socket);
        client.greet();
        assert_eq!(client.go(), 2 * MIB);
    }
    if let Some(mut mount) = mounted_there {
        mount.wait_for_line(|line| line.contains("the volume has grown"));
        // It was told before that line was read, or is being told.
        while std::fs::metadata(folder.join("volume")).unwrap().len() != 2 * MIB {
            std::thread::yield_now();
        }
        umount(&folder).ok();
        mount.finish();
    }
}

/// A server that is asked for the size keeps nothing of a volume that is detached, however long it takes to answer.
#[test]
fn a_volume_is_let_go_of_while_its_server_is_asked() {
    is_let_go_of(&[]);
    is_let_go_of(&["--no-sandbox"]);
}

fn is_let_go_of(options: &[&str]) {
    let scratch = Scratch::new();
    let container = Shape::LUKS2_4096.image(Maker::Xtent, &scratch, MIB);
    let image = container.image.to_string_lossy();
    let alone = [
        "--filter=multi-conn",
        "file",
        &image,
        "multi-conn-mode=disable",
    ];
    let far = Far::nbdkit(&alone);
    let socket = scratch.join("before");
    let before = UnixListener::bind(&socket).unwrap();
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let front = Container {
        image: uri.clone().into(),
        key: container.key.clone(),
    };
    std::thread::scope(|scope| {
        let passed_on = scope.spawn(|| pass_on(before.accept().unwrap().0, far.socket()));
        let server = Server::start_with(&front, options);
        let mut client = Raw::connect(&server.socket);
        client.greet();
        client.go();
        client.send(&write(0, &piece(1)));
        assert_eq!(client.reply(), 0);
        set_len(&container.image, 2 * MIB);
        let asking = resize(&uri).spawn();
        // It is told nothing.
        let (mut asked, _) = before.accept().unwrap();
        let id = server.id().to_string();
        xtent().args(["detach", "--server", &id, &uri]).ok();
        asked.set_nonblocking(true).unwrap();
        assert_eq!(asked.read(&mut [0]).unwrap(), 0, "asked no longer");
        // The other connection has ended, too, and there is no other.
        passed_on.join().unwrap();
        let asking = asking.finish();
        assert_eq!(asking.code(), Some(4), "{}", asking.text());
        asking.says(&["it is being closed"]);
        before.set_nonblocking(true).unwrap();
        let other = before.accept().unwrap_err();
        assert_eq!(other.kind(), ErrorKind::WouldBlock);
        server.stop();
    });
    far.stop();
    let decrypted = container.decrypt();
    assert_same(&decrypted[..1 << 20], &piece(1), "flushed");
}

/// Until both ends have closed it; panics if they do not.
fn pass_on(client: UnixStream, socket: &Path) {
    let far = UnixStream::connect(socket).unwrap();
    let ends = [(&client, &far), (&far, &client)];
    for end in [&client, &far] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    std::thread::scope(|scope| {
        for (mut from, mut to) in ends {
            scope.spawn(move || {
                let copied = std::io::copy(&mut from, &mut to);
                let has_waited = copied.is_err_and(|it| it.kind() == ErrorKind::WouldBlock);
                // Whoever is cut off says so at the other end.
                let _ = to.shutdown(std::net::Shutdown::Both);
                assert!(!has_waited, "nobody has closed the connection");
            });
        }
    });
}

#[test]
fn a_mount_takes_what_it_is_told() {
    let test = "a_mount_takes_what_it_is_told";
    if !bed::has_fuse(test) {
        return;
    }
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let container = Shape::LUKS2_4096.image(Maker::Xtent, &scratch, MIB);
    let folder = scratch.folder("mnt");
    mount(&container, &folder, &["--file-only"]).ok();
    let size = || std::fs::metadata(folder.join("volume")).unwrap().len();
    assert_eq!(size(), MIB);
    set_len(&container.image, 2 * MIB);
    assert_eq!(sizes(resize(&container.image)), (MIB, 2 * MIB));
    assert_eq!(size(), 2 * MIB);
    set_len(&container.image, 3 * MIB);
    assert_eq!(sizes(resize(&folder)), (2 * MIB, 3 * MIB));
    assert_eq!(size(), 3 * MIB);
    // Somebody has it open, so that its end takes a while.
    let held = File::open(folder.join("volume")).unwrap();
    Cmd::peer("fusermount3")
        .args(["-u", "-z"])
        .arg(&folder)
        .ok();
    set_len(&container.image, 4 * MIB);
    let ending = resize(&container.image).fails(5);
    ending.says(&["the mount is ending"]);
    drop(held);
    while is_in_use(&container) {
        std::thread::yield_now();
    }
}

fn is_in_use(container: &Container) -> bool {
    let status = xtent().args(["--json", "status"]).ok().text();
    status.contains(&*container.image.to_string_lossy())
}

#[test]
fn a_file_system_behind_an_nbd_server_grows_while_it_is_mounted() {
    let test = "a_file_system_behind_an_nbd_server_grows_while_it_is_mounted";
    if !bed::has_fuse(test) || !bed::has_loop(test) {
        return;
    }
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let container = Shape::LUKS2_4096.image(Maker::Xtent, &scratch, 16 * MIB);
    let image = container.image.to_string_lossy();
    let far = Far::nbdkit(&["file", &image]);
    let there = far.container(&container.key);
    make_ext4(&there, &scratch, &["-b", "4096"]);
    let folder = scratch.folder("mnt");
    mount(&there, &folder, &[]).ok();
    for seed in 1..8 {
        if seed == 4 {
            set_len(&container.image, 64 * MIB);
            assert_eq!(sizes(resize(&there.image)), (16 * MIB, 64 * MIB));
        }
        std::fs::write(folder.join(format!("{seed}")), piece(seed)).unwrap();
    }
    umount(&folder).ok();
    // On the device in use it takes a capability that containers do without.
    mount(&there, &folder, &["--file-only"]).ok();
    let file = folder.join("volume");
    Cmd::peer("e2fsck").args(["-f", "-y"]).arg(&file).ok();
    Cmd::peer("resize2fs").arg(&file).ok();
    umount(&folder).ok();
    mount(&there, &folder, &[]).ok();
    for seed in 8..40 {
        std::fs::write(folder.join(format!("{seed}")), piece(seed)).unwrap();
    }
    umount(&folder).ok();
    mount(&there, &folder, &[]).ok();
    for seed in 1..40 {
        let found = std::fs::read(folder.join(format!("{seed}"))).unwrap();
        assert_same(&found, &piece(seed), "before, while and after");
    }
    umount(&folder).ok();
}
