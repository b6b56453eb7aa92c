//! `xtent-engine-measure`: counts the cycles that a co-processor takes for requests, by its own
//! counters, with a memory of a stated latency and a CPU of a stated slowness.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use xtent_engine_sim::lite::{Access, Lite};
use xtent_engine_sim::memory_port::{Latency, Memory, MemoryPort};
use xtent_engine_sim::model::{Inputs, Model, Outputs};
use xtent_engine_sim::registers::*;

/// Counts the cycles that a co-processor takes for requests, and prints them as a line of JSON.
///
/// `rows` are the engine's counters: they sum to `cycles`, which go from just before the first doorbell to
/// just after the CPU has taken the last completion.
#[derive(Debug, Parser)]
struct Args {
    /// Design, of rtl/cosim/designs.txt.
    #[arg(long, value_name = "NAME")]
    design: String,
    /// Where rtl/cosim/model.sh has built the models; target/rtl/cosim if it is not said.
    #[arg(long, value_name = "FOLDER")]
    models: Option<PathBuf>,
    /// What is asked of it.
    #[arg(long)]
    work: Work,
    /// Bytes of a data unit.
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    unit: u32,
    /// Bytes of a request, a multiple of the unit.
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    request: u32,
    /// Bytes in all, a multiple of the request.
    #[arg(long, value_name = "BYTES", default_value_t = 65536)]
    bytes: u32,
    /// Submit all requests at once, with one interrupt at the end; otherwise each when the one before
    /// has interrupted, as the papers' drivers do.
    #[arg(long)]
    together: bool,
    /// Cycles from an interrupt until the CPU rings the next doorbell.
    #[arg(long, value_name = "CYCLES", default_value_t = 0)]
    software: u64,
    /// From a read's address to its first data.
    #[arg(long, value_name = "CYCLES", default_value_t = 40)]
    read_latency: u32,
    /// From a write's last data to its response.
    #[arg(long, value_name = "CYCLES", default_value_t = 20)]
    write_latency: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Work {
    /// Requests of blocks.
    Ecb,
    /// XTS by an engine that has only blocks: before each request of data one with its units'
    /// tweaks. What the CPU does (powers of alpha, both exclusive-ors) takes no time here.
    Mixed,
    /// XTS of one unit a request, and before it a request that encrypts its tweak.
    Units,
    /// Runs of units.
    Runs,
}

/// Cycles after which a request is given up.
const PATIENCE: u64 = 50_000_000;
const SQ: u64 = 0;
const CQ: u64 = 0x1_0000;
const TWEAKS: u64 = 0x2_0000;
const DATA: u64 = 0x10_0000;
const LOG_RING: u32 = 10;

/// Memory from 0 on.
struct Ram(RefCell<Vec<u8>>);

impl Memory for Ram {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let ram = self.0.borrow();
        let at = usize::try_from(address).unwrap_or(usize::MAX);
        match ram.get(at..at.saturating_add(bytes.len())) {
            Some(from) => bytes.copy_from_slice(from),
            None => return false,
        }
        true
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let mut ram = self.0.borrow_mut();
        let at = usize::try_from(address).unwrap_or(usize::MAX);
        match ram.get_mut(at..at.saturating_add(bytes.len())) {
            Some(to) => to.copy_from_slice(bytes),
            None => return false,
        }
        true
    }
}

/// The engine, its memory, and a CPU that waits for it.
struct Bench {
    model: Model,
    inputs: Inputs,
    outputs: Outputs,
    lite: Lite,
    port: MemoryPort,
    ram: Ram,
    cycle: u64,
    tail: u16,
    head: u16,
}

impl Bench {
    fn new(model: Model, latency: Latency, bytes: u32) -> Result<Self, String> {
        let size = usize::try_from(DATA).unwrap_or_default() + bytes as usize;
        let mut bench = Self {
            model,
            inputs: Inputs::default(),
            outputs: Outputs::default(),
            lite: Lite::default(),
            port: MemoryPort::new(latency),
            ram: Ram(RefCell::new(vec![0; size])),
            cycle: 0,
            tail: 0,
            head: 0,
        };
        for _ in 0..16 {
            bench.model.tick(&bench.inputs);
        }
        bench.inputs.aresetn = true;
        bench.wait("it gets ready", |bench| {
            Ok(bench.read(REG_STATUS)? >> STATUS_READY_LOW & 1 != 0)
        })?;
        Ok(bench)
    }

    fn tick(&mut self) -> Result<Option<u32>, String> {
        self.port.drive(&mut self.inputs, &self.ram);
        self.lite.drive(&mut self.inputs);
        self.outputs = self.model.tick(&self.inputs);
        self.cycle += 1;
        self.port.see(&self.inputs, &self.outputs)?;
        let done = self.lite.see(&self.inputs, &self.outputs)?;
        Ok(done.map(|(_, value)| value))
    }

    fn access(&mut self, access: Access) -> Result<u32, String> {
        self.lite.start(access);
        loop {
            if let Some(value) = self.tick()? {
                return Ok(value);
            }
        }
    }

    fn read(&mut self, register: u32) -> Result<u32, String> {
        self.access(Access::Read(offset(register)))
    }

    fn write(&mut self, register: u32, value: u32) -> Result<(), String> {
        self.access(Access::Write(offset(register), value))?;
        Ok(())
    }

    fn ring(&mut self, register: u32, value: u32) -> Result<(), String> {
        self.write(RINGS_OFFSET + register, value)
    }

    fn wait(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&mut Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        let until = self.cycle + PATIENCE;
        while !holds(self)? {
            if self.cycle > until {
                return Err(format!("not within {PATIENCE} cycles: {what}"));
            }
        }
        Ok(())
    }

    /// Loads a key of two different halves, as XTS wants, of the length that is built.
    fn key(&mut self, cipher: u8) -> Result<(), String> {
        let long = self.read(REG_CAP1)? >> CAP1_KEY_BITS_LOW & 2 != 0;
        for word in 0..16 {
            self.write(REG_KEY_DATA + 4 * word, 0x0101_0101 * (word + 1))?;
        }
        let command = u32::from(cipher) << KEY_CMD_SLOT_LOW
            | u32::from(cipher) << KEY_CMD_CIPHER_LOW
            | u32::from(long) << KEY_CMD_KEY_BITS_LOW
            | 1 << KEY_CMD_COMMAND_LOW;
        self.write(REG_KEY_CMD, command)?;
        self.wait("a key is loaded", |bench| {
            Ok(bench.read(REG_KEY_STATUS)? >> KEY_STATUS_BUSY_LOW & 1 == 0)
        })?;
        match self.read(REG_KEY_STATUS)? >> KEY_STATUS_RESULT_LOW & 0xf {
            0 => Ok(()),
            result => Err(format!(
                "a key for cipher {cipher} was refused with {result}"
            )),
        }
    }

    /// Puts a request into the ring.
    fn submit(&mut self, op: u8, log2_unit: u8, step: u16, units: u32, at: u64) {
        let mut entry = [0; SQE_BYTES];
        let mut put = |at: usize, field: &[u8]| entry[at..at + field.len()].copy_from_slice(field);
        let slot = if op == OP_RUN { CIPHER_XTS } else { CIPHER_ECB };
        put(SQE_OP, &[op]);
        put(SQE_FLAGS, &[1 << FLAG_IN_PLACE]);
        put(SQE_SLOT, &[slot]);
        put(SQE_LOG2_UNIT, &[log2_unit]);
        put(SQE_STEP, &step.to_le_bytes());
        put(SQE_UNITS, &units.to_le_bytes());
        put(SQE_SOURCE, &at.to_le_bytes());
        let index = u64::from(self.tail) % (1 << LOG_RING);
        self.ram.write(SQ + index * SQE_BYTES as u64, &entry);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Rings the doorbell, waits for the interrupt of the last completion, takes what is there, and lets the
    /// CPU's time pass.
    fn carry_out(&mut self, software: u64) -> Result<(), String> {
        self.ring(RING_TAIL, self.tail.into())?;
        while self.head != self.tail {
            self.wait("an interrupt", |bench| {
                bench.tick()?;
                Ok(bench.outputs.interrupt != 0)
            })?;
            for _ in 0..software {
                self.tick()?;
            }
            self.write(REG_INT_STATUS, u32::MAX)?;
            self.take()?;
        }
        self.ring(RING_CQ_HEAD, self.head.into())
    }

    /// Takes the completions that are there.
    fn take(&mut self) -> Result<(), String> {
        while self.head != self.tail {
            let mut entry = [0; CQE_BYTES];
            let index = u64::from(self.head) % (1 << LOG_RING);
            self.ram.read(CQ + index * CQE_BYTES as u64, &mut entry);
            if u16::from(entry[CQE_PHASE]) == self.head >> LOG_RING & 1 {
                break;
            }
            if entry[CQE_STATUS] != STATUS_DONE {
                return Err(format!("a request ended with status {}", entry[CQE_STATUS]));
            }
            self.head = self.head.wrapping_add(1);
        }
        Ok(())
    }

    fn counters(&mut self) -> Result<Vec<u64>, String> {
        self.write(REG_COUNTER_CTRL, 1 << COUNTER_CTRL_SNAPSHOT_LOW)?;
        (0..)
            .step_by(8)
            .take(COUNTERS)
            .map(|at| {
                let low = self.read(REG_COUNTER_TOTAL + at)?;
                let high = self.read(REG_COUNTER_TOTAL + at + 4)?;
                Ok(u64::from(high) << 32 | u64::from(low))
            })
            .collect()
    }
}

fn offset(register: u32) -> u16 {
    register.try_into().unwrap_or(u16::MAX)
}

/// The counters' rows, and where they are among the counters.
const ROWS: [(&str, u32); 7] = [
    ("fetch", REG_COUNTER_FETCH),
    ("source", REG_COUNTER_SOURCE),
    ("cipher", REG_COUNTER_CIPHER),
    ("destination", REG_COUNTER_DESTINATION),
    ("completion", REG_COUNTER_COMPLETION),
    ("interrupt", REG_COUNTER_INTERRUPT),
    ("idle", REG_COUNTER_IDLE),
];

fn measure(args: &Args, models: &Path) -> Result<String, String> {
    let Args {
        unit,
        request,
        bytes,
        ..
    } = *args;
    let wrong = !unit.is_power_of_two()
        || !(512..=4096).contains(&unit)
        || request == 0
        || request % unit != 0
        || bytes == 0
        || bytes % request != 0;
    if wrong {
        return Err(
            "a unit has 512 to 4096 bytes, and requests and bytes are multiples of it".into(),
        );
    }
    if args.work == Work::Units && request != unit {
        return Err("with --work units a request is one unit".into());
    }
    if args.together && matches!(args.work, Work::Mixed | Work::Units) {
        return Err(
            "with these requests each needs what the one before gave, so not --together".into(),
        );
    }
    if args.together && bytes / request > 1 << LOG_RING {
        return Err(format!("at most {} requests go together", 1 << LOG_RING));
    }
    let path = models.join(format!("{}.so", args.design));
    let model = Model::open(&path).map_err(|error| {
        format!(
            "{}: {error}; rtl/cosim/model.sh {} builds it",
            path.display(),
            args.design
        )
    })?;
    let latency = Latency {
        read: args.read_latency,
        write: args.write_latency,
    };
    let mut bench = Bench::new(model, latency, bytes)?;
    bench.key(CIPHER_ECB)?;
    if args.work == Work::Runs {
        bench.key(CIPHER_XTS)?;
    }
    let places = [(RING_SQ_LO, SQ), (RING_CQ_LO, CQ)];
    for (register, place) in places {
        bench.ring(register, u32::try_from(place).unwrap_or_default())?;
    }
    bench.ring(RING_SIZE, LOG_RING)?;
    if args.together {
        // The last completion interrupts when the ring is empty.
        bench.ring(RING_COALESCE, 255)?;
    }
    let when_empty = u32::from(args.together) << RING_CONTROL_WHEN_EMPTY_LOW;
    bench.ring(RING_CONTROL, 1 << RING_CONTROL_ENABLE_LOW | when_empty)?;
    bench.write(REG_INT_SET, 1)?;
    bench.write(REG_CTRL, 1 << CTRL_ENABLE_LOW)?;

    let log2_unit = u8::try_from(unit.trailing_zeros()).unwrap_or_default();
    let step = u16::try_from(unit / 512).unwrap_or_default();
    bench.write(REG_COUNTER_CTRL, 1 << COUNTER_CTRL_CLEAR_LOW)?;
    for at in (DATA..DATA + u64::from(bytes)).step_by(request as usize) {
        match args.work {
            Work::Ecb => bench.submit(OP_ECB, 4, 0, request / 16, at),
            Work::Runs => bench.submit(OP_RUN, log2_unit, step, request / unit, at),
            Work::Mixed => {
                bench.submit(OP_ECB, 4, 0, request / unit, TWEAKS);
                bench.carry_out(args.software)?;
                bench.submit(OP_ECB, 4, 0, request / 16, at);
            }
            Work::Units => {
                bench.submit(OP_ECB, 4, 0, 1, TWEAKS);
                bench.carry_out(args.software)?;
                bench.submit(OP_XTS, log2_unit, 0, 1, at);
            }
        }
        if !args.together {
            bench.carry_out(args.software)?;
        }
    }
    if args.together {
        bench.carry_out(args.software)?;
    }
    let counters = bench.counters()?;
    let count = |register: u32| counters[((register - REG_COUNTER_TOTAL) / 8) as usize];
    let rows: Vec<_> = ROWS
        .iter()
        .map(|(name, register)| format!("\"{name}\": {}", count(*register)))
        .collect();
    let work = args
        .work
        .to_possible_value()
        .map(|work| work.get_name().to_owned());
    Ok(format!(
        "{{\"design\": \"{}\", \"work\": \"{}\", \"unit\": {unit}, \"request\": {request}, \"bytes\": {bytes}, \
         \"together\": {}, \"software\": {}, \"read_latency\": {}, \"write_latency\": {}, \"requests\": {}, \
         \"interrupts\": {}, \"cycles\": {}, \"rows\": {{{}}}}}",
        args.design,
        work.unwrap_or_default(),
        args.together,
        args.software,
        args.read_latency,
        args.write_latency,
        count(REG_COUNTER_REQUESTS),
        count(REG_COUNTER_INTERRUPTS),
        count(REG_COUNTER_TOTAL),
        rows.join(", ")
    ))
}

fn main() -> ExitCode {
    let args = Args::parse();
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/rtl/cosim");
    let models = args.models.clone().unwrap_or_else(built);
    match measure(&args, &models) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("xtent-engine-measure: {what}");
            ExitCode::FAILURE
        }
    }
}
