//! The way to a device that is a process.

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use super::{MODELS, encrypts, load};
use crate::testing::{Build, Device, Flaw, Pace, serve};
use crate::{Address, Engine, ErrorKind, Options};

/// A folder for a socket, and its address.
fn place() -> (tempfile::TempDir, PathBuf, Address) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine");
    let address = Address::VfioUser(path.clone());
    (folder, path, address)
}

/// Options with a watchdog that a test can wait for, and that a busy machine does not set off.
fn waiting() -> Options {
    Options {
        watchdog: Duration::from_secs(4),
        ..Options::default()
    }
}

#[test]
fn a_device_at_a_socket_does_all_that_others_do() {
    for vectors in [1, 16] {
        let (_folder, path, address) = place();
        let device = Device::new(
            Build {
                vectors,
                ..Build::default()
            },
            Pace::Thread,
        );
        let server = std::thread::spawn(serve(&device, &path).unwrap());
        let engine = Engine::open(&address, Options::default()).unwrap();
        for model in MODELS {
            let keyed = load(&engine, 5, model).unwrap();
            encrypts(&engine, &keyed, 5, 40 * 512);
        }
        assert_eq!(engine.counters().unwrap().requests, device.requests());
        assert_eq!(device.loaded(), 0);
        drop(engine);
        server.join().unwrap();
        assert!(!device.is_mapped());
    }
}

/// The process fails in the middle: whatever comes, the driver ends what is under way.
#[test]
fn a_process_that_ends_or_is_silent_is_a_dead_device() {
    for flaw in [Flaw::Unplugged, Flaw::Vanishes, Flaw::Hangs] {
        let (_folder, path, address) = place();
        let device = Device::new(Build::default(), Pace::Thread);
        let server = std::thread::spawn(serve(&device, &path).unwrap());
        let engine = Engine::open(&address, waiting()).unwrap();
        let keyed = load(&engine, 5, MODELS[0]).unwrap();
        device.spoil(0, flaw);
        let future = keyed.crypt(crate::Direction::Encrypt, 0, vec![7; 512]);
        let (data, result) = engine.run(future);
        let error = result.unwrap_err();
        assert!(data == [7; 512]);
        if flaw == Flaw::Hangs {
            assert_eq!(error.kind(), ErrorKind::Failed);
            encrypts(&engine, &keyed, 5, 512);
        } else {
            let (_, result) = engine.run(keyed.crypt(crate::Direction::Encrypt, 0, data));
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Dead);
        }
        drop((keyed, engine));
        // Unplugged, neither side hears of the other again.
        if flaw != Flaw::Unplugged {
            server.join().unwrap();
        }
    }
}

/// A thread that waits for a process that says nothing is told of, also when its connection was given up, and does what
/// it was asked to when it goes on.
#[test]
fn a_thread_that_is_stuck_is_an_error_and_not_forgotten() {
    let (_folder, path, address) = place();
    let device = Device::new(Build::default(), Pace::Thread);
    let server = std::thread::spawn(serve(&device, &path).unwrap());
    let engine = Engine::open(&address, waiting()).unwrap();
    let (say, said) = std::sync::mpsc::channel();
    let names = move || {
        let name = std::thread::current().name().map(str::to_owned);
        say.send(name.clone()).unwrap();
        name
    };
    assert_eq!(engine.in_each_thread(names.clone()).unwrap().len(), 2);
    let _ = said.try_iter().count();
    let (go_on, gate) = std::sync::mpsc::channel();
    engine.shared().port.in_thread(Box::new(move || {
        let _ = gate.recv();
    }));
    let is_stuck = || engine.in_each_thread(names.clone()).unwrap_err().kind() == ErrorKind::Dead;
    assert!(is_stuck());
    // Nothing comes back: that is the end of the connection.
    assert!(engine.shared().port.read(0).is_err());
    assert!(is_stuck());
    go_on.send(()).unwrap();
    let socket = Some("xtent-vfio-user".to_owned());
    let confined = said.iter().filter(|name| *name == socket).take(2).count();
    assert_eq!(confined, 2);
    drop(engine);
    server.join().unwrap();
}

/// Whoever ends does not wait for a process that says nothing: neither those whose requests are under way, nor who drops
/// keys, nor the engine itself.
#[test]
fn an_end_does_not_wait_for_a_process_that_is_silent() {
    // The wait that there would be, and one that there may be on a busy machine.
    let (long, short) = (Duration::from_secs(600), Duration::from_secs(120));
    let (_folder, path, address) = place();
    let device = Device::new(Build::default(), Pace::Held);
    let server = std::thread::spawn(serve(&device, &path).unwrap());
    let engine = {
        let device = device.clone();
        let is_open = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_open.load(Ordering::SeqCst) {
                    device.work(1);
                    std::thread::yield_now();
                }
            });
            let options = Options {
                watchdog: long,
                ..Options::default()
            };
            let engine = Engine::open(&address, options);
            is_open.store(true, Ordering::SeqCst);
            engine.unwrap()
        })
    };
    let keyed = load(&engine, 5, MODELS[0]).unwrap();
    let mut future = Box::pin(keyed.crypt(crate::Direction::Encrypt, 0, vec![7; 512]));
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending());
    let (go_on, gate) = std::sync::mpsc::channel::<()>();
    engine.shared().port.in_thread(Box::new(move || {
        let _ = gate.recv();
    }));
    let begun = Instant::now();
    engine.hurry();
    let (data, result) = engine.run(future);
    // It is answered before what becomes of the device is known.
    let kind = result.unwrap_err().kind();
    assert!(
        matches!(kind, ErrorKind::Failed | ErrorKind::Dead),
        "{kind:?}"
    );
    assert!(data == [7; 512]);
    // What it may write to still was not given away.
    assert!(device.is_mapped());
    drop((keyed, engine));
    assert!(begun.elapsed() < short);
    drop(go_on);
    server.join().unwrap();
}

/// What is at the other end need not be a device.
#[test]
fn what_is_no_device_is_an_error_that_says_where() {
    let options = || Options {
        watchdog: Duration::from_millis(300),
        ..Options::default()
    };
    let (_folder, path, address) = place();
    let error = Engine::open(&address, options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Open);
    assert!(
        error.to_string().contains(&path.display().to_string()),
        "{error}"
    );
    // One that says nothing, one that hangs up, and some that say something else.
    let listener = UnixListener::bind(&path).unwrap();
    let error = Engine::open(&address, options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Open);
    let silent = listener.accept().unwrap();
    let answers: [&[u8]; 4] = [
        &[],
        &[0; 20],
        &[0xff; 64],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ];
    for answer in answers {
        std::thread::scope(|scope| {
            let open = scope.spawn(|| Engine::open(&address, options()).map(drop));
            let (mut stream, _) = listener.accept().unwrap();
            // Whether it takes all of it is its affair.
            let _ = stream.write_all(answer);
            drop(stream);
            assert_eq!(open.join().unwrap().unwrap_err().kind(), ErrorKind::Open);
        });
    }
    drop(silent);
}
