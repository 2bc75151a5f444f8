//! Element types, and their names in each exchange format.
//!
//! In: a format string, a type string or a DLPack triple. Out: a `DType`, which is a kind and a byte order, or the
//! reason why there is none. One table holds all names, so that reading and writing cannot disagree.

use crate::error::Error;

/// What an element is, whole bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    BF16,
    F32,
    F64,
    C64,
    C128,
}

/// A kind in one byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DType {
    pub kind: Kind,
    /// The bytes stand in the order that is not this machine's. Never set for one-byte kinds.
    pub swapped: bool,
}

/// DLPack's triple without lanes, which are always 1 here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coded {
    pub code: u8,
    pub bits: u8,
}

struct Row {
    kind: Kind,
    name: &'static str,
    /// Bytes of an element.
    size: usize,
    /// PEP 3118 in native order, where one exists.
    native: Option<&'static std::ffi::CStr>,
    /// PEP 3118 in the other order.
    swapped: Option<&'static std::ffi::CStr>,
    /// Letter of `__array_interface__`; the size follows it. No letter: NumPy has no such type by itself.
    letter: Option<char>,
    coded: Coded,
    /// Arrow's format of the type with one value in `size` bytes.
    arrow: Option<&'static std::ffi::CStr>,
}

const fn coded(code: u8, bits: u8) -> Coded {
    Coded { code, bits }
}

macro_rules! row {
    ($kind:ident, $name:literal, $size:literal, $native:expr, $big:expr, $little:expr, $letter:expr, $code:literal, $arrow:expr) => {
        Row {
            kind: Kind::$kind,
            name: $name,
            size: $size,
            native: $native,
            swapped: if cfg!(target_endian = "little") { $big } else { $little },
            letter: $letter,
            coded: coded($code, $size * 8),
            arrow: $arrow,
        }
    };
}

/// Indexed by `Kind as usize`. Native `l` has 8 bytes: every supported system is LP64.
const TABLE: [Row; 15] = [
    row!(Bool, "bool", 1, Some(c"?"), None, None, Some('b'), 6, None),
    row!(I8, "int8", 1, Some(c"b"), None, None, Some('i'), 0, Some(c"c")),
    row!(U8, "uint8", 1, Some(c"B"), None, None, Some('u'), 1, Some(c"C")),
    row!(I16, "int16", 2, Some(c"h"), Some(c">h"), Some(c"<h"), Some('i'), 0, Some(c"s")),
    row!(U16, "uint16", 2, Some(c"H"), Some(c">H"), Some(c"<H"), Some('u'), 1, Some(c"S")),
    row!(I32, "int32", 4, Some(c"i"), Some(c">i"), Some(c"<i"), Some('i'), 0, Some(c"i")),
    row!(U32, "uint32", 4, Some(c"I"), Some(c">I"), Some(c"<I"), Some('u'), 1, Some(c"I")),
    row!(I64, "int64", 8, Some(c"l"), Some(c">q"), Some(c"<q"), Some('i'), 0, Some(c"l")),
    row!(U64, "uint64", 8, Some(c"L"), Some(c">Q"), Some(c"<Q"), Some('u'), 1, Some(c"L")),
    row!(F16, "float16", 2, Some(c"e"), Some(c">e"), Some(c"<e"), Some('f'), 2, Some(c"e")),
    row!(BF16, "bfloat16", 2, None, None, None, None, 4, None),
    row!(F32, "float32", 4, Some(c"f"), Some(c">f"), Some(c"<f"), Some('f'), 2, Some(c"f")),
    row!(F64, "float64", 8, Some(c"d"), Some(c">d"), Some(c"<d"), Some('f'), 2, Some(c"g")),
    row!(C64, "complex64", 8, Some(c"Zf"), Some(c">Zf"), Some(c"<Zf"), Some('c'), 5, None),
    row!(C128, "complex128", 16, Some(c"Zd"), Some(c">Zd"), Some(c"<Zd"), Some('c'), 5, None),
];

const BIG_ENDIAN: bool = cfg!(target_endian = "big");

impl Kind {
    /// Every kind, in the order of its number.
    pub const ALL: [Kind; 15] = [
        Kind::Bool,
        Kind::I8,
        Kind::U8,
        Kind::I16,
        Kind::U16,
        Kind::I32,
        Kind::U32,
        Kind::I64,
        Kind::U64,
        Kind::F16,
        Kind::BF16,
        Kind::F32,
        Kind::F64,
        Kind::C64,
        Kind::C128,
    ];

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// `"float32"` and so on.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Bytes of an element.
    #[inline]
    pub const fn size(self) -> usize {
        TABLE[self as usize].size
    }
}

impl DType {
    /// In this machine's byte order.
    #[inline]
    pub const fn native(kind: Kind) -> DType {
        DType { kind, swapped: false }
    }

    /// Of a kind whose byte order is known to be the other one, if it has one.
    pub const fn ordered(kind: Kind, swapped: bool) -> DType {
        DType { kind, swapped: swapped && kind.size() > 1 }
    }

    /// Bytes of an element.
    #[inline]
    pub const fn size(self) -> usize {
        self.kind.size()
    }

    /// The bytes between which order matters: halves of a complex number are swapped one by one.
    pub const fn word(self) -> usize {
        match self.kind {
            Kind::C64 => 4,
            Kind::C128 => 8,
            kind => kind.size(),
        }
    }

    /// `"float32"`, or NumPy's type string (`">f4"`) in the other byte order. `numpy.dtype` reads both.
    pub fn name(self) -> &'static str {
        if !self.swapped {
            return self.kind.name();
        }
        let (big, little) = match self.kind {
            Kind::I16 => (">i2", "<i2"),
            Kind::U16 => (">u2", "<u2"),
            Kind::I32 => (">i4", "<i4"),
            Kind::U32 => (">u4", "<u4"),
            Kind::I64 => (">i8", "<i8"),
            Kind::U64 => (">u8", "<u8"),
            Kind::F16 => (">f2", "<f2"),
            Kind::F32 => (">f4", "<f4"),
            Kind::F64 => (">f8", "<f8"),
            Kind::C64 => (">c8", "<c8"),
            Kind::C128 => (">c16", "<c16"),
            // One byte each, and bfloat16, which nobody stores in the other order.
            Kind::Bool | Kind::I8 | Kind::U8 | Kind::BF16 => (self.kind.name(), self.kind.name()),
        };
        if BIG_ENDIAN { little } else { big }
    }

    /// Reads `"float32"`, `"f4"`, `"<f4"`, `"torch.float32"`.
    ///
    /// # Errors
    /// `UnknownType`.
    pub fn from_name(name: &str) -> Result<DType, Error> {
        let plain = name.strip_prefix("torch.").unwrap_or(name);
        let alias = match plain {
            "bool_" => "bool",
            "half" => "float16",
            "float" if plain != name => "float32", // torch's
            "float" | "double" => "float64",
            "int" if plain == name => "int64",
            "complex" => "complex128",
            plain => plain,
        };
        if let Some(row) = TABLE.iter().find(|row| row.name == alias) {
            return Ok(DType::native(row.kind));
        }
        DType::from_typestr(plain).map_err(|_| Error::UnknownType {
            protocol: "the",
            name: name.to_owned(),
            reason: "known are bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32, float64, \
                     complex64 and complex128, or NumPy's type strings such as '>f4'",
        })
    }

    /// Reads the type string of `__array_interface__`, such as `"<f8"`.
    ///
    /// # Errors
    /// `UnknownType`.
    pub fn from_typestr(text: &str) -> Result<DType, Error> {
        let refuse = |reason| Error::UnknownType { protocol: "NumPy's", name: text.to_owned(), reason };
        let (order, rest) = match text.as_bytes().first() {
            Some(b'<' | b'>' | b'|' | b'=') => text.split_at(1),
            _ => ("=", text),
        };
        let mut letters = rest.chars();
        let letter = letters.next().ok_or_else(|| refuse("the string is empty"))?;
        match letter {
            'O' => return Err(refuse("Python objects are no plain memory")),
            'S' | 'U' => return Err(refuse("strings have no element type; view the bytes as uint8")),
            'V' => return Err(refuse("raw or structured data; view one field, or the bytes as uint8")),
            'M' | 'm' => return Err(refuse("dates carry a unit that no tensor has; view as int64")),
            _ => {}
        }
        let size: usize = letters.as_str().parse().map_err(|_| refuse("no such type"))?;
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| kind.row().letter == Some(letter) && kind.size() == size)
            .ok_or_else(|| refuse("no tensor element has this size; long double is one of them"))?;
        let swapped = matches!((order, BIG_ENDIAN), (">", false) | ("<", true));
        Ok(DType::ordered(kind, swapped))
    }

    /// Type string for `__array_interface__`.
    ///
    /// # Errors
    /// `Unsayable` for bfloat16.
    pub fn to_typestr(self) -> Result<String, Error> {
        let row = self.kind.row();
        let letter = row.letter.ok_or_else(|| self.unsayable("__array_interface__"))?;
        let order = match (row.size, self.swapped == BIG_ENDIAN) {
            (1, _) => '|',
            (_, true) => '<',
            (_, false) => '>',
        };
        Ok(format!("{order}{letter}{}", row.size))
    }

    /// Reads a PEP 3118 format of a single element. Native sizes without a prefix or with `@`, standard ones after
    /// `=`, `<`, `>`, `!`.
    ///
    /// # Errors
    /// `UnknownType`: structures, pointers, several elements, sub-byte fields, `long double`.
    pub fn from_pep3118(format: &str) -> Result<DType, Error> {
        let refuse = |reason| Error::UnknownType { protocol: "buffer", name: format.to_owned(), reason };
        let (prefix, code) = match format.as_bytes().first() {
            Some(b'@' | b'=' | b'<' | b'>' | b'!' | b'^') => format.split_at(1),
            _ => ("@", format),
        };
        let native_sizes = matches!(prefix, "@" | "^");
        let swapped = matches!((prefix, BIG_ENDIAN), (">" | "!", false) | ("<", true));
        // A count of one says nothing ("1f"); any other makes it an array of several.
        let code = match code.strip_prefix('1') {
            Some(rest) if !rest.starts_with(|c: char| c.is_ascii_digit()) => rest,
            _ => code,
        };
        let kind = match code {
            "?" => Kind::Bool,
            "b" => Kind::I8,
            "B" | "c" => Kind::U8,
            "h" => Kind::I16,
            "H" => Kind::U16,
            "i" => Kind::I32,
            "I" => Kind::U32,
            "l" if native_sizes => Kind::I64,
            "L" if native_sizes => Kind::U64,
            "l" => Kind::I32,
            "L" => Kind::U32,
            "q" => Kind::I64,
            "Q" => Kind::U64,
            "n" if native_sizes => Kind::I64,
            "N" if native_sizes => Kind::U64,
            "e" => Kind::F16,
            "f" => Kind::F32,
            "d" => Kind::F64,
            "Zf" | "F" => Kind::C64,
            "Zd" | "D" => Kind::C128,
            "g" | "Zg" | "G" => return Err(refuse("long double has no portable layout; convert to float64")),
            "O" => return Err(refuse("Python objects are no plain memory")),
            "P" => return Err(refuse("addresses mean nothing elsewhere")),
            "u" | "w" => return Err(refuse("text has no element type; view it as uint32 or encode it")),
            _ => {
                return Err(refuse(match code.as_bytes().first() {
                    Some(b'T') => "it is a structure; take one field, or view the bytes as uint8",
                    Some(b'(' | b'0'..=b'9') => "an element is itself an array; make that an axis",
                    Some(b't') => "bits are smaller than a byte; unpack them",
                    Some(b'&' | b'X') => "addresses mean nothing elsewhere",
                    Some(b's' | b'p') => "strings have no element type; view the bytes as uint8",
                    _ => "no such type",
                }));
            }
        };
        Ok(DType::ordered(kind, swapped))
    }

    /// PEP 3118 format.
    ///
    /// # Errors
    /// `Unsayable` for bfloat16.
    pub fn to_pep3118(self) -> Result<&'static std::ffi::CStr, Error> {
        let row = self.kind.row();
        if self.swapped { row.swapped } else { row.native }
            .ok_or_else(|| self.unsayable("the buffer protocol"))
    }

    /// Reads DLPack's type.
    ///
    /// # Errors
    /// `UnknownType`: vectors, sub-byte and 8-bit float types, opaque handles.
    pub fn from_dlpack(code: u8, bits: u8, lanes: u16) -> Result<DType, Error> {
        let refuse = |reason| Error::UnknownType {
            protocol: "DLPack",
            name: format!("code {code}, {bits} bits, {lanes} lanes"),
            reason,
        };
        if lanes != 1 {
            return Err(refuse("an element is itself a vector; make that an axis"));
        }
        if bits < 8 {
            return Err(refuse("it is smaller than a byte; unpack it or view the bytes as uint8"));
        }
        let kind = Kind::ALL.into_iter().find(|kind| kind.row().coded == coded(code, bits));
        kind.map(DType::native).ok_or_else(|| {
            refuse("known are bool, integers, float16, bfloat16, float32, float64 and complex numbers")
        })
    }

    /// DLPack's type.
    ///
    /// # Errors
    /// `Unsayable` in the other byte order.
    #[inline]
    pub fn to_dlpack(self) -> Result<Coded, Error> {
        if self.swapped {
            return Err(self.unsayable("DLPack"));
        }
        Ok(self.kind.row().coded)
    }

    /// Reads Arrow's format of a type that stores one value in whole bytes. Dates, times and durations are refused.
    ///
    /// # Errors
    /// `UnknownType`.
    pub fn from_arrow(format: &str) -> Result<DType, Error> {
        let refuse = |reason| Error::UnknownType { protocol: "Arrow", name: format.to_owned(), reason };
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| kind.row().arrow.is_some_and(|f| f.to_bytes() == format.as_bytes()));
        kind.map(DType::native).ok_or_else(|| {
            refuse(match format.as_bytes() {
                b"b" => "booleans are packed eight to a byte; copy=True unpacks them",
                b"+s" => "it has several columns; pass one of them, such as batch.column(0)",
                b"n" => "it holds nothing but nulls",
                [b't', ..] => "dates and times carry a unit that no tensor has; cast to int64",
                [b'd', ..] => "decimals have no tensor element; cast to float64",
                [b'u' | b'U' | b'z' | b'Z' | b'v', ..] => "strings have no fixed size",
                [b'w', ..] => "fixed-size bytes are no number; cast them",
                [b'+', ..] => "nested data of varying length has no shape",
                _ => "no such type",
            })
        })
    }

    /// Arrow's format.
    ///
    /// # Errors
    /// `Unsayable`: bool, bfloat16, complex, the other byte order.
    pub fn to_arrow(self) -> Result<&'static std::ffi::CStr, Error> {
        if self.swapped {
            return Err(self.unsayable("Arrow"));
        }
        self.kind.row().arrow.ok_or_else(|| self.unsayable("Arrow"))
    }

    fn unsayable(self, target: &'static str) -> Error {
        let hint = match self.kind {
            _ if self.swapped => "convert it first: t.numpy().astype(dtype) in native byte order",
            Kind::BF16 => ".numpy() (with ml_dtypes) and DLPack can",
            Kind::Bool => {
                "Arrow packs booleans into bits; view it as uint8, or copy with pyarrow.array(t.numpy())"
            }
            _ => "view it as its parts, one axis more",
        };
        Error::Unsayable { target, what: format!("elements of type {}", self.name()), hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_their_number() {
        for kind in Kind::ALL {
            assert_eq!(kind.row().kind, kind);
            assert_eq!(kind.row().coded.bits as usize, kind.size() * 8);
        }
    }

    #[test]
    fn every_name_is_read_back() {
        for kind in Kind::ALL {
            for swapped in [false, true] {
                let dtype = DType::ordered(kind, swapped && kind != Kind::BF16);
                assert_eq!(DType::from_name(dtype.name()), Ok(dtype));
                if let Ok(format) = dtype.to_pep3118() {
                    assert_eq!(DType::from_pep3118(format.to_str().unwrap()), Ok(dtype));
                }
                if let Ok(text) = dtype.to_typestr() {
                    assert_eq!(DType::from_typestr(&text), Ok(dtype));
                }
                if let Ok(coded) = dtype.to_dlpack() {
                    assert_eq!(DType::from_dlpack(coded.code, coded.bits, 1), Ok(dtype));
                }
                if let Ok(format) = dtype.to_arrow() {
                    assert_eq!(DType::from_arrow(format.to_str().unwrap()), Ok(dtype));
                }
            }
        }
    }

    #[test]
    fn sizes_follow_the_prefix() {
        let kind = |format| DType::from_pep3118(format).unwrap();
        assert_eq!(kind("l"), DType::native(Kind::I64));
        assert_eq!(kind("@l"), DType::native(Kind::I64));
        assert_eq!(kind("=l"), DType::native(Kind::I32));
        assert_eq!(kind("1d"), DType::native(Kind::F64));
        assert_eq!(kind("!q").swapped, cfg!(target_endian = "little"));
        assert!(!kind(">B").swapped);
    }

    #[test]
    fn what_is_no_element_is_refused_with_a_reason() {
        for format in
            ["T{f:x:f:y:}", "(2,3)f", "2f", "12s", "g", "O", "P", "&i", "4t", "", "ff", "=n", "w", "x", "1"]
        {
            assert!(DType::from_pep3118(format).is_err(), "{format}");
        }
        for text in ["|O8", "<U4", "|V2", "<M8[ns]", "<f16", "<f", "", "<", "<c4"] {
            assert!(DType::from_typestr(text).is_err(), "{text}");
        }
        for (code, bits, lanes) in [(0, 4, 1), (2, 32, 4), (10, 8, 1), (3, 64, 1), (2, 128, 1), (17, 4, 1)] {
            assert!(DType::from_dlpack(code, bits, lanes).is_err());
        }
        for format in ["b", "+s", "u", "tdD", "tsn:", "d:10,2", "w:4", "n", "+l", "vu", ""] {
            assert!(DType::from_arrow(format).is_err(), "{format}");
        }
    }
}
