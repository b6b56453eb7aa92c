//! `xtent man`: the manual pages, one per command, from the same grammar as
//! the help. For packagers.

use std::path::PathBuf;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use roff::{Roff, bold, roman};

use crate::cli::Cli;
use crate::failure::{EXIT_STATUS, Failure, Result};

/// Write the manual pages to a folder
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The folder, which must exist
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    for (name, page) in pages()? {
        let path = args.dir.join(format!("{name}.8"));
        std::fs::write(&path, page)
            .map_err(|e| Failure::system(format!("cannot write {}", path.display()), e))?;
    }
    Ok(())
}

/// Name and text of every page: `xtent`, `xtent-key`, `xtent-key-add`, …
fn pages() -> Result<Vec<(String, Vec<u8>)>> {
    let mut root = Cli::command();
    root.build();
    let mut pages = Vec::new();
    collect(&root, "xtent", None, &mut pages)
        .map_err(|e| Failure::system("cannot make the manual pages", e))?;
    Ok(pages)
}

fn collect(
    command: &Command,
    name: &str,
    parent: Option<&str>,
    pages: &mut Vec<(String, Vec<u8>)>,
) -> std::io::Result<()> {
    pages.push((name.to_owned(), page(command, name, parent)?));
    for sub in command.get_subcommands().filter(|s| !s.is_hide_set()) {
        collect(
            sub,
            &format!("{name}-{}", sub.get_name()),
            Some(name),
            pages,
        )?;
    }
    Ok(())
}

fn page(command: &Command, name: &str, parent: Option<&str>) -> std::io::Result<Vec<u8>> {
    let manual = command
        .get_after_long_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let mut page = Vec::new();
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .section("8")
        .source(concat!("Xtent ", env!("CARGO_PKG_VERSION")))
        .manual("Disk encryption");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;

    let mut roff = Roff::new();
    let subs: Vec<_> = command
        .get_subcommands()
        .filter(|s| !s.is_hide_set())
        .collect();
    if !subs.is_empty() {
        roff.control("SH", ["COMMANDS"]);
        for sub in &subs {
            roff.control("TP", []);
            roff.text([bold(format!("{name}-{}(8)", sub.get_name()))]);
            roff.text([roman(
                sub.get_about().map(ToString::to_string).unwrap_or_default(),
            )]);
        }
    }
    sections(&mut roff, &manual);
    if !manual.contains(EXIT_STATUS) {
        sections(&mut roff, EXIT_STATUS);
    }
    roff.control("SH", ["SEE ALSO"]);
    let mut others: Vec<String> = parent.into_iter().map(|p| format!("{p}(8)")).collect();
    others.push("cryptsetup(8)".to_owned());
    roff.text([roman(others.join(", "))]);
    roff.to_writer(&mut page)?;
    Ok(page)
}

/// The manual text of a command: lines `HEADING:` open sections, lines indented
/// by four are shown as they are, other lines are text.
fn sections(roff: &mut Roff, manual: &str) {
    let mut literal = false;
    let mut table = false;
    for line in manual.lines() {
        let is_literal = line.starts_with("    ");
        if literal && !is_literal {
            roff.control("fi", []);
            roff.control("RE", []);
        }
        if !literal && is_literal {
            roff.control("RS", ["4"]);
            roff.control("nf", []);
        }
        literal = is_literal;
        if let Some(heading) = line.strip_suffix(':').filter(|l| !l.starts_with(' ')) {
            roff.control("SH", [heading]);
            table = heading == "EXIT STATUS";
        } else if is_literal {
            roff.text([roman(line.trim_start())]);
        } else if line.is_empty() {
            roff.control("PP", []);
        } else if let (true, Some((code, meaning))) = (table, line.trim_start().split_once("  ")) {
            roff.control("TP", ["4"]);
            roff.text([bold(code)]);
            roff.text([roman(meaning)]);
        } else {
            roff.text([roman(line.trim_start())]);
        }
    }
    if literal {
        roff.control("fi", []);
        roff.control("RE", []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_sections() {
        let pages = pages().unwrap();
        assert!(pages.len() > 20, "{}", pages.len());
        for (name, page) in pages {
            let page = String::from_utf8(page).unwrap();
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "EXIT STATUS"] {
                let heading = [format!(".SH {section}\n"), format!(".SH \"{section}\"\n")];
                assert!(
                    heading.iter().any(|h| page.contains(h.as_str())),
                    "{name} has no {section}"
                );
            }
        }
    }
}
