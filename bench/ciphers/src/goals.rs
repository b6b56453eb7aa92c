//! What the figures are held against: ratios that must be reached, and ratios
//! that are aimed at.

use sector_cipher::Backend;
use serde::Serialize;

use crate::report::Row;

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

/// XTS: words, key bits, sector size, run, and must and goal against the AES
/// limit and against the best peer.
type Xts = (
    &'static str,
    usize,
    usize,
    usize,
    Option<(f64, f64)>,
    Option<(f64, f64)>,
);
const XTS: [Xts; 7] = [
    (
        "XTS AES-256, 512 B, runs of 64",
        512,
        512,
        64,
        Some((0.90, 0.95)),
        Some((1.7, 1.85)),
    ),
    (
        "XTS AES-128, 512 B, runs of 64",
        256,
        512,
        64,
        Some((0.88, 0.93)),
        None,
    ),
    (
        "XTS AES-256, 512 B, runs of 8",
        512,
        512,
        8,
        Some((0.85, 0.90)),
        None,
    ),
    (
        "XTS AES-256, 512 B, one per call",
        512,
        512,
        1,
        None,
        Some((1.1, 1.2)),
    ),
    (
        "XTS AES-256, 4096 B, runs of 8",
        512,
        4096,
        8,
        Some((0.97, 0.99)),
        Some((1.07, 1.10)),
    ),
    (
        "XTS AES-256, 4096 B, runs of 64",
        512,
        4096,
        64,
        Some((0.97, 0.99)),
        Some((1.07, 1.10)),
    ),
    (
        "XTS AES-256, 4096 B, one per call",
        512,
        4096,
        1,
        None,
        Some((1.02, 1.05)),
    ),
];

/// XTS with AES-256 on smaller back-ends, runs of 64, against the AES limit of
/// their own vectors.
const SMALLER: [(Backend, usize, f64, f64); 4] = [
    (Backend::Vaes256, 512, 0.85, 0.90),
    (Backend::Vaes256, 4096, 0.92, 0.97),
    (Backend::AesNi, 512, 0.85, 0.92),
    (Backend::AesNi, 4096, 0.92, 0.95),
];

/// Wide-block ciphers, runs of 64: dm-crypt's name, sector size, then must and
/// goal with AES-128, must and goal with AES-256.
type Wide = (&'static str, usize, (f64, f64), (f64, f64));
const WIDE: [Wide; 12] = [
    ("capi:fast(aes)-plain64", 4096, (0.60, 0.70), (0.75, 0.87)),
    ("capi:fast(aes)-plain64", 512, (0.52, 0.60), (0.65, 0.75)),
    (
        "capi:fast_horner(aes)-plain64",
        4096,
        (0.66, 0.76),
        (0.84, 0.92),
    ),
    (
        "capi:fast_horner(aes)-plain64",
        512,
        (0.52, 0.63),
        (0.65, 0.80),
    ),
    ("aes-hctr2-plain64", 4096, (0.66, 0.77), (0.84, 0.93)),
    ("aes-hctr2-plain64", 512, (0.52, 0.64), (0.65, 0.82)),
    ("capi:eme2(aes)-plain64", 4096, (0.44, 0.48), (0.46, 0.49)),
    ("capi:eme2(aes)-plain64", 512, (0.40, 0.44), (0.42, 0.46)),
    ("capi:aez10(aes)-plain64", 4096, (0.33, 0.38), (0.34, 0.39)),
    ("capi:aez10(aes)-plain64", 512, (0.28, 0.34), (0.30, 0.36)),
    ("capi:xcb(aes)-plain64", 4096, (0.50, 0.65), (0.60, 0.80)),
    ("capi:xcb(aes)-plain64", 512, (0.40, 0.55), (0.50, 0.65)),
];

/// Judges what has been measured; what has not is left out.
pub(crate) fn judge(rows: &[Row], best: Backend) -> Vec<Judged> {
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
    for (what, bits, sector, run, limit, peer) in XTS {
        let figure = xts(bits, best, sector, run).map(|row| &row.encrypt);
        if let Some(ratios) = limit {
            add(what.into(), LIMIT, ratios, figure.and_then(|f| f.of_limit));
        }
        if let Some(ratios) = peer {
            add(
                what.into(),
                PEER,
                ratios,
                figure.and_then(|f| f.to_best_peer),
            );
        }
    }
    for (backend, sector, must, goal) in SMALLER {
        let figure = xts(512, backend, sector, 64).and_then(|row| row.encrypt.of_limit);
        let what = format!("XTS AES-256, {sector} B, runs of 64, {backend} only");
        add(what, LIMIT, (must, goal), figure);
    }
    for (cipher, sector, aes128, aes256) in WIDE {
        for (bits, ratios) in [(128, aes128), (256, aes256)] {
            let row = find(rows, best, 64).find(|row| {
                row.cipher == cipher && row.aes_bits == Some(bits) && row.sector_size == sector
            });
            if let Some(row) = row {
                let what = format!("{}, {sector} B, runs of 64", row.title);
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
            add(what, LIMIT, (0.55, 0.55), row.encrypt.of_limit);
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
pub(crate) fn table(judged: &[Judged]) -> String {
    let mut text =
        "| case | against | must | goal | measured | |\n|---|---|---|---|---|---|\n".to_owned();
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
