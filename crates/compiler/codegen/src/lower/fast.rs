//! Functions of `math` without CPython's rules: calls by name, of which LLVM's vectoriser is told the vector forms.
//!
//! In: an entry, its arguments. Out: a call of a function in the module that passes on to the C library's, by address;
//! beside it one such function for each vector form that the process has. They are inlined when the vectoriser has chosen.

use inkwell::attributes::AttributeLoc;
use inkwell::module::{Linkage, Module};
use inkwell::types::{BasicType, BasicTypeEnum};
use inkwell::values::{BasicValue, BasicValueEnum, FunctionValue};
use overdrive_base::fast::FUNCTIONS;
use overdrive_base::table::Entry;

use super::words::Touches;
use super::{Lower, Result};

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn fast(
        &mut self,
        entry: Entry,
        args: &[BasicValueEnum<'ctx>],
    ) -> Result<BasicValueEnum<'ctx>> {
        let name = symbol(entry, 1);
        let function = match self.module.get_function(&name) {
            Some(function) => function,
            None => self.forward(&name, self.w.f64.into(), args.len(), self.entry_address(entry)?)?,
        };
        let mut forms = vec![];
        for form in self.target.vectors.iter().filter(|form| form.entry == entry) {
            let vector = symbol(entry, form.lanes);
            if self.module.get_function(&vector).is_none() {
                self.forward(&vector, self.w.f64.vec_type(form.lanes).into(), args.len(), form.address)?;
            }
            // LLVM's own mangling: no mask, so many lanes, all arguments vectors; in brackets what to call.
            forms.push(format!("_ZGV_LLVM_N{}{}_{name}({vector})", form.lanes, "v".repeat(args.len())));
        }
        let args: Vec<_> = args.iter().map(|a| (*a).into()).collect();
        let call = self.b.build_direct_call(function, &args, "")?;
        self.w.describe_call(call, Touches::Nothing);
        if !forms.is_empty() {
            let forms = self.context.create_string_attribute("vector-function-abi-variant", &forms.join(","));
            call.add_attribute(AttributeLoc::Function, forms);
        }
        let result = call.try_as_basic_value().basic();
        result.ok_or_else(|| self.malformed(format!("{} has no result", entry.name())))
    }

    /// A function of `n` arguments that calls what is at an address.
    fn forward(
        &self,
        name: &str,
        ty: BasicTypeEnum<'ctx>,
        n: usize,
        address: usize,
    ) -> Result<FunctionValue<'ctx>> {
        let signature = ty.fn_type(&vec![ty.into(); n], false);
        let function = self.module.add_function(name, signature, Some(Linkage::Internal));
        self.w.describe_forward(function);
        let b = self.context.create_builder();
        b.position_at_end(self.context.append_basic_block(function, ""));
        let args: Vec<_> = function.get_param_iter().map(Into::into).collect();
        let call = b.build_indirect_call(signature, self.address(address)?, &args, "")?;
        self.w.describe_call(call, Touches::Nothing);
        let result = call.try_as_basic_value().basic();
        let result = result.ok_or_else(|| self.malformed(format!("{name} has no result")))?;
        b.build_return(Some(&result))?;
        Ok(function)
    }
}

/// Names of the functions that are called in a vector form, in order.
pub(crate) fn vector_forms_called(module: &Module<'_>) -> Vec<&'static str> {
    let is_called =
        |function: FunctionValue<'_>| function.as_global_value().as_pointer_value().get_first_use().is_some();
    let mut names: Vec<_> = FUNCTIONS
        .iter()
        .filter(|f| {
            [2, 4, 8].iter().any(|lanes| module.get_function(&symbol(f.fast, *lanes)).is_some_and(is_called))
        })
        .map(|f| f.name)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn symbol(entry: Entry, lanes: u32) -> String {
    match lanes {
        1 => format!("od_{}", entry.name()),
        lanes => format!("od_{}_{lanes}", entry.name()),
    }
}
