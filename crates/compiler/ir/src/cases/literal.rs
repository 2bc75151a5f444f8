//! Objects as text, in Python's spelling where it has one: what run-cases pass in and expect back.
//!
//! In: text, or an object of the mock heap. Out: a `Literal`, which every back end's test harness builds on its own heap
//! and reads back. Two literals are equal when their texts are.
//!
//! `unset` · `None` `True` `3` `2.5` `"s"` `b"s"` (characters are bytes) · `[…]` `(…)` `{k: v}` · `bytearray(b"s")` ·
//! `np.float64(2.5)` · `array(int32, [2, 3], [1, 2, 3, 4, 5, 6])`, the data in memory order, optionally followed by
//! `strides [bytes…] at byte` and `readonly` · `range(next, stop, step)`, an iterator · `iter(seq, position)`, `iter()` ·
//! `enumerate(n, iter)` · `zip(…)` · `cell(x)`, `cell()` · `slice(a, b, c)` · `callable(name)` · `tracked(name, {…})`, an object
//! with attributes whose finaliser is logged · `arg0`, the very object of argument 0.

use std::fmt::{self, Display, Formatter};

use overdrive_base::flavour::{DType, Flavour, Holder};

use crate::lex::{Lexer, Result, Token};
use crate::names::Word;
use crate::print::{List, Quoted};

/// An object in a run-case.
#[derive(Clone, Debug)]
pub enum Literal {
    /// The null reference: an unset local, an empty stack entry.
    Unset,
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    Bytes(Vec<u8>),
    ByteArray(Vec<u8>),
    List(Vec<Literal>),
    Tuple(Vec<Literal>),
    Dict(Vec<(Literal, Literal)>),
    Array(ArrayLiteral),
    /// A NumPy scalar; the value is `Bool`, `Int` or `Float`.
    Np(Flavour, Box<Literal>),
    RangeIter {
        next: i64,
        stop: i64,
        step: i64,
    },
    /// Over a list or tuple at a position; `None`: exhausted.
    SeqIter(Option<(Box<Literal>, i64)>),
    Enumerate(i64, Box<Literal>),
    Zip(Vec<Literal>),
    Cell(Option<Box<Literal>>),
    Slice(Vec<Literal>),
    Callable(String),
    Tracked(String, Vec<(String, Literal)>),
    /// Version, attributes, and whether they are kept as the class numbers them.
    Instance(u32, Vec<Literal>, bool),
    /// The very object of that argument.
    Arg(usize),
}

/// An array. Elements are `Bool`, `Int` or `Float` by its dtype.
#[derive(Clone, Debug)]
pub struct ArrayLiteral {
    pub holder: Holder,
    pub dtype: DType,
    pub shape: Vec<i64>,
    /// In bytes.
    pub strides: Vec<i64>,
    /// Byte of the data at which element (0, …) lies.
    pub offset: i64,
    /// All elements in memory order.
    pub data: Vec<Literal>,
    pub writable: bool,
}

impl ArrayLiteral {
    /// Strides of an array in C order.
    pub fn c_strides(dtype: DType, shape: &[i64]) -> Vec<i64> {
        let mut strides: Vec<i64> = shape
            .iter()
            .rev()
            .scan(dtype.size(), |size, n| {
                let stride = *size;
                *size *= n;
                Some(stride)
            })
            .collect();
        strides.reverse();
        strides
    }
}

impl PartialEq for Literal {
    fn eq(&self, other: &Literal) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Unset => write!(f, "unset"),
            Literal::None => write!(f, "None"),
            Literal::Bool(true) => write!(f, "True"),
            Literal::Bool(false) => write!(f, "False"),
            Literal::Int(n) => write!(f, "{n}"),
            Literal::Float(x) if x.is_nan() => write!(f, "nan"),
            Literal::Float(x) => write!(f, "{x:?}"),
            Literal::Str(s) => write!(f, "{}", Quoted(s)),
            Literal::Bytes(b) => write!(f, "b{}", Quoted(&latin1(b))),
            Literal::ByteArray(b) => write!(f, "bytearray(b{})", Quoted(&latin1(b))),
            Literal::List(items) => write!(f, "[{}]", List(items)),
            Literal::Tuple(items) if items.len() == 1 => write!(f, "({},)", items[0]),
            Literal::Tuple(items) => write!(f, "({})", List(items)),
            Literal::Dict(items) => {
                let items: Vec<String> = items.iter().map(|(k, v)| format!("{k}: {v}")).collect();
                write!(f, "{{{}}}", List(&items))
            }
            Literal::Array(a) => {
                let word = if a.holder == Holder::NdArray { "array" } else { "tensor" };
                write!(f, "{word}({}, [{}], [{}]", a.dtype.word(), List(&a.shape), List(&a.data))?;
                if a.offset != 0 || a.strides != ArrayLiteral::c_strides(a.dtype, &a.shape) {
                    write!(f, " strides [{}] at {}", List(&a.strides), a.offset)?;
                }
                write!(f, "{})", if a.writable { "" } else { " readonly" })
            }
            Literal::Np(flavour, value) => write!(f, "{}({value})", flavour.word()),
            Literal::RangeIter { next, stop, step } => write!(f, "range({next}, {stop}, {step})"),
            Literal::SeqIter(Some((seq, position))) => write!(f, "iter({seq}, {position})"),
            Literal::SeqIter(None) => write!(f, "iter()"),
            Literal::Enumerate(count, iter) => write!(f, "enumerate({count}, {iter})"),
            Literal::Zip(parts) => write!(f, "zip({})", List(parts)),
            Literal::Cell(Some(content)) => write!(f, "cell({content})"),
            Literal::Cell(None) => write!(f, "cell()"),
            Literal::Slice(parts) => write!(f, "slice({})", List(parts)),
            Literal::Callable(name) => write!(f, "callable({name})"),
            Literal::Tracked(name, attrs) if attrs.is_empty() => write!(f, "tracked({name})"),
            Literal::Tracked(name, attrs) => {
                let attrs: Vec<String> =
                    attrs.iter().map(|(name, v)| format!("{}: {v}", Quoted(name))).collect();
                write!(f, "tracked({name}, {{{}}})", List(&attrs))
            }
            Literal::Instance(version, attrs, true) => write!(f, "instance({version}, [{}])", List(attrs)),
            Literal::Instance(version, attrs, false) => {
                write!(f, "instance({version}, [{}], dictionary)", List(attrs))
            }
            Literal::Arg(n) => write!(f, "arg{n}"),
        }
    }
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|b| char::from(*b)).collect()
}

/// Reads a literal.
pub(super) fn literal(l: &mut Lexer<'_>) -> Result<Literal> {
    const WHAT: &str = "an object";
    match l.peek().clone() {
        Token::Str(s) => l.advance().map(|_| Literal::Str(s)),
        Token::Punct('[') => l.advance().and_then(|_| l.list(']', literal)).map(Literal::List),
        Token::Punct('(') => l.advance().and_then(|_| l.list(')', literal)).map(Literal::Tuple),
        Token::Punct('{') => Ok(Literal::Dict(pairs(l)?)),
        Token::Word(w) => match word(&w) {
            Some(simple) => l.advance().map(|_| simple),
            None => composed(l, &w),
        },
        _ => l.expected(WHAT),
    }
}

/// Literals of one word.
fn word(w: &str) -> Option<Literal> {
    match w {
        "unset" => Some(Literal::Unset),
        "None" => Some(Literal::None),
        "True" => Some(Literal::Bool(true)),
        "False" => Some(Literal::Bool(false)),
        _ => {
            let arg = w.strip_prefix("arg").and_then(|n| n.parse().ok()).map(Literal::Arg);
            let int = || w.parse().ok().map(Literal::Int);
            let float = || w.parse().ok().map(Literal::Float);
            arg.or_else(int).or_else(float)
        }
    }
}

/// Literals that begin with a word.
fn composed(l: &mut Lexer<'_>, w: &str) -> Result<Literal> {
    let unknown = l.error(format!("expected an object, found `{w}`"));
    l.advance()?;
    if w == "b" {
        return bytes(l).map(Literal::Bytes);
    }
    l.expect('(')?;
    if let Some(flavour) = Flavour::from_word(w).filter(|f| f.is_numpy()) {
        let value = Box::new(literal(l)?);
        return l.expect(')').map(|()| Literal::Np(flavour, value));
    }
    let result = match w {
        "bytearray" => {
            l.expect_word("b")?;
            Literal::ByteArray(bytes(l)?)
        }
        "array" => Literal::Array(array(l, Holder::NdArray)?),
        "tensor" => Literal::Array(array(l, Holder::Tensor)?),
        "range" => {
            let next = l.number("an int")?;
            l.expect(',')?;
            let stop = l.number("an int")?;
            l.expect(',')?;
            Literal::RangeIter { next, stop, step: l.number("an int")? }
        }
        "iter" if *l.peek() == Token::Punct(')') => Literal::SeqIter(None),
        "iter" => {
            let seq = Box::new(literal(l)?);
            l.expect(',')?;
            Literal::SeqIter(Some((seq, l.number("a position")?)))
        }
        "enumerate" => {
            let count = l.number("an int")?;
            l.expect(',')?;
            Literal::Enumerate(count, Box::new(literal(l)?))
        }
        "cell" if *l.peek() == Token::Punct(')') => Literal::Cell(None),
        "cell" => Literal::Cell(Some(Box::new(literal(l)?))),
        "zip" => return l.list(')', literal).map(Literal::Zip),
        "slice" => return l.list(')', literal).map(Literal::Slice),
        "callable" => Literal::Callable(l.word("a name")?),
        "instance" => {
            let version = l.number("a version")?;
            l.expect(',')?;
            l.expect('[')?;
            let attrs = l.list(']', literal)?;
            let has_dictionary = l.eat(',')?;
            if has_dictionary {
                l.expect_word("dictionary")?;
            }
            Literal::Instance(version, attrs, !has_dictionary)
        }
        "tracked" => {
            let name = l.word("a name")?;
            let mut attrs = Vec::new();
            if l.eat(',')? {
                for (key, value) in pairs(l)? {
                    let Literal::Str(key) = key else { return l.expected("attributes named by strings") };
                    attrs.push((key, value));
                }
            }
            Literal::Tracked(name, attrs)
        }
        _ => return Err(unknown),
    };
    l.expect(')').map(|()| result)
}

/// `{k: v, …}`
fn pairs(l: &mut Lexer<'_>) -> Result<Vec<(Literal, Literal)>> {
    l.expect('{')?;
    l.list('}', |l| {
        let key = literal(l)?;
        l.expect(':')?;
        Ok((key, literal(l)?))
    })
}

fn bytes(l: &mut Lexer<'_>) -> Result<Vec<u8>> {
    let error = l.error("bytes hold characters up to \\u{ff}");
    let text = l.string("bytes in quotes")?;
    text.chars().map(|c| u8::try_from(u32::from(c)).map_err(|_| error.clone())).collect()
}

fn array(l: &mut Lexer<'_>, holder: Holder) -> Result<ArrayLiteral> {
    let dtype = l.read("an element type", DType::from_word)?;
    l.expect(',')?;
    let shape = ints(l)?;
    l.expect(',')?;
    l.expect('[')?;
    let data = l.list(']', literal)?;
    let (mut strides, mut offset) = (ArrayLiteral::c_strides(dtype, &shape), 0);
    if l.eat_word("strides")? {
        strides = ints(l)?;
        l.expect_word("at")?;
        offset = l.number("a byte")?;
    }
    let writable = !l.eat_word("readonly")?;
    Ok(ArrayLiteral { holder, dtype, shape, strides, offset, data, writable })
}

fn ints(l: &mut Lexer<'_>) -> Result<Vec<i64>> {
    l.expect('[')?;
    l.list(']', |l| l.number("an int"))
}
