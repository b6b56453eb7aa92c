//! The results: JSON for programs, text and Markdown for people.

use std::fmt::Write as _;
use std::path::Path;

use sector_cipher::Backend;
use serde::Serialize;

use crate::chosen::Chosen;
use crate::goals::{self, Judged};

/// Everything that has been measured.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) settings: Settings,
    /// Slowest first.
    pub(crate) backends: Vec<&'static str>,
    pub(crate) chosen: Vec<Chosen>,
    pub(crate) peers: Vec<String>,
    pub(crate) left_out: Vec<String>,
    pub(crate) ciphers: Vec<Row>,
    pub(crate) flows: Vec<Curve>,
    pub(crate) requests: Vec<Curve>,
    /// Of which kind of CPU that is expected; `None` if nothing is of this one.
    pub(crate) goals_of: Option<&'static str>,
    pub(crate) goals: Vec<Judged>,
    /// The share of the readings that were disturbed by another hardware thread on
    /// the same core.
    pub(crate) shared_core: f64,
}

/// What it was measured on.
#[derive(Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cpus: usize,
    /// Those that matter to ciphers.
    features: Vec<&'static str>,
    system: String,
}

/// How it was measured.
#[derive(Serialize)]
pub(crate) struct Settings {
    pub(crate) rounds: usize,
    /// CPU time of a turn.
    pub(crate) slice_us: u128,
    /// Not long enough to mean much.
    pub(crate) quick: bool,
}

/// One contestant on one cipher.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) cipher: String,
    pub(crate) title: String,
    pub(crate) key_bits: usize,
    pub(crate) aes_bits: Option<usize>,
    pub(crate) sector_size: usize,
    pub(crate) contestant: String,
    /// Ours; other libraries have none.
    pub(crate) backend: Option<&'static str>,
    pub(crate) same_cipher: bool,
    pub(crate) sectors_per_call: usize,
    pub(crate) encrypt: Figure,
    pub(crate) decrypt: Figure,
    /// Of the AES unit with the vectors of the back-end, or the widest vectors.
    pub(crate) limit_gb_s: Option<f64>,
    pub(crate) decrypt_to_encrypt: f64,
}

/// One direction.
#[derive(Serialize)]
pub(crate) struct Figure {
    pub(crate) gb_s: f64,
    pub(crate) of_limit: Option<f64>,
    pub(crate) to_best_peer: Option<f64>,
    pub(crate) best_peer: Option<String>,
}

/// A line in a plot.
#[derive(Serialize)]
pub(crate) struct Curve {
    pub(crate) title: String,
    pub(crate) cipher: String,
    pub(crate) key_bits: usize,
    pub(crate) sector_size: usize,
    pub(crate) series: String,
    pub(crate) points: Vec<Point>,
}

/// `x` is a number of flows, or the bytes of a request.
#[derive(Serialize)]
pub(crate) struct Point {
    pub(crate) x: usize,
    pub(crate) encrypt_gb_s: f64,
    pub(crate) decrypt_gb_s: f64,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            info.lines()
                .find_map(|line| {
                    let (key, value) = line.split_once(':')?;
                    (key.trim() == name).then(|| value.trim().to_owned())
                })
                .unwrap_or_default()
        };
        let all = format!("{} {}", field("flags"), field("Features"));
        let has = |flag: &&str| all.split_whitespace().any(|have| have == *flag);
        let uname = rustix::system::uname();
        Self {
            cpu: format!(
                "{} (family {}, model {})",
                field("model name"),
                field("cpu family"),
                field("model")
            ),
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get()),
            features: [
                "aes",
                "avx2",
                "pclmulqdq",
                "vaes",
                "vpclmulqdq",
                "avx512f",
                "pmull",
            ]
            .into_iter()
            .filter(has)
            .collect(),
            system: format!(
                "{} {} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy(),
                uname.machine().to_string_lossy()
            ),
        }
    }

    /// In one line.
    fn line(&self) -> String {
        format!(
            "{}, {} CPUs, {}; {}",
            self.cpu,
            self.cpus,
            self.features.join(" "),
            self.system
        )
    }
}

impl Report {
    /// Writes the files other than plots.
    pub(crate) fn write(&self, dir: &Path, best: Backend) -> Result<(), String> {
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        save(dir, "ciphers.json", &(json + "\n"))?;
        if !self.ciphers.is_empty() {
            save(dir, "ciphers.txt", &self.text())?;
            save(dir, "ciphers.md", &self.markdown(best))?;
            if let Some(kind) = self.goals_of {
                save(dir, "goals.md", &goals::table(kind, &self.goals))?;
            }
        }
        Ok(())
    }

    fn head(&self) -> String {
        let mut text = format!("Machine: {}\n", self.machine.line());
        let _ = writeln!(
            text,
            "Others: {}",
            if self.peers.is_empty() {
                "none".to_owned()
            } else {
                self.peers.join("; ")
            }
        );
        let _ = writeln!(
            text,
            "Medians of {} rounds, {} ms of thread CPU time each; {:.0} % of the readings on a core shared with another hardware thread.{}",
            self.settings.rounds,
            self.settings.slice_us as f64 / 1000.0,
            100.0 * self.shared_core,
            if self.settings.quick {
                " QUICK: these figures mean little."
            } else {
                ""
            }
        );
        for chosen in &self.chosen {
            let _ = writeln!(text, "{chosen}");
        }
        text
    }

    /// Every row, both directions.
    fn text(&self) -> String {
        let mut text = self.head();
        text += "limit: share of the AES unit's rate; peer: ratio to the best other library.\n";
        let mut last = "";
        let mut size = 0;
        for row in &self.ciphers {
            if (last, size) != (&row.title, row.sector_size) {
                (last, size) = (&row.title, row.sector_size);
                let _ = write!(
                    text,
                    "\n{} ({}), sectors of {} bytes\n{:<34}{:>7} {:>9}{:>7}{:>7} {:>9}{:>7}{:>7} {:>8}\n",
                    row.title,
                    row.cipher,
                    row.sector_size,
                    "",
                    "per call",
                    "enc GB/s",
                    "limit",
                    "peer",
                    "dec GB/s",
                    "limit",
                    "peer",
                    "dec/enc"
                );
            }
            let _ = writeln!(
                text,
                "{:<34}{:>8} {} {} {:>8.2}",
                row.contestant,
                row.sectors_per_call,
                columns(&row.encrypt),
                columns(&row.decrypt),
                row.decrypt_to_encrypt
            );
        }
        text
    }

    /// A line for each cipher: the best back-end beside the best other library.
    pub(crate) fn summary(&self, best: Backend) -> String {
        let mut text = self.head();
        for table in self.tables(best) {
            let _ = writeln!(text, "\n{}\n", table.caption);
            let widths: Vec<usize> = (0..table.head.len())
                .map(|i| {
                    let cells = table.lines.iter().map(|line| line[i].chars().count());
                    cells
                        .chain([table.head[i].chars().count()])
                        .max()
                        .unwrap_or(0)
                })
                .collect();
            for line in [&table.head].into_iter().chain(&table.lines) {
                for (i, cell) in line.iter().enumerate() {
                    let width = widths[i];
                    let _ = if i == 0 {
                        write!(text, "{cell:<width$}")
                    } else {
                        write!(text, "  {cell:>width$}")
                    };
                }
                text += "\n";
            }
        }
        text
    }

    fn markdown(&self, best: Backend) -> String {
        let mut text = self.head().replace('\n', "\n\n");
        for table in self.tables(best) {
            let _ = writeln!(text, "{}\n", table.caption);
            let _ = writeln!(text, "| {} |", table.head.join(" | "));
            let _ = writeln!(text, "|{}", "---|".repeat(table.head.len()));
            for line in table.lines {
                let _ = writeln!(text, "| {} |", line.join(" | "));
            }
            text += "\n";
        }
        text
    }

    fn tables(&self, best: Backend) -> Vec<Table> {
        let ours = |row: &&Row| row.backend == Some(best.name());
        let mut sizes: Vec<_> = self.ciphers.iter().map(|row| row.sector_size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut runs: Vec<_> = self
            .ciphers
            .iter()
            .filter(ours)
            .map(|row| row.sectors_per_call)
            .collect();
        runs.sort_unstable();
        runs.dedup();
        let table = |size: usize| {
            let head = [String::from("cipher")]
                .into_iter()
                .chain(runs.iter().map(|run| match run {
                    1 => "one per call".to_owned(),
                    run => format!("runs of {run}"),
                }))
                .chain(
                    [
                        "dec/enc",
                        "best peer, one per call",
                        "to peer: one per call, runs",
                    ]
                    .map(String::from),
                )
                .collect();
            let mut lines = Vec::new();
            for first in self
                .ciphers
                .iter()
                .filter(ours)
                .filter(|row| row.sector_size == size && row.sectors_per_call == 1)
            {
                let same = |row: &&Row| {
                    (&row.cipher, row.key_bits, row.sector_size)
                        == (&first.cipher, first.key_bits, size)
                };
                let rows: Vec<_> = self.ciphers.iter().filter(ours).filter(same).collect();
                let mut line = vec![first.title.clone()];
                line.extend(rows.iter().map(|row| match row.encrypt.of_limit {
                    Some(limit) => format!("{:.1} ({limit:.2})", row.encrypt.gb_s),
                    None => format!("{:.1}", row.encrypt.gb_s),
                }));
                // The longest run that stays in the second-level cache.
                let long = rows.iter().rev().find(|row| row.sectors_per_call <= 64);
                let long = long.copied().unwrap_or(first);
                line.push(format!("{:.2}", long.decrypt_to_encrypt));
                let peer = first.encrypt.best_peer.as_ref().and_then(|name| {
                    self.ciphers
                        .iter()
                        .filter(same)
                        .find(|row| row.contestant == *name)
                });
                line.push(peer.map_or("none".into(), |peer| {
                    format!("{:.2} {}", peer.encrypt.gb_s, peer.contestant)
                }));
                let ratio = |row: &Row| {
                    row.encrypt
                        .to_best_peer
                        .map_or("–".into(), |ratio| format!("{ratio:.2}"))
                };
                line.push(format!("{}, {}", ratio(first), ratio(long)));
                lines.push(line);
            }
            Table {
                caption: format!(
                    "Encryption, {size}-byte sectors, back-end {best}: GB/s (and share of the AES limit)"
                ),
                head,
                lines,
            }
        };
        sizes
            .into_iter()
            .map(table)
            .filter(|table| !table.lines.is_empty())
            .collect()
    }
}

/// Cells, for text and for Markdown.
struct Table {
    caption: String,
    head: Vec<String>,
    lines: Vec<Vec<String>>,
}

fn columns(figure: &Figure) -> String {
    let ratio = |ratio: Option<f64>| match ratio {
        Some(ratio) => format!("{ratio:>7.2}"),
        None => format!("{:>7}", "-"),
    };
    format!(
        "{:>9.3}{}{}",
        figure.gb_s,
        ratio(figure.of_limit),
        ratio(figure.to_best_peer)
    )
}

/// Writes a file of the results.
pub(crate) fn save(dir: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = dir.join(name);
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|error| format!("{}: {error}", path.display()))
}
