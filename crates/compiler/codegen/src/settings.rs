//! LLVM's settings that have no other way in than its command line, once for the process.
//!
//! In: nothing. Out: LLVM, which is linked in by itself and seen by nobody else in the process, keeps them.

#![expect(unsafe_code, reason = "LLVM's C interface for its command line")]

use std::ffi::CStr;
use std::ptr::null;

use inkwell::llvm_sys::support::LLVMParseCommandLineOptions;

/// Loop strength reduction tries combinations of induction variables for a quarter of the time that code generation
/// takes; addresses of the form `base + index * size` are what our loops have anyway.
const SETTINGS: [&CStr; 2] = [c"overdrive", c"-disable-lsr"];

/// To be called before the first compile.
pub(crate) fn apply() {
    let arguments = SETTINGS.map(CStr::as_ptr);
    // SAFETY: strings that live as long as the process; LLVM copies what it keeps. It prints and ends the process for a
    // setting that it does not know, so that a test fails when another version has none of that name.
    unsafe { LLVMParseCommandLineOptions(arguments.len() as i32, arguments.as_ptr(), null()) };
}
