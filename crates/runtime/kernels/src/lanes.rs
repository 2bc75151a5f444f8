//! Sixteen numbers side by side, the same on each kind of processor: what the vector kernels are written in.
//!
//! In: arrays of 16. Out: the same bits from every implementation, because each operation rounds once, as IEEE 754 says.
//! A kernel is written once over `Lanes` and compiled once for each implementation by `on_each_level!`. A value of
//! `Avx2` or `Avx512` proves that the processor has these instructions; only that macro makes one.

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

/// Numbers in one vector. Sums over an index keep one partial sum for each `index mod LANES`.
pub(crate) const LANES: usize = 16;

/// One kind of processor. Every method works lane by lane.
pub(crate) trait Lanes: Copy {
    /// 16 numbers.
    type V: Copy;
    /// Sums that a kernel keeps in registers: so many rows of so many vectors, at most 6 of 4.
    const ROWS: usize;
    const COLUMNS: usize;

    fn splat(self, x: f32) -> Self::V;
    fn load(self, from: &[f32; LANES]) -> Self::V;
    fn store(self, v: Self::V, to: &mut [f32; LANES]);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a` where it is greater, else `b`: so `b` where one is no number.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `yes` where `a < b`, else `no`.
    fn less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// 2 to the power of `n` for `t = 1.5·2²³ + n`, `n` whole, -126 ≤ n ≤ 127. Anything for other `t`.
    fn power(self, t: Self::V) -> Self::V;
    /// From half precision.
    fn widen_halves(self, from: &[u16; LANES]) -> Self::V;
    /// From two numbers in bfloat16 for each lane, the first one below.
    fn widen_brains(self, from: &[u32; LANES]) -> [Self::V; 2];
    /// To half precision, to nearest, ties to even.
    fn to_halves(self, v: Self::V) -> [u16; LANES];
    /// From whole numbers.
    fn widen_bytes(self, from: &[i8; LANES]) -> Self::V;

    #[inline(always)]
    fn to_array(self, v: Self::V) -> [f32; LANES] {
        let mut array = [0.0; LANES];
        self.store(v, &mut array);
        array
    }

    /// Sum of the lanes: halves are added until one is left.
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        fold(self.to_array(v), |a, b| a + b)
    }

    /// Largest lane; one that is no number may be lost.
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        fold(self.to_array(v), |a, b| if a > b { a } else { b })
    }
}

#[inline(always)]
fn fold(mut lanes: [f32; LANES], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut n = LANES / 2;
    while n > 0 {
        for i in 0..n {
            lanes[i] = join(lanes[i], lanes[i + n]);
        }
        n /= 2;
    }
    lanes[0]
}

/// The definition: what every processor can do, and what the others must equal.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; LANES] {
    let mut v = [0.0; LANES];
    for (i, v) in v.iter_mut().enumerate() {
        *v = f(i);
    }
    v
}

/// `a · b + c`, rounded once, without an instruction for it: the library's function for that takes many times as long.
#[inline(always)]
fn fma(a: f32, b: f32, c: f32) -> f32 {
    // What a single drops of a double, and its value where the double lies in the middle of two singles.
    const DROPPED: u64 = 0x1FFF_FFFF;
    const MIDDLE: u64 = 0x1000_0000;
    // The product is exact, the sum is rounded to a double. Rounding that once more is wrong only where it seems to lie in the
    // middle of two singles; subnormal ones have other middles.
    let wide = f64::from(a) * f64::from(b) + f64::from(c);
    let is_tiny = wide.abs() < f64::from(f32::MIN_POSITIVE) && wide != 0.0;
    if wide.to_bits() & DROPPED == MIDDLE || is_tiny { a.mul_add(b, c) } else { wide as f32 }
}

impl Lanes for Plain {
    type V = [f32; LANES];
    const ROWS: usize = 1;
    const COLUMNS: usize = 1;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; LANES]
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        *from
    }
    #[inline(always)]
    fn store(self, v: Self::V, to: &mut [f32; LANES]) {
        *to = v;
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        each(|i| fma(a[i], b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        each(|i| if a[i] < b[i] { yes[i] } else { no[i] })
    }
    #[inline(always)]
    fn power(self, t: Self::V) -> Self::V {
        each(|i| f32::from_bits(t[i].to_bits().wrapping_add(127) << 23))
    }
    #[inline(always)]
    fn widen_halves(self, from: &[u16; LANES]) -> Self::V {
        each(|i| half::f16::from_bits(from[i]).to_f32())
    }
    #[inline(always)]
    fn widen_brains(self, from: &[u32; LANES]) -> [Self::V; 2] {
        [each(|i| f32::from_bits(from[i] << 16)), each(|i| f32::from_bits(from[i] & 0xFFFF_0000))]
    }
    #[inline(always)]
    fn to_halves(self, v: Self::V) -> [u16; LANES] {
        v.map(|x| half::f16::from_f32(x).to_bits())
    }
    #[inline(always)]
    fn widen_bytes(self, from: &[i8; LANES]) -> Self::V {
        each(|i| f32::from(from[i]))
    }
}

/// `on_each_level! { fn name(arguments) -> result = kernel }` makes `name(level, arguments)`, which runs
/// `kernel(lanes, arguments)` compiled for that level. The kernel and what it calls in its loops are `#[inline(always)]`.
macro_rules! on_each_level {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $kernel:path;)+) => {$(
        $(#[$meta])*
        #[cfg_attr(
            target_arch = "x86_64",
            expect(unsafe_code, reason = "enters code that is compiled for the instructions of a level")
        )]
        $vis fn $name(level: $crate::cpu::Level, $($arg: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                use $crate::{cpu::Level, lanes};

                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2($($arg: $type),*) $(-> $result)? {
                    // SAFETY: the features of this function.
                    $kernel(unsafe { lanes::Avx2::new() }, $($arg),*)
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512($($arg: $type),*) $(-> $result)? {
                    // SAFETY: the features of this function.
                    $kernel(unsafe { lanes::Avx512::new() }, $($arg),*)
                }
                match level {
                    // SAFETY: a level is only in use where the processor has its features.
                    Level::Amx | Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    Level::Avx2 => return unsafe { avx2($($arg),*) },
                    Level::Scalar => {}
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = level;
            $kernel($crate::lanes::Plain, $($arg),*)
        }
    )+};
}

pub(crate) use on_each_level;

/// All levels that this machine has.
#[cfg(test)]
pub(crate) fn levels() -> impl Iterator<Item = crate::cpu::Level> {
    crate::cpu::Level::ALL.into_iter().filter(|level| *level <= crate::cpu::most_level())
}

#[cfg(test)]
mod tests {
    use super::fma;

    #[test]
    fn a_sum_of_a_product_is_rounded_once() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        let special =
            [0, 1, 0x8000_0000, 0x0080_0000, 0x7F7F_FFFF, 0x7F80_0000, 0xFF80_0000, 0x7FC0_0000, 0x3F80_0000];
        for i in 0..3_000_000u32 {
            let mut number = || match i % 4 {
                // Any; few bits, which lie in the middle often; near 1; special ones.
                0 => f32::from_bits(next() << 1),
                1 => f32::from_bits(next() << 1 & 0xFFF8_0000),
                2 => f32::from_bits(0x3F80_0000 + next() % 0x0180_0000),
                _ => f32::from_bits(special[next() as usize % special.len()]),
            };
            let (a, b, mut c) = (number(), number(), number());
            if i % 3 == 0 {
                c = -a * b * (1.0 + f32::EPSILON); // nothing is left but what was rounded off
            } else if i % 3 == 1 && i % 4 == 2 {
                c *= 1e-8;
            }
            let (own, truth) = (fma(a, b, c), a.mul_add(b, c));
            assert!(
                own.to_bits() == truth.to_bits() || own.is_nan() && truth.is_nan(),
                "{a:e} {b:e} {c:e}: {own:e}, {truth:e}"
            );
        }
    }
}
