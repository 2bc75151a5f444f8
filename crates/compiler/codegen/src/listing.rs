//! Machine code to be read beside its program: each instruction with the place that it comes from.
//!
//! In: a function as for `compile`. Out: its assembly, instruction by instruction. The code is generated once more, with debug
//! locations, and thrown away: what runs was made without them. One instruction may come from several places, and then has
//! one of them, or none.

use inkwell::context::Context;
use inkwell::targets::FileType;
use overdrive_ir::function::Function;

use crate::abi::Target;
use crate::compile::Options;
use crate::error::CodegenError;
use crate::{lower, machine, passes};

/// One instruction, or the label in front of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    /// Bytecode offset that it was made for, as the IR tells places.
    pub place: Option<u32>,
    /// Part of a way out into CPython.
    pub is_way_out: bool,
    /// In the routine with this number.
    pub routine: Option<usize>,
}

/// What comments begin with.
const COMMENT: &str = if cfg!(target_arch = "aarch64") { "//" } else { "#" };

/// The code that `compile` makes of `f`.
///
/// # Errors
/// As `compile`.
pub fn listing(f: &Function, target: &Target<'_>, options: &Options) -> Result<Vec<Line>, CodegenError> {
    let machine = machine::for_thread(options)?;
    let context = Context::create();
    let module = lower::module(&context, f, target, options, true)?;
    machine.describe(&module);
    if cfg!(debug_assertions) {
        module.verify().map_err(|e| CodegenError::Llvm { stage: "verify", message: e.to_string() })?;
    }
    passes::run(&module, &machine, options.level, f.has_neighbours)?;
    if f.fastmath {
        passes::inline_forwards(&module, &machine)?;
    }
    let text = machine.emit(&module, FileType::Assembly)?;
    Ok(read(&String::from_utf8_lossy(text.as_slice())))
}

/// Takes the directives out of an assembler text, and keeps what they say of places.
fn read(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let (mut is_code, mut place, mut is_way_out, mut routine) = (true, None, false, None);
    for line in text.trim_end_matches('\0').lines() {
        let line = line.split(COMMENT).next().unwrap_or_default().trim();
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            None => continue,
            Some(".text") => is_code = true,
            Some(".section") => is_code = words.next().is_some_and(|name| name.starts_with(".text")),
            Some(".loc") => {
                let mut numbers = words.skip(1).map(|word| word.parse::<u32>().unwrap_or(0));
                place = numbers.next().and_then(|line| line.checked_sub(1));
                is_way_out = numbers.next() == Some(lower::OUT);
            }
            Some(label) if is_code && label.ends_with(':') => {
                if let Some(name) = label.strip_suffix(':').filter(|name| !name.starts_with('.')) {
                    routine = name.strip_prefix(lower::ROUTINE).and_then(|n| n.parse().ok());
                } else if !label.starts_with(".LBB") {
                    // Where a table of debug information begins.
                    continue;
                }
                let text = label.to_owned();
                lines.push(Line { text, place: None, is_way_out: false, routine });
            }
            Some(word) if is_code && !word.starts_with('.') => {
                let text = line.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
                lines.push(Line { text, place, is_way_out, routine });
            }
            Some(_) => {}
        }
    }
    // A label belongs to what follows it.
    for i in (1..lines.len()).rev() {
        if lines[i - 1].text.ends_with(':') {
            let Line { place, is_way_out, routine, .. } = lines[i];
            lines[i - 1] = Line { text: std::mem::take(&mut lines[i - 1].text), place, is_way_out, routine };
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn directives_tell_places_and_are_gone() {
        let text = "\t.text\n\t.file\t\"f\"\nod_native:\n.Lfunc_begin0:\n\t.loc\t0 0 0\n\tpush\trbx\n\
            \t.loc\t0 13 1 prologue_end\n.LBB0_1:\n\taddsd\txmm0,  xmm1\n\t.loc\t0 5 2\n\tjmp\t.LBB0_1\n\
            \t.section\t.debug_line,\"\",@progbits\n\tnonsense\n\t.text\nod_routine_1:\n\t.loc\t0 3 1\n\tret\n";
        let read: Vec<_> = read(text);
        let told: Vec<_> = read.iter().map(|l| (l.text.as_str(), l.place, l.is_way_out, l.routine)).collect();
        assert_eq!(
            told,
            [
                ("od_native:", None, false, None),
                ("push rbx", None, false, None),
                (".LBB0_1:", Some(12), false, None),
                ("addsd xmm0, xmm1", Some(12), false, None),
                ("jmp .LBB0_1", Some(4), true, None),
                ("od_routine_1:", Some(2), false, Some(1)),
                ("ret", Some(2), false, Some(1)),
            ]
        );
    }
}
