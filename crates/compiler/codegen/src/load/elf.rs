//! Reads a little-endian 64-bit relocatable ELF file into slices. Every access is checked: a damaged file is an error.

use super::bad;
use crate::error::CodegenError;

/// The parts of the file that loading needs.
pub(super) struct Elf<'a> {
    /// `e_machine`.
    pub(super) machine: u16,
    pub(super) sections: Vec<Section<'a>>,
    pub(super) symbols: Vec<Symbol<'a>>,
    pub(super) relocations: Vec<Relocation>,
}

pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    kind: u32,
    flags: u64,
    pub(super) size: usize,
    pub(super) align: usize,
    /// Contents; empty for sections without any in the file.
    pub(super) bytes: &'a [u8],
    /// `sh_info`: for relocations the section that they change.
    info: usize,
    /// `sh_link`: for symbols their string table.
    link: usize,
}

pub(super) struct Symbol<'a> {
    pub(super) name: &'a str,
    pub(super) home: Home,
    pub(super) value: u64,
}

/// Where a symbol is defined.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    Section(usize),
    Outside,
    /// Absolute or common: nothing that code refers to.
    Other,
}

/// Change `section` at `offset` so that it refers to `symbol + addend`.
pub(super) struct Relocation {
    pub(super) section: usize,
    pub(super) offset: usize,
    pub(super) kind: u32,
    pub(super) symbol: usize,
    pub(super) addend: i64,
}

const SHT_SYMTAB: u32 = 2;
const SHT_RELA: u32 = 4;
const SHT_NOBITS: u32 = 8;
const SHT_REL: u32 = 9;
const SHF_WRITE: u64 = 1;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;
const SHN_UNDEF: u16 = 0;
const SHN_LORESERVE: u16 = 0xff00;

impl Section<'_> {
    /// Unwind tables are not loaded: nothing unwinds through machine code.
    pub(super) fn is_loaded(&self) -> bool {
        self.flags & SHF_ALLOC != 0 && self.name != ".eh_frame"
    }

    pub(super) fn is_code(&self) -> bool {
        self.flags & SHF_EXECINSTR != 0
    }

    /// Constants that hold addresses: to be written while they are loaded, and never again.
    pub(super) fn is_constant(&self) -> bool {
        self.name.starts_with(".data.rel.ro")
    }

    pub(super) fn is_writable(&self) -> bool {
        self.flags & SHF_WRITE != 0
    }
}

impl<'a> Elf<'a> {
    pub(super) fn parse(file: &'a [u8]) -> Result<Elf<'a>, CodegenError> {
        if file.get(..6) != Some(b"\x7fELF\x02\x01") {
            return Err(bad("not a little-endian 64-bit ELF file"));
        }
        let machine = u16_at(file, 18)?;
        let table = u64_at(file, 40)? as usize;
        let (entry_len, count) = (u16_at(file, 58)? as usize, u16_at(file, 60)? as usize);
        let names = u16_at(file, 62)? as usize;

        let header =
            |i: usize| table.checked_add(i * entry_len).and_then(|at| file.get(at..)).ok_or_else(cut);
        let contents = |h: &[u8]| -> Result<&'a [u8], CodegenError> {
            if u32_at(h, 4)? == SHT_NOBITS {
                return Ok(&[]);
            }
            let (at, len) = (u64_at(h, 24)? as usize, u64_at(h, 32)? as usize);
            at.checked_add(len).and_then(|end| file.get(at..end)).ok_or_else(cut)
        };
        let names = contents(header(names)?)?;
        let mut sections = Vec::with_capacity(count);
        for i in 0..count {
            let h = header(i)?;
            sections.push(Section {
                name: string_at(names, u32_at(h, 0)? as usize)?,
                kind: u32_at(h, 4)?,
                flags: u64_at(h, 8)?,
                size: u64_at(h, 32)? as usize,
                link: u32_at(h, 40)? as usize,
                info: u32_at(h, 44)? as usize,
                align: u64_at(h, 48)? as usize,
                bytes: contents(h)?,
            });
        }
        let mut elf = Elf { machine, sections, symbols: vec![], relocations: vec![] };
        elf.read_symbols()?;
        elf.read_relocations()?;
        Ok(elf)
    }

    fn read_symbols(&mut self) -> Result<(), CodegenError> {
        for section in self.sections.iter().filter(|s| s.kind == SHT_SYMTAB) {
            let strings = self.sections.get(section.link).ok_or_else(cut)?.bytes;
            for entry in section.bytes.chunks_exact(24) {
                let home = match u16_at(entry, 6)? {
                    SHN_UNDEF => Home::Outside,
                    n if n < SHN_LORESERVE => Home::Section(n as usize),
                    _ => Home::Other,
                };
                let name = string_at(strings, u32_at(entry, 0)? as usize)?;
                self.symbols.push(Symbol { name, home, value: u64_at(entry, 8)? });
            }
        }
        Ok(())
    }

    fn read_relocations(&mut self) -> Result<(), CodegenError> {
        for section in &self.sections {
            let target_loaded = self.sections.get(section.info).is_some_and(Section::is_loaded);
            match section.kind {
                SHT_RELA if target_loaded => {}
                SHT_REL if target_loaded => return Err(bad("relocations without addends")),
                _ => continue,
            }
            for entry in section.bytes.chunks_exact(24) {
                let info = u64_at(entry, 8)?;
                self.relocations.push(Relocation {
                    section: section.info,
                    offset: u64_at(entry, 0)? as usize,
                    kind: info as u32,
                    symbol: (info >> 32) as usize,
                    addend: u64_at(entry, 16)? as i64,
                });
            }
        }
        Ok(())
    }
}

fn cut() -> CodegenError {
    bad("the file ends early")
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, CodegenError> {
    bytes.get(at..).and_then(|b| b.first_chunk()).map(|b| u16::from_le_bytes(*b)).ok_or_else(cut)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, CodegenError> {
    bytes.get(at..).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b)).ok_or_else(cut)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, CodegenError> {
    bytes.get(at..).and_then(|b| b.first_chunk()).map(|b| u64::from_le_bytes(*b)).ok_or_else(cut)
}

fn string_at(table: &[u8], at: usize) -> Result<&str, CodegenError> {
    let rest = table.get(at..).ok_or_else(cut)?;
    let len = rest.iter().position(|b| *b == 0).ok_or_else(cut)?;
    std::str::from_utf8(&rest[..len]).map_err(|_| bad("a name that is not UTF-8"))
}
