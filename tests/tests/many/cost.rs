//! What many volumes and connections cost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use xtent_tests::Scratch;
use xtent_tests::gateway::Gateway;
use xtent_tests::luks::{Container, Shape};
use xtent_tests::nbd::{Raw, command};

use super::container;

/// 64 volumes and 1000 connections: what each costs. Prints it.
#[test]
#[ignore = "long; measures"]
fn soak_many_volumes_and_connections() {
    const VOLUMES: usize = 64;
    const CLIENTS: usize = 1000;
    let scratch = Scratch::new();
    let containers: Vec<Container> = (0..VOLUMES)
        .map(|n| container(&scratch, &format!("v{n}"), Shape::LUKS2))
        .collect();
    let gateway = Gateway::start(&[&containers[0]], &["--connections", "1024"]);
    let (memory, files) = (gateway.number("VmRSS"), gateway.files());
    for container in &containers[1..] {
        gateway.attach(container).ok();
    }
    let with_volumes = gateway.number("VmRSS");
    let volumes = VOLUMES as u64 - 1;
    println!(
        "a volume without clients: {} KiB, {:.1} descriptors, {} threads in all",
        with_volumes.saturating_sub(memory) / volumes,
        (gateway.files() - files) as f64 / volumes as f64,
        gateway.number("Threads")
    );
    let name = |n: usize| match n % VOLUMES {
        0 => String::new(),
        n => format!("v{n}"),
    };
    let mut clients: Vec<Raw> = (0..CLIENTS).map(|n| gateway.connect(&name(n))).collect();
    for client in &mut clients {
        client.request(command::READ, 0, 4096);
        assert_eq!(client.reply(), 0);
        client.receive(4096);
    }
    println!(
        "a connection after a read: {} KiB, {} threads in all",
        gateway.number("VmRSS").saturating_sub(with_volumes) / CLIENTS as u64,
        gateway.number("Threads")
    );
    let ticks = gateway.ticks();
    std::thread::sleep(Duration::from_secs(10));
    println!("idle for 10 s: {} ticks of 10 ms", gateway.ticks() - ticks);
    // All at work: each client its own sectors of its volume, verified.
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for part in clients.chunks_mut(CLIENTS / 16) {
            let (next, failed) = (&next, &failed);
            scope.spawn(move || {
                for client in part {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let data = n.to_be_bytes().repeat(512);
                    let at = n / VOLUMES as u64 * 4096 + (n % 16) * 131_072;
                    client.request(command::WRITE, at, 4096);
                    client.send(&data);
                    let is_good = client.reply() == 0;
                    failed.fetch_or(!is_good, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(!failed.load(Ordering::Relaxed));
    drop(clients);
    for n in 1..VOLUMES {
        gateway.detach(format!("v{n}")).ok();
    }
    println!(
        "after all have gone: {} KiB, {} threads",
        gateway.number("VmRSS"),
        gateway.number("Threads")
    );
    assert!(gateway.files() <= files + 2);
    gateway.stop();
}
