//! What this machine and this source tree have: folders, privileges, kernel
//! features.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The source tree.
pub fn root_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Cargo's target folder: the test binary is in `TARGET/PROFILE/deps`.
pub fn target_folder() -> PathBuf {
    let binary = std::env::current_exe().unwrap();
    binary.ancestors().nth(3).unwrap().to_owned()
}

/// Whether FUSE works here for this user. If not, says so where nobody can
/// miss it: such a test has not run, whatever the summary says.
pub fn has_fuse(test: &str) -> bool {
    let found = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    match found {
        Ok(_) => true,
        Err(error) => not_run(test, &format!("/dev/fuse: {error}")),
    }
}

/// Whether this is root; as [`has_fuse`].
pub fn is_root(test: &str) -> bool {
    rustix::process::geteuid().is_root() || not_run(test, "needs root")
}

/// Whether loop devices can be made and file systems mounted; as
/// [`has_fuse`].
pub fn has_loop(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return not_run(test, "needs root, to mount through a loop device");
    }
    match OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/loop-control")
    {
        Ok(_) => true,
        Err(error) => not_run(test, &format!("/dev/loop-control: {error}")),
    }
}

/// Says why a test has not run, or not in full; false. Writes past the test runner's capture and into `target/tests-not-run`,
/// which `make test` prints at its end.
pub fn not_run(test: &str, why: &str) -> bool {
    let line = format!("NOT RUN on this machine: {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(target_folder().join("tests-not-run"))
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap();
    false
}
