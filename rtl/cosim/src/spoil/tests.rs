//! Faults, each on a bus and lines that are written here.

use super::*;

struct Ram(RefCell<Vec<u8>>);

impl Memory for Ram {
    fn read(&self, _: u64, _: &mut [u8]) -> bool {
        true
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let at = usize::try_from(address).unwrap();
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        true
    }
}

fn spoil(text: &str) -> RefCell<Spoil> {
    let faults: Vec<_> = text.split(',').map(|it| it.parse().unwrap()).collect();
    let mut spoil = Spoil::new(&faults);
    for (register, value) in [
        (RING_SQ_LO, 0x1000),
        (RING_SQ_HI, 0),
        (RING_CQ_LO, 0x100),
        (RING_CQ_HI, 0),
        (RING_SIZE, 1),
    ] {
        spoil.watch(u16::try_from(RINGS_OFFSET + register).unwrap(), value);
    }
    RefCell::new(spoil)
}

/// What is in both places of the completion ring after so many writes to the first.
fn completions(text: &str, writes: usize) -> ([u8; 16], [u8; 16]) {
    let (spoil, ram) = (spoil(text), Ram(RefCell::new(vec![0; 0x200])));
    let bus = Spoiled {
        memory: &ram,
        spoil: &spoil,
    };
    for _ in 0..writes {
        ram.0.borrow_mut().fill(0);
        assert!(bus.write(0x100, &[0x11; 16]));
    }
    let ram = ram.0.borrow();
    (
        ram[0x100..0x110].try_into().unwrap(),
        ram[0x110..0x120].try_into().unwrap(),
    )
}

#[test]
fn faults_have_names_and_numbers() {
    for (name, kind) in KINDS {
        let fault: Fault = format!("{name}:7").parse().unwrap();
        assert_eq!((fault.kind, fault.every.get()), (kind, 7));
    }
    for text in [
        "", "hang", "hang:", "hang:0", "hang:-1", "hung:1", "hang:1:1",
    ] {
        assert_eq!(text.parse::<Fault>(), Err(NoFault), "{text:?}");
    }
}

#[test]
fn each_hits_every_so_many() {
    let right = ([0x11; 16], [0; 16]);
    for (name, wrong) in [
        ("lost-completion", ([0; 16], [0; 16])),
        ("double-completion", ([0x11; 16], [0x11; 16])),
        ("wrong-cookie", {
            let mut bytes = [0x11; 16];
            bytes[..8].fill(0xee);
            (bytes, [0; 16])
        }),
        ("wrong-units", {
            let mut bytes = [0x11; 16];
            bytes[8] = 0x10;
            (bytes, [0; 16])
        }),
        ("bad-status", {
            let mut bytes = [0x11; 16];
            bytes[12] = 0xff;
            (bytes, [0; 16])
        }),
    ] {
        let text = format!("{name}:3");
        for writes in 1..=7 {
            let wanted = if writes % 3 == 0 { wrong } else { right };
            assert_eq!(completions(&text, writes), wanted, "{name}, {writes}");
        }
    }
}

#[test]
fn faults_do_not_hide_others() {
    let double = ([0x11; 16], [0x11; 16]);
    assert_eq!(
        completions("lost-completion:3,double-completion:4", 4),
        double
    );
    let spoil = spoil("lost-interrupt:2,late-interrupt:3,double-interrupt:4");
    let all = (1..=8_u64).map(|i| spoil.borrow_mut().interrupts(1, i));
    assert_eq!(all.collect::<Vec<_>>(), [1, 0, 0, 0, 1, 0, 1, 0]);
    assert_eq!(spoil.borrow().late, [(3 + LATE, 1)]);
}

#[test]
fn only_data_has_errors() {
    let (spoil, ram) = (
        spoil("read-error:1,write-error:2"),
        Ram(RefCell::new(vec![0; 0x200])),
    );
    let bus = Spoiled {
        memory: &ram,
        spoil: &spoil,
    };
    assert!(bus.read(0x1000, &mut [0; 64]) && bus.read(0x1040, &mut [0; 64]));
    assert!(!bus.read(0x1080, &mut [0; 64]) && !bus.read(0x40, &mut [0; 64]));
    assert!(!bus.refuses(0, 64) && !bus.refuses(0x110, 16) && bus.refuses(0, 64));
}

#[test]
fn interrupts_are_lost_late_or_double() {
    let lost = spoil("lost-interrupt:2");
    let late = spoil("late-interrupt:1");
    let double = spoil("double-interrupt:1");
    let see =
        |spoil: &RefCell<Spoil>, signals, cycle| spoil.borrow_mut().interrupts(signals, cycle);
    assert_eq!([1, 2, 4].map(|line| see(&lost, line, 0)), [1, 0, 4]);
    assert_eq!((see(&late, 2, 5), see(&late, 0, LATE + 4)), (0, 0));
    assert!(late.borrow().is_late());
    assert_eq!((see(&late, 0, LATE + 5), see(&late, 0, LATE + 6)), (2, 0));
    assert_eq!((see(&double, 3, 0), see(&double, 0, AGAIN)), (3, 3));
    assert!(!double.borrow().is_late());
}

#[test]
fn a_reset_ends_a_hang_and_nothing_else() {
    for (name, after) in [("hang:2", false), ("vanish:2", true)] {
        let (spoil, ram) = (spoil(name), Ram(RefCell::new(vec![0; 0x200])));
        let bus = Spoiled {
            memory: &ram,
            spoil: &spoil,
        };
        for hung in [false, true] {
            assert!(bus.write(0x110, &[0; 16]));
            assert_eq!(spoil.borrow().is_hung(), hung);
        }
        let control = u16::try_from(REG_CTRL).unwrap();
        spoil.borrow_mut().watch(control, 1 << CTRL_RESET_LOW);
        assert_eq!(spoil.borrow().is_hung(), after);
    }
}
