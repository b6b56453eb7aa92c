//! `xtent man`: the manual pages, one per command, from the same grammar as
//! the help, and the overview. For packagers.

mod overview;

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, CommandFactory};
use clap_mangen::Man;
use roff::{Inline, Roff, bold, italic, roman};

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
        let path = args.dir.join(name);
        std::fs::write(&path, page)
            .map_err(|e| Failure::system(format!("cannot write {}", path.display()), e))?;
    }
    Ok(())
}

/// File name and text of every page: `xtent.8`, `xtent-key.8`, …, and `xtent.7`.
fn pages() -> Result<Vec<(String, Vec<u8>)>> {
    let mut root = Cli::command();
    root.build();
    let mut pages = Vec::new();
    collect(&root, "xtent", None, &mut pages)
        .and_then(|()| {
            pages.push(("xtent.7".to_owned(), overview::page()?));
            Ok(())
        })
        .map_err(|e| Failure::system("cannot make the manual pages", e))?;
    Ok(pages)
}

fn collect(
    command: &Command,
    name: &str,
    parent: Option<&str>,
    pages: &mut Vec<(String, Vec<u8>)>,
) -> std::io::Result<()> {
    pages.push((format!("{name}.8"), page(command, name, parent)?));
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
    synopsis(command, name).to_writer(&mut page)?;
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
    others.extend(
        subs.iter()
            .map(|sub| format!("{name}-{}(8)", sub.get_name())),
    );
    others.push("xtent(7)".to_owned());
    others.push("cryptsetup(8)".to_owned());
    roff.text([roman(others.join(", "))]);
    roff.to_writer(&mut page)?;
    Ok(page)
}

/// The command line with the values that options take. Those of every command are not
/// repeated: they are in xtent(8).
fn synopsis(command: &Command, name: &str) -> Roff {
    let mut line = vec![bold(name.replace('-', " "))];
    let of_every_command = |arg: &Arg| arg.is_global_set() && name != "xtent";
    let shown = || {
        command.get_arguments().filter(|arg| {
            !arg.is_hide_set()
                && !of_every_command(arg)
                && !matches!(
                    arg.get_action(),
                    ArgAction::Help
                        | ArgAction::HelpShort
                        | ArgAction::HelpLong
                        | ArgAction::Version
                )
        })
    };
    for arg in shown().filter(|arg| !arg.is_positional()) {
        line.push(roman(" "));
        line.extend(in_synopsis(arg));
    }
    for arg in command.get_positionals().filter(|arg| !arg.is_hide_set()) {
        line.push(roman(" "));
        line.extend(in_synopsis(arg));
    }
    if command.has_subcommands() {
        line.extend([roman(" "), italic("COMMAND"), roman(" ...")]);
    }
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text(line);
    roff
}

fn in_synopsis(arg: &Arg) -> Vec<Inline> {
    let values: Vec<String> = arg
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(ToString::to_string)
        .collect();
    let mut parts = Vec::new();
    match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => parts.push(bold(format!("--{long}"))),
        (None, Some(short)) => parts.push(bold(format!("-{short}"))),
        (None, None) => {}
    }
    if arg.is_positional() || arg.get_action().takes_values() {
        if !parts.is_empty() {
            parts.push(roman(" "));
        }
        let name = match values.is_empty() {
            true => arg.get_id().as_str().to_uppercase(),
            false => values.join(" "),
        };
        parts.push(italic(name));
    }
    if !arg.is_required_set() {
        parts.insert(0, roman("["));
        parts.push(roman("]"));
    }
    let repeats = matches!(arg.get_action(), ArgAction::Append | ArgAction::Count);
    if repeats {
        parts.push(roman("..."));
    }
    parts
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
            let wanted: &[&str] = match name.as_str() {
                "xtent.7" => &["NAME", "DESCRIPTION", "EXAMPLES", "SEE ALSO"],
                _ => &[
                    "NAME",
                    "SYNOPSIS",
                    "DESCRIPTION",
                    "EXAMPLES",
                    "EXIT STATUS",
                    "SEE ALSO",
                ],
            };
            for section in wanted {
                let heading = [format!(".SH {section}\n"), format!(".SH \"{section}\"\n")];
                assert!(
                    heading.iter().any(|h| page.contains(h.as_str())),
                    "{name} has no {section}"
                );
            }
        }
    }

    #[test]
    fn the_synopsis_has_the_values_of_options() {
        let pages = pages().unwrap();
        let text = |name: &str| {
            let page = &pages.iter().find(|(it, _)| it == name).unwrap().1;
            String::from_utf8(page.clone()).unwrap().replace("\\-", "-")
        };
        let serve = text("xtent-serve.8");
        assert!(
            serve.contains("\\fB--nbd\\fR \\fIADDRESS\\fR]..."),
            "{}",
            &serve[..800]
        );
        assert!(text("xtent-mount.8").contains("\\fIDEVICE\\fR \\fIDIR\\fR\n"));
        let overview = text("xtent.8");
        for (page, _) in pages
            .iter()
            .filter(|(name, _)| name.matches('-').count() == 1)
        {
            let name = page.trim_end_matches(".8");
            let see_also = overview.split("SEE ALSO").nth(1).unwrap();
            assert!(see_also.contains(&format!("{name}(8)")), "{name}");
        }
    }
}
