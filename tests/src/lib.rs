//! Harness for the end-to-end tests: peers as processes, scratch files, the User Mode Linux bed.
