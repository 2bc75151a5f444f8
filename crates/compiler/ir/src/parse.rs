//! Reads the text form back: the inverse of `print`.
//!
//! In: text with one function. Out: the function, not verified. Values keep their numbers; numbers that no text mentions
//! (left over by passes) get the type `i64`. Types of results are found by `Function::result_type`, so they are
//! not written down.

use overdrive_base::flavour::{DType, Flavour, Holder, KnownType, Ty};
use overdrive_base::table::Entry;

pub use crate::lex::ParseError;

use crate::entities::{Block, ConstId, ExitId, Value};
use crate::exit::{Exit, ExitKind, Own, Slot};
use crate::function::{BlockData, ConstRef, Function, Iterations};
use crate::inst::{Attr, BoolOp, CheckedOp, Cmp, Field, FloatOp, FloatUnary, Inst, IntOp, Seq, Terminator};
use crate::lex::{Lexer, Result, Token};
use crate::names::Word;

/// Values above this number are refused: a typing error must not ask for gigabytes.
const MAX_VALUES: u32 = 1 << 20;

/// Reads one function and nothing else.
///
/// # Errors
/// What was expected, with line and column.
pub fn parse(text: &str) -> std::result::Result<Function, ParseError> {
    let mut functions = parse_many(text)?;
    match functions.len() {
        1 => Ok(functions.swap_remove(0)),
        n => Err(ParseError { line: 1, column: 1, message: format!("expected one function, found {n}") }),
    }
}

/// Reads any number of functions.
///
/// # Errors
/// What was expected, with line and column.
pub fn parse_many(text: &str) -> std::result::Result<Vec<Function>, ParseError> {
    let mut lexer = Lexer::new(text)?;
    let mut functions = Vec::new();
    while *lexer.peek() != Token::End {
        let mut parser = Parser { lexer, function: Function::default(), defined: vec![] };
        parser.function()?;
        lexer = parser.lexer;
        functions.push(parser.function);
    }
    Ok(functions)
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    function: Function,
    /// Which values have been given a meaning.
    defined: Vec<bool>,
}

impl Parser<'_> {
    fn function(&mut self) -> Result<()> {
        self.lexer.expect_word("function")?;
        self.function.name = self.lexer.string("the function's name in quotes")?;
        self.lexer.expect_word("args")?;
        self.function.n_args = self.lexer.number("the number of arguments")?;
        if self.lexer.eat_word("returns")? {
            self.function.returns = Some(self.lexer.read("a type", Ty::from_word)?);
        }
        self.function.needs_frame = self.lexer.eat_word("frame")?;
        self.function.has_neighbours = self.lexer.eat_word("neighbours")?;
        self.function.fastmath = self.lexer.eat_word("fastmath")?;
        if self.lexer.eat_word("profile")? {
            self.function.n_profile = self.lexer.number("the number of profile slots")?;
        }
        self.lexer.expect('{')?;
        while !self.lexer.eat('}')? {
            match self.lexer.peek() {
                Token::Word(w) if w.starts_with("const") => self.constant()?,
                Token::Word(w) if w.starts_with("exit") => self.exit()?,
                Token::Word(w) if w.starts_with('b') => self.block()?,
                Token::Word(w) if w == "function" => {
                    let around = (std::mem::take(&mut self.function), std::mem::take(&mut self.defined));
                    self.function()?;
                    let routine = std::mem::replace(&mut self.function, around.0);
                    self.defined = around.1;
                    self.function.routines.push(routine);
                }
                _ => return self.lexer.expected("a constant, an exit, a block, a routine or `}`"),
            }
        }
        self.settle_types();
        Ok(())
    }

    /// Result types from operand types, until nothing changes: text order is not dominance order.
    fn settle_types(&mut self) {
        loop {
            let mut changed = false;
            for b in 0..self.function.blocks.len() {
                for i in 0..self.function.blocks[b].insts.len() {
                    let (inst, result) = &self.function.blocks[b].insts[i];
                    let (Some(v), Some(ty)) = (*result, self.function.result_type(inst)) else { continue };
                    changed |= std::mem::replace(&mut self.function.types[v.index()], ty) != ty;
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// Checks that ids are given out in order, which keeps text and tables the same.
    fn in_order(&self, found: u32, len: usize, what: &str) -> Result<()> {
        if found as usize == len {
            Ok(())
        } else {
            Err(self.lexer.error(format!("{what} must come in order: the next one is number {len}")))
        }
    }

    fn constant(&mut self) -> Result<()> {
        let id = self.lexer.id("const", "a constant")?;
        self.in_order(id, self.function.consts.len(), "constants")?;
        self.lexer.expect('=')?;
        let what = "`none`, `true`, `false`, `np_true`, `np_false`, `globals`, `builtins`, `code_const`, `name` or `fact`";
        let word = match self.lexer.peek() {
            Token::Word(w) => w.clone(),
            _ => return self.lexer.expected(what),
        };
        let numbered: Option<fn(u32) -> ConstRef> = match word.as_str() {
            "code_const" => Some(ConstRef::CodeConst),
            "name" => Some(ConstRef::Name),
            "fact" => Some(ConstRef::Fact),
            _ => None,
        };
        let plain = match word.as_str() {
            "none" => Some(ConstRef::None),
            "np_true" => Some(ConstRef::NpTrue),
            "np_false" => Some(ConstRef::NpFalse),
            "true" => Some(ConstRef::True),
            "false" => Some(ConstRef::False),
            "globals" => Some(ConstRef::Globals),
            "builtins" => Some(ConstRef::Builtins),
            _ => None,
        };
        if numbered.is_none() && plain.is_none() {
            return self.lexer.expected(what);
        }
        self.lexer.advance()?;
        let c = match (numbered, plain) {
            (Some(make), _) => make(self.lexer.number("the constant's number")?),
            (None, plain) => plain.unwrap_or(ConstRef::None),
        };
        self.function.consts.push(c);
        Ok(())
    }

    fn exit(&mut self) -> Result<()> {
        let id = self.lexer.id("exit", "an exit")?;
        self.in_order(id, self.function.exits.len(), "exits")?;
        self.lexer.expect('=')?;
        let kind = self.lexer.read("`resume`, `raise`, `entry` or `yield`", ExitKind::from_word)?;
        let offset = self.lexer.number("a bytecode offset")?;
        let origin =
            if self.lexer.eat_word("from")? { self.lexer.number("a bytecode offset")? } else { offset };
        let locals = self.slots()?;
        let stack = self.slots()?;
        let reason = self.lexer.string("the exit's reason in quotes")?;
        self.function.exits.push(Exit { kind, offset, origin, locals, stack, reason });
        Ok(())
    }

    fn slots(&mut self) -> Result<Vec<Slot>> {
        self.lexer.expect('[')?;
        let mut out = Vec::new();
        while !self.lexer.eat(']')? {
            if !out.is_empty() {
                self.lexer.expect(',')?;
            }
            out.push(self.slot()?);
        }
        Ok(out)
    }

    fn slot(&mut self) -> Result<Slot> {
        let what = "a slot (`empty`, `none`, `own`, `borrow`, `number`, a constant, `either`, `tuple`, `range`, `seq_iter`, `enumerate`, `zip`)";
        let word = match self.lexer.peek() {
            Token::Word(w) => w.clone(),
            _ => return self.lexer.expected(what),
        };
        if word.starts_with("const") {
            return Ok(Slot::Const(self.const_id()?));
        }
        if let Some(own) = Own::from_word(&word) {
            self.lexer.advance()?;
            return Ok(Slot::Obj(self.value()?, own));
        }
        match word.as_str() {
            "empty" => {
                self.lexer.advance()?;
                return Ok(Slot::Empty);
            }
            "none" => {
                self.lexer.advance()?;
                return Ok(Slot::None);
            }
            "number" => {
                self.lexer.advance()?;
                let flavour = self.lexer.read("a flavour", Flavour::from_word)?;
                let value = self.value()?;
                let boxed = if self.lexer.eat_word("boxed")? {
                    let own = self.lexer.read("`own` or `borrow`", Own::from_word)?;
                    Some((self.value()?, own))
                } else {
                    None
                };
                return Ok(Slot::Number { flavour, value, boxed });
            }
            "either" | "tuple" | "range" | "seq_iter" | "enumerate" | "zip" => {}
            _ => return self.lexer.expected(what),
        }
        self.lexer.advance()?;
        self.lexer.expect('(')?;
        let slot = match word.as_str() {
            "either" => {
                let cond = self.value()?;
                self.lexer.expect(',')?;
                let then = Box::new(self.slot()?);
                self.lexer.expect(',')?;
                Slot::Either { cond, then, els: Box::new(self.slot()?) }
            }
            "range" => {
                let next = self.value()?;
                self.lexer.expect(',')?;
                let stop = self.value()?;
                self.lexer.expect(',')?;
                Slot::RangeIter { next, stop, step: self.value()? }
            }
            "seq_iter" => {
                let seq = Box::new(self.slot()?);
                self.lexer.expect(',')?;
                Slot::SeqIter { seq, position: self.value()? }
            }
            "enumerate" => {
                let count = self.value()?;
                self.lexer.expect(',')?;
                Slot::Enumerate { count, iter: Box::new(self.slot()?) }
            }
            // `tuple` and `zip` are what is left of the words admitted above.
            _ => {
                let mut parts = Vec::new();
                while *self.lexer.peek() != Token::Punct(')') {
                    if !parts.is_empty() {
                        self.lexer.expect(',')?;
                    }
                    parts.push(self.slot()?);
                }
                if word == "zip" { Slot::Zip(parts) } else { Slot::Tuple(parts) }
            }
        };
        self.lexer.expect(')')?;
        Ok(slot)
    }

    fn block(&mut self) -> Result<()> {
        let id = self.lexer.id("b", "a block")?;
        self.in_order(id, self.function.blocks.len(), "blocks")?;
        let mut block = BlockData::default();
        if self.lexer.eat('(')? {
            while !self.lexer.eat(')')? {
                if !block.params.is_empty() {
                    self.lexer.expect(',')?;
                }
                let v = self.definition()?;
                self.lexer.expect(':')?;
                self.function.types[v.index()] = self.lexer.read("a type", Ty::from_word)?;
                block.params.push(v);
            }
        }
        if self.lexer.eat_word("at")? {
            block.offset = Some(self.lexer.number("a bytecode offset")?);
        }
        block.cold = self.lexer.eat_word("cold")?;
        if self.lexer.eat_word("free")? {
            block.iterations = Iterations::Free;
        } else if self.lexer.eat_word("parallel")? {
            block.iterations = Iterations::Parallel;
        }
        self.lexer.expect(':')?;
        while block.terminator.is_none() {
            match self.lexer.peek() {
                Token::Word(w) if matches!(w.as_str(), "jump" | "branch" | "return" | "leave") => {
                    block.terminator = Some(self.terminator()?);
                }
                Token::Word(w) if is_id(w, "v") => {
                    let v = self.definition()?;
                    self.lexer.expect('=')?;
                    let inst = self.inst()?;
                    block.insts.push((inst, Some(v)));
                }
                // A block without a terminator ends where the next one begins.
                Token::Punct('}') => break,
                Token::Word(w) if is_id(w, "b") => break,
                _ => {
                    let inst = self.inst()?;
                    block.insts.push((inst, None));
                }
            }
        }
        self.function.blocks.push(block);
        Ok(())
    }

    fn value(&mut self) -> Result<Value> {
        let error = self.lexer.error(format!("value numbers must be below {MAX_VALUES}"));
        let v = Value(self.lexer.id("v", "a value")?);
        if v.0 >= MAX_VALUES {
            return Err(error);
        }
        if v.index() >= self.function.types.len() {
            self.function.types.resize(v.index() + 1, Ty::I64);
        }
        Ok(v)
    }

    /// A value at the place that defines it.
    fn definition(&mut self) -> Result<Value> {
        let (at, text) = (self.lexer.error(""), self.lexer.peek().to_string());
        let v = self.value()?;
        self.defined.resize(self.function.types.len(), false);
        if std::mem::replace(&mut self.defined[v.index()], true) {
            return Err(ParseError { message: format!("{text} is defined twice"), ..at });
        }
        Ok(v)
    }

    fn const_id(&mut self) -> Result<ConstId> {
        self.lexer.id("const", "a constant").map(ConstId)
    }

    fn exit_id(&mut self) -> Result<ExitId> {
        self.lexer.id("exit", "an exit").map(ExitId)
    }

    /// `, v3`
    fn comma_value(&mut self) -> Result<Value> {
        self.lexer.expect(',')?;
        self.value()
    }

    fn values(&mut self) -> Result<Vec<Value>> {
        self.lexer.expect('(')?;
        let mut out = Vec::new();
        while !self.lexer.eat(')')? {
            if !out.is_empty() {
                self.lexer.expect(',')?;
            }
            out.push(self.value()?);
        }
        Ok(out)
    }

    fn target(&mut self) -> Result<(Block, Vec<Value>)> {
        let block = Block(self.lexer.id("b", "a block")?);
        let args = if *self.lexer.peek() == Token::Punct('(') { self.values()? } else { vec![] };
        Ok((block, args))
    }

    fn terminator(&mut self) -> Result<Terminator> {
        Ok(match self.lexer.word("a terminator")?.as_str() {
            "jump" => {
                let (block, args) = self.target()?;
                Terminator::Jump(block, args)
            }
            "branch" => {
                let cond = self.value()?;
                self.lexer.expect(',')?;
                let then = self.target()?;
                self.lexer.expect(',')?;
                Terminator::Branch { cond, then, els: self.target()? }
            }
            "return" => Terminator::Return(self.value()?),
            _ => Terminator::Exit(self.exit_id()?),
        })
    }

    fn position(&mut self) -> Result<Option<u32>> {
        Ok(match self.lexer.eat_word("at")? {
            true => Some(self.lexer.number("a bytecode offset")?),
            false => None,
        })
    }

    fn inst(&mut self) -> Result<Inst> {
        let unknown = self.lexer.error(format!("expected an instruction, found {}", self.lexer.peek()));
        let word = self.lexer.word("an instruction")?;
        if let Some(op) = IntOp::from_word(&word) {
            return Ok(Inst::Int(op, self.value()?, self.comma_value()?));
        }
        if let Some(op) = FloatOp::from_word(&word) {
            return Ok(Inst::Float(op, self.value()?, self.comma_value()?));
        }
        if let Some(op) = FloatUnary::from_word(&word) {
            return Ok(Inst::FloatUnary(op, self.value()?));
        }
        if let Some(op) = BoolOp::from_word(&word) {
            return Ok(Inst::Bool(op, self.value()?, self.comma_value()?));
        }
        if let Some(seq) = Seq::from_word(&word) {
            return Ok(Inst::ItemGet(seq, self.value()?, self.comma_value()?));
        }
        if let Some(op) = CheckedOp::from_word(&word) {
            let (a, b) = (self.value()?, self.comma_value()?);
            self.lexer.expect(',')?;
            return Ok(Inst::Checked(op, a, b, self.exit_id()?));
        }
        if let Some(field) = self.field(&word)? {
            return Ok(field);
        }
        Ok(match word.as_str() {
            "iconst" => Inst::IConst(self.lexer.number("a 64-bit integer")?),
            "fconst" => Inst::FConst(self.lexer.read("a float", f64_bits)?),
            "f32const" => Inst::F32Const(self.lexer.read("a float", f32_bits)?),
            "bconst" => Inst::BConst(self.lexer.number("`true` or `false`")?),
            "oconst" => Inst::OConst(self.const_id()?),
            "null" => Inst::Null,
            "has_frame" => Inst::HasFrame,
            "icmp" | "fcmp" => {
                let cmp = self.lexer.read("a comparison", Cmp::from_word)?;
                let (a, b) = (self.comma_value()?, self.comma_value()?);
                if word == "icmp" { Inst::ICmp(cmp, a, b) } else { Inst::FCmp(cmp, a, b) }
            }
            "ult" => Inst::ULt(self.value()?, self.comma_value()?),
            "int_to_float" => Inst::IntToFloat(self.value()?),
            "float_to_int" => Inst::FloatToInt(self.value()?),
            "f32_to_f64" => Inst::F32ToF64(self.value()?),
            "f64_to_f32" => Inst::F64ToF32(self.value()?),
            "not" => Inst::Not(self.value()?),
            "bool_to_int" => Inst::BoolToInt(self.value()?),
            "select" => Inst::Select(self.value()?, self.comma_value()?, self.comma_value()?),
            "guard" => {
                let cond = self.value()?;
                self.lexer.expect(',')?;
                Inst::Guard(cond, self.exit_id()?)
            }
            "type_is" => {
                let v = self.value()?;
                self.lexer.expect(',')?;
                Inst::TypeIs(v, self.lexer.read("a type", KnownType::from_word)?)
            }
            "same" => Inst::Same(self.value()?, self.comma_value()?),
            "is_null" => Inst::IsNull(self.value()?),
            "array_is" | "tensor_is" => {
                let holder = if word == "array_is" { Holder::NdArray } else { Holder::Tensor };
                let array = self.value()?;
                self.lexer.expect(',')?;
                let dtype = self.lexer.read("an element type", DType::from_word)?;
                self.lexer.expect(',')?;
                let ndim = self.lexer.number("a rank")?;
                let writable = self.lexer.eat(',')?;
                if writable {
                    self.lexer.expect_word("writable")?;
                }
                Inst::ArrayIs { array, holder, dtype, ndim, writable }
            }
            "unbox" => {
                let flavour = self.lexer.read("a flavour", Flavour::from_word)?;
                Inst::Unbox(flavour, self.comma_value()?)
            }
            "version_is" => {
                let v = self.value()?;
                self.lexer.expect(',')?;
                Inst::VersionIs(v, self.lexer.number("a version")?)
            }
            "keeps_values" => {
                let obj = self.value()?;
                let writable = self.lexer.eat(',')?;
                if writable {
                    self.lexer.expect_word("writable")?;
                }
                Inst::KeepsValues { obj, writable }
            }
            "attr_get" => {
                let obj = self.value()?;
                Inst::AttrGet(self.attr()?, obj)
            }
            "attr_swap" => {
                let obj = self.value()?;
                Inst::AttrSwap { at: self.attr()?, obj, item: self.comma_value()? }
            }
            "attr_set" => {
                let obj = self.value()?;
                let (at, old, value) = (self.attr()?, self.comma_value()?, self.comma_value()?);
                self.lexer.expect(',')?;
                Inst::AttrSet { at, obj, old, value, fail: self.exit_id()? }
            }
            "list_swap" => {
                Inst::ListSwap { list: self.value()?, index: self.comma_value()?, item: self.comma_value()? }
            }
            "load" => {
                let dtype = self.lexer.read("an element type", DType::from_word)?;
                Inst::Load(dtype, self.comma_value()?)
            }
            "store" => {
                let dtype = self.lexer.read("an element type", DType::from_word)?;
                Inst::Store(dtype, self.comma_value()?, self.comma_value()?)
            }
            "ptr_add" => Inst::PtrAdd(self.value()?, self.comma_value()?),
            "incref" => Inst::IncRef(self.value()?),
            "decref" => Inst::DecRef { obj: self.value()?, pos: self.position()? },
            "own_arg" => Inst::OwnArg(self.lexer.number("an argument's index")?),
            "table" => {
                let entry = self.lexer.read("an entry of the object table", Entry::from_word)?;
                let args = self.values()?;
                let pos = self.position()?;
                let fail = if self.lexer.eat_word("else")? { Some(self.exit_id()?) } else { None };
                Inst::Table { entry, args, pos, fail }
            }
            "call_routine" => {
                let routine = self.lexer.number("the number of a routine")?;
                let args = self.values()?;
                let ty = self.lexer.read("a type", Ty::from_word)?;
                self.lexer.expect_word("else")?;
                Inst::CallRoutine { routine, ty, args, fail: self.exit_id()? }
            }
            "poll" => {
                self.lexer.expect_word("at")?;
                let pos = self.lexer.number("a bytecode offset")?;
                self.lexer.expect_word("else")?;
                Inst::Poll { pos, fail: self.exit_id()? }
            }
            _ => return Err(unknown),
        })
    }

    /// `, value 2` or `, offset 16`.
    fn attr(&mut self) -> Result<Attr> {
        self.lexer.expect(',')?;
        Ok(match self.lexer.eat_word("value")? {
            true => Attr::Value(self.lexer.number("an attribute's number")?),
            false => {
                self.lexer.expect_word("offset")?;
                Attr::Offset(self.lexer.number("an offset")?)
            }
        })
    }

    fn field(&mut self, word: &str) -> Result<Option<Inst>> {
        let field = match word {
            "list_len" => Field::ListLen,
            "tuple_len" => Field::TupleLen,
            "bytes_len" => Field::BytesLen,
            "str_len" => Field::StrLen,
            "bytearray_len" => Field::ByteArrayLen,
            "instance_names" => Field::InstanceNames,
            "bytes_data" => Field::BytesData,
            "bytearray_data" => Field::ByteArrayData,
            "array_data" => Field::ArrayData,
            "array_dim" | "array_stride" => {
                let v = self.value()?;
                self.lexer.expect(',')?;
                let axis = self.lexer.number("an axis")?;
                let field =
                    if word == "array_dim" { Field::ArrayDim(axis) } else { Field::ArrayStride(axis) };
                return Ok(Some(Inst::Field(field, v)));
            }
            _ => return Ok(None),
        };
        Ok(Some(Inst::Field(field, self.value()?)))
    }
}

fn is_id(word: &str, prefix: &str) -> bool {
    word.strip_prefix(prefix).is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()))
}

/// A number as Rust writes it, or `nan_0x…` with the bits.
fn f64_bits(word: &str) -> Option<u64> {
    match word.strip_prefix("nan_0x") {
        Some(bits) => u64::from_str_radix(bits, 16).ok().filter(|b| f64::from_bits(*b).is_nan()),
        None => word.parse().ok().filter(|x: &f64| !x.is_nan()).map(f64::to_bits),
    }
}

fn f32_bits(word: &str) -> Option<u32> {
    match word.strip_prefix("nan_0x") {
        Some(bits) => u32::from_str_radix(bits, 16).ok().filter(|b| f32::from_bits(*b).is_nan()),
        None => word.parse().ok().filter(|x: &f32| !x.is_nan()).map(f32::to_bits),
    }
}
