//! Words of the text form, with their places: shared by the function parser and the case-file reader.
//!
//! In: text. Out: tokens one by one, and errors that carry line and column. Comments run from `;` to the end of the line.

use std::fmt;
use std::str::FromStr;

/// What is wrong with a text, and where (both counted from 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    pub line: u32,
    pub column: u32,
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ParseError {}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// Letters, digits, `_ . + -` in a row: names, mnemonics and numbers.
    Word(String),
    Str(String),
    Punct(char),
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(w) => write!(f, "`{w}`"),
            Token::Str(_) => write!(f, "a string"),
            Token::Punct(c) => write!(f, "`{c}`"),
            Token::End => write!(f, "the end of the text"),
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, ParseError>;

/// A stream of tokens with one token of look-ahead.
pub(crate) struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    column: u32,
    /// The token that comes next, and where it begins.
    next: (Token, u32, u32),
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Result<Lexer<'a>> {
        Lexer::at(text, 1, 1)
    }

    /// Begins at a place, so that text cut out of a file keeps its places.
    pub(crate) fn at(text: &'a str, line: u32, column: u32) -> Result<Lexer<'a>> {
        let mut lexer = Lexer { rest: text, line, column, next: (Token::End, line, column) };
        lexer.advance()?;
        Ok(lexer)
    }

    pub(crate) fn peek(&self) -> &Token {
        &self.next.0
    }

    /// An error at the token that comes next.
    pub(crate) fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError { line: self.next.1, column: self.next.2, message: message.into() }
    }

    pub(crate) fn expected<T>(&self, what: &str) -> Result<T> {
        Err(self.error(format!("expected {what}, found {}", self.next.0)))
    }

    pub(crate) fn advance(&mut self) -> Result<Token> {
        let token = self.lex()?;
        Ok(std::mem::replace(&mut self.next, token).0)
    }

    /// Consumes a punctuation character if it comes next.
    pub(crate) fn eat(&mut self, c: char) -> Result<bool> {
        let found = *self.peek() == Token::Punct(c);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(crate) fn expect(&mut self, c: char) -> Result<()> {
        if self.eat(c)? { Ok(()) } else { self.expected(&format!("`{c}`")) }
    }

    /// Consumes a certain word if it comes next.
    pub(crate) fn eat_word(&mut self, word: &str) -> Result<bool> {
        let found = matches!(self.peek(), Token::Word(w) if w == word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(crate) fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.eat_word(word)? { Ok(()) } else { self.expected(&format!("`{word}`")) }
    }

    /// Any word.
    pub(crate) fn word(&mut self, what: &str) -> Result<String> {
        match self.peek() {
            Token::Word(w) => {
                let w = w.clone();
                self.advance()?;
                Ok(w)
            }
            _ => self.expected(what),
        }
    }

    /// A word that `read` understands.
    pub(crate) fn read<T>(&mut self, what: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        let found = match self.peek() {
            Token::Word(w) => read(w),
            _ => None,
        };
        match found {
            Some(x) => self.advance().map(|_| x),
            None => self.expected(what),
        }
    }

    /// A word in the form Rust writes a value of the type.
    pub(crate) fn number<T: FromStr>(&mut self, what: &str) -> Result<T> {
        self.read(what, |w| w.parse().ok())
    }

    /// A word that is a prefix and an index: `v3`.
    pub(crate) fn id(&mut self, prefix: &str, what: &str) -> Result<u32> {
        self.read(what, |w| w.strip_prefix(prefix)?.parse().ok())
    }

    pub(crate) fn string(&mut self, what: &str) -> Result<String> {
        match self.peek() {
            Token::Str(s) => {
                let s = s.clone();
                self.advance()?;
                Ok(s)
            }
            _ => self.expected(what),
        }
    }

    /// Items separated by commas up to a closing character (which is consumed); a comma may stand before it.
    pub(crate) fn list<T>(
        &mut self,
        close: char,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while !self.eat(close)? {
            items.push(item(self)?);
            if !self.eat(',')? {
                self.expect(close)?;
                break;
            }
        }
        Ok(items)
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        if c == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(c)
    }

    fn lex(&mut self) -> Result<(Token, u32, u32)> {
        while let Some(c) = self.rest.chars().next() {
            if c == ';' {
                while self.rest.chars().next().is_some_and(|c| c != '\n') {
                    self.bump();
                }
            } else if c.is_whitespace() {
                self.bump();
            } else {
                break;
            }
        }
        let (line, column) = (self.line, self.column);
        let token = match self.rest.chars().next() {
            None => Token::End,
            Some('"') => Token::Str(self.lex_string(line, column)?),
            Some(c) if is_word(c) => {
                let mut word = String::new();
                while let Some(c) = self.rest.chars().next().filter(|c| is_word(*c)) {
                    word.push(c);
                    self.bump();
                }
                Token::Word(word)
            }
            Some(c) => {
                self.bump();
                Token::Punct(c)
            }
        };
        Ok((token, line, column))
    }

    fn lex_string(&mut self, line: u32, column: u32) -> Result<String> {
        let error = |message: &str| ParseError { line, column, message: message.to_owned() };
        let mut out = String::new();
        self.bump();
        loop {
            match self.bump() {
                None | Some('\n') => return Err(error("string without an end")),
                Some('"') => return Ok(out),
                Some('\\') => match self.bump() {
                    Some('n') => out.push('\n'),
                    Some(c @ ('"' | '\\')) => out.push(c),
                    Some('u') => {
                        let digits = self.rest.strip_prefix('{').and_then(|r| r.split_once('}'));
                        let code = digits.and_then(|(d, _)| u32::from_str_radix(d, 16).ok());
                        let Some(c) = code.and_then(char::from_u32) else {
                            return Err(error("`\\u` must be followed by a character's number in braces"));
                        };
                        out.push(c);
                        while self.bump() != Some('}') {}
                    }
                    _ => return Err(error("unknown escape in a string")),
                },
                Some(c) => out.push(c),
            }
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '-')
}
