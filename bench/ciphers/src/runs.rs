//! The three parts of the comparison, and where their results go.

use std::rc::Rc;

use sector_cipher::{Backend, Mode};

use crate::chosen::Chosen;
use crate::contestant::{Entry, Runs, Scattered, Task};
use crate::limit;
use crate::measure::{BUFFER, Meter, Rates, Turn};
use crate::options::{Level, Options, What};
use crate::peers::{self, Peer};
use crate::report::{Curve, Figure, Machine, Point, Report, Row, Settings};
use crate::verify::verify;
use crate::{goals, plot};

/// Request sizes: 512 bytes to 1 MiB.
const REQUESTS: std::ops::RangeInclusive<u32> = 9..=20;

/// Names of curves.
pub(crate) const ONE: &str = "one sector per call";
pub(crate) const RUN: &str = "runs of k sectors";
pub(crate) const SINGLE: &str = "k single sectors in one call";
pub(crate) const WHOLE: &str = "the whole request in one call";

/// Measures what is asked for, writes the files and prints the tables. Whether
/// what was required has been reached.
pub(crate) fn all(options: &Options) -> Result<bool, String> {
    let backends = options.backends();
    let Some(&best) = backends.last() else {
        return Err("this CPU has none of the back-ends asked for".to_owned());
    };
    let (peers, notes) = if options.no_peers {
        (Vec::new(), Vec::new())
    } else {
        peers::all()
    };
    for note in &notes {
        eprintln!("cipher-bench: {note}");
    }

    let tasks: Vec<Task> = Task::ciphers()
        .filter(|&(spec, key_len)| options.takes(spec, key_len))
        .flat_map(|(spec, key_len)| {
            options.sector_sizes().into_iter().map(move |sector| Task {
                spec,
                key_len,
                sector,
            })
        })
        .collect();
    if tasks.is_empty() {
        return Err("no cipher takes a key of that length".to_owned());
    }
    let flows = chosen(&tasks, options, &[Mode::AesXts, Mode::AesCbc, Mode::Hctr2]);
    let mut requests = chosen(&tasks, options, &[Mode::AesXts, Mode::FastBrw, Mode::Hctr2]);
    if options.sector_size.is_empty() {
        requests.retain(|task| task.sector == 512);
    }

    let longest = options.runs().last().copied().unwrap_or(1) * 4096;
    let parts = [
        (What::Ciphers, tasks.len()),
        (What::Flows, flows.len()),
        (What::Requests, requests.len()),
    ];
    let cases = parts
        .iter()
        .filter(|(what, _)| options.wants(*what))
        .map(|(_, n)| n)
        .sum();
    let largest = longest.max(1 << *REQUESTS.end()).max(2 * BUFFER);
    let mut meter = Meter::new(
        options.rounds(),
        options.slice(),
        options.patience(),
        largest,
        cases,
    );

    let expected = goals::of_this_cpu(best);
    if options.require.is_some() && expected.is_none() {
        return Err(
            "nothing is expected of this kind of CPU that --require could judge".to_owned(),
        );
    }
    let mut report = Report {
        machine: Machine::this(),
        settings: Settings {
            rounds: options.rounds(),
            slice_us: options.slice().as_micros(),
            quick: options.quick,
        },
        backends: backends.iter().map(|backend| backend.name()).collect(),
        chosen: backends.iter().copied().filter_map(Chosen::of).collect(),
        peers: peers.iter().map(|peer| peer.name.clone()).collect(),
        left_out: notes,
        ciphers: Vec::new(),
        flows: Vec::new(),
        requests: Vec::new(),
        goals_of: expected.map(|expected| expected.kind),
        goals: Vec::new(),
        shared_core: 0.0,
    };
    if options.wants(What::Ciphers) {
        for task in &tasks {
            report
                .ciphers
                .extend(compare(task, options, &backends, &peers, &mut meter)?);
        }
        if let Some(expected) = expected {
            report.goals = goals::judge(expected, &report.ciphers, best);
        }
    }
    if options.wants(What::Flows) {
        for task in &flows {
            report
                .flows
                .extend(in_flight(task, best, &peers, &mut meter)?);
        }
    }
    if options.wants(What::Requests) {
        for task in &requests {
            report
                .requests
                .extend(sweep(task, best, &peers, &mut meter)?);
        }
    }
    if options.require.is_some() && report.goals.is_empty() {
        return Err("nothing was measured that --require could judge".to_owned());
    }
    report.shared_core = meter.shared();
    report.write(&options.output, best)?;
    plot::write(&report, &options.output, best)?;
    print!("{}", report.summary(best));
    eprintln!("cipher-bench: results are in {}", options.output.display());
    Ok(match options.require {
        None => true,
        Some(Level::Must) => report.goals.iter().all(|goal| goal.value >= goal.must),
        Some(Level::Goal) => report.goals.iter().all(|goal| goal.value >= goal.goal),
    })
}

/// The tasks with AES-256 for the curves: those of some modes, or of the
/// ciphers named on the command line.
fn chosen(tasks: &[Task], options: &Options, modes: &[Mode]) -> Vec<Task> {
    tasks
        .iter()
        .filter(|task| {
            if options.cipher.is_empty() && options.key_bits.is_empty() {
                modes.contains(&task.spec.mode()) && task.aes_bits() == Some(256)
            } else {
                true
            }
        })
        .copied()
        .collect()
}

fn ours(name: Backend, cipher: &Rc<sector_cipher::Cipher>, run: usize) -> Entry {
    Entry {
        name: format!("xtent {name}"),
        backend: Some(name),
        run,
        same_cipher: true,
        contestant: Box::new(Runs {
            cipher: cipher.clone(),
            run,
        }),
    }
}

/// One cipher at one sector size: everybody, both directions.
fn compare(
    task: &Task,
    options: &Options,
    backends: &[Backend],
    peers: &[Peer],
    meter: &mut Meter,
) -> Result<Vec<Row>, String> {
    let mut entries = Vec::new();
    for &backend in backends {
        let cipher = Rc::new(task.cipher(backend));
        entries.extend(
            options
                .runs()
                .into_iter()
                .map(|run| ours(backend, &cipher, run)),
        );
    }
    entries.extend(peers.iter().filter_map(|peer| peer.entry(task)));
    verify(task, &mut entries)?;

    // Who, then both directions of each.
    let mut turns: Vec<Turn> = Vec::new();
    for (who, entry) in entries.iter().enumerate() {
        let bytes = (entry.run * task.sector).max(BUFFER);
        turns.extend([true, false].map(|encrypt| Turn::Crypt {
            who,
            encrypt,
            bytes: bytes.next_multiple_of(entry.run * task.sector),
        }));
    }
    let mut limits = Vec::new();
    if let Some(rounds) = task.aes_rounds() {
        for &backend in Backend::available() {
            if limit::work(backend, rounds).is_some() {
                limits.push((backend, turns.len()));
                turns.push(Turn::Limit { backend, rounds });
            }
        }
    }
    let what = format!("{}, sectors of {}", task.title(), task.sector);
    let rates = meter.run(&what, &mut entries, &turns);

    // The best of those with the same cipher, else of its variants.
    let best_peer = |direction: usize| {
        let others = |same| {
            (0..entries.len())
                .filter(|&who| entries[who].backend.is_none() && entries[who].same_cipher == same)
                .map(|who| (who, &rates[2 * who + direction]))
                .max_by(|a, b| a.1.median().total_cmp(&b.1.median()))
        };
        others(true).or_else(|| others(false))
    };
    let best_peers = [best_peer(0), best_peer(1)];
    let rows = entries.iter().enumerate().map(|(who, entry)| {
        // A back-end's own vectors; the widest for everybody else.
        let limit = limits
            .iter()
            .find(|(backend, _)| Some(*backend) == entry.backend)
            .or(limits.last())
            .map(|&(_, turn)| &rates[turn]);
        let figure = |direction: usize| {
            let own: &Rates = &rates[2 * who + direction];
            let peer = best_peers[direction];
            Figure {
                gb_s: own.median(),
                of_limit: limit.map(|limit| own.ratio(limit)),
                to_best_peer: peer.map(|(_, peer)| own.ratio(peer)),
                best_peer: peer.map(|(who, _)| entries[who].name.clone()),
            }
        };
        Row {
            cipher: task.spec.to_string(),
            title: task.title(),
            key_bits: task.key_len * 8,
            aes_bits: task.aes_bits(),
            sector_size: task.sector,
            contestant: entry.name.clone(),
            backend: entry.backend.map(Backend::name),
            same_cipher: entry.same_cipher,
            sectors_per_call: entry.run,
            limit_gb_s: limit.map(Rates::median),
            decrypt_to_encrypt: rates[2 * who + 1].ratio(&rates[2 * who]),
            encrypt: figure(0),
            decrypt: figure(1),
        }
    });
    Ok(rows.collect())
}

/// Points on curves: which curve, at which x, and who.
type Points = Vec<(String, usize, Entry, usize)>;

/// Throughput with 1 to 16 sectors in flight.
fn in_flight(
    task: &Task,
    best: Backend,
    peers: &[Peer],
    meter: &mut Meter,
) -> Result<Vec<Curve>, String> {
    let cipher = Rc::new(task.cipher(best));
    let mut points: Points = Vec::new();
    for flows in 1..=Scattered::MOST {
        let bytes = BUFFER.next_multiple_of(flows * task.sector);
        let scattered = Entry {
            contestant: Box::new(Scattered {
                cipher: cipher.clone(),
                streams: flows,
            }),
            ..ours(best, &cipher, flows)
        };
        points.extend([
            (ONE.to_owned(), flows, ours(best, &cipher, 1), bytes),
            (RUN.to_owned(), flows, ours(best, &cipher, flows), bytes),
            (SINGLE.to_owned(), flows, scattered, bytes),
        ]);
    }
    for flows in [1, Scattered::MOST] {
        points.extend(a_peer(task, peers).map(|peer| (peer.name.clone(), flows, peer, BUFFER)));
    }
    curves(task, "flows", points, meter)
}

/// Requests of all sizes, chopped and whole.
fn sweep(
    task: &Task,
    best: Backend,
    peers: &[Peer],
    meter: &mut Meter,
) -> Result<Vec<Curve>, String> {
    let cipher = Rc::new(task.cipher(best));
    let mut points: Points = Vec::new();
    for size in REQUESTS
        .map(|log| 1 << log)
        .filter(|size| *size >= task.sector)
    {
        let bytes = BUFFER.max(size);
        let run = size / task.sector;
        points.extend([
            (ONE.to_owned(), size, ours(best, &cipher, 1), bytes),
            (WHOLE.to_owned(), size, ours(best, &cipher, run), bytes),
        ]);
        points.extend(a_peer(task, peers).map(|peer| (peer.name.clone(), size, peer, bytes)));
    }
    curves(task, "requests", points, meter)
}

/// The first library that has the cipher.
fn a_peer(task: &Task, peers: &[Peer]) -> Option<Entry> {
    peers.iter().find_map(|peer| peer.entry(task))
}

fn curves(
    task: &Task,
    what: &str,
    points: Points,
    meter: &mut Meter,
) -> Result<Vec<Curve>, String> {
    let mut entries = Vec::new();
    let mut places = Vec::new();
    let mut turns = Vec::new();
    for (who, (series, x, entry, bytes)) in points.into_iter().enumerate() {
        entries.push(entry);
        places.push((series, x));
        turns.extend([true, false].map(|encrypt| Turn::Crypt {
            who,
            encrypt,
            bytes,
        }));
    }
    verify(task, &mut entries)?;
    let what = format!("{what}, {}, sectors of {}", task.title(), task.sector);
    let rates = meter.run(&what, &mut entries, &turns);
    let mut curves: Vec<Curve> = Vec::new();
    for (who, (series, x)) in places.into_iter().enumerate() {
        let point = Point {
            x,
            encrypt_gb_s: rates[2 * who].median(),
            decrypt_gb_s: rates[2 * who + 1].median(),
        };
        if let Some(curve) = curves.iter_mut().find(|curve| curve.series == series) {
            curve.points.push(point);
        } else {
            curves.push(Curve {
                title: task.title(),
                cipher: task.spec.to_string(),
                key_bits: task.key_len * 8,
                sector_size: task.sector,
                series,
                points: vec![point],
            });
        }
    }
    Ok(curves)
}
