//! Gives the shared library the name under which programs ask for it at run time. Its
//! number changes with the interface, see README.md.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_FAMILY").is_ok_and(|family| family == "unix")
        && std::env::var("CARGO_CFG_TARGET_VENDOR").is_ok_and(|vendor| vendor != "apple")
    {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsector_cipher.so.0");
    }
}
