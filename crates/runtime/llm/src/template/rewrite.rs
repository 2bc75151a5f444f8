//! Templates, rewritten so that every operand is paid for.
//!
//! In: a template. Out: the same template with a filter behind each operand, `a.b[c] + d` as
//! `a.b[c|_counted]|_counted + d|_counted`. What an operator, a filter or a call works on has then been paid for, whatever
//! it is, and however it came about. Names that are given a value, names of arguments, filters and tests are no operands.
//! Must not know: what values weigh (`weight.rs`).

use minijinja::machinery::{Span, Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, ErrorKind};

use super::weight::{COUNTED, KEPT, REPEATED};

/// Most words of one tag. The engine looks through an expression once for each operator in it.
const MOST_WORDS: usize = 4_000;
/// Most sums in one tag: a sum of lists goes through as many iterators.
const MOST_SUMS: usize = 500;

/// The rewritten template. Line breaks stay where they are.
///
/// # Errors
/// Where the template's words are none of Jinja's, or too many in one tag.
pub(super) fn rewrite(source: &str, syntax: SyntaxConfig) -> Result<String, Error> {
    let tokens: Vec<(Token<'_>, Span)> = tokenize(source, false, syntax).collect::<Result<_, _>>()?;
    let mut writer = Writer { source, text: String::with_capacity(source.len() * 2), n_copied: 0 };
    let mut rest = tokens.as_slice();
    while let Some(at) = rest.iter().position(|(token, _)| is_start(token)) {
        let from = &rest[at..];
        let n_words = from.iter().position(|(token, _)| is_end(token)).unwrap_or(from.len());
        let words = &from[..n_words];
        let n_sums = words.iter().filter(|(word, _)| matches!(word, Token::Plus)).count();
        if n_words > MOST_WORDS || n_sums > MOST_SUMS {
            let line = words[0].1.start_line;
            let problem =
                format!("the tag in line {line} has more than {MOST_WORDS} words or {MOST_SUMS} sums");
            return Err(Error::new(ErrorKind::SyntaxError, problem));
        }
        Tag::new(words).write(words, &mut writer);
        rest = &from[n_words..];
    }
    writer.text.push_str(&source[writer.n_copied..]);
    Ok(writer.text)
}

/// Words that are no operands.
const KEYWORDS: [&str; 10] = ["and", "elif", "else", "if", "in", "is", "not", "or", "recursive", "do"];
/// Filters that take no longer for a long list.
const QUICK_FILTERS: [&str; 6] = ["length", "count", "first", "last", "default", "d"];
/// Tests that take no longer for a long list.
const QUICK_TESTS: [&str; 13] = [
    "defined",
    "undefined",
    "none",
    "string",
    "mapping",
    "iterable",
    "sequence",
    "number",
    "integer",
    "float",
    "boolean",
    "true",
    "false",
];

fn is_start(token: &Token<'_>) -> bool {
    matches!(token, Token::BlockStart | Token::VariableStart)
}

fn is_end(token: &Token<'_>) -> bool {
    matches!(token, Token::BlockEnd | Token::VariableEnd)
}

struct Writer<'s> {
    source: &'s str,
    text: String,
    n_copied: usize,
}

impl Writer<'_> {
    fn add_filter(&mut self, span: &Span, filter: &str) {
        let end = span.end_offset as usize;
        self.text.push_str(&self.source[self.n_copied..end]);
        self.text.push('|');
        self.text.push_str(filter);
        self.text.push(' ');
        self.n_copied = end;
    }
}

/// What names at this place are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Operands,
    /// Until `=`, `in` or a filter: they are given a value.
    Targets,
    /// In one pair of parentheses: parameters of a macro, with values where they have defaults.
    Parameters,
}

/// The words of one tag, from its start to before its end, as far as they have been read.
struct Tag {
    keyword: Option<String>,
    names: Names,
    /// For each open bracket, and for none: whether a factor stands here.
    is_factor: Vec<bool>,
    /// Whether values are kept in a namespace, or by a loop that tells whether they changed.
    is_kept: bool,
}

impl Tag {
    fn new(words: &[(Token<'_>, Span)]) -> Self {
        let keyword = match words {
            [(Token::BlockStart, _), (Token::Ident(word), _), ..] => Some((*word).to_owned()),
            _ => None,
        };
        let names = match keyword.as_deref() {
            Some("set" | "for" | "with") => Names::Targets,
            Some("macro") => Names::Parameters,
            Some("call") if matches!(words.get(2), Some((Token::ParenOpen, _))) => Names::Parameters,
            _ => Names::Operands,
        };
        let is_kept = words.iter().any(|(word, _)| matches!(word, Token::Ident("changed")));
        Tag { keyword, names, is_factor: vec![false], is_kept }
    }

    fn write(mut self, words: &[(Token<'_>, Span)], writer: &mut Writer<'_>) {
        let token = |at: usize| words.get(at).map(|(token, _)| token);
        let is_block = matches!(token(0), Some(Token::BlockStart));
        for (at, (word, span)) in words.iter().enumerate().skip(if is_block { 2 } else { 1 }) {
            let (before, next) = (token(at - 1), token(at + 1));
            let closes_parameters = self.read(word, before);
            // These two want a call and nothing behind it; nothing works on what it gives.
            let is_call = next.is_none() && matches!(self.keyword.as_deref(), Some("call" | "do"));
            if closes_parameters || is_call || !self.is_operand(words, at) || continues(word, next) {
                continue;
            }
            let is_quick = match (next, token(at + 2)) {
                (Some(Token::Pipe), Some(Token::Ident(name))) => QUICK_FILTERS.contains(name),
                (Some(Token::Ident("is")), Some(Token::Ident("not"))) => {
                    matches!(token(at + 3), Some(Token::Ident(name)) if QUICK_TESTS.contains(name))
                }
                (Some(Token::Ident("is")), Some(Token::Ident(name))) => QUICK_TESTS.contains(name),
                _ => false,
            };
            let is_factor =
                matches!(next, Some(Token::Mul)) || self.is_factor.last().is_some_and(|is_factor| *is_factor);
            if is_factor {
                writer.add_filter(span, REPEATED);
            } else if !is_quick {
                writer.add_filter(span, if self.is_kept { KEPT } else { COUNTED });
            }
        }
    }

    /// Takes the next word in. True for the parenthesis that ends a list of parameters.
    fn read(&mut self, word: &Token<'_>, before: Option<&Token<'_>>) -> bool {
        let is_outside = self.is_factor.len() == 1;
        match word {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => self.is_factor.push(false),
            Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                // More brackets may close than open; the engine refuses such a template.
                if self.is_factor.len() > 1 {
                    self.is_factor.pop();
                }
                if self.is_factor.len() == 1 && self.names == Names::Parameters {
                    self.names = Names::Operands;
                    return true;
                }
            }
            Token::Assign if is_outside && self.names == Names::Targets => self.names = Names::Operands,
            // An attribute is given the value.
            Token::Dot if self.names == Names::Targets => self.is_kept = true,
            Token::Pipe if is_outside && self.names == Names::Targets => self.names = Names::Operands,
            Token::Ident("in") if is_outside && self.keyword.as_deref() == Some("for") => {
                self.names = Names::Operands;
                self.set_factor(false);
            }
            Token::Comma => {
                if is_outside && self.keyword.as_deref() == Some("with") {
                    self.names = Names::Targets;
                }
                self.set_factor(false);
            }
            Token::Mul => self.set_factor(true),
            Token::Ident(word) if !matches!(before, Some(Token::Dot)) && KEYWORDS.contains(word) => {
                self.set_factor(false);
            }
            Token::Plus | Token::Minus if matches!(before, Some(Token::Mul)) => {}
            Token::Ident(_)
            | Token::Str(_)
            | Token::String(_)
            | Token::Int(_)
            | Token::Int128(_)
            | Token::Float(_)
            | Token::Dot
            | Token::Pipe => {}
            _ => self.set_factor(false),
        }
        false
    }

    fn set_factor(&mut self, is_factor: bool) {
        if let Some(here) = self.is_factor.last_mut() {
            *here = is_factor;
        }
    }

    /// Whether an operand, or a part of one, ends with this word.
    fn is_operand(&self, words: &[(Token<'_>, Span)], at: usize) -> bool {
        let token = |at: usize| words.get(at).map(|(token, _)| token);
        let (before, next) = (token(at - 1), token(at + 1));
        if self.names == Names::Targets {
            return false;
        }
        match &words[at].0 {
            Token::ParenClose | Token::BracketClose | Token::BraceClose => true,
            Token::Ident(word) => {
                let is_attribute = matches!(before, Some(Token::Dot));
                let is_test = match before {
                    Some(Token::Ident("is")) => true,
                    Some(Token::Ident("not")) => at >= 2 && matches!(token(at - 2), Some(Token::Ident("is"))),
                    _ => false,
                };
                let is_named = matches!(next, Some(Token::Assign));
                let is_parameter = self.names == Names::Parameters
                    && self.is_factor.len() == 2
                    && matches!(before, Some(Token::ParenOpen | Token::Comma));
                let is_name_of_macro = self.names == Names::Parameters && self.is_factor.len() == 1;
                is_attribute
                    || !(KEYWORDS.contains(word) || is_test || is_named || is_parameter || is_name_of_macro)
            }
            // Texts and numbers weigh what the template's length allows. Sums of them alone would be made while the
            // template is compiled, which nobody pays for.
            Token::Str(_) | Token::String(_) | Token::Int(_) | Token::Int128(_) | Token::Float(_) => {
                matches!(next, Some(Token::Plus | Token::Mul | Token::Tilde | Token::Pow))
            }
            _ => false,
        }
    }
}

/// Whether the operand goes on behind this word.
fn continues(word: &Token<'_>, next: Option<&Token<'_>>) -> bool {
    let is_literal =
        !matches!(word, Token::Ident(_) | Token::ParenClose | Token::BracketClose | Token::BraceClose);
    !is_literal && matches!(next, Some(Token::Dot | Token::BracketOpen | Token::ParenOpen))
}

#[cfg(test)]
mod tests {
    use minijinja::syntax::SyntaxConfig;

    use super::rewrite;

    /// In what is expected, `#` stands for the filter that pays, `@` for that of factors, `§` for that of namespaces.
    #[track_caller]
    fn check(source: &str, expected: &str) {
        let text = rewrite(source, SyntaxConfig::default()).expect("tokens");
        let text = text.replace("|_counted ", "#").replace("|_repeated ", "@").replace("|_kept ", "§");
        assert_eq!(text, expected);
    }

    #[test]
    fn operands_are_paid_for() {
        check("a + b {{ a + b }}{# a + b #}", "a + b {{ a# + b# }}{# a + b #}");
        check("{{ a.b[c].in(d) + (e) }}", "{{ a.b[c#].in(d#)# + (e#)# }}");
        check("{{ 'x + y' + f(z, k=[1, w]) + 1 + 2.5 }}", "{{ 'x + y'# + f(z#, k=[1, w#]#)# + 1# + 2.5 }}");
        check("{{ a|join(b)|upper == c }}", "{{ a#|join(b#)#|upper# == c# }}");
        check(
            "{{ a ~ b if not c and d in e else {'k': f} }}",
            "{{ a# ~ b# if not c# and d# in e# else {'k': f#}# }}",
        );
        check("{% raw %}{{ a + b }}{% endraw %}", "{% raw %}{{ a + b }}{% endraw %}");
        check("ä\n{{ 'ö' +\n b }}", "ä\n{{ 'ö'# +\n b# }}");
        check(
            "{%- if a -%}{{- b -}}{%- elif c %}{% endif %}",
            "{%- if a# -%}{{- b# -}}{%- elif c# %}{% endif %}",
        );
    }

    #[test]
    fn what_is_quick_costs_nothing() {
        check("{{ a|length + (a|first).b }}", "{{ a|length# + (a|first#).b# }}");
        check("{{ a is defined and b is not none }}", "{{ a is defined and b is not none }}");
        check("{{ a is eq b }}{{ a is in(b) }}", "{{ a# is eq b# }}{{ a# is in(b#)# }}");
    }

    #[test]
    fn factors_and_attributes_have_filters_of_their_own() {
        check("{{ a * b + c }}", "{{ a@ * b@ + c# }}");
        check("{{ a * -b|f, (c * [d]) }}", "{{ a@ * -b@|f@, (c@ * [d#]@)# }}");
        check("{% set n.x = [a, b] %}", "{% set n.x = [a§, b§]§ %}");
        check("{{ loop.changed(a) }}", "{{ loop.changed(a§)§ }}");
    }

    #[test]
    fn names_that_are_given_a_value_stay() {
        check("{% set x, y = a, b %}", "{% set x, y = a#, b# %}");
        check("{% set x | f(a) %}{% endset %}", "{% set x | f(a#)# %}{% endset %}");
        check(
            "{% for k, v in a.items() if k recursive %}{{ loop(v) }}{% endfor %}",
            "{% for k, v in a.items()# if k# recursive %}{{ loop(v#)# }}{% endfor %}",
        );
        check("{% with x = a, (y, z) = b %}{% endwith %}", "{% with x = a#, (y, z) = b# %}{% endwith %}");
        check(
            "{% macro f(a, b=[c, d], e) %}{% endmacro %}",
            "{% macro f(a, b=[c#, d#]#, e) %}{% endmacro %}",
        );
        check("{% call(u, v=w) f(a) %}{% endcall %}", "{% call(u, v=w#) f(a#) %}{% endcall %}");
        check(
            "{% filter f(a)|g %}{% endfilter %}{% do f(a) %}",
            "{% filter f(a#)#|g# %}{% endfilter %}{% do f(a#) %}",
        );
    }
}
