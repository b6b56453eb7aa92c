//! The same metrics as JSON, for `xtent status`.

use serde_json::{Map, Value, json};
use xtent_volume::{Histogram, Phase, RequestKind, Volume};

/// What a volume has done. Times are in seconds, bounds of latencies in microseconds.
pub fn json(volume: &Volume) -> Value {
    let snapshot = volume.metrics().snapshot();
    let requests: Map<_, _> = RequestKind::ALL
        .iter()
        .zip(&snapshot.requests)
        .map(|(kind, requests)| {
            let object = json!({
                "count": requests.latency.count(),
                "bytes": requests.bytes,
                "errors": requests.failed,
                "microseconds": histogram(&requests.latency),
            });
            (kind.name().to_owned(), object)
        })
        .collect();
    let time: Map<_, _> = Phase::ALL
        .iter()
        .zip(snapshot.time)
        .map(|(phase, time)| (phase.name().to_owned(), json!(time.as_secs_f64())))
        .collect();
    let mut all = json!({
        "requests": requests,
        "run_sectors": histogram(&snapshot.runs),
        "seconds": time,
        "waiting": snapshot.under_way,
    });
    if volume.has_engine() {
        all["engine"] = json!({
            "runs": snapshot.engine.count,
            "bytes": snapshot.engine.bytes,
            "errors": snapshot.engine.failed,
            "cpu_runs": {
                "short": snapshot.engine.beside,
                "failure": snapshot.engine.replaced,
            },
            "out_of_service": volume.engine_failure(),
            "from_bytes": volume.engine_threshold(),
        });
    }
    all
}

/// The cells that are not empty: the largest value of each (none of the last), and how many.
fn histogram(histogram: &Histogram) -> Value {
    let cells = histogram.cells.iter();
    let mut cells: Vec<Value> = cells
        .filter(|(_, count)| *count > 0)
        .map(|(largest, count)| json!({ "up_to": largest, "count": count }))
        .collect();
    if histogram.larger > 0 {
        cells.push(json!({ "up_to": null, "count": histogram.larger }));
    }
    json!({ "cells": cells, "sum": histogram.sum })
}
