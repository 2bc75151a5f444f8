//! Integer and float operations on any bits, against Rust's own scalars: one function per operation, many inputs.

#![expect(unsafe_code, reason = "calls machine code")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr;

use overdrive_base::flavour::DType;
use overdrive_codegen::{Compiled, Level, Options, Rt, compile};
use overdrive_ir::interpret::heap::Heap;
use overdrive_ir::parse::parse;
use proptest::prelude::{any, prop_assert_eq, proptest};
use proptest::test_runner::TestCaseError;

use crate::run::{entries, target};
use crate::world::{Python, World};

thread_local! {
    static CODE: RefCell<HashMap<String, Compiled>> = RefCell::default();
}

/// Runs `inst` on words: memory cells of `dtype` in, a cell of `out` back; `None` when it leaves. The arguments are passed
/// as raw cells: the function's "objects" are arrays whose data pointer is read from the header.
fn eval(dtype: DType, out: DType, inst: &str, words: [u64; 2]) -> Option<u64> {
    let (name, result) = (dtype.name(), out.name());
    let text = format!(
        "function \"f\" args 3 {{\nconst0 = none\nexit0 = resume 0 [borrow v0, borrow v1, borrow v2] [] \"leaves\"\n\
         b0(v0: obj, v1: obj, v2: obj):\n    v3 = array_data v0\n    v4 = array_data v1\n    v5 = array_data v2\n    \
         v6 = load {name}, v3\n    v7 = load {name}, v4\n    v8 = {inst}\n    store {result}, v5, v8\n    \
         v9 = oconst const0\n    return v9\n}}\n"
    );
    let world = World::new(Heap::new(), Python::V311);
    CODE.with_borrow_mut(|code| {
        let code = code.entry(text.clone()).or_insert_with(|| {
            let f = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let entries = entries();
            let mut target = target(&world, &entries, &[0x1000]);
            target.services.exit = leaves as *const () as usize;
            let level = if text.len() % 2 == 0 { Level::Quick } else { Level::Full };
            compile(&f, &target, &Options { level, ..Options::default() }).expect("compiles")
        });
        let mut cells = [words[0], words[1], 0xeeee_eeee_eeee_eeee];
        // Headers with nothing but the data pointer, at its offset.
        let mut headers: [[usize; 3]; 3] =
            std::array::from_fn(|i| [1, 0, ptr::from_mut(&mut cells[i]) as usize]);
        let mut args: Vec<*mut u8> = headers.iter_mut().map(|h| h.as_mut_ptr().cast()).collect();
        let mut rt = Rt { code_base: ptr::null(), owner: ptr::null_mut(), profile: ptr::null_mut() };
        let entry = code.entry();
        // SAFETY: the function reads the three headers and their cells, and needs no frame, poll or table.
        let result = unsafe { entry(args.as_mut_ptr(), ptr::null_mut(), &mut rt, ptr::null()) };
        // SAFETY: machine code wrote the third cell through a pointer to it.
        (result as usize == 0x1000).then(|| unsafe { ptr::from_ref(&cells[2]).read_volatile() })
    })
}

extern "C" fn leaves() -> usize {
    0x2000
}

fn int(inst: &str, a: i64, b: i64) -> Option<i64> {
    eval(DType::I64, DType::I64, inst, [a as u64, b as u64]).map(|w| w as i64)
}

fn compare(dtype: DType, inst: &str, a: u64, b: u64) -> bool {
    match eval(dtype, DType::Bool, inst, [a, b]).map(|w| w as u8) {
        Some(0) => false,
        Some(1) => true,
        other => panic!("{inst} gave {other:?}"),
    }
}

fn same_f64(inst: &str, got: Option<u64>, expected: f64) -> Result<(), TestCaseError> {
    let got = f64::from_bits(got.expect("returns"));
    // Which NaN comes out of an operation is the processor's choice.
    match expected.is_nan() {
        true => prop_assert_eq!(got.is_nan(), true, "{}", inst),
        false => prop_assert_eq!(got.to_bits(), expected.to_bits(), "{}", inst),
    }
    Ok(())
}

/// Numbers near the edges as often as any others.
fn edgy() -> impl proptest::strategy::Strategy<Value = i64> {
    proptest::prop_oneof![
        any::<i64>(),
        -9i64..10,
        proptest::sample::select(vec![
            i64::MIN,
            i64::MIN + 1,
            i64::MAX,
            i64::MAX - 1,
            1 << 32,
            -(1 << 32),
            1 << 31
        ]),
    ]
}

fn edgy_f64() -> impl proptest::strategy::Strategy<Value = f64> {
    use std::f64::consts::PI;
    proptest::prop_oneof![
        proptest::num::f64::ANY,
        proptest::sample::select(vec![
            0.0,
            -0.0,
            1.0,
            -1.5,
            0.5,
            2.5,
            PI,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN
        ]),
        (-1e3..1e3f64),
        (-9e15..9e15f64),
    ]
}

proptest! {
    #[test]
    fn wrapping_arithmetic(a in edgy(), b in edgy()) {
        prop_assert_eq!(int("iadd v6, v7", a, b), Some(a.wrapping_add(b)));
        prop_assert_eq!(int("isub v6, v7", a, b), Some(a.wrapping_sub(b)));
        prop_assert_eq!(int("imul v6, v7", a, b), Some(a.wrapping_mul(b)));
        prop_assert_eq!(int("iand v6, v7", a, b), Some(a & b));
        prop_assert_eq!(int("ior v6, v7", a, b), Some(a | b));
        prop_assert_eq!(int("ixor v6, v7", a, b), Some(a ^ b));
    }

    #[test]
    fn checked_arithmetic_leaves_exactly_on_overflow(a in edgy(), b in edgy()) {
        prop_assert_eq!(int("checked_add v6, v7, exit0", a, b), a.checked_add(b));
        prop_assert_eq!(int("checked_sub v6, v7, exit0", a, b), a.checked_sub(b));
        prop_assert_eq!(int("checked_mul v6, v7, exit0", a, b), a.checked_mul(b));
    }

    #[test]
    fn shifts(a in edgy(), b in 0i64..64) {
        prop_assert_eq!(int("ishl v6, v7", a, b), Some(a << b));
        prop_assert_eq!(int("ishr v6, v7", a, b), Some(a >> b));
    }

    #[test]
    fn division_rounds_down(a in edgy(), b in edgy()) {
        if b != 0 && !(a == i64::MIN && b == -1) {
            let (a128, b128) = (i128::from(a), i128::from(b));
            let floor = a128.div_euclid(b128) - i128::from(b128 < 0 && a128.rem_euclid(b128) != 0);
            prop_assert_eq!(int("ifloor_div v6, v7", a, b), Some(floor as i64));
            prop_assert_eq!(int("ifloor_mod v6, v7", a, b), Some((a128 - floor * b128) as i64));
        }
    }

    #[test]
    fn integer_comparisons(a in edgy(), b in edgy()) {
        let cmp = |name: &str| compare(DType::I64, &format!("icmp {name}, v6, v7"), a as u64, b as u64);
        prop_assert_eq!(
            [cmp("lt"), cmp("le"), cmp("eq"), cmp("ne"), cmp("gt"), cmp("ge")],
            [a < b, a <= b, a == b, a != b, a > b, a >= b]
        );
        prop_assert_eq!(compare(DType::I64, "ult v6, v7", a as u64, b as u64), (a as u64) < b as u64);
    }

    #[test]
    fn float_arithmetic(a in edgy_f64(), b in edgy_f64()) {
        let f = |inst: &str| eval(DType::F64, DType::F64, inst, [a.to_bits(), b.to_bits()]);
        for (inst, expected) in [
            ("fadd v6, v7", a + b),
            ("fsub v6, v7", a - b),
            ("fmul v6, v7", a * b),
            ("fdiv v6, v7", a / b),
            ("fcopysign v6, v7", a.copysign(b)),
            ("fneg v6", -a),
            ("fabs v6", a.abs()),
            ("fsqrt v6", a.sqrt()),
            ("ffloor v6", a.floor()),
            ("fceil v6", a.ceil()),
            ("ftrunc v6", a.trunc()),
        ] {
            same_f64(inst, f(inst), expected)?;
        }
    }

    #[test]
    fn float_comparisons(a in edgy_f64(), b in edgy_f64()) {
        let cmp = |name: &str| compare(DType::F64, &format!("fcmp {name}, v6, v7"), a.to_bits(), b.to_bits());
        prop_assert_eq!(
            [cmp("lt"), cmp("le"), cmp("eq"), cmp("ne"), cmp("gt"), cmp("ge")],
            [a < b, a <= b, a == b, a != b, a > b, a >= b]
        );
    }

    #[test]
    fn single_precision(a in proptest::num::f32::ANY, b in proptest::num::f32::ANY) {
        let words = [u64::from(a.to_bits()), u64::from(b.to_bits())];
        for (inst, expected) in [
            ("fadd v6, v7", a + b),
            ("fsub v6, v7", a - b),
            ("fmul v6, v7", a * b),
            ("fdiv v6, v7", a / b),
            ("fsqrt v6", a.sqrt()),
            ("ffloor v6", a.floor()),
        ] {
            let got = f32::from_bits(eval(DType::F32, DType::F32, inst, words).expect("returns") as u32);
            prop_assert_eq!(got.is_nan(), expected.is_nan(), "{}", inst);
            prop_assert_eq!(got.to_bits() == expected.to_bits() || expected.is_nan(), true, "{}", inst);
        }
        let wide = eval(DType::F32, DType::F64, "f32_to_f64 v6", words);
        same_f64("f32_to_f64", wide, f64::from(a))?;
    }

    #[test]
    fn conversions(n in edgy(), x in edgy_f64()) {
        same_f64("int_to_float", eval(DType::I64, DType::F64, "int_to_float v6", [n as u64, 0]), n as f64)?;
        if x.trunc() >= -9_223_372_036_854_775_808.0 && x.trunc() < 9_223_372_036_854_775_808.0 {
            let got = eval(DType::F64, DType::I64, "float_to_int v6", [x.to_bits(), 0]);
            prop_assert_eq!(got.map(|w| w as i64), Some(x as i64));
        }
        let narrow = eval(DType::F64, DType::F32, "f64_to_f32 v6", [x.to_bits(), 0]).expect("returns") as u32;
        let expected = x as f32;
        prop_assert_eq!(narrow == expected.to_bits() || expected.is_nan(), true);
    }

    #[test]
    fn elements_widen_and_wrap(n in edgy()) {
        let word = [n as u64, 0];
        let copy = |dtype, out| eval(dtype, out, "iand v6, v6", word);
        prop_assert_eq!(copy(DType::I32, DType::I64), Some(i64::from(n as i32) as u64));
        prop_assert_eq!(copy(DType::U8, DType::I64), Some(u64::from(n as u8)));
        // The bytes beside the element stay as they were.
        prop_assert_eq!(copy(DType::I64, DType::I32), Some(0xeeee_eeee_0000_0000 | u64::from(n as u32)));
        prop_assert_eq!(copy(DType::I64, DType::U8), Some(0xeeee_eeee_eeee_ee00 | u64::from(n as u8)));
    }
}
