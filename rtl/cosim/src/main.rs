//! `xtent-engine-sim`: serves a co-processor's model over vfio-user or vhost-user.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, exit};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::Parser;
use nix::sys::signal::{SigSet, Signal};
use vfio_user::Server;
use xtent_engine_sim::backend::Backend;
use xtent_engine_sim::device::{Device, Ran};
use xtent_engine_sim::front;
use xtent_engine_sim::machine::{Broken, Machine};
use xtent_engine_sim::memory_port::Latency;
use xtent_engine_sim::model::{self, Model};
use xtent_engine_sim::socket::{SocketFile, listen_at};
use xtent_engine_sim::spoil::Fault;
use xtent_engine_sim::timed::{self, Pace, Stop, Timed};

/// Serves a simulated co-processor as a PCI device: over vfio-user to drivers in user space and QEMU, or over
/// vhost-user to User Mode Linux.
///
/// One client at a time; the next finds the device as after power-on. The clock stops while the
/// device has nothing to do, and its counters with it.
#[derive(Debug, Parser)]
struct Args {
    /// Design to simulate, of rtl/cosim/designs.txt.
    #[arg(long, value_name = "NAME")]
    design: String,
    #[command(flatten)]
    front: Front,
    /// Where rtl/cosim/model.sh has built the models; target/rtl/cosim of the source tree if it is
    /// not said.
    #[arg(long, value_name = "FOLDER")]
    models: Option<PathBuf>,
    /// From a read's address to its first data.
    #[arg(long, value_name = "CYCLES", default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..))]
    read_latency: u16,
    /// From a write's last data to its response.
    #[arg(long, value_name = "CYCLES", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    write_latency: u16,
    /// With --vhost-user: listen here for the guest's `time-travel=ext:PATH`. Its time is simulated then, and
    /// the device's clock counts the same nanoseconds.
    #[arg(
        long,
        value_name = "PATH",
        requires = "vhost_user",
        conflicts_with = "socket"
    )]
    time: Option<PathBuf>,
    /// With --time: the device's clock; what its CAP3.cycles_per_us says if it is not said.
    #[arg(long, value_name = "MEGAHERTZ", requires = "time", conflicts_with = "socket", value_parser = clap::value_parser!(u16).range(1..))]
    mhz: Option<u16>,
    /// With --time: from the device's interrupt line to the guest.
    #[arg(
        long,
        value_name = "NANOSECONDS",
        requires = "time",
        conflicts_with = "socket",
        default_value_t = 0
    )]
    interrupt_latency: u32,
    /// With --time: a register's read, there and back, which the guest sees in steps of 1000, as it looks for
    /// the answer once in 1000, and once for each write just before it. With 0, and no such write, no time
    /// passes for the guest, and the device is ahead of it by the cycles of the access.
    #[arg(
        long,
        value_name = "NANOSECONDS",
        requires = "time",
        conflicts_with = "socket",
        default_value_t = 0
    )]
    register_latency: u32,
    /// Faults around the co-processor, for drivers to be tried with: WHAT happens to the EVERYth, and every
    /// EVERYth after it. On data bursts of the bus: read-error, write-error. On interrupts:
    /// lost-interrupt, late-interrupt, double-interrupt. On completions: lost-completion,
    /// double-completion, wrong-cookie, wrong-units, bad-status; hang (nothing answers on the memory bus
    /// until a reset), vanish (nothing answers at all until the process ends).
    #[arg(long, value_name = "WHAT:EVERY", value_delimiter = ',')]
    spoil: Vec<Fault>,
    /// Write all signals to this file, as VCD; large and slow. Takes the model that `model.sh
    /// --trace` builds.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// End when the first client leaves.
    #[arg(long)]
    once: bool,
    /// Say what clients do wrong, and how many cycles the model ran for each.
    #[arg(long, short)]
    verbose: bool,
}

/// Where to listen; nothing may be there.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Front {
    /// Listen here for a client that speaks vfio-user.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen here for a guest: User Mode Linux with `virtio_uml.device=PATH:1234`, whose
    /// CONFIG_UML_PCI_OVER_VIRTIO_DEVICE_ID is that number.
    #[arg(long, value_name = "PATH")]
    vhost_user: Option<PathBuf>,
}

/// What has to be undone before the process ends.
struct Cleanup {
    engine: Engine,
    /// Says whether the model broke, once it has ended.
    ended: Receiver<bool>,
    sockets: Vec<SocketFile>,
}

/// What steps the model, and has to be told to end.
enum Engine {
    Clock(Device),
    Guest(Arc<Stop>),
}

/// How long a client may hold up the process's end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whoever ends the process takes it.
static CLEANUP: Mutex<Option<Cleanup>> = Mutex::new(None);

fn main() -> ExitCode {
    let args = Args::parse();
    match serve(&args) {
        Ok(()) => end(0),
        Err(message) => {
            eprintln!("xtent-engine-sim: {message}");
            end(1)
        }
    }
}

/// Ends the process, once.
fn end(code: i32) -> ! {
    // Whoever comes second waits here, and finds the process gone.
    let mut cleanup = CLEANUP.lock().unwrap_or_else(PoisonError::into_inner);
    let mut code = code;
    if let Some(all) = cleanup.take() {
        match &all.engine {
            Engine::Clock(device) => device.stop(),
            Engine::Guest(stop) => stop.stop(),
        }
        // A client may hold the model up: by its memory's file, an eventfd, its calendar.
        let broken = match all.ended.recv_timeout(PATIENCE) {
            Ok(broken) => broken,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        };
        if broken {
            code = 1;
        }
        all.sockets.iter().for_each(SocketFile::remove);
    }
    exit(code)
}

/// Waits for the clock's end, which is this process's too.
fn watch(clock: JoinHandle<Result<(), Broken>>, ended: &SyncSender<bool>) {
    let result = clock.join();
    match &result {
        Ok(Ok(())) => {}
        Ok(Err(broken)) => eprintln!("xtent-engine-sim: {}", says(broken)),
        Err(_) => eprintln!("xtent-engine-sim: the clock broke"),
    }
    let is_broken = !matches!(result, Ok(Ok(())));
    // Whoever waits for it is there until the process is gone.
    let _ = ended.send(is_broken);
    if is_broken {
        end(1)
    }
}

fn says(broken: &Broken) -> String {
    format!("the model broke in cycle {}: {}", broken.cycle, broken.what)
}

fn serve(args: &Args) -> Result<(), String> {
    let level = if args.verbose {
        log::LevelFilter::Info
    } else {
        log::LevelFilter::Warn
    };
    log::set_max_level(level);
    // It is the first.
    let _ = log::set_logger(&Stderr);
    // First, since all threads have to have them blocked: the model's library may make some, too.
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    signals
        .thread_block()
        .map_err(|error| format!("cannot block signals: {error}"))?;
    let mut model = open(args)?;
    if let Some(path) = &args.trace {
        model
            .trace(path)
            .map_err(|error| format!("cannot trace: {error}"))?;
    }
    let latency = Latency {
        read: args.read_latency.into(),
        write: args.write_latency.into(),
    };
    let path = args
        .front
        .socket
        .as_ref()
        .or(args.front.vhost_user.as_ref());
    let path = path.ok_or("there is no socket to listen on")?;
    let mut sockets = Vec::new();
    let started = start(args, path, model, latency, &mut sockets);
    let (listener, calendars, machine) = started.inspect_err(|_| {
        sockets.iter().for_each(SocketFile::remove);
    })?;
    let (sender, ended) = sync_channel(1);
    let clean_up = |engine| {
        *CLEANUP.lock().unwrap_or_else(PoisonError::into_inner) = Some(Cleanup {
            engine,
            ended,
            sockets,
        });
        let thread = thread::Builder::new().name("signals".into());
        let thread = thread.spawn(move || {
            // It does not fail with signals that are there.
            let _ = signals.wait();
            end(0)
        });
        thread.map_err(|error| format!("no thread for signals: {error}"))?;
        println!("listening on {}", path.display());
        // Whoever reads it may be gone.
        let _ = io::stdout().flush();
        Ok::<(), String>(())
    };
    if let Some(calendars) = calendars {
        let pace = Pace {
            mhz: args.mhz.map_or(machine.cycles_per_us, u64::from),
            interrupt: args.interrupt_latency.into(),
            register: args.register_latency.into(),
        };
        let stop = Stop::new().map_err(|error| format!("no eventfd: {error}"))?;
        let stop = Arc::new(stop);
        clean_up(Engine::Guest(Arc::clone(&stop)))?;
        // The model has ended when it is told that it has.
        let result =
            Timed::new(machine, pace, &stop).serve(&listener.into(), &calendars.into(), args.once);
        // Whoever ends the process waits for it, or nobody does.
        let _ = sender.send(result.is_err());
        return result.map_err(|error| match error {
            timed::Error::Broken(broken) => says(&broken),
            timed::Error::Accept(error) => format!("cannot accept clients: {error}"),
        });
    }
    let (device, clock) = Device::start(machine)
        .map_err(|error| format!("there is no thread for the clock: {error}"))?;
    thread::Builder::new()
        .name("watch".into())
        .spawn(move || watch(clock, &sender))
        .map_err(|error| format!("no thread to watch the clock: {error}"))?;
    clean_up(Engine::Clock(device.clone()))?;
    if args.front.socket.is_some() {
        serve_vfio_user(listener, device, args.once)
    } else {
        serve_vhost_user(&listener.into(), device, args.once)
    }
}

/// Listens, and starts the model. What is left in `sockets` has to be removed.
fn start(
    args: &Args,
    path: &Path,
    model: Model,
    latency: Latency,
    sockets: &mut Vec<SocketFile>,
) -> Result<(OwnedFd, Option<OwnedFd>, Machine), String> {
    let mut listen = |path| {
        let (listener, socket) = listen(path)?;
        sockets.push(socket);
        Ok::<_, String>(listener)
    };
    let listener = listen(path)?;
    let calendars = args.time.as_deref().map(listen).transpose()?;
    let machine = Machine::new(model, latency, &args.spoil)
        .map_err(|broken| format!("design `{}`: {}", args.design, says(&broken)))?;
    Ok((listener, calendars, machine))
}

fn listen(path: &Path) -> Result<(OwnedFd, SocketFile), String> {
    listen_at(path).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "; choose another path, or remove it if nobody listens there"
            }
            _ => "",
        };
        format!("cannot listen on {}: {error}{hint}", path.display())
    })
}

fn serve_vfio_user(listener: OwnedFd, device: Device, once: bool) -> Result<(), String> {
    panic::set_hook(Box::new(|info| match thread::current().name() {
        // The library, on a message that it did not expect.
        Some("main") => log::info!("{info}"),
        _ => eprintln!("xtent-engine-sim: {info}"),
    }));
    let mut backend = Backend::new(device);
    let server = Server::from_owned_fd(listener, true, backend.irqs(), backend.regions());
    loop {
        // What the library does not expect in a message it panics about.
        match catch_unwind(AssertUnwindSafe(|| server.run(&mut backend))) {
            Ok(Ok(())) => {}
            Ok(Err(vfio_user::Error::SocketAccept(error))) => {
                return Err(format!("cannot accept clients: {error}"));
            }
            Ok(Err(error)) => log::info!("a client is cut off: {error}"),
            Err(_) => log::info!("a client is cut off, whose message is none of vfio-user"),
        }
        left(backend.leave())?;
        if once {
            return Ok(());
        }
    }
}

fn serve_vhost_user(listener: &UnixListener, mut device: Device, once: bool) -> Result<(), String> {
    loop {
        let (stream, _) = listener
            .accept()
            .map_err(|error| format!("cannot accept clients: {error}"))?;
        if let Err(error) = front::serve(stream, &mut device) {
            log::warn!("a guest is cut off: {error}");
        }
        left(device.leave())?;
        if once {
            return Ok(());
        }
    }
}

/// Says how long the model ran for a client.
fn left(ran: io::Result<Ran>) -> Result<(), String> {
    let ran = ran.map_err(|error| error.to_string())?;
    let seconds = ran.time.as_secs_f64();
    #[allow(clippy::cast_precision_loss)]
    let speed = ran.cycles as f64 / seconds.max(1e-9) / 1000.0;
    log::info!(
        "a client left after {} cycles in {seconds:.3} s, {speed:.0} thousand a second",
        ran.cycles
    );
    Ok(())
}

fn open(args: &Args) -> Result<Model, String> {
    let design = &args.design;
    if !design
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '-')
        || design.is_empty()
    {
        return Err(format!(
            "`{design}` is no name of a design: rtl/cosim/model.sh --list has them"
        ));
    }
    let folder = args.models.clone().unwrap_or_else(default_models);
    let (kind, option) = if args.trace.is_some() {
        ("-trace", "--trace ")
    } else {
        ("", "")
    };
    let path = folder.join(format!("{design}{kind}.so"));
    Model::open(&path).map_err(|error| match error {
        model::Error::Missing => format!(
            "there is no {}: build it with rtl/cosim/model.sh {option}{design}, whose --list has all names",
            path.display()
        ),
        error => format!(
            "cannot use {}: {error}; build it with rtl/cosim/model.sh {option}{design}",
            path.display()
        ),
    })
}

fn default_models() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"))
        .join("rtl/cosim")
}

/// Where log lines go.
struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        // What clients do wrong is an error to the library, and none of ours.
        let is_library = metadata.target().starts_with("vfio_user");
        let level = if is_library {
            log::Level::Info
        } else {
            metadata.level()
        };
        level <= log::max_level()
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            // At once, so that lines of several processes stay whole.
            let line = format!("xtent-engine-sim: {}\n", record.args());
            // There is nobody else to tell.
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}
