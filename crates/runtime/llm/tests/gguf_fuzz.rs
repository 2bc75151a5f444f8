//! Hostile GGUF files, a fixed number of them: none makes the reader panic, hang or ask for much memory.
//!
//! `cargo run -p overdrive-llm --example fuzz_gguf -- 10000000` runs more of the same.

#[path = "support/counting.rs"]
mod counting;
#[path = "support/hostile.rs"]
mod hostile;

use hostile::{Corpus, Random};
use overdrive_kernels::Format;
use overdrive_llm::gguf::{Array, File, Value, Writer};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

#[test]
fn valid_files_are_read_back_whatever_is_in_them() {
    let mut random = Random::new(1);
    for _ in 0..2000 {
        let bytes = hostile::valid(&mut random).to_bytes();
        let (result, allocated) = counting::most_allocated(|| File::parse(&bytes));
        hostile::check(&result, &bytes, allocated);
        let file = result.unwrap();
        let again = rewritten(&file, &bytes);
        let second = File::parse(&again).unwrap();
        assert_eq!(file.tensors().len(), second.tensors().len());
        for (one, other) in file.tensors().iter().zip(second.tensors()) {
            assert_eq!((&one.name, &one.shape, one.format), (&other.name, &other.shape, other.format));
            assert_eq!(bytes[one.range.clone()], again[other.range.clone()]);
        }
        assert_eq!(file.metadata.len(), second.metadata.len());
        for (key, value) in file.metadata.iter() {
            // Not a number is no number's equal, nor its own.
            let same = |value| format!("{value:?}");
            assert_eq!(second.metadata.value(key).map(same), Some(same(value)));
        }
    }
}

#[test]
fn changed_files_are_read_or_refused() {
    let mut random = Random::new(2);
    let corpus = Corpus::new(200, &mut random);
    let mut bytes = Vec::new();
    let mut n_read = 0;
    for _ in 0..200_000 {
        corpus.mutate(&mut random, &mut bytes);
        let (result, allocated) = counting::most_allocated(|| File::parse(&bytes));
        hostile::check(&result, &bytes, allocated);
        n_read += usize::from(result.is_ok());
    }
    // Or the changes would test one refusal again and again.
    assert!((10_000..190_000).contains(&n_read), "{n_read}");
}

#[test]
fn many_small_things_cost_a_small_multiple_of_their_file() {
    let mut keys = Writer::new();
    let mut tensors = Writer::new();
    tensors.alignment(1);
    for i in 0..30_000 {
        keys.set(&format!("{i:x}"), Value::U8(0));
        tensors.tensor(&format!("{i:x}"), &[1], Format::F16, vec![0; 2]);
    }
    let mut lists = Writer::new();
    lists.set("lists", Array::Array(vec![Array::U8(vec![]); 100_000]));
    let mut strings = Writer::new();
    strings.set("strings", vec![""; 100_000]);
    for (writer, most) in [(keys, 12), (tensors, 12), (lists, 6), (strings, 2)] {
        let bytes = writer.to_bytes();
        let (result, allocated) = counting::most_allocated(|| File::parse(&bytes));
        assert!(result.is_ok() && allocated <= most * bytes.len(), "{allocated} for {}", bytes.len());
    }
}

/// The file that a parsed one would be written as.
fn rewritten(file: &File, bytes: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.version(file.version);
    match file.metadata.get::<u32>("general.alignment") {
        Ok(None) => {}
        // Says it a second time, behind the others, and the others are then without it.
        _ => {
            writer.alignment(file.alignment as u32);
        }
    }
    for (key, value) in file.metadata.iter().filter(|(key, _)| *key != "general.alignment") {
        writer.set(key, value.clone());
    }
    for tensor in file.tensors() {
        writer.tensor(&tensor.name, &tensor.shape, tensor.format, bytes[tensor.range.clone()].to_vec());
    }
    writer.to_bytes()
}
