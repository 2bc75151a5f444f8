//! Vector forms of `math`'s functions, from the C library's own vector library, where there is one.
//!
//! In: the processor. Out: for each function the address of every form that the processor can run. glibc's libmvec
//! (x86-64, 2.22 or later; most functions since 2.35) states at most 4 units in the last place. What is not found is
//! not offered; the scalar function is called then.
#![expect(unsafe_code, reason = "looks up functions of a shared library")]

use std::sync::OnceLock;

use overdrive_base::fast::FUNCTIONS;
use overdrive_codegen::VectorForm;

/// Where vector functions come from, or why there are none.
pub(crate) struct Library {
    pub(crate) name: Result<&'static str, &'static str>,
    pub(crate) forms: Vec<VectorForm>,
}

/// The vector library of this process, looked up once.
pub(crate) fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(find)
}

/// Where they come from and which there are, for people.
pub(crate) fn describe() -> String {
    let Library { name, forms } = library();
    let name = match name {
        Ok(name) => name,
        Err(why) => return format!("none: {why}"),
    };
    let mut names: Vec<_> = forms.iter().filter_map(|form| form.entry.fast_name()).collect();
    names.sort_unstable();
    names.dedup();
    let lanes = forms.iter().map(|form| form.lanes).max().unwrap_or(0);
    format!("{name}, up to {lanes} floats at once: {}", names.join(" "))
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn find() -> Library {
    // By the x86-64 vector ABI: letter of the instruction set, lanes.
    let mut sets = vec![];
    if std::arch::is_x86_feature_detected!("sse4.2") {
        sets.push(('b', 2));
    }
    if std::arch::is_x86_feature_detected!("avx2") {
        sets.push(('d', 4));
    }
    if std::arch::is_x86_feature_detected!("avx512f") {
        sets.push(('e', 8));
    }
    // SAFETY: a name of glibc's; loading it runs nothing but its own relocations. It stays loaded.
    let handle = unsafe { libc::dlopen(c"libmvec.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Library { name: Err("libmvec.so.1, glibc's vector library, is not there"), forms: vec![] };
    }
    let mut forms: Vec<VectorForm> = vec![];
    for function in FUNCTIONS {
        let n_args = function.fast.signature().args.len();
        for (set, lanes) in &sets {
            let symbol = format!("_ZGV{set}N{lanes}{}_{}\0", "v".repeat(n_args), function.name);
            // SAFETY: the handle is valid, the name ends in a zero byte.
            let address = unsafe { libc::dlsym(handle, symbol.as_ptr().cast()) } as usize;
            let is_known = forms.iter().any(|f| f.entry == function.fast && f.lanes == *lanes);
            if address != 0 && !is_known {
                forms.push(VectorForm { entry: function.fast, lanes: *lanes, address });
            }
        }
    }
    Library { name: Ok("libmvec.so.1"), forms }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn find() -> Library {
    Library { name: Err("a vector library is known on Linux for x86-64 only"), forms: vec![] }
}
