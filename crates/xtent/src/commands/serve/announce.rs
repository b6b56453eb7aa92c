//! What a server says when it is ready.

use std::path::Path;

use serde_json::{Value, json};
use xtent_control::Served;
use xtent_volume::DiscardPolicy;

use crate::args::TlsArgs;
use crate::failure::Result;
use crate::output::Output;
use crate::size::show_size;
use crate::volumes::{Told, Volumes};

/// For programs.
fn name(policy: DiscardPolicy) -> &'static str {
    match policy {
        DiscardPolicy::Never => "never",
        DiscardPolicy::Allow => "allow",
        DiscardPolicy::Zero => "zero",
    }
}

/// One export, for programs.
fn export(told: &Told) -> Value {
    json!({
        "uris": told.uris,
        "export": told.served.name,
        "size": told.served.size,
        "sector_size": told.sector_size,
        "read_only": told.served.read_only,
        "discard": name(told.discard),
    })
}

/// Prints the URIs, ready to paste, and for people how to use them.
pub(super) fn announce(
    is_one: bool,
    machine: Option<&Path>,
    tls: &TlsArgs,
    metrics: &[String],
    volumes: &Volumes,
    in_force: &[&str],
    output: &Output,
) -> Result<()> {
    let all = volumes.told();
    let mut uris: Vec<String> = all.iter().flat_map(|told| told.uris.clone()).collect();
    if all.is_empty() {
        // Where those that are attached later will be found.
        uris = volumes.uris("");
    }
    let mut object = match &all[..] {
        [one] if is_one => export(one),
        _ => {
            let with_device = |told: &Told| {
                let mut object = export(told);
                object["device"] = json!(told.served.device);
                object
            };
            let volumes: Vec<Value> = all.iter().map(with_device).collect();
            json!({ "uris": uris, "volumes": volumes })
        }
    };
    object["tls"] = json!(tls.name());
    object["metrics"] = json!(metrics);
    object["sandbox"] = json!(in_force);
    object["pid"] = json!(std::process::id());
    object["vhost_user"] = json!(machine);
    let mut lines = uris.clone();
    lines.extend(machine.map(|path| format!("vhost-user:{}", path.display())));
    output.result(&object, lines.join("\n"))?;
    if let (true, Some(path), Some(told)) = (output.has_viewer(), machine, all.first()) {
        output.note(format!(
            "Serving {}. Try:\n  qemu-system-x86_64 -m 1G -object memory-backend-memfd,id=m,size=1G,share=on \
             -numa node,memdev=m \\\n    -chardev socket,id=c,path={},reconnect=1 -device vhost-user-blk-pci,chardev=c ...\n\
             (with reconnect-ms=1000 in place of reconnect=1 for a new QEMU). \
             Ctrl-C ends it, after a flush.",
            described(&told.served),
            path.display()
        ));
    }
    if output.has_viewer()
        && let (Some(uri), Some(told)) = (uris.first(), all.first())
    {
        let what = match &all[..] {
            [one] => described(&one.served),
            _ => format!("{} volumes", all.len()),
        };
        output.note(format!(
            "Serving {what}. Try:\n  nbdinfo '{uri}'\n  nbdcopy -p '{uri}' copy.raw\n\
             Ctrl-C ends it, after a flush.",
        ));
        tracing::debug!(export = told.served.name, "ready");
    }
    Ok(())
}

fn described(served: &Served) -> String {
    let access = if served.read_only { ", read-only" } else { "" };
    format!("{} ({}{access})", served.device, show_size(served.size))
}

/// What was found to be in order.
pub(super) fn announce_check(found: &[(String, u64)], output: &Output) -> Result<()> {
    let volumes: Vec<Value> = found
        .iter()
        .map(|(name, size)| json!({ "export": name, "size": size }))
        .collect();
    let lines: Vec<String> = found
        .iter()
        .map(|(name, size)| match name.as_str() {
            "" => format!("The export without a name: {}", show_size(*size)),
            name => format!("{name:?}: {}", show_size(*size)),
        })
        .collect();
    output.done(&json!({ "volumes": volumes }), lines.join("\n"))
}
