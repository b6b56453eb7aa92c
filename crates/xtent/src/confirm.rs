//! The question before something is destroyed.

use std::io::IsTerminal;

use crate::args::ConfirmArgs;
use crate::failure::{Failure, Result, continued};
use crate::output::complain;
use crate::secrets::ask_line;

/// Says what will happen and asks for a `YES` on the terminal. With
/// `--batch-mode` nobody is asked; without it and without a terminal the
/// command fails.
pub(crate) fn confirm(args: ConfirmArgs, what: &str) -> Result<()> {
    if args.batch_mode {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::parameters(format!("{what} Nothing was changed."))
            .advise("There is no terminal to ask on; give --batch-mode (-q) if that is wanted."));
    }
    confirm_by(what, "Are you sure? Type YES in capital letters: ", "YES")
}

/// Says what will happen, asks on the terminal, and takes nothing but `word` for a yes.
pub(crate) fn confirm_by(what: &str, question: &str, word: &str) -> Result<()> {
    complain(&continued(what));
    if ask_line(question)?.trim() == word {
        Ok(())
    } else {
        Err(Failure::parameters("not confirmed; nothing was changed"))
    }
}
