//! From LLVM's object file to code in memory.
//!
//! In: a relocatable ELF file of one function, and the addresses that its symbols have here. Out: `CodeMemory` and the
//! entry. Nothing of the file is trusted that could make loading go wrong; that its code is right is for whoever kept it
//! to know. Done by hand because it is small: one mapping per function, nothing registered anywhere, freed on drop, no lock
//! shared with another LLVM in the process. Writable and executable at no time.

mod elf;
mod relocate;
mod memory;

pub(crate) use memory::CodeMemory;

use crate::abi::{NativeFn, Target};
use crate::error::CodegenError;
use elf::{Elf, Home, Section};
use relocate::Link;

/// No section asks for more than a page.
const MOST_ALIGNED: usize = 4096;

/// Loads the object and finds `symbol` in it.
pub(crate) fn object(
    bytes: &[u8],
    symbol: &str,
    target: &Target<'_>,
) -> Result<(CodeMemory, NativeFn), CodegenError> {
    let elf = Elf::parse(bytes)?;
    let mut layout = Layout::of(&elf)?;
    let externs = relocate::externs(&elf, &layout.at, target)?;
    let thunks = layout.place_thunks(externs.len());

    let mut memory = CodeMemory::reserve(layout.code_len, layout.data_len)?;
    let mut image = vec![0u8; memory.image_len()];
    layout.at_address(memory.code_len());
    for (section, at) in elf.sections.iter().zip(&layout.at) {
        if let Some(at) = at {
            image[*at..*at + section.bytes.len()].copy_from_slice(section.bytes);
        }
    }
    Link { elf: &elf, at: &layout.at, base: memory.base(), externs: &externs, thunks }.apply(&mut image)?;

    let (section, value) = elf
        .symbols
        .iter()
        .find_map(|s| match s.home {
            Home::Section(section) if s.name == symbol => Some((section, s.value)),
            _ => None,
        })
        .ok_or_else(|| bad(format!("no symbol {symbol}")))?;
    let start = layout.at.get(section).copied().flatten();
    let start = start.ok_or_else(|| bad(format!("{symbol} is not in a loaded section")))?;
    let entry = usize::try_from(value).ok().and_then(|value| start.checked_add(value));
    let entry = entry.filter(|at| *at < memory.code_len());
    let entry = memory.publish(&image, entry.ok_or_else(|| bad(format!("{symbol} is not in its code")))?)?;
    Ok((memory, entry))
}

fn bad(what: impl Into<String>) -> CodegenError {
    CodegenError::Object { what: what.into() }
}

/// Where each section goes: code first, constants behind it on pages of their own.
struct Layout {
    /// Offset in the image per section, if loaded. Until `at_address`, those of constants count from their own start.
    at: Vec<Option<usize>>,
    is_data: Vec<bool>,
    code_len: usize,
    data_len: usize,
}

impl Layout {
    fn of(elf: &Elf<'_>) -> Result<Layout, CodegenError> {
        let mut layout = Layout { at: vec![], is_data: vec![], code_len: 0, data_len: 0 };
        for section in &elf.sections {
            let len = match section {
                s if !s.is_loaded() => None,
                s if s.is_writable() && s.size > 0 && !s.is_constant() => {
                    return Err(bad(format!("writable section {}", s.name)));
                }
                s if s.is_code() => Some(&mut layout.code_len),
                _ => Some(&mut layout.data_len),
            };
            layout.is_data.push(section.is_loaded() && !section.is_code());
            layout.at.push(len.map(|len| place(len, section)).transpose()?);
        }
        Ok(layout)
    }

    /// Room for jumps to functions outside of the image; gives the offset of the first.
    fn place_thunks(&mut self, n: usize) -> usize {
        let start = self.code_len.next_multiple_of(relocate::THUNK_LEN);
        self.code_len = start + n * relocate::THUNK_LEN;
        start
    }

    /// Constants begin at `data_start` of the image.
    fn at_address(&mut self, data_start: usize) {
        for (at, is_data) in self.at.iter_mut().zip(&self.is_data) {
            if let (Some(at), true) = (at, is_data) {
                *at += data_start;
            }
        }
    }
}

fn place(len: &mut usize, section: &Section<'_>) -> Result<usize, CodegenError> {
    if section.align > MOST_ALIGNED {
        return Err(bad(format!("{} is aligned to {} bytes", section.name, section.align)));
    }
    let at = len.next_multiple_of(section.align.max(1));
    *len = at + section.bytes.len();
    Ok(at)
}
