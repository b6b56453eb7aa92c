//! Threads that write what the kernel wants written.

/// Keeps the kernel from having this thread, and those that it starts from now on, wait for dirty pages in
/// allocations of memory: it is they who write them, for whoever has a file system on what they serve. Call it before
/// the volume is opened, since stores have threads too. It takes `CAP_SYS_RESOURCE`.
pub fn expect_writeback() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::info!(%error, "the kernel does not know that this process writes dirty pages");
    }
}
