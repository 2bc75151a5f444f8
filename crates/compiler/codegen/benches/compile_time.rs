//! What a compile costs, stage by stage: `cargo bench -p overdrive-codegen -- [quick] [keep] FILE.ir…`
//!
//! Without files: the IR's run-cases. Each function is compiled 25 times; the shortest time of each stage is printed, in
//! microseconds: what a compile costs when nobody else wants the processor. `keep` writes optimised LLVM IR and assembly beside the file. Nothing is run.

#![allow(clippy::print_stdout, reason = "its output is the measurement")]

use std::path::PathBuf;
use std::time::Duration;

use overdrive_base::flavour::{DType, KnownType};
use overdrive_base::layout::{InstanceLayout, IntLayout, ObjectLayout};
use overdrive_base::table::Entry;
use overdrive_codegen::{Level, Options, Services, Target, compile};
use overdrive_ir::function::Function;
use overdrive_ir::parse::parse_many;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let level = if words.iter().any(|w| w == "quick") { Level::Quick } else { Level::Full };
    let keep = words.iter().any(|w| w == "keep");
    let mut files: Vec<PathBuf> = words.iter().filter(|w| w.ends_with(".ir")).map(PathBuf::from).collect();
    if files.is_empty() {
        let cases = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../ir/tests/cases"));
        files = std::fs::read_dir(cases).expect("the cases").map(|e| e.expect("a file").path()).collect();
    }
    files.sort();
    println!("{:24} {:>6} {:>9} stages in µs", "function", "insts", "total");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a file of IR");
        for function in parse_many(&text).expect("IR") {
            measure(&function, level);
            if keep {
                let code = once(&function, &Options { keep, level, ..Options::default() });
                let write = |ending, text: Option<&str>| {
                    let path = file.with_file_name(format!("{}.{ending}", function.name));
                    std::fs::write(path, text.unwrap_or_default()).expect("a writable folder");
                };
                write("ll", code.llvm_ir());
                write("s", code.asm());
            }
        }
    }
}

fn measure(function: &Function, level: Level) {
    let mut runs: Vec<Vec<(&'static str, Duration)>> = Vec::new();
    let mut size = 0;
    for _ in 0..25 {
        let code = once(function, &Options { level, ..Options::default() });
        size = code.code_size();
        runs.push(code.timings().to_vec());
    }
    let least = |times: Vec<Duration>| times.into_iter().min().unwrap_or_default().as_micros();
    let total = least(runs.iter().map(|run| run.iter().map(|(_, t)| *t).sum()).collect());
    let stages: Vec<String> = (0..runs[0].len())
        .map(|i| format!("{} {}", runs[0][i].0, least(runs.iter().map(|run| run[i].1).collect())))
        .collect();
    let n_insts: usize = function.blocks.iter().map(|b| b.insts.len()).sum();
    println!("{:24} {n_insts:6} {total:9} {}, {size} bytes", function.name, stages.join(", "));
}

fn once(function: &Function, options: &Options) -> overdrive_codegen::Compiled {
    let layout = layout();
    let entries = vec![0x1234_5678_9ab0; Entry::ALL.len()];
    let consts: Vec<usize> = (0..function.consts.len()).map(|i| 0x7654_3210_0000 + 16 * i).collect();
    let services = Services {
        exit: 0x5555_0000_1000,
        poll: 0x5555_0000_2000,
        should_fail: 0x5555_0000_3000,
        parallel: 0x5555_0000_4000,
    };
    let target = Target { layout: &layout, entries: &entries, services, vectors: &[], consts: &consts };
    compile(function, &target, options).unwrap_or_else(|e| panic!("{}: {e}", function.name))
}

/// Offsets of CPython 3.11 and NumPy 2; addresses of nothing.
fn layout() -> ObjectLayout {
    let address = |i: usize| 0x5500_0000_0000 + 512 * i;
    ObjectLayout {
        int: IntLayout::SignedSize,
        immortal: false,
        ob_type: 8,
        type_version: 64,
        instance: InstanceLayout::Pointed { values: -32 },
        class_names: 128,
        class_names_used: 24,
        var_size: 16,
        list_items: 24,
        list_allocated: 32,
        tuple_items: 24,
        float_value: 16,
        small_ints: 0,
        small_int_size: 32,
        str_state: 32,
        str_state_mask: 0x7c,
        str_state_ascii: 0x64,
        str_ascii_data: 48,
        characters: 0,
        bytes_data: 32,
        bytearray_start: 40,
        array_data: 16,
        array_ndim: 24,
        array_dims: 32,
        array_strides: 40,
        array_descr: 56,
        array_flags: 64,
        array_flags_read: 0x100,
        array_flags_write: 0x400,
        np_scalar_value: 16,
        types: std::array::from_fn(address),
        descrs: std::array::from_fn(|i| address(KnownType::ALL.len() + i)),
        tensor_tags: std::array::from_fn(|i| i + 1),
        none: address(64),
        true_: address(65),
        false_: address(66),
        np_true: address(67),
        np_false: address(67 + DType::ALL.len()),
        frame_instr: 56,
        breaker_bits: 32,
        breaker_mask: 1,
    }
}
