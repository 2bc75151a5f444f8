//! Makes the extension self-contained: LLVM's own dependencies are linked statically, and no symbol but
//! the module's entry leaves it (numba and torch bring their own LLVM into the same process).
//!
//! `llvm-sys` asks for those libraries with plain `-l`, which takes the shared one where both exist. A
//! directory that holds only the archives, searched first, turns each of them static.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What LLVM needs and a user's machine may not have, or may have too old.
const ARCHIVES: [&str; 5] = ["libstdc++.a", "libzstd.a", "libz.a", "libxml2.a", "libffi.a"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    pyo3_build_config::use_pyo3_cfgs();
    match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("linux") => link_statically(),
        Ok(other) => println!("cargo::warning=libraries of LLVM stay shared: untried on {other}"),
        Err(error) => panic!("cargo did not name the target system: {error}"),
    }
}

fn link_statically() {
    println!("cargo::rustc-link-arg-cdylib=-Wl,--exclude-libs,ALL");
    // The identity of the build: machine code in the cache is used by the build that made it only.
    println!("cargo::rustc-link-arg-cdylib=-Wl,--build-id=sha1");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR for every build script");
    let archives = Path::new(&out).join("archives");
    if archives.exists() {
        fs::remove_dir_all(&archives).expect("the build directory is ours");
    }
    fs::create_dir_all(&archives).expect("the build directory is ours");
    for name in ARCHIVES {
        match find_archive(name) {
            Some(path) => symlink(path, archives.join(name)).expect("the directory was made above"),
            None => println!("cargo::warning={name} is not installed, the shared one will be needed"),
        }
    }
    println!("cargo::rustc-link-search=native={}", archives.display());
}

/// Where the C compiler would take `name` from; it answers with the bare name when nowhere.
fn find_archive(name: &str) -> Option<PathBuf> {
    let answer = Command::new("cc").arg(format!("-print-file-name={name}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(answer.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}
