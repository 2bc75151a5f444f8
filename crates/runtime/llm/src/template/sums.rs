//! Lists and maps, counted where a template joins, repeats or prints them.
//!
//! In: a template. Out: the same template with a filter behind the left side of each `+`, `*` and `~`. The filter walks
//! through a list or a map and counts its elements, each as often as it would be printed, against what the rendering may
//! use; what is printed goes through the same count. The engine counts strings and steps alone: thirty sums of a list with
//! itself would fill any memory. On everything else the filter does nothing.
//! Not counted yet: a list made of itself many times over that goes into a filter such as `join` or into a comparison.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, escape_formatter};

/// The filter's name.
pub(super) const FILTER: &str = "_counted";
/// How deep lists and maps may lie in each other.
const DEPTH: usize = 200;

/// The template with its sums counted. Line breaks stay where they are.
pub(super) fn count(source: &str, syntax: SyntaxConfig) -> Result<String, Error> {
    let mut counted = String::with_capacity(source.len() + source.len() / 8);
    let mut n_copied = 0;
    let mut is_behind_dot = false;
    let mut is_behind_operand = false;
    for token in tokenize(source, false, syntax) {
        let (token, span) = token?;
        if matches!(token, Token::Plus | Token::Mul | Token::Tilde) && is_behind_operand {
            let at = span.start_offset as usize;
            counted.push_str(&source[n_copied..at]);
            counted.push('|');
            counted.push_str(FILTER);
            counted.push(' ');
            n_copied = at;
        }
        is_behind_operand = match &token {
            Token::Ident(name) => is_behind_dot || !KEYWORDS.contains(name),
            Token::Str(_) | Token::String(_) | Token::Int(_) | Token::Int128(_) | Token::Float(_) => true,
            Token::ParenClose | Token::BracketClose | Token::BraceClose => true,
            _ => false,
        };
        is_behind_dot = matches!(token, Token::Dot);
    }
    counted.push_str(&source[n_copied..]);
    Ok(counted)
}

/// Words behind which a plus is a sign.
const KEYWORDS: [&str; 8] = ["and", "elif", "else", "if", "in", "is", "not", "or"];

/// The filter: its value, counted.
pub(super) fn counted(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    walk(state, &value, 0)?;
    Ok(value)
}

/// What prints values: first counts them.
pub(super) fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    walk(state, value, 0)?;
    escape_formatter(out, state, value)
}

fn walk(state: &State<'_, '_>, value: &Value, depth: usize) -> Result<(), Error> {
    let is_map = value.kind() == ValueKind::Map;
    if !is_map && !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return Ok(());
    }
    if depth > DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "lists lie too deep in each other"));
    }
    for item in value.try_iter()? {
        state.consume_fuel(1)?;
        let item = if is_map { value.get_item(&item)? } else { item };
        walk(state, &item, depth + 1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use minijinja::syntax::SyntaxConfig;

    use super::count;

    #[track_caller]
    fn check(source: &str, expected: &str) {
        let counted = count(source, SyntaxConfig::default()).expect("tokens");
        assert_eq!(counted.replace("|_counted ", "#"), expected);
    }

    #[test]
    fn sums_are_counted_and_nothing_else() {
        check("a + b {{ a + b }}", "a + b {{ a #+ b }}");
        check("{{ a+b + [1]+(c) }}{# a + b #}", "{{ a#+b #+ [1]#+(c) }}{# a + b #}");
        check("{{ 'x + y' + f(z) + 1 + x[0] + 2.5 }}", "{{ 'x + y' #+ f(z) #+ 1 #+ x[0] #+ 2.5 }}");
        check(
            "{% if not +1 == a.in + 2 %}{%+ set x = +1 +%}",
            "{% if not +1 == a.in #+ 2 %}{%+ set x = +1 +%}",
        );
        check("{{ a ~ b * 2 }}", "{{ a #~ b #* 2 }}");
        check("{% raw %}{{ a + b }}{% endraw %}", "{% raw %}{{ a + b }}{% endraw %}");
        check("ä\n{{ 'ö' +\n b }}", "ä\n{{ 'ö' #+\n b }}");
    }
}
