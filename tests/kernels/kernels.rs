//! A kernel in Rust, by the crate overdrive-abi alone.

use overdrive_abi as abi;

unsafe extern "C" fn plan(context: *mut abi::Context, inputs: *const abi::Tensor, outputs: *mut abi::Tensor) -> abi::Status {
    let (a, b) = unsafe { (&*inputs, &*inputs.add(1)) };
    let float = abi::DType { code: 2, bits: 32, lanes: 1 };
    if a.dtype != float || b.dtype != float {
        return unsafe { ((*(*context).api).fail)(context, abi::TYPE_ERROR, c"dot takes float32".as_ptr()) };
    }
    if a.ndim != 1 || b.ndim != 1 || unsafe { *a.shape != *b.shape } {
        return unsafe { ((*(*context).api).fail)(context, abi::VALUE_ERROR, c"dot takes two vectors of one length".as_ptr()) };
    }
    unsafe { (*outputs).ndim = 0 };
    abi::OK
}

unsafe extern "C" fn dot(_context: *mut abi::Context, inputs: *const abi::Tensor, outputs: *const abi::Tensor) -> abi::Status {
    unsafe {
        let (a, b) = (&*inputs, &*inputs.add(1));
        let at = |t: &abi::Tensor, i: i64| *t.data.cast::<f32>().offset((i * *t.strides) as isize);
        *(*outputs).data.cast::<f32>() = (0..*a.shape).map(|i| at(a, i) * at(b, i)).sum();
    }
    abi::OK
}

struct Table([abi::Kernel; 1], abi::Library);
unsafe impl Sync for Table {}

static TABLE: Table = Table(
    [abi::Kernel {
        name: c"dot".as_ptr(),
        doc: c"The sum of products.".as_ptr(),
        n_inputs: 2,
        n_outputs: 1,
        flags: 0,
        n_parameters: 0,
        parameters: std::ptr::null(),
        plan: Some(plan),
        run: dot,
    }],
    abi::Library {
        major: abi::MAJOR,
        minor: abi::MINOR,
        kernel_size: size_of::<abi::Kernel>() as u32,
        n_kernels: 1,
        kernels: (&raw const TABLE.0).cast(),
    },
);

#[unsafe(no_mangle)]
pub extern "C" fn od_library_v1(_api: *const abi::Api) -> *const abi::Library {
    &raw const TABLE.1
}
