//! Relocations of the two processors, applied to the image before it is published.
//!
//! A function may refer to its own code and constants, to what its target has (see `symbols`), and to a short list of C
//! functions that LLVM calls of its own accord. What is outside may be far away, so each gets a thunk inside the image: a
//! jump to it, and behind the jump its address, which code that wants the address loads.

use super::bad;
use super::elf::{Elf, Home, Relocation};
use crate::abi::Target;
use crate::error::CodegenError;
use crate::symbols;

/// Bytes of one thunk.
pub(super) const THUNK_LEN: usize = 16;
/// Where in a thunk the address is.
const LITERAL: usize = 8;

const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;

/// What is outside of the image and referred to: (index of the symbol, address).
pub(super) fn externs(
    elf: &Elf<'_>,
    at: &[Option<usize>],
    target: &Target<'_>,
) -> Result<Vec<(usize, u64)>, CodegenError> {
    let mut found: Vec<(usize, u64)> = Vec::new();
    for r in elf.relocations.iter().filter(|r| at.get(r.section).is_some_and(Option::is_some)) {
        let symbol = elf.symbols.get(r.symbol).ok_or_else(|| bad("a relocation without a symbol"))?;
        if symbol.home == Home::Outside && !found.iter().any(|(i, _)| *i == r.symbol) {
            let address = symbols::address(symbol.name, target).or_else(|| runtime_function(symbol.name));
            let address = address
                .ok_or_else(|| bad(format!("it refers to `{}`, which is not provided", symbol.name)))?;
            found.push((r.symbol, address as u64));
        }
    }
    Ok(found)
}

/// What LLVM may call without being told to. The rounding functions are exact, so whose they are does not matter.
fn runtime_function(name: &str) -> Option<usize> {
    extern "C" fn floor(x: f64) -> f64 {
        x.floor()
    }
    extern "C" fn ceil(x: f64) -> f64 {
        x.ceil()
    }
    extern "C" fn trunc(x: f64) -> f64 {
        x.trunc()
    }
    extern "C" fn floorf(x: f32) -> f32 {
        x.floor()
    }
    extern "C" fn ceilf(x: f32) -> f32 {
        x.ceil()
    }
    extern "C" fn truncf(x: f32) -> f32 {
        x.trunc()
    }
    Some(match name {
        "memcpy" => libc::memcpy as *const () as usize,
        "memmove" => libc::memmove as *const () as usize,
        "memset" => libc::memset as *const () as usize,
        "floor" => floor as *const () as usize,
        "ceil" => ceil as *const () as usize,
        "trunc" => trunc as *const () as usize,
        "floorf" => floorf as *const () as usize,
        "ceilf" => ceilf as *const () as usize,
        "truncf" => truncf as *const () as usize,
        _ => return None,
    })
}

/// Everything that has an address now.
pub(super) struct Link<'a> {
    pub(super) elf: &'a Elf<'a>,
    /// Offset in the image per section.
    pub(super) at: &'a [Option<usize>],
    /// Address of the image.
    pub(super) base: u64,
    pub(super) externs: &'a [(usize, u64)],
    /// Offset of the first thunk.
    pub(super) thunks: usize,
}

impl Link<'_> {
    pub(super) fn apply(&self, image: &mut [u8]) -> Result<(), CodegenError> {
        for (i, (_, address)) in self.externs.iter().enumerate() {
            let at = self.thunks + i * THUNK_LEN;
            let thunk = image.get_mut(at..at + THUNK_LEN).ok_or_else(|| bad("no room for thunks"))?;
            thunk.copy_from_slice(&self.thunk(*address)?);
        }
        for r in &self.elf.relocations {
            let Some(section) = self.at.get(r.section).copied().flatten() else { continue };
            let at = section.checked_add(r.offset).filter(|at| *at < image.len());
            let at = at.ok_or_else(|| bad("a relocation outside of its section"))?;
            let place = self.base + at as u64;
            let target = self.target(r, place)?.wrapping_add_signed(r.addend);
            let field = image.get_mut(at..).ok_or_else(|| bad("a relocation outside of its section"))?;
            match self.elf.machine {
                EM_X86_64 => x86_64(r.kind, field, place, target)?,
                EM_AARCH64 => aarch64(r.kind, field, place, target)?,
                other => return Err(bad(format!("machine {other}"))),
            }
        }
        Ok(())
    }

    /// What the relocation at `place` is about.
    fn target(&self, r: &Relocation, place: u64) -> Result<u64, CodegenError> {
        let symbol = self.elf.symbols.get(r.symbol).ok_or_else(|| bad("a relocation without a symbol"))?;
        let found = match symbol.home {
            Home::Section(section) => {
                let section = self.at.get(section).copied().flatten();
                section.map(|at| (self.base + at as u64).wrapping_add(symbol.value))
            }
            Home::Outside => self.externs.iter().position(|(i, _)| *i == r.symbol).map(|i| {
                let address = self.externs[i].1;
                let thunk = self.base + (self.thunks + i * THUNK_LEN) as u64;
                match reference(self.elf.machine, r.kind) {
                    Reference::Literal => thunk + LITERAL as u64,
                    Reference::Jump(reach) if !within(address, place, reach) => thunk,
                    Reference::Jump(_) | Reference::Address => address,
                }
            }),
            Home::Other => None,
        };
        found.ok_or_else(|| bad(format!("`{}` is not loaded", symbol.name)))
    }

    /// A jump to an address behind the jump.
    fn thunk(&self, address: u64) -> Result<[u8; THUNK_LEN], CodegenError> {
        let jump: &[u8] = match self.elf.machine {
            // jmp *2(%rip); two bytes of padding align the address.
            EM_X86_64 => &[0xff, 0x25, 2, 0, 0, 0],
            // ldr x16, #8; br x16
            EM_AARCH64 => &[0x50, 0x00, 0x00, 0x58, 0x00, 0x02, 0x1f, 0xd6],
            other => return Err(bad(format!("machine {other}"))),
        };
        let mut thunk = [0; THUNK_LEN];
        thunk[..jump.len()].copy_from_slice(jump);
        thunk[LITERAL..].copy_from_slice(&address.to_le_bytes());
        Ok(thunk)
    }
}

/// How a relocation refers to something outside of the image.
enum Reference {
    /// By a jump or call that reaches so many bytes either way.
    Jump(u64),
    /// By a load of its address.
    Literal,
    /// By its address.
    Address,
}

fn reference(machine: u16, kind: u32) -> Reference {
    match (machine, kind) {
        (EM_X86_64, 2 | 4) => Reference::Jump(1 << 31),
        (EM_X86_64, 9 | 41 | 42) | (EM_AARCH64, 311 | 312) => Reference::Literal,
        (EM_AARCH64, 282 | 283) => Reference::Jump(1 << 27),
        _ => Reference::Address,
    }
}

/// Whether a jump at `place` reaches `address`, with room for the few bytes that an addend is.
fn within(address: u64, place: u64, reach: u64) -> bool {
    address.abs_diff(place) < reach - 64
}

fn x86_64(kind: u32, field: &mut [u8], place: u64, target: u64) -> Result<(), CodegenError> {
    let relative = target.wrapping_sub(place) as i64;
    match kind {
        // R_X86_64_64
        1 => write(field, target.to_le_bytes()),
        // R_X86_64_PC32, R_X86_64_PLT32, R_X86_64_GOTPCREL, R_X86_64_GOTPCRELX, R_X86_64_REX_GOTPCRELX
        2 | 4 | 9 | 41 | 42 => write(field, fits::<32>(relative)?.to_le_bytes()),
        // R_X86_64_PC64
        24 => write(field, relative.to_le_bytes()),
        other => Err(bad(format!("x86-64 relocation {other}"))),
    }
}

fn aarch64(kind: u32, field: &mut [u8], place: u64, target: u64) -> Result<(), CodegenError> {
    let relative = target.wrapping_sub(place) as i64;
    let low12 = (target & 0xfff) as u32;
    match kind {
        // R_AARCH64_ABS64
        257 => write(field, target.to_le_bytes()),
        // R_AARCH64_PREL64
        260 => write(field, relative.to_le_bytes()),
        // R_AARCH64_PREL32
        261 => write(field, fits::<32>(relative)?.to_le_bytes()),
        // R_AARCH64_ADR_PREL_PG_HI21, R_AARCH64_ADR_GOT_PAGE: pages between here and there, in two fields of ADRP
        275 | 311 => {
            let pages = fits::<33>((target & !0xfff).wrapping_sub(place & !0xfff) as i64)? >> 12;
            let bits = pages as u32;
            patch(field, 0x9f00_001f, (bits & 3) << 29 | (bits >> 2 & 0x7_ffff) << 5)
        }
        // R_AARCH64_ADD_ABS_LO12_NC, R_AARCH64_LDST8_ABS_LO12_NC
        277 | 278 => patch(field, !(0xfff << 10), low12 << 10),
        // R_AARCH64_LDST16/32/64/128_ABS_LO12_NC: the offset counts in units of the access
        284 => patch(field, !(0xfff << 10), low12 >> 1 << 10),
        285 => patch(field, !(0xfff << 10), low12 >> 2 << 10),
        // The last is R_AARCH64_LD64_GOT_LO12_NC.
        286 | 312 => patch(field, !(0xfff << 10), low12 >> 3 << 10),
        299 => patch(field, !(0xfff << 10), low12 >> 4 << 10),
        // R_AARCH64_JUMP26, R_AARCH64_CALL26
        282 | 283 => patch(field, 0xfc00_0000, (fits::<28>(relative)? >> 2) as u32 & 0x03ff_ffff),
        other => Err(bad(format!("AArch64 relocation {other}"))),
    }
}

/// `value`, if it is a signed number of `BITS` bits; as `i32` when 32 bits hold it.
fn fits<const BITS: u32>(value: i64) -> Result<Fitted<BITS>, CodegenError> {
    let spare = 64 - BITS;
    match value << spare >> spare == value {
        true => Ok(Fitted(value)),
        false => Err(bad("a relocation out of reach")),
    }
}

/// A signed number of `BITS` bits.
#[derive(Clone, Copy)]
struct Fitted<const BITS: u32>(i64);

impl Fitted<32> {
    fn to_le_bytes(self) -> [u8; 4] {
        (self.0 as i32).to_le_bytes()
    }
}

impl<const BITS: u32> std::ops::Shr<u32> for Fitted<BITS> {
    type Output = i64;
    fn shr(self, by: u32) -> i64 {
        self.0 >> by
    }
}

fn write<const N: usize>(field: &mut [u8], bytes: [u8; N]) -> Result<(), CodegenError> {
    let field = field.first_chunk_mut::<N>().ok_or_else(|| bad("a relocation outside of its section"))?;
    *field = bytes;
    Ok(())
}

/// Keeps the bits in `keep` of an instruction and sets `bits`.
fn patch(field: &mut [u8], keep: u32, bits: u32) -> Result<(), CodegenError> {
    let old = field.first_chunk::<4>().ok_or_else(|| bad("a relocation outside of its section"))?;
    let new = u32::from_le_bytes(*old) & keep | bits;
    write(field, new.to_le_bytes())
}
