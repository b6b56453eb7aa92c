//! `xtent completions`: shell completion scripts from the same grammar, with what
//! only a running system knows asked of `xtent` itself.

use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use sector_cipher::CipherSpec;

use super::status::{self, Names};
use crate::cli::Cli;
use crate::failure::Result;
use crate::output::write_stdout;

const MANUAL: &str = "\
EXAMPLES:
  bash, for all users:
    xtent completions bash > /usr/share/bash-completion/completions/xtent
  zsh, for one user (the folder must be in $fpath):
    xtent completions zsh > ~/.zfunc/_xtent
  fish, for one user:
    xtent completions fish > ~/.config/fish/completions/xtent.fish

NOTES:
  In bash, zsh and fish `umount`, `close`, `suspend`, `resume`, `detach`, `resize` and `status` complete
  what there is to be unmounted, closed, suspended, resumed, detached, made larger and shown.";

/// Print the completion script for a shell
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    /// The shell
    #[arg(required = true)]
    shell: Option<Shell>,
    /// For the scripts: print what there is, a name in each line
    #[arg(long, hide = true, exclusive = true)]
    names: Option<Names>,
}

/// Commands whose argument is one of such names, and the option that lists them.
const NAMED: [(&str, &str); 7] = [
    ("umount", "mounts"),
    ("close", "mappings"),
    ("suspend", "mappings"),
    ("resume", "mappings"),
    ("detach", "exports"),
    ("resize", "growing"),
    ("status", "all"),
];

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(which) = args.names {
        let mut text = status::names(which).join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        return write_stdout(text.as_bytes());
    }
    args.shell
        .map_or(Ok(()), |shell| write_stdout(script(shell).as_bytes()))
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut grammar(), "xtent", &mut script);
    let script = String::from_utf8_lossy(&script);
    match shell {
        Shell::Bash => bash(&script),
        Shell::Zsh => zsh(&script),
        Shell::Fish => fish(&script),
        _ => script.into_owned(),
    }
}

/// The grammar for people who type: without what is hidden, and with the ciphers by
/// name. Global options are added to each command only when it is built.
fn grammar() -> Command {
    let full = Cli::command();
    // clap takes names that live as long as the process, which ends right after.
    let ciphers: Vec<&'static str> = CipherSpec::all()
        .map(|spec| &*spec.to_string().leak())
        .collect();
    let visible = full.get_subcommands().filter(|c| !c.is_hide_set()).cloned();
    let visible = visible.map(|command| {
        let has_cipher = command.get_arguments().any(|a| a.get_id() == "cipher");
        if !has_cipher {
            return command;
        }
        let names = PossibleValuesParser::new(ciphers.clone());
        command.mut_arg("cipher", |arg| arg.value_parser(names))
    });
    Command::new("xtent")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .disable_help_subcommand(true)
        .args(full.get_arguments().cloned())
        .subcommands(visible)
}

/// Commands before options, and the names.
fn bash(script: &str) -> String {
    let mut text = String::with_capacity(script.len() + 2048);
    for line in script.lines() {
        let words = line
            .trim_start()
            .strip_prefix("opts=\"")
            .and_then(|words| words.strip_suffix('"'));
        if let Some(words) = words.filter(|words| !words.is_empty()) {
            let (options, others): (Vec<&str>, Vec<&str>) =
                words.split(' ').partition(|word| word.starts_with('-'));
            let indent = line.len() - line.trim_start().len();
            let all = [others, options].concat().join(" ");
            text += &format!("{:indent$}opts=\"{all}\"\n", "");
        } else {
            text += &line.replace("complete -F _xtent ", "complete -F _xtent_or_name ");
            text.push('\n');
        }
    }
    let cases: String = NAMED
        .iter()
        .map(|(command, names)| format!("        {command}) which={names} ;;\n"))
        .collect();
    text + &format!(
        "
_xtent_or_name() {{
    local cur=\"${{COMP_WORDS[COMP_CWORD]}}\" which=\"\" word IFS=$'\\n'
    for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do
        case \"$word\" in
        -*) continue ;;
{cases}        esac
        break
    done
    if [[ -n \"$which\" && \"$cur\" != -* ]]; then
        # Not compgen -W, which expands its words as the shell would: other users can
        # choose these names.
        COMPREPLY=()
        while read -r word; do
            [[ \"$word\" == \"$cur\"* ]] && COMPREPLY+=( \"$word\" )
        done < <(xtent completions --names \"$which\" 2>/dev/null)
        if (( ${{#COMPREPLY[@]}} )); then
            compopt -o filenames 2>/dev/null
            return 0
        fi
    fi
    unset IFS
    _xtent \"$@\"
}}
"
    )
}

/// The first argument of the commands in question, in their `case`.
fn zsh(script: &str) -> String {
    let mut text = String::with_capacity(script.len() + 1024);
    let mut names = None;
    for line in script.lines() {
        let opened = line.strip_prefix('(').and_then(|l| l.strip_suffix(')'));
        if let Some(command) = opened {
            names = NAMED.iter().find(|(c, _)| *c == command).map(|(_, n)| *n);
        }
        // ':place -- Its help:_files' \
        let argument = line.starts_with("':") || line.starts_with("'::");
        if let (Some(names), true, Some((start, _))) = (names, argument, line.rsplit_once(':')) {
            text += &format!("{start}:{{_xtent_names {names}}}' \\\n");
        } else if line.starts_with("if [ \"$funcstack[1]\"") {
            text += "\
_xtent_names() {
    local -a names
    names=(${(f)\"$(xtent completions --names $1 2>/dev/null)\"})
    (( $#names )) && compadd -f -a names
    [[ $1 == mappings ]] || _files
}

";
            text += line;
            text.push('\n');
        } else {
            text += line;
            text.push('\n');
        }
    }
    text
}

fn fish(script: &str) -> String {
    let mut text = script.to_owned();
    for (command, names) in NAMED {
        text += &format!(
            "complete -c xtent -n \"__fish_xtent_using_subcommand {command}\" -a \
             '(xtent completions --names {names} 2>/dev/null)'\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_offer_commands_first_and_nothing_hidden() {
        let script = script(Shell::Bash);
        let first = script
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("opts=\"format "))
            .count();
        assert_eq!(first, 1, "the commands come first");
        assert!(!script.contains("__man"), "a hidden command is offered");
        assert!(script.contains("aes-xts-plain64"), "ciphers by name");
    }

    #[test]
    fn names_are_asked_for_in_every_shell() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            for (command, names) in NAMED {
                assert!(
                    Cli::command().find_subcommand(command).is_some()
                        || cfg!(not(feature = "device-mapper")),
                    "{command}"
                );
                let asked = match shell {
                    Shell::Bash => format!("{command}) which={names}"),
                    Shell::Zsh => format!("_xtent_names {names}}}"),
                    _ => format!("--names {names}"),
                };
                assert!(script.contains(&asked), "{shell}: {asked}");
            }
        }
    }
}
