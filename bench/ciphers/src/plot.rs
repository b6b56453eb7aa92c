//! Plots as SVG, by hand: bars for the ciphers, lines for the sweeps.

use std::fmt::Write as _;
use std::path::Path;

use sector_cipher::Backend;

use crate::report::{Curve, Report, save};
use crate::runs;

/// Dark, middle, light and an accent: told apart in grey and by the colour-blind.
const COLOURS: [&str; 4] = ["#0b4f9c", "#5aa2e0", "#9a9a9a", "#d95f02"];
const TEXT: &str = "#222";
const GRID: &str = "#ddd";

/// Writes the plots of what has been measured.
pub(crate) fn write(report: &Report, dir: &Path, best: Backend) -> Result<(), String> {
    if !report.ciphers.is_empty() {
        save(dir, "ciphers.svg", &bars(report, best))?;
    }
    if !report.flows.is_empty() {
        let label = |x: usize| x.to_string();
        let svg = lines(
            &report.flows,
            &format!("Sectors in flight (k), encryption, {best}"),
            "k",
            label,
        );
        save(dir, "flows.svg", &svg)?;
    }
    if !report.requests.is_empty() {
        let label = |x: usize| match x {
            0..1024 => format!("{x}"),
            1024..1_048_576 => format!("{}K", x / 1024),
            _ => format!("{}M", x / 1_048_576),
        };
        let svg = lines(
            &report.requests,
            &format!("Requests chopped and whole, encryption, {best}"),
            "bytes per request",
            label,
        );
        save(dir, "requests.svg", &svg)?;
    }
    Ok(())
}

/// An SVG document under way.
struct Svg {
    body: String,
}

impl Svg {
    fn new() -> Self {
        Self {
            body: String::new(),
        }
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, size: u32, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            self.body,
            r#"<text x="{x:.0}" y="{y:.0}" text-anchor="{anchor}" font-size="{size}">{text}</text>"#
        );
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        let _ = writeln!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{colour}"/>"#
        );
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
        let _ = writeln!(
            self.body,
            r#"<path d="M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}" stroke="{colour}"/>"#
        );
    }

    fn polyline(&mut self, points: &[(f64, f64)], colour: &str) {
        let points: Vec<_> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            self.body,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2"/>"#,
            points.join(" ")
        );
    }

    fn finish(self, width: f64, height: f64) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"sans-serif\" fill=\"{TEXT}\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// A round number at or above `most`, and a step that divides it.
fn axis(most: f64) -> (f64, f64) {
    let magnitude = 10_f64.powf(most.max(1e-6).log10().floor());
    let step = [0.2, 0.5, 1.0, 2.0]
        .into_iter()
        .map(|factor| factor * magnitude)
        .find(|step| most / step <= 6.0)
        .unwrap_or(2.0 * magnitude);
    ((most / step).ceil() * step, step)
}

/// Ticks from zero to `top`.
fn ticks(top: f64, step: f64) -> impl Iterator<Item = f64> {
    (0..=20)
        .map(move |i| f64::from(i) * step)
        .take_while(move |at| *at <= top * 1.001)
}

/// A row of bars for every cipher, a panel for every sector size.
fn bars(report: &Report, best: Backend) -> String {
    const LEFT: f64 = 140.0;
    const PANEL: f64 = 330.0;
    const GAP: f64 = 30.0;
    const TOP: f64 = 78.0;
    const ROW: f64 = 30.0;
    const BAR: f64 = 8.0;

    let ours = |run: usize| {
        move |row: &&crate::report::Row| {
            row.backend == Some(best.name()) && row.sectors_per_call == run
        }
    };
    let mut sizes: Vec<_> = report.ciphers.iter().map(|row| row.sector_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let long = report
        .ciphers
        .iter()
        .filter(|row| row.backend == Some(best.name()) && row.sectors_per_call <= 64)
        .map(|row| row.sectors_per_call)
        .max()
        .unwrap_or(1);
    let titles: Vec<&str> = report
        .ciphers
        .iter()
        .filter(ours(1))
        .filter(|row| Some(&row.sector_size) == sizes.first())
        .map(|row| row.title.as_str())
        .collect();
    let most = report
        .ciphers
        .iter()
        .filter(|row| row.sectors_per_call <= 64)
        .map(|row| row.encrypt.gb_s)
        .chain(report.ciphers.iter().filter_map(|row| row.limit_gb_s))
        .fold(0.0, f64::max);
    let (top, step) = axis(most);

    let height = TOP + titles.len() as f64 * ROW + 34.0;
    let width = LEFT + sizes.len() as f64 * (PANEL + GAP);
    let mut svg = Svg::new();
    svg.text(
        10.0,
        22.0,
        "start",
        15,
        &format!("Encryption, GB/s of one core, back-end {best}"),
    );
    let legend = [
        (COLOURS[0], format!("runs of {long} sectors")),
        (COLOURS[1], "one sector per call".to_owned()),
        (
            COLOURS[2],
            "best other library, one sector per call".to_owned(),
        ),
        (COLOURS[3], "AES limit".to_owned()),
    ];
    let mut x = 10.0;
    for (i, (colour, name)) in legend.iter().enumerate() {
        svg.rect(x, 36.0, if i == 3 { 3.0 } else { 12.0 }, 10.0, colour);
        svg.text(x + 17.0, 45.0, "start", 11, name);
        x += 36.0 + 6.2 * name.len() as f64;
    }
    for (panel, &size) in sizes.iter().enumerate() {
        let left = LEFT + panel as f64 * (PANEL + GAP);
        let scale = PANEL / top;
        let bottom = TOP + titles.len() as f64 * ROW;
        svg.text(
            left,
            TOP - 10.0,
            "start",
            12,
            &format!("{size}-byte sectors"),
        );
        for at in ticks(top, step) {
            let x = left + at * scale;
            svg.line((x, TOP), (x, bottom), GRID);
            svg.text(x, bottom + 16.0, "middle", 11, &number(at));
        }
        for (i, title) in titles.iter().enumerate() {
            let y = TOP + i as f64 * ROW + 2.0;
            if panel == 0 {
                svg.text(LEFT - 8.0, y + 16.0, "end", 11, title);
            }
            let rows = || {
                report
                    .ciphers
                    .iter()
                    .filter(move |row| row.title == *title && row.sector_size == size)
            };
            let one = rows().find(ours(1));
            let peer = one.and_then(|one| one.encrypt.best_peer.as_ref());
            let bars = [
                rows().find(ours(long)),
                one,
                rows().find(|row| Some(&row.contestant) == peer),
            ];
            for (bar, row) in bars.into_iter().enumerate() {
                if let Some(row) = row {
                    let y = y + bar as f64 * (BAR + 0.5);
                    svg.rect(left, y, row.encrypt.gb_s * scale, BAR, COLOURS[bar]);
                }
            }
            if let Some(limit) = one.and_then(|row| row.limit_gb_s) {
                svg.rect(
                    left + limit * scale - 1.0,
                    y,
                    2.0,
                    3.0 * BAR + 1.0,
                    COLOURS[3],
                );
            }
        }
    }
    svg.finish(width, height)
}

/// A panel for every cipher and sector size, a line for every series.
fn lines(curves: &[Curve], title: &str, x_name: &str, label: impl Fn(usize) -> String) -> String {
    const LEFT: f64 = 44.0;
    const PANEL: (f64, f64) = (330.0, 190.0);
    const GAP: (f64, f64) = (30.0, 66.0);
    const TOP: f64 = 82.0;
    const COLUMNS: usize = 2;

    let mut panels: Vec<(&str, usize)> = Vec::new();
    let mut series: Vec<&str> = Vec::new();
    for curve in curves {
        if !panels.contains(&(&curve.title, curve.sector_size)) {
            panels.push((&curve.title, curve.sector_size));
        }
        if !series.contains(&curve.series.as_str()) {
            series.push(&curve.series);
        }
    }
    let colour = |name: &str| match name {
        runs::ONE => COLOURS[1],
        runs::RUN | runs::WHOLE => COLOURS[0],
        runs::SINGLE => COLOURS[3],
        _ => COLOURS[2],
    };
    let mut svg = Svg::new();
    svg.text(10.0, 22.0, "start", 15, title);
    let mut x = 10.0;
    for name in &series {
        svg.rect(x, 37.0, 14.0, 8.0, colour(name));
        svg.text(x + 19.0, 45.0, "start", 11, name);
        x += 40.0 + 6.2 * name.len() as f64;
    }
    let columns = panels.len().min(COLUMNS);
    for (i, &(title, size)) in panels.iter().enumerate() {
        let left = LEFT + (i % COLUMNS) as f64 * (PANEL.0 + GAP.0 + LEFT - 20.0);
        let top = TOP + (i / COLUMNS) as f64 * (PANEL.1 + GAP.1);
        let bottom = top + PANEL.1;
        let here = || {
            curves
                .iter()
                .filter(move |curve| curve.title == title && curve.sector_size == size)
        };
        let points = || here().flat_map(|curve| &curve.points);
        let most = points().map(|point| point.encrypt_gb_s).fold(0.0, f64::max);
        let (high, step) = axis(most);
        let mut xs: Vec<usize> = points().map(|point| point.x).collect();
        xs.sort_unstable();
        xs.dedup();
        // Equal distances: flows are counted one by one, requests double.
        let place = |x: usize| {
            let at = xs.partition_point(|other| *other < x) as f64;
            left + at * PANEL.0 / (xs.len().max(2) - 1) as f64
        };
        svg.text(
            left,
            top - 10.0,
            "start",
            12,
            &format!("{title}, {size}-byte sectors, GB/s"),
        );
        for at in ticks(high, step) {
            let y = bottom - at / high * PANEL.1;
            svg.line((left, y), (left + PANEL.0, y), GRID);
            svg.text(left - 6.0, y + 4.0, "end", 11, &number(at));
        }
        for &x in xs.iter().step_by(if xs.len() > 12 { 3 } else { 1 }) {
            svg.text(place(x), bottom + 16.0, "middle", 10, &label(x));
        }
        svg.text(left + PANEL.0 / 2.0, bottom + 32.0, "middle", 11, x_name);
        for curve in here() {
            let points: Vec<_> = curve
                .points
                .iter()
                .map(|point| (place(point.x), bottom - point.encrypt_gb_s / high * PANEL.1))
                .collect();
            svg.polyline(&points, colour(&curve.series));
        }
    }
    let rows = panels.len().div_ceil(COLUMNS);
    let width = (columns as f64 * (PANEL.0 + GAP.0 + LEFT)).max(x);
    svg.finish(width, TOP + rows as f64 * (PANEL.1 + GAP.1) - 20.0)
}

/// Without needless zeros.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (most, top, step) in [(37.9, 40.0, 10.0), (8.2, 10.0, 2.0), (0.47, 0.5, 0.1)] {
            let axis = axis(most);
            assert!(
                (axis.0 - top).abs() < 1e-9 && (axis.1 - step).abs() < 1e-9,
                "{axis:?}"
            );
        }
        assert_eq!(number(0.5), "0.5");
        assert_eq!(number(40.0), "40");
    }
}
