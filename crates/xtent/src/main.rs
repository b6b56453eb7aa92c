//! The command line; thin: everything is called, nothing is computed here.

fn main() {}
