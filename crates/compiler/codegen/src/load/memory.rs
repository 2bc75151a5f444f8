//! Code memory: one anonymous mapping per function, written once, then read-only and executable.

#![expect(unsafe_code, reason = "owns mappings and turns an address into a function")]

use std::io;
use std::ptr;

use crate::abi::NativeFn;
use crate::error::CodegenError;

/// A mapping: pages of code, then pages of constants. Unmapped on drop.
#[derive(Debug)]
pub(crate) struct CodeMemory {
    base: usize,
    /// Bytes of code pages.
    code_len: usize,
    /// Bytes of constant pages.
    data_len: usize,
    /// Bytes asked for.
    used: usize,
}

impl CodeMemory {
    /// Writable pages for `code` bytes of code and `data` bytes of constants.
    pub(super) fn reserve(code: usize, data: usize) -> Result<CodeMemory, CodegenError> {
        let page = page_size();
        let code_len = code.max(1).next_multiple_of(page);
        let data_len = data.next_multiple_of(page);
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                code_len + data_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        Ok(CodeMemory { base: base as usize, code_len, data_len, used: code + data })
    }

    /// Address of the image.
    pub(super) fn base(&self) -> u64 {
        self.base as u64
    }

    /// Offset of the constants.
    pub(super) fn code_len(&self) -> usize {
        self.code_len
    }

    pub(super) fn image_len(&self) -> usize {
        self.code_len + self.data_len
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Copies the image, takes the right to write away, and gives the function at `entry`. Called once.
    pub(super) fn publish(&mut self, image: &[u8], entry: usize) -> Result<NativeFn, CodegenError> {
        assert!(image.len() == self.image_len() && entry < self.code_len, "image of another mapping");
        // SAFETY: the mapping is ours, writable, of the image's length, and nobody else knows it yet.
        unsafe { ptr::copy_nonoverlapping(image.as_ptr(), self.base as *mut u8, image.len()) };
        // SAFETY: both ranges are whole pages inside our mapping; no Rust reference points into it.
        let protected = unsafe {
            libc::mprotect(self.base as *mut libc::c_void, self.code_len, libc::PROT_READ | libc::PROT_EXEC)
                == 0
                && (self.data_len == 0
                    || libc::mprotect(
                        (self.base + self.code_len) as *mut libc::c_void,
                        self.data_len,
                        libc::PROT_READ,
                    ) == 0)
        };
        if !protected {
            return Err(failed("mprotect"));
        }
        flush_instruction_cache(self.base, self.code_len);
        // SAFETY: the loader found a function symbol there, which the code generator declared with this signature.
        Ok(unsafe { std::mem::transmute::<usize, NativeFn>(self.base + entry) })
    }
}

impl Drop for CodeMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; `Compiled`'s contract says that nobody runs in it any more.
        unsafe { libc::munmap(self.base as *mut libc::c_void, self.code_len + self.data_len) };
    }
}

fn page_size() -> usize {
    // SAFETY: reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

fn failed(call: &'static str) -> CodegenError {
    CodegenError::Memory { call, source: io::Error::last_os_error() }
}

/// x86-64 keeps its instruction cache coherent.
#[cfg(target_arch = "x86_64")]
fn flush_instruction_cache(_base: usize, _len: usize) {}

/// Makes freshly written code visible to instruction fetch on all cores.
#[cfg(target_arch = "aarch64")]
fn flush_instruction_cache(base: usize, len: usize) {
    let ctr: usize;
    // SAFETY: CTR_EL0 is readable in user mode and has no side effect.
    unsafe { std::arch::asm!("mrs {}, ctr_el0", out(reg) ctr) };
    let (dline, iline) = (4 << (ctr >> 16 & 15), 4 << (ctr & 15));
    for at in (base & !(dline - 1)..base + len).step_by(dline) {
        // SAFETY: cleans a cache line of our own mapping.
        unsafe { std::arch::asm!("dc cvau, {}", in(reg) at) };
    }
    // SAFETY: a barrier.
    unsafe { std::arch::asm!("dsb ish") };
    for at in (base & !(iline - 1)..base + len).step_by(iline) {
        // SAFETY: invalidates an instruction line of our own mapping.
        unsafe { std::arch::asm!("ic ivau, {}", in(reg) at) };
    }
    // SAFETY: barriers.
    unsafe { std::arch::asm!("dsb ish", "isb") };
}

/// Never reached: `machine` refuses these processors first.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn flush_instruction_cache(_base: usize, _len: usize) {}
