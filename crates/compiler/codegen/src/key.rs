//! What a compile is made of, as 32 bytes: two compiles with the same key give code that may stand for each other.
//!
//! In: all that `compile` takes, and the identity of the build. Out: a hash over all of it that code generation looks
//! at. Everything is written through `Hash`, derived for the parts of a function: a variant or field that is added is in
//! the key without anybody thinking of it, and the structs here are taken apart field by field, so that one more does
//! not compile until it is placed. Addresses are not in it, only which of them are the same (see `symbols`).

use std::hash::{Hash, Hasher};

use overdrive_base::layout::{InstanceLayout, IntLayout, ObjectLayout};
use overdrive_ir::function::Function;

use crate::abi::Target;
use crate::compile::Options;
use crate::machine;
use crate::symbols::Symbols;

/// See [`key()`].
pub type Key = [u8; 32];

/// The key of a compile by the build of the code generator that `build` names: the same bytes mean the same code, LLVM
/// included.
pub fn key(f: &Function, target: &Target<'_>, options: &Options, build: &[u8]) -> Key {
    let mut all = Bytes(Vec::with_capacity(1 << 14));
    ("code", build).hash(&mut all);
    settings(options, &mut all);
    layout(target.layout, &mut all);
    for (symbol, role) in Symbols::of(target).roles() {
        symbol.hash(&mut all);
        role.hash(&mut all);
    }
    for address in target.consts {
        target.layout.among_small_ints(*address).hash(&mut all);
    }
    function(f, &mut all);
    *blake3::hash(&all.0).as_bytes()
}

/// A key of the function alone, for what else is known of it: of the same function by the same build.
pub fn function_key(f: &Function, build: &[u8]) -> Key {
    let mut all = Bytes(Vec::with_capacity(1 << 14));
    ("function", build).hash(&mut all);
    function(f, &mut all);
    *blake3::hash(&all.0).as_bytes()
}

fn settings(options: &Options, to: &mut Bytes) {
    // Texts and the packed object are by-products.
    let Options { forced, cpu: _, keep: _, pack: _, level } = options;
    (forced, level, machine::processor_of(options)).hash(to);
}

fn layout(layout: &ObjectLayout, to: &mut Bytes) {
    let ObjectLayout {
        int,
        immortal,
        ob_type,
        type_version,
        instance,
        class_names,
        class_names_used,
        var_size,
        list_items,
        list_allocated,
        tuple_items,
        float_value,
        bytes_data,
        bytearray_start,
        array_data,
        array_ndim,
        array_dims,
        array_strides,
        array_descr,
        array_flags,
        array_flags_read,
        array_flags_write,
        np_scalar_value,
        small_int_size,
        str_state,
        str_state_mask,
        str_state_ascii,
        str_ascii_data,
        // Addresses.
        small_ints: _,
        characters: _,
        types: _,
        descrs: _,
        tensor_tags: _,
        none: _,
        true_: _,
        false_: _,
        np_true: _,
        np_false: _,
        frame_instr,
        breaker_bits,
        breaker_mask,
    } = layout;
    match int {
        IntLayout::SignedSize => 0u8.hash(to),
        IntLayout::Tagged => 1u8.hash(to),
    }
    match instance {
        InstanceLayout::Pointed { values } => (0u8, *values).hash(to),
        InstanceLayout::Tagged { word } => (1u8, *word).hash(to),
        InstanceLayout::Inline { valid, values, dict } => (2u8, valid, values, dict).hash(to),
    }
    (small_int_size, str_state, str_state_mask, str_state_ascii, str_ascii_data).hash(to);
    let offsets = [
        ob_type,
        type_version,
        class_names,
        class_names_used,
        var_size,
        list_items,
        list_allocated,
        tuple_items,
        float_value,
        bytes_data,
        bytearray_start,
        array_data,
        array_ndim,
        array_dims,
        array_strides,
        array_descr,
        array_flags,
        array_flags_read,
        array_flags_write,
        np_scalar_value,
        frame_instr,
    ];
    (immortal, offsets, breaker_bits, breaker_mask).hash(to);
}

fn function(f: &Function, to: &mut Bytes) {
    let Function {
        // For people.
        name: _,
        remarks: _,
        places: _,
        blocks,
        types,
        consts,
        exits,
        n_args,
        needs_frame,
        routines,
        returns,
        has_neighbours,
        fastmath,
        gives_gil,
        n_profile,
        global_slots,
    } = f;
    (blocks, types, consts, exits, global_slots).hash(to);
    (n_args, needs_frame, returns, has_neighbours, fastmath, gives_gil, n_profile).hash(to);
    routines.len().hash(to);
    routines.iter().for_each(|routine| function(routine, to));
}

/// Writes down what is hashed. The standard library's and derived `Hash` put lengths in front of sequences and numbers
/// in front of variants, so different values of one type never give the same bytes.
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("nobody asks for the short form")
    }
}
