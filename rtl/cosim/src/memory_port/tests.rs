//! The port against bursts that are written here.

use std::cell::{Cell, RefCell};

use super::*;

const LATENCY: Latency = Latency { read: 5, write: 3 };

/// 8 KiB; what is beyond cannot be reached.
struct Ram(RefCell<Vec<u8>>);

impl Memory for Ram {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let at = usize::try_from(address).unwrap();
        let ram = self.0.borrow();
        ram.get(at..at + bytes.len())
            .map(|from| bytes.copy_from_slice(from))
            .is_some()
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let at = usize::try_from(address).unwrap();
        let mut ram = self.0.borrow_mut();
        ram.get_mut(at..at + bytes.len())
            .map(|to| to.copy_from_slice(bytes))
            .is_some()
    }
}

fn ram() -> Ram {
    Ram(RefCell::new(
        (0..8192_u16).map(|i| i.to_le_bytes()[0]).collect(),
    ))
}

/// A master that takes every answer at once.
fn outputs() -> Outputs {
    Outputs {
        m_axi_rready: 1,
        m_axi_bready: 1,
        m_axi_arsize: 4,
        m_axi_arburst: 1,
        m_axi_awsize: 4,
        m_axi_awburst: 1,
        ..Outputs::default()
    }
}

fn read(address: u64, beats: u8) -> Outputs {
    Outputs {
        m_axi_arvalid: 1,
        m_axi_araddr: address,
        m_axi_arlen: beats - 1,
        ..outputs()
    }
}

fn write(address: u64, beats: u8) -> Outputs {
    Outputs {
        m_axi_awvalid: 1,
        m_axi_awaddr: address,
        m_axi_awlen: beats - 1,
        ..outputs()
    }
}

fn data(byte: u8, strobes: u16, last: u8) -> Outputs {
    Outputs {
        m_axi_wvalid: 1,
        m_axi_wdata: [u64::from_le_bytes([byte; 8]); 2],
        m_axi_wstrb: strobes,
        m_axi_wlast: last,
        ..outputs()
    }
}

/// What the port drives in each of these cycles.
fn run(
    port: &mut MemoryPort,
    ram: &impl Memory,
    cycles: &[Outputs],
) -> Result<Vec<Inputs>, String> {
    let cycle = |outputs| {
        let mut inputs = Inputs::default();
        port.drive(&mut inputs, ram);
        port.see(&inputs, outputs)?;
        Ok(inputs)
    };
    cycles.iter().map(cycle).collect()
}

#[test]
fn reads_come_in_order_after_their_latency() {
    let (mut port, ram) = (MemoryPort::new(LATENCY), ram());
    let mut cycles = vec![read(0x100, 2), read(0x2000, 1), read(0x40, 1)];
    cycles.resize(12, outputs());
    let seen = run(&mut port, &ram, &cycles).unwrap();
    let beats: Vec<_> = (0..)
        .zip(&seen)
        .filter(|(_, inputs)| inputs.m_axi_rvalid)
        .map(|(cycle, it)| {
            (
                cycle,
                it.m_axi_rdata[0].to_le_bytes()[0],
                it.m_axi_rlast,
                it.m_axi_rresp,
            )
        })
        .collect();
    let wanted = [
        (5, 0x00, false, 0),
        (6, 0x10, true, 0),
        (7, 0, true, ERROR),
        (8, 0x40, true, 0),
    ];
    assert_eq!(beats, wanted);
    assert!(port.is_idle());
}

#[test]
fn writes_are_there_with_their_response() {
    let (mut port, ram) = (MemoryPort::new(LATENCY), ram());
    let mut cycles = vec![
        write(0x100, 2),
        data(0xaa, 0xffff, 0),
        data(0xbb, 0x0ff0, 1),
    ];
    cycles.resize(5, outputs());
    let seen = run(&mut port, &ram, &cycles).unwrap();
    assert!(!seen[0].m_axi_wready, "data before its address is taken");
    assert!(seen.iter().all(|inputs| !inputs.m_axi_bvalid));
    assert_eq!(ram.0.borrow()[0x100], 0, "written before the response");
    let seen = run(&mut port, &ram, &[outputs(), outputs()]).unwrap();
    assert_eq!(
        (
            seen[0].m_axi_bvalid,
            seen[0].m_axi_bresp,
            seen[1].m_axi_bvalid
        ),
        (true, 0, false)
    );
    assert_eq!(ram.0.borrow()[0x100..0x110], [0xaa; 16]);
    assert_eq!(
        ram.0.borrow()[0x110..0x120],
        [
            0x10, 0x11, 0x12, 0x13, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0x1c, 0x1d,
            0x1e, 0x1f
        ]
    );
    let mut cycles = vec![write(0x2000, 1), data(0, 0xffff, 1)];
    cycles.resize(5, outputs());
    let seen = run(&mut port, &ram, &cycles).unwrap();
    assert_eq!((seen[4].m_axi_bvalid, seen[4].m_axi_bresp), (true, ERROR));
    assert!(port.is_idle());
}

/// Memory that refuses its second burst.
struct Refusing(Ram, Cell<u32>);

impl Memory for Refusing {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.0.read(address, bytes)
    }

    fn refuses(&self, _: u64, _: usize) -> bool {
        self.1.set(self.1.get() + 1);
        self.1.get() == 2
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        self.0.write(address, bytes)
    }
}

#[test]
fn a_burst_with_holes_is_refused_once_and_as_a_whole() {
    let mut port = MemoryPort::new(LATENCY);
    let memory = Refusing(ram(), Cell::new(0));
    for (byte, response, there) in [(0xaa, 0, 0xaa), (0xbb, ERROR, 0xaa), (0xcc, 0, 0xcc)] {
        let mut cycles = vec![write(0x100, 1), data(byte, 0xf00f, 1)];
        cycles.resize(5, outputs());
        let seen = run(&mut port, &memory, &cycles).unwrap();
        assert_eq!(
            (seen[4].m_axi_bvalid, seen[4].m_axi_bresp),
            (true, response)
        );
        let ram = memory.0.0.borrow();
        assert_eq!((ram[0x100], ram[0x104], ram[0x10c]), (there, 4, there));
    }
}

#[test]
fn what_axi_does_not_allow_is_found() {
    let kind = |outputs: Outputs| Outputs {
        m_axi_arburst: 2,
        ..outputs
    };
    let narrow = |outputs: Outputs| Outputs {
        m_axi_arsize: 2,
        ..outputs
    };
    for cycles in [
        vec![read(0xff0, 2)],
        vec![read(0x108, 1)],
        vec![read(0, 65)],
        vec![kind(read(0, 1))],
        vec![read(0, 1), narrow(read(0, 1))],
        vec![write(0, 2), data(0, 0xffff, 1)],
        vec![write(0, 1), data(0, 0xffff, 0)],
        // Data that waits for its address, and changes or goes.
        vec![data(1, 0xffff, 1), data(2, 0xffff, 1)],
        vec![data(1, 0xffff, 1), outputs()],
    ] {
        assert!(
            run(&mut MemoryPort::new(LATENCY), &ram(), &cycles).is_err(),
            "{cycles:?}"
        );
    }
    // No more than that are taken; the next waits, and has to.
    let mut port = MemoryPort::new(Latency {
        read: 100,
        write: 0,
    });
    let full = vec![read(0, 1); OUTSTANDING + 1];
    assert!(!run(&mut port, &ram(), &full).unwrap()[OUTSTANDING].m_axi_arready);
    assert!(run(&mut port, &ram(), &[read(16, 1)]).is_err());
}
