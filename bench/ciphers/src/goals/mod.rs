//! What the figures are held against: ratios that must be reached, and ratios
//! that are aimed at.

mod expected;

use sector_cipher::Backend;
use serde::Serialize;

use crate::report::Row;
pub(crate) use expected::{Expected, of_this_cpu};

/// A ratio, and what was expected of it.
#[derive(Debug, Serialize)]
pub(crate) struct Judged {
    pub(crate) what: String,
    /// Of what the value is a share.
    pub(crate) against: &'static str,
    pub(crate) must: f64,
    pub(crate) goal: f64,
    pub(crate) value: f64,
}

const LIMIT: &str = "AES limit";
const PEER: &str = "best peer";

/// Judges what has been measured; what has not is left out.
pub(crate) fn judge(expected: &Expected, rows: &[Row], best: Backend) -> Vec<Judged> {
    let mut judged = Vec::new();
    let mut add = |what: String, against, (must, goal): (f64, f64), value: Option<f64>| {
        if let Some(value) = value {
            judged.push(Judged {
                what,
                against,
                must,
                goal,
                value,
            });
        }
    };
    let xts = |bits, backend: Backend, sector, run| {
        find(rows, backend, run).find(move |row| {
            row.cipher == "aes-xts-plain64" && row.key_bits == bits && row.sector_size == sector
        })
    };
    for case in expected.xts {
        let run = match case.run {
            1 => "one per call".to_owned(),
            run => format!("runs of {run}"),
        };
        let what = format!("XTS AES-{}, {} B, {run}", case.aes_bits, case.sector_size);
        let figure =
            xts(2 * case.aes_bits, best, case.sector_size, case.run).map(|row| &row.encrypt);
        if let Some(ratios) = case.limit {
            add(what.clone(), LIMIT, ratios, figure.and_then(|f| f.of_limit));
        }
        if let Some(ratios) = case.peer {
            add(what, PEER, ratios, figure.and_then(|f| f.to_best_peer));
        }
    }
    for &(backend, sector, ratios) in expected.smaller {
        let figure = xts(512, backend, sector, 64).and_then(|row| row.encrypt.of_limit);
        let what = format!("XTS AES-256, {sector} B, runs of 64, {backend} only");
        add(what, LIMIT, ratios, figure);
    }
    for case in expected.wide {
        for (bits, ratios) in [(128, case.aes128), (256, case.aes256)] {
            let row = find(rows, best, 64).find(|row| {
                row.cipher == case.cipher
                    && row.aes_bits == Some(bits)
                    && row.sector_size == case.sector_size
            });
            if let Some(row) = row {
                let what = format!("{}, {} B, runs of 64", row.title, case.sector_size);
                add(what, LIMIT, ratios, row.encrypt.of_limit);
            }
        }
    }
    for cipher in ["capi:fast_horner(aes)-plain64", "aes-hctr2-plain64"] {
        let row = find(rows, best, 1).find(|row| {
            row.cipher == cipher && row.aes_bits == Some(128) && row.sector_size == 4096
        });
        if let Some(row) = row {
            let what = format!("{}, 4096 B, one per call", row.title);
            add(what, LIMIT, expected.one_per_call, row.encrypt.of_limit);
        }
    }
    for row in find(rows, best, 64).filter(|row| row.title.starts_with("Adiantum")) {
        let what = format!("{}, {} B, runs of 64", row.title, row.sector_size);
        add(what, PEER, (8.0, 8.0), row.encrypt.to_best_peer);
    }
    // Over all ciphers, the one that does worst.
    let short_runs = find(rows, best, 8)
        .filter(|row| is_wide(row))
        .filter_map(|short| {
            let long = find(rows, best, 64).find(|long| {
                (&long.cipher, long.key_bits, long.sector_size)
                    == (&short.cipher, short.key_bits, short.sector_size)
            })?;
            Some((short.encrypt.gb_s / long.encrypt.gb_s, short))
        });
    if let Some((value, row)) = worst(short_runs.collect()) {
        let what = format!(
            "wide-block, runs of 8, the worst: {}, {} B",
            row.title, row.sector_size
        );
        add(what, "runs of 64", (0.92, 0.92), Some(value));
    }
    for (name, wide) in [("XTS", false), ("wide-block", true)] {
        // CBC decrypts in parallel and cannot encrypt so.
        let rows = find(rows, best, 64)
            .filter(|row| is_wide(row) == wide && !row.cipher.starts_with("aes-cbc"))
            .map(|row| (row.decrypt_to_encrypt, row));
        if let Some((value, row)) = worst(rows.collect()) {
            let what = format!(
                "{name}, decryption, the worst: {}, {} B",
                row.title, row.sector_size
            );
            add(
                what,
                "encryption",
                (0.98, if wide { 0.98 } else { 0.99 }),
                Some(value),
            );
        }
    }
    judged
}

fn find(rows: &[Row], backend: Backend, run: usize) -> impl Iterator<Item = &Row> {
    rows.iter()
        .filter(move |row| row.backend == Some(backend.name()) && row.sectors_per_call == run)
}

fn worst(values: Vec<(f64, &Row)>) -> Option<(f64, &Row)> {
    values.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))
}

fn is_wide(row: &Row) -> bool {
    !row.cipher.starts_with("aes-xts") && !row.cipher.starts_with("aes-cbc")
}

/// As a Markdown table.
pub(crate) fn table(kind: &str, judged: &[Judged]) -> String {
    let mut text = format!(
        "Expected of: {kind}\n\n| case | against | must | goal | measured | |\n|---|---|---|---|---|---|\n"
    );
    for row in judged {
        let verdict = if row.value >= row.goal {
            "goal"
        } else if row.value >= row.must {
            "must"
        } else {
            "short"
        };
        text += &format!(
            "| {} | {} | {:.2} | {:.2} | {:.2} | {verdict} |\n",
            row.what, row.against, row.must, row.goal, row.value
        );
    }
    text
}
