//! The object table: the functions that machine code calls for operations on Python objects, one file per family, and
//! what goes with them: rebuilding objects at exits, profiles, the layout of this process.
//!
//! The contract of every entry (named by "the table's contract" in their safety comments):
//! * the GIL is held, all references are alive and borrowed, an object result is a new reference;
//! * null is passed only where `Entry`'s documentation says so;
//! * machine types as in `overdrive_codegen::abi`: `I1` results are `u8`; an entry that declines takes a pointer to its
//!   result last and gives 1, or 0 when nothing happened; variable arguments come as (first, count as `i64`), with a free
//!   slot before the first; `Observe` and `ObserveAttr` get `Rt` first;
//! * nothing unwinds.
//!
//! Errors are CPython's: an entry calls the function that the opcode calls, and where the opcode itself makes the
//! message, so does the entry, in the opcode's words.

mod arithmetic;
mod arrays;
mod attributes;
mod members;
mod names;
pub(crate) mod gil;
mod calls;
mod iterate;
mod build;
mod strings;
mod dicts;
mod functions;
mod boxing;
mod numbers;
mod numpy;
mod math;
mod profile;
mod materialise;
pub(crate) mod layout;
mod libm;
pub(crate) mod vectors;
mod python;
mod singles;
mod probe;
mod remembered;

use overdrive_base::table::Entry;
use pyo3::ffi;

pub use layout::object_layout;
pub use materialise::{State, drop_owned, materialise};
pub(crate) use members::{class_with, getter_of, member, member_of, method, method_of};
pub use names::is_turn_asked;
pub use probe::register;
pub use profile::{Profile, seen};

/// Address of an entry.
pub fn address(entry: Entry) -> usize {
    let function: *const () = match entry {
        Entry::Binary => arithmetic::binary as _,
        Entry::Inplace => arithmetic::inplace as _,
        Entry::Unary => arithmetic::unary as _,
        Entry::Compare => arithmetic::compare as _,
        Entry::IsTrue => arithmetic::is_true as _,
        Entry::Contains => arithmetic::contains as _,

        Entry::GetAttr => attributes::get_attr as _,
        Entry::SetAttr => attributes::set_attr as _,
        Entry::DelAttr => attributes::del_attr as _,
        Entry::GetItem => attributes::get_item as _,
        Entry::SetItem => attributes::set_item as _,
        Entry::DelItem => attributes::del_item as _,
        Entry::BeforeWith => attributes::before_with as _,
        Entry::SuperAttr => attributes::super_attr as _,

        Entry::LoadGlobal => names::load_global as _,
        Entry::StoreGlobal => names::store_global as _,
        Entry::CalleeIs => calls::callee_is as _,
        Entry::DelGlobal => names::del_global as _,
        Entry::GlobalInt => names::global_int as _,
        Entry::GlobalFloat => names::global_float as _,
        Entry::GlobalIs => names::global_is as _,
        Entry::ModuleAttrIs => names::module_attr_is as _,
        Entry::PropertyIs => members::property_is as _,
        Entry::MakeCell => names::make_cell as _,
        Entry::LoadCell => names::load_cell as _,
        Entry::StoreCell => names::store_cell as _,

        Entry::Call => calls::call as _,
        Entry::CallGiving => calls::call_giving as _,
        Entry::CallLevels => calls::call_levels as _,
        Entry::CallEx => calls::call_ex as _,

        Entry::GetIter => iterate::get_iter as _,
        Entry::Next => iterate::next as _,
        Entry::NextFailed => iterate::next_failed as _,
        Entry::IsUnique => iterate::is_unique as _,
        Entry::RangeIterNext => iterate::range_iter_next as _,
        Entry::RangeIterStop => iterate::range_iter_stop as _,
        Entry::RangeIterStep => iterate::range_iter_step as _,
        Entry::SeqIterSeq => iterate::seq_iter_seq as _,
        Entry::SeqIterPos => iterate::seq_iter_pos as _,

        Entry::BuildTuple => build::build_tuple as _,
        Entry::BuildList => build::build_list as _,
        Entry::BuildSet => build::build_set as _,
        Entry::BuildMap => build::build_map as _,
        Entry::BuildConstKeyMap => build::build_const_key_map as _,
        Entry::StrItem => strings::str_item as _,
        Entry::StrCompare => strings::str_compare as _,
        Entry::BuildString => build::build_string as _,
        Entry::BuildSlice => build::build_slice as _,
        Entry::Format => build::format as _,
        Entry::DictGet => dicts::dict_get as _,
        Entry::DictSetItem => dicts::dict_setitem as _,
        Entry::ListAppend => build::list_append as _,
        Entry::ListSetFloat => build::list_set_float as _,
        Entry::ListSetInt => build::list_set_int as _,
        Entry::ListExtend => build::list_extend as _,
        Entry::SetAdd => build::set_add as _,
        Entry::SetUpdate => build::set_update as _,
        Entry::MapAdd => build::map_add as _,
        Entry::DictUpdate => build::dict_update as _,
        Entry::DictMerge => build::dict_merge as _,
        Entry::ListToTuple => build::list_to_tuple as _,
        Entry::Unpack => build::unpack as _,
        Entry::UnpackEx => build::unpack_ex as _,

        Entry::MakeFunction => functions::make_function as _,
        Entry::ImportName => functions::import_name as _,
        Entry::ImportFrom => functions::import_from as _,

        Entry::BoxInt => ffi::PyLong_FromLongLong as _,
        Entry::BoxFloat => ffi::PyFloat_FromDouble as _,
        Entry::BoxNpF64 => boxing::box_np_f64 as _,
        Entry::BoxNpF32 => boxing::box_np_f32 as _,
        Entry::BoxNpI64 => boxing::box_np_i64 as _,
        Entry::BoxNpI32 => boxing::box_np_i32 as _,
        Entry::BoxNpU8 => boxing::box_np_u8 as _,
        Entry::BoxRangeIter => boxing::box_range_iter as _,
        Entry::UnboxInt => boxing::unbox_int as _,
        Entry::Dealloc => python::_Py_Dealloc as _,

        Entry::IntTrueDiv => numbers::int_true_div as _,
        Entry::IntPow => numbers::int_pow as _,
        Entry::FloatFloorDiv => numbers::float_floor_div as _,
        Entry::FloatMod => numbers::float_mod as _,
        Entry::FloatPow => numbers::float_pow as _,
        Entry::FloatRound => numbers::float_round as _,
        Entry::IntFloatCompare => numbers::int_float_compare as _,

        Entry::MathExp => math::exp as _,
        Entry::MathExpm1 => math::expm1 as _,
        Entry::MathLog => math::log as _,
        Entry::MathLog2 => math::log2 as _,
        Entry::MathLog10 => math::log10 as _,
        Entry::MathLog1p => math::log1p as _,
        Entry::MathSin => math::sin as _,
        Entry::MathCos => math::cos as _,
        Entry::MathTan => math::tan as _,
        Entry::MathAsin => math::asin as _,
        Entry::MathAcos => math::acos as _,
        Entry::MathAtan => math::atan as _,
        Entry::MathAtan2 => math::atan2 as _,
        Entry::MathSinh => math::sinh as _,
        Entry::MathCosh => math::cosh as _,
        Entry::MathTanh => math::tanh as _,
        Entry::MathErf => math::erf as _,
        Entry::MathErfc => math::erfc as _,
        Entry::MathFmod => math::fmod as _,
        Entry::MathPow => math::pow as _,
        Entry::MathHypot => math::hypot as _,

        Entry::FastExp => libm::c::exp as _,
        Entry::FastExpm1 => libm::c::expm1 as _,
        Entry::FastLog => libm::c::log as _,
        Entry::FastLog2 => libm::c::log2 as _,
        Entry::FastLog10 => libm::c::log10 as _,
        Entry::FastLog1p => libm::c::log1p as _,
        Entry::FastSin => libm::c::sin as _,
        Entry::FastCos => libm::c::cos as _,
        Entry::FastTan => libm::c::tan as _,
        Entry::FastAsin => libm::c::asin as _,
        Entry::FastAcos => libm::c::acos as _,
        Entry::FastAtan => libm::c::atan as _,
        Entry::FastSinh => libm::c::sinh as _,
        Entry::FastCosh => libm::c::cosh as _,
        Entry::FastTanh => libm::c::tanh as _,
        Entry::FastErf => libm::c::erf as _,
        Entry::FastErfc => libm::c::erfc as _,
        Entry::FastAtan2 => libm::c::atan2 as _,
        Entry::FastHypot => libm::c::hypot as _,
        Entry::FastPow => libm::c::pow as _,

        Entry::Observe => profile::observe as _,
        Entry::ObserveAttr => profile::observe_attr as _,
        Entry::ArraysApart => arrays::apart as _,
        Entry::ArrayWithin => arrays::within as _,
        Entry::ArrayAbove => arrays::above as _,
        Entry::ArrayWithinShared => arrays::within_shared as _,
        Entry::NpUnderIgnored => numpy::under_ignored as _,
        Entry::PollPending => names::poll_pending as _,
        Entry::GilGive => gil::give as _,
        Entry::GilTake => gil::take as _,
    };
    function as usize
}

/// Addresses of all entries, by `Entry as usize`.
pub fn addresses() -> Vec<usize> {
    Entry::ALL.iter().map(|entry| address(*entry)).collect()
}
