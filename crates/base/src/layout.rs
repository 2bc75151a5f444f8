//! What machine code must know about the memory of the CPython it runs in, as plain data.
//!
//! In: filled in once by the bridge, whose start-up self-test compares it with behaviour. Out: offsets and addresses
//! that the code generator bakes into instructions. Must not know: how any of it was found out.

use crate::flavour::{DType, Holder, KnownType};

/// How an exact `int` stores its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntLayout {
    /// 3.11: signed digit count at `offset 16`, 30-bit digits from offset 24.
    SignedSize,
    /// 3.12 and later: tag word at offset 16 (sign in the low 2 bits, digit count from bit 3), digits from offset 24.
    Tagged,
}

/// Where an instance of an ordinary class keeps its attributes while nobody has asked for its dictionary. The attributes of
/// one class lie in the same order in all of them; one that is not set is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceLayout {
    /// 3.11: the word at this offset of the object points to them, or is null.
    Pointed { values: i32 },
    /// 3.12: the word at this offset is odd and one below their address, or something else is there.
    Tagged { word: i32 },
    /// 3.13: they lie in the object, from `values` on, as long as the byte at `valid` is not 0. A dictionary at `dict` (or
    /// null) shows the same attributes.
    Inline { valid: i32, values: i32, dict: i32 },
}

/// The ints that CPython has once each.
pub const SMALL_INTS: std::ops::RangeInclusive<i64> = -5..=256;

/// Offsets in bytes unless said otherwise; addresses are absolute.
#[derive(Clone, Debug)]
pub struct ObjectLayout {
    pub int: IntLayout,
    /// 3.12 and later: objects whose 32-bit reference count is negative are immortal.
    pub immortal: bool,
    /// `ob_type` of every object.
    pub ob_type: i32,
    /// 32 bits of a type: the number of what it is now, unique in the process; 0 when it has none.
    pub type_version: i32,
    pub instance: InstanceLayout,
    /// Word of a class: the attribute names that its instances number (0 for classes whose instances never do).
    pub class_names: i32,
    /// Word of those: how many they are. It only grows.
    pub class_names_used: i32,
    /// Item count of list, tuple, bytes, bytearray.
    pub var_size: i32,
    pub list_items: i32,
    /// Allocated length of a list.
    pub list_allocated: i32,
    pub tuple_items: i32,
    pub float_value: i32,
    /// Address of the int that is the first of `SMALL_INTS`; the others follow, `small_int_size` bytes each. 0: unknown.
    pub small_ints: usize,
    pub small_int_size: i32,
    /// How a `str` keeps its characters, 32 bits.
    pub str_state: i32,
    /// Bits of `str_state` that are `str_state_ascii` in a `str` whose characters are bytes below 128, at `str_ascii_data`.
    pub str_state_mask: u32,
    pub str_state_ascii: u32,
    pub str_ascii_data: i32,
    /// Address of 128 pointers: the `str`s of one such character, which CPython has once each. 0: unknown.
    pub characters: usize,
    pub bytes_data: i32,
    pub bytearray_start: i32,
    pub array_data: i32,
    /// `int`, 32 bits.
    pub array_ndim: i32,
    pub array_dims: i32,
    pub array_strides: i32,
    pub array_descr: i32,
    /// `int`, 32 bits.
    pub array_flags: i32,
    /// Bits of `array_flags` that must be set to read.
    pub array_flags_read: i32,
    /// Bits of `array_flags` that must be set to write.
    pub array_flags_write: i32,
    /// Value of a NumPy scalar.
    pub np_scalar_value: i32,
    /// Addresses of the types, indexed by `KnownType as usize`; 0 when the type does not exist in this process (no NumPy).
    pub types: [usize; KnownType::ALL.len()],
    /// Addresses of the built-in native-order dtype objects, indexed by `DType as usize`; 0 without NumPy.
    pub descrs: [usize; DType::ALL.len()],
    /// What a tensor has in the place of an array's dtype object, indexed by `DType as usize`; never 0.
    pub tensor_tags: [usize; DType::ALL.len()],
    pub none: usize,
    pub true_: usize,
    pub false_: usize,
    pub np_true: usize,
    pub np_false: usize,
    /// Field of the interpreter frame that holds the current instruction.
    pub frame_instr: i32,
    /// Width of the eval breaker that native code gets a pointer to, in bits: 32 or 64.
    pub breaker_bits: u8,
    /// Bits of the eval breaker that ask for attention.
    pub breaker_mask: u64,
}

impl ObjectLayout {
    /// Where an address lies among the small ints, in bytes from the first.
    pub fn among_small_ints(&self, address: usize) -> Option<usize> {
        let n = (SMALL_INTS.end() - SMALL_INTS.start() + 1) as usize;
        let bytes = address.checked_sub(self.small_ints)?;
        (self.small_ints != 0 && bytes < n * self.small_int_size as usize).then_some(bytes)
    }

    /// Address of an exact type, or `None` when this process does not have it.
    pub fn type_address(&self, ty: KnownType) -> Option<usize> {
        Some(self.types[ty as usize]).filter(|a| *a != 0)
    }

    /// The word at `array_descr` of a holder's objects of that element type, or `None` when this process has none.
    pub fn element_tag(&self, holder: Holder, dtype: DType) -> Option<usize> {
        let tags = match holder {
            Holder::NdArray => &self.descrs,
            Holder::Tensor => &self.tensor_tags,
        };
        Some(tags[dtype as usize]).filter(|tag| *tag != 0)
    }
}
