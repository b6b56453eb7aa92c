//! Prometheus' text format, version 0.0.4: a line for each counter, families together.

use std::fmt::{self, Write};

use xtent_volume::{EngineRuns, Histogram, Phase, RequestKind, Requests, Snapshot};

use super::Exported;

const MICROS: f64 = 1e6;

/// All metrics of these volumes.
pub fn text(exports: &[Exported]) -> String {
    let mut out = String::new();
    let rows: Vec<_> = exports
        .iter()
        .map(|export| {
            (
                export,
                Label(&export.name),
                export.volume.metrics().snapshot(),
            )
        })
        .collect();
    // Writing to a string does not fail.
    let _ = write_all(&mut out, &rows);
    out
}

type Row<'a> = (&'a Exported, Label<'a>, Snapshot);

fn write_all(out: &mut String, rows: &[Row<'_>]) -> fmt::Result {
    family(out, "xtent_build_info", "gauge", "The version of xtent.")?;
    writeln!(
        out,
        "xtent_build_info{{version=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION")
    )?;
    write_volumes(out, rows)?;
    write_requests(out, rows)?;
    write_engines(out, rows)?;

    family(
        out,
        "xtent_cipher_run_sectors",
        "histogram",
        "Sectors in each call of the cipher.",
    )?;
    for (_, export, snapshot) in rows {
        let labels = format!("export=\"{export}\"");
        histogram(
            out,
            "xtent_cipher_run_sectors",
            &labels,
            &snapshot.runs,
            1.0,
        )?;
    }
    family(
        out,
        "xtent_time_seconds_total",
        "counter",
        "What the time of requests was spent on, estimated from a sample of the quick ones.",
    )?;
    for (_, export, snapshot) in rows {
        for (phase, time) in Phase::ALL.iter().zip(snapshot.time) {
            let (phase, seconds) = (phase.name(), time.as_secs_f64());
            writeln!(
                out,
                "xtent_time_seconds_total{{export=\"{export}\",phase=\"{phase}\"}} {seconds}"
            )?;
        }
    }
    Ok(())
}

fn write_volumes(out: &mut String, rows: &[Row<'_>]) -> fmt::Result {
    let gauge = |out: &mut String, name: &str, help: &str, of: &dyn Fn(&Row<'_>) -> u64| {
        family(out, name, "gauge", help)?;
        for row in rows {
            writeln!(out, "{name}{{export=\"{}\"}} {}", row.1, of(row))?;
        }
        Ok(())
    };
    gauge(out, "xtent_volume_bytes", "Bytes of plaintext.", &|row| {
        row.0.volume.size()
    })?;
    gauge(
        out,
        "xtent_connections",
        "Clients that have chosen the export.",
        &|row| row.0.connections,
    )?;
    gauge(
        out,
        "xtent_requests_waiting",
        "Requests that wait for the store or for others.",
        &|row| row.2.under_way,
    )
}

fn write_requests(out: &mut String, rows: &[Row<'_>]) -> fmt::Result {
    let name = "xtent_request_duration_seconds";
    family(
        out,
        name,
        "histogram",
        "From when all of a request had been received until its answer was handed to the socket.",
    )?;
    for (_, export, snapshot) in rows {
        for (kind, requests) in RequestKind::ALL.iter().zip(&snapshot.requests) {
            let labels = format!("export=\"{export}\",operation=\"{}\"", kind.name());
            histogram(out, name, &labels, &requests.latency, MICROS)?;
        }
    }
    let counter = |out: &mut String, name: &str, help: &str, of: &dyn Fn(&Requests) -> u64| {
        family(out, name, "counter", help)?;
        for (_, export, snapshot) in rows {
            for (kind, requests) in RequestKind::ALL.iter().zip(&snapshot.requests) {
                let (kind, count) = (kind.name(), of(requests));
                writeln!(
                    out,
                    "{name}{{export=\"{export}\",operation=\"{kind}\"}} {count}"
                )?;
            }
        }
        Ok(())
    };
    counter(
        out,
        "xtent_request_bytes_total",
        "Bytes that requests asked for.",
        &|requests| requests.bytes,
    )?;
    counter(
        out,
        "xtent_request_errors_total",
        "Requests that the volume failed.",
        &|requests| requests.failed,
    )
}

/// Of the volumes that have a cipher engine, if there is one.
fn write_engines(out: &mut String, rows: &[Row<'_>]) -> fmt::Result {
    let rows = || {
        rows.iter()
            .filter(|(export, ..)| export.volume.has_engine())
    };
    if rows().next().is_none() {
        return Ok(());
    }
    let name = "xtent_engine_up";
    let help = "Whether the cipher engine is in service: 1, or 0.";
    family(out, name, "gauge", help)?;
    for (exported, export, _) in rows() {
        let is_up = u8::from(exported.volume.engine_failure().is_none());
        writeln!(out, "{name}{{export=\"{export}\"}} {is_up}")?;
    }
    let name = "xtent_engine_cpu_runs_total";
    let help = "Runs that the CPU did where there is a cipher engine, since they are short or the engine failed.";
    family(out, name, "counter", help)?;
    for (_, export, Snapshot { engine, .. }) in rows() {
        for (why, count) in [("short", engine.beside), ("failure", engine.replaced)] {
            writeln!(out, "{name}{{export=\"{export}\",why=\"{why}\"}} {count}")?;
        }
    }
    let mut counter = |name: &str, help: &str, of: &dyn Fn(&EngineRuns) -> u64| {
        family(out, name, "counter", help)?;
        for (_, export, snapshot) in rows() {
            let count = of(&snapshot.engine);
            writeln!(out, "{name}{{export=\"{export}\"}} {count}")?;
        }
        Ok(())
    };
    counter(
        "xtent_engine_runs_total",
        "Runs that the cipher engine did.",
        &|engine| engine.count,
    )?;
    counter(
        "xtent_engine_bytes_total",
        "Bytes that the cipher engine has encrypted and decrypted.",
        &|engine| engine.bytes,
    )?;
    counter(
        "xtent_engine_errors_total",
        "Runs that nobody did, since the cipher engine failed.",
        &|engine| engine.failed,
    )
}

fn family(out: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

/// Values are divided by `unit`.
fn histogram(
    out: &mut String,
    name: &str,
    labels: &str,
    histogram: &Histogram,
    unit: f64,
) -> fmt::Result {
    let mut count = 0;
    for (largest, more) in &histogram.cells {
        count += more;
        let largest = in_units(*largest, unit);
        writeln!(out, "{name}_bucket{{{labels},le=\"{largest}\"}} {count}")?;
    }
    count += histogram.larger;
    writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
    writeln!(
        out,
        "{name}_sum{{{labels}}} {}",
        in_units(histogram.sum, unit)
    )?;
    writeln!(out, "{name}_count{{{labels}}} {count}")
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has floats only")]
fn in_units(value: u64, unit: f64) -> f64 {
    value as f64 / unit
}

/// A label's value, with what the format would take for its end escaped.
struct Label<'a>(&'a str);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_end_where_they_should() {
        assert_eq!(Label("a\"b\\c\nd é").to_string(), "a\\\"b\\\\c\\nd é");
    }

    #[test]
    fn buckets_add_up() {
        let cells = Histogram {
            cells: vec![(1, 3), (2, 0), (4, 2)],
            larger: 1,
            sum: 30,
        };
        let mut out = String::new();
        histogram(&mut out, "x_seconds", "a=\"b\"", &cells, MICROS).unwrap();
        let expected = "x_seconds_bucket{a=\"b\",le=\"0.000001\"} 3\n\
                        x_seconds_bucket{a=\"b\",le=\"0.000002\"} 3\n\
                        x_seconds_bucket{a=\"b\",le=\"0.000004\"} 5\n\
                        x_seconds_bucket{a=\"b\",le=\"+Inf\"} 6\n\
                        x_seconds_sum{a=\"b\"} 0.00003\n\
                        x_seconds_count{a=\"b\"} 6\n";
        assert_eq!(out, expected);
    }
}
