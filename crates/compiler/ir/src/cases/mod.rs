//! Run-cases: functions of the IR with calls and what must come out, as text files that every back end runs.
//!
//! In: a file's text. Out: cases as data, and `interpret`, which runs one on the mock heap. A native harness builds the
//! literals on its own heap, runs the function and compares `Ending`s. Directives are comments behind or before the
//! functions, one a line; `args`, `log`, `poll`, `frameless` and `force` belong to the call above them:
//!
//! ```text
//! ; consts f [None, "name"]              all constants (needed unless they are none, true, false); `arg0` is the first
//! ; call f(1, [2]) -> 3                  or -> exit1 [locals] [stack], or -> raise exit1 "Type: text" [locals] [stack]
//! ;   args [1, [5]]                      arguments afterwards (they are kept alive for it)
//! ;   log ["call add at 4", "del x"]     what the program's user notices, in order; nothing if not given
//! ;   poll 2 raises "KeyboardInterrupt"  the third poll sets this exception
//! ;   frameless                          the call has no frame
//! ;   force 0 -> exit0 [1, [2]] []       the ending when the check that runs first fails
//! ```

pub mod literal;
pub mod heap;
mod run;

use std::fmt::{self, Display, Formatter};

use crate::entities::ExitId;
use crate::function::{ConstRef, Function};
use crate::lex::{Lexer, ParseError, Result, Token};
use crate::parse::parse_many;
use crate::print::{List, Quoted};
use literal::{Literal, literal};
pub use run::{Observed, interpret};

/// A function and its calls.
#[derive(Clone, Debug)]
pub struct Case {
    pub function: Function,
    /// One per constant.
    pub consts: Vec<Literal>,
    pub calls: Vec<Call>,
}

/// A call and what must come of it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Line in the file.
    pub line: u32,
    pub args: Vec<Literal>,
    pub ending: Ending,
    pub args_after: Option<Vec<Literal>>,
    pub log: Vec<String>,
    /// Number of the poll that raises (from 0), and the exception.
    pub poll: Option<(u32, String)>,
    /// The call comes without a frame.
    pub is_frameless: bool,
    /// Number of the check that is forced to fail (from 0, as they run), and the ending then.
    pub forced: Vec<(u32, Ending)>,
}

/// How a call ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    Returns(Literal),
    Leaves { exit: ExitId, locals: Vec<Literal>, stack: Vec<Literal> },
    Raises { exit: ExitId, exception: String, locals: Vec<Literal>, stack: Vec<Literal> },
}

impl Display for Ending {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Returns(x) => write!(f, "{x}"),
            Ending::Leaves { exit, locals, stack } => {
                write!(f, "{exit} [{}] [{}]", List(locals), List(stack))
            }
            Ending::Raises { exit, exception, locals, stack } => {
                let exception = Quoted(exception);
                write!(f, "raise {exit} {exception} [{}] [{}]", List(locals), List(stack))
            }
        }
    }
}

/// Reads a file.
///
/// # Errors
/// What is wrong in the functions or the directives, with line and column.
pub fn read(text: &str) -> std::result::Result<Vec<Case>, ParseError> {
    let mut cases = Vec::new();
    for function in parse_many(text)? {
        let consts = function.consts.iter().map(default_const).collect();
        cases.push(Case { function, consts, calls: vec![] });
    }
    let mut last = None;
    for (i, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix(';') else { continue };
        let column = (line.len() - comment.len()) as u32 + 1;
        let lexer = Lexer::at(comment, i as u32 + 1, column);
        directive(&mut cases, &mut last, lexer, i as u32 + 1)?;
    }
    for case in &cases {
        let missing = case.consts.iter().any(|c| matches!(c, Literal::Unset));
        if missing || case.consts.len() != case.function.consts.len() {
            let message = format!("`; consts {} […]` must give all its constants", case.function.name);
            return Err(ParseError { line: 1, column: 1, message });
        }
    }
    Ok(cases)
}

fn default_const(c: &ConstRef) -> Literal {
    match c {
        ConstRef::None => Literal::None,
        ConstRef::True => Literal::Bool(true),
        ConstRef::False => Literal::Bool(false),
        _ => Literal::Unset,
    }
}

/// Reads one comment; prose is passed over. `last`: the case whose last call takes the lines that belong to it.
fn directive(
    cases: &mut [Case],
    last: &mut Option<usize>,
    lexer: Result<Lexer<'_>>,
    line: u32,
) -> Result<()> {
    // Prose may hold an apostrophe or a lone quote that is no token.
    let Ok(mut l) = lexer else { return Ok(()) };
    let word = match l.peek() {
        Token::Word(w)
            if ["consts", "call", "args", "log", "poll", "frameless", "force"].contains(&w.as_str()) =>
        {
            w.clone()
        }
        _ => return Ok(()),
    };
    l.advance()?;
    if word == "consts" || word == "call" {
        let name = match l.peek() {
            Token::Str(s) => s.clone(),
            Token::Word(w) => w.clone(),
            _ => return l.expected("a function's name"),
        };
        let found = cases.iter().position(|c| c.function.name == name);
        let unknown = l.error(format!("there is no function {name}"));
        l.advance()?;
        let index = found.ok_or(unknown)?;
        if word == "consts" {
            l.expect('[')?;
            cases[index].consts = l.list(']', literal)?;
        } else {
            l.expect('(')?;
            let args = l.list(')', literal)?;
            let ending = ending(&mut l)?;
            let (args_after, log, poll, is_frameless, forced) = (None, vec![], None, false, vec![]);
            cases[index].calls.push(Call { line, args, ending, args_after, log, poll, is_frameless, forced });
            *last = Some(index);
        }
        return end(&l);
    }
    let call =
        last.and_then(|i| cases[i].calls.last_mut()).ok_or_else(|| l.error("there is no call above"))?;
    match word.as_str() {
        "args" => {
            l.expect('[')?;
            call.args_after = Some(l.list(']', literal)?);
        }
        "log" => {
            l.expect('[')?;
            call.log = l.list(']', |l| l.string("an event in quotes"))?;
        }
        "poll" => {
            let n = l.number("the number of a poll")?;
            l.expect_word("raises")?;
            call.poll = Some((n, l.string("an exception in quotes")?));
        }
        "frameless" => call.is_frameless = true,
        _ => {
            let n = l.number("the number of a check")?;
            call.forced.push((n, ending(&mut l)?));
        }
    }
    end(&l)
}

fn end(l: &Lexer<'_>) -> Result<()> {
    if *l.peek() == Token::End { Ok(()) } else { l.expected("the end of the line") }
}

/// `-> …`
fn ending(l: &mut Lexer<'_>) -> Result<Ending> {
    l.expect_word("-")?;
    l.expect('>')?;
    let raises = l.eat_word("raise")?;
    let is_exit = matches!(l.peek(), Token::Word(w) if w.starts_with("exit"));
    if !raises && !is_exit {
        return Ok(Ending::Returns(literal(l)?));
    }
    let exit = ExitId(l.id("exit", "an exit")?);
    let exception = if raises { Some(l.string("an exception in quotes")?) } else { None };
    l.expect('[')?;
    let locals = l.list(']', literal)?;
    l.expect('[')?;
    let stack = l.list(']', literal)?;
    Ok(match exception {
        Some(exception) => Ending::Raises { exit, exception, locals, stack },
        None => Ending::Leaves { exit, locals, stack },
    })
}
