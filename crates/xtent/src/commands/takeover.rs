//! `xtent takeover`: has a standby serve now.

use serde_json::json;

use super::attach::ServerArgs;
use crate::args::ConfirmArgs;
use crate::cli::Global;
use crate::confirm::confirm;
use crate::failure::Result;

const MANUAL: &str = "\
EXAMPLES:
  On the machine of the standby, which is process 4711:
    xtent takeover --server 4711

NOTES:
  It is for a server that hangs, or whose machine nobody reaches: one that can be told to end
  should be, which flushes and frees the volume at once.

  Of an image in a Ceph cluster the lock is taken away, and the cluster shuts the old server
  out: nothing that it writes arrives any more, what was not flushed is lost, and it ends with
  exit code 5 as soon as it notices. A file or block device has nothing that would keep the old
  server from writing on, so it is refused.

EXIT STATUS:
  0  the old server is shut out; the standby serves as soon as it has opened the volume
  1  the volume cannot be taken over by force, or it was not confirmed
  4  there is no such server, or the cluster cannot be reached
  5  the server does not stand by";

/// Have a standby take its volume away from the server that has it
///
/// Of a server that was started with `xtent serve --standby` on an image in a Ceph cluster. What the
/// other server has not flushed is lost.
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    let server = args.server.find()?;
    confirm(
        args.confirm,
        "The server that has the volume now is shut out: what it has not flushed is lost.",
    )?;
    server.take_over()?;
    output.done(
        &json!({ "taken_over": true }),
        "The other server is shut out; the standby serves.",
    )
}
