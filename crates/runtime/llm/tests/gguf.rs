//! GGUF files as a caller sees them: what is written is read back, what is wrong is named.

use std::path::PathBuf;

use overdrive_kernels::Format;
use overdrive_llm::gguf::{Array, Error, File, Problem, ReadError, Strings, Value, Writer};
use overdrive_tensor::mapped::MappedFile;

fn refusal(writer: &Writer) -> Error {
    File::parse(&writer.to_bytes()).expect_err("it should be refused")
}

/// A file with one tensor, its table written by hand: lengths in the file's order.
fn with_tensor(lengths: &[u64], format: u32, offset: u64) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    for number in [1_u64, 0, 1] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.push(b'w');
    bytes.extend_from_slice(&(lengths.len() as u32).to_le_bytes());
    lengths.iter().for_each(|length| bytes.extend_from_slice(&length.to_le_bytes()));
    bytes.extend_from_slice(&format.to_le_bytes());
    bytes.extend_from_slice(&offset.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(32) + 4096, 0);
    bytes
}

fn problem_of_tensor(lengths: &[u64], format: u32, offset: u64) -> Problem {
    match File::parse(&with_tensor(lengths, format, offset)) {
        Err(Error::Tensor { name, problem }) if name == "w" => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_written_is_read_back() {
    let mut writer = Writer::new();
    writer
        .set("general.architecture", "llama")
        .set("llama.block_count", 2_u32)
        .set("llama.rope.freq_base", 1e4_f32)
        .set("tokenizer.ggml.tokens", vec!["a", "", "é"])
        .set("nested", Array::Array(vec![Array::U8(vec![1, 2]), Array::Bool(vec![true])]))
        .tensor("a", &[2, 256], Format::Q4K, vec![1; 288])
        .tensor("b", &[3], Format::F32, vec![2; 12]);
    for version in [2, 3] {
        let bytes = writer.version(version).to_bytes();
        let file = File::parse(&bytes).unwrap();
        assert_eq!((file.version, file.alignment), (version, 32));
        assert_eq!(file.metadata.require("general.architecture"), Ok("llama"));
        assert_eq!(file.metadata.require::<usize>("llama.block_count"), Ok(2));
        assert_eq!(file.metadata.get::<u32>("llama.vocab_size"), Ok(None));
        let tokens: &Strings = file.metadata.require("tokenizer.ggml.tokens").unwrap();
        assert_eq!(tokens.iter().collect::<Vec<_>>(), [b"a".as_slice(), b"", "é".as_bytes()]);
        let nested = Value::Array(Array::Array(vec![Array::U8(vec![1, 2]), Array::Bool(vec![true])]));
        assert_eq!(file.metadata.value("nested"), Some(&nested));
        let a = file.tensor("a").unwrap();
        assert_eq!((a.n_rows(), a.n_cols(), a.n_values(), a.format), (2, 256, 512, Format::Q4K));
        assert_eq!(bytes[a.range.clone()], [1; 288]);
        let b = file.tensor("b").unwrap();
        assert_eq!((b.n_rows(), b.n_cols(), &bytes[b.range.clone()]), (1, 3, &[2; 12][..]));
    }
}

#[test]
fn metadata_are_asked_for_by_type() {
    let mut writer = Writer::new();
    writer
        .set("small", Value::U8(7))
        .set("negative", -1_i32)
        .set("large", u64::MAX)
        .set("double", Value::F64(0.5))
        .set("flag", true)
        .set("bytes", Value::String(vec![0xff]))
        .set("list", vec![3_i32, -4]);
    let file = File::parse(&writer.to_bytes()).unwrap();
    let metadata = &file.metadata;
    assert_eq!(metadata.require::<u32>("small"), Ok(7));
    assert_eq!(metadata.require::<i64>("negative"), Ok(-1));
    assert_eq!(metadata.require::<f32>("double"), Ok(0.5));
    assert_eq!(metadata.require::<bool>("flag"), Ok(true));
    assert_eq!(metadata.require::<&[u8]>("bytes"), Ok(&[0xff][..]));
    assert_eq!(metadata.require::<Vec<i32>>("list"), Ok(vec![3, -4]));
    let refused = |error: Error| error.to_string();
    assert_eq!(
        metadata.require::<u32>("negative").map_err(refused),
        Err("metadata \"negative\": it should be a whole number of 32 bits without sign and is -1, an int32"
            .into())
    );
    assert!(metadata.get::<u32>("large").is_err());
    assert!(metadata.get::<u32>("flag").is_err());
    assert!(metadata.get::<f32>("small").is_err());
    assert!(metadata.get::<&str>("bytes").is_err());
    assert!(metadata.get::<Vec<u32>>("list").is_err());
    assert!(metadata.get::<&Strings>("list").is_err());
    assert_eq!(
        metadata.require::<u32>("nowhere").map_err(refused),
        Err("the file has no metadata \"nowhere\"".into())
    );
}

#[test]
fn headers_that_are_none_are_refused() {
    let text = |bytes: &[u8]| File::parse(bytes).unwrap_err().to_string();
    assert_eq!(text(b""), "no GGUF file: it is empty");
    assert_eq!(text(b"GG"), "no GGUF file: it begins with GG instead of GGUF");
    assert_eq!(text(b"\x7fELF\x02"), "no GGUF file: it begins with \\x7fELF instead of GGUF");
    assert_eq!(text(b"GGUF\x03\0"), "the version: the file ends: 4 bytes are needed, 2 are left");
    let big_endian = File::parse(b"GGUF\0\0\0\x03").unwrap_err();
    assert!(big_endian == Error::BigEndian && big_endian.is_unsupported());
    assert!(Error::Version { version: 1 }.is_unsupported());
    assert_eq!(text(b"GGUF\x04\0\0\0"), "version 4 of GGUF; versions 2 and 3 are read");
    let mut many = b"GGUF\x03\0\0\0".to_vec();
    many.extend_from_slice(&u64::MAX.to_le_bytes());
    many.extend_from_slice(&[0; 8]);
    let counted = Problem::Count { count: u64::MAX, least: 32, has: 8 };
    assert_eq!(File::parse(&many), Err(Error::Header { what: "number of tensors", problem: counted }));
}

#[test]
fn every_cut_of_a_file_is_an_error() {
    let mut writer = Writer::new();
    writer.set("a", "text").set("b", vec!["x", "y"]).tensor("w", &[2, 32], Format::Q8_0, vec![0; 68]);
    let bytes = writer.to_bytes();
    for length in 0..bytes.len() {
        assert!(File::parse(&bytes[..length]).is_err(), "{length} of {}", bytes.len());
    }
    File::parse(&bytes).unwrap();
}

#[test]
fn tensors_are_refused_by_name() {
    File::parse(&with_tensor(&[256, 2], 12, 0)).unwrap();
    let lengths = vec![1 << 33, 1 << 33];
    assert_eq!(problem_of_tensor(&lengths, 0, 0), Problem::TooLarge { lengths: lengths.clone() });
    assert!(matches!(problem_of_tensor(&[1 << 62, 4], 0, 0), Problem::TooLarge { .. }));
    assert!(matches!(problem_of_tensor(&[u64::MAX - 31, 1], 2, 0), Problem::TooLarge { .. }));
    let outside = |offset, bytes| Problem::Outside { offset, bytes, has: 4096 };
    assert_eq!(problem_of_tensor(&[1025], 0, 0), outside(0, 4100));
    assert_eq!(problem_of_tensor(&[256], 12, 1 << 63), outside(1 << 63, 144));
    assert_eq!(problem_of_tensor(&[8], 0, 4096), outside(4096, 32));
    assert_eq!(problem_of_tensor(&[255], 12, 0), Problem::Row { length: 255, format: Format::Q4K });
    assert_eq!(problem_of_tensor(&[128, 2], 12, 0), Problem::Row { length: 128, format: Format::Q4K });
    assert_eq!(problem_of_tensor(&[256], 12, 7), Problem::Unaligned { offset: 7, alignment: 32 });
    assert_eq!(problem_of_tensor(&[], 0, 0), Problem::Axes(0));
    assert_eq!(problem_of_tensor(&[1; 99], 0, 0), Problem::Axes(99));
    assert_eq!(problem_of_tensor(&[2, 0], 0, 0), Problem::EmptyAxis { axis: 1 });
    let of_format = |number| File::parse(&with_tensor(&[256], number, 0)).unwrap_err();
    assert!(of_format(10).to_string().starts_with("tensor \"w\": it is stored as Q2_K (type 10)"));
    assert!(of_format(39).is_unsupported() && of_format(39).to_string().contains("MXFP4"));
    assert!(!of_format(999).is_unsupported() && of_format(999).to_string().contains("type 999"));
}

#[test]
fn tensors_share_no_bytes_and_no_names() {
    let mut twice = Writer::new();
    twice.tensor("w", &[8], Format::F32, vec![0; 32]).tensor("w", &[8], Format::F32, vec![0; 32]);
    assert_eq!(refusal(&twice), Error::Tensor { name: "w".into(), problem: Problem::Duplicate });
    let mut one = Writer::new();
    one.tensor("first", &[16], Format::F32, vec![0; 64]).tensor("second", &[8], Format::F32, vec![0; 32]);
    let mut bytes = one.to_bytes();
    // The second's offset is the last number of the table.
    let end = File::parse(&bytes).unwrap().tensors()[1].name.len();
    let place = bytes.windows(end).position(|window| window == b"second").unwrap() + end + 4 + 8 + 4;
    assert_eq!(bytes[place], 64);
    bytes[place] = 32;
    let problem = Problem::Overlaps { other: "first".into() };
    assert_eq!(File::parse(&bytes), Err(Error::Tensor { name: "second".into(), problem }));
}

#[test]
fn metadata_are_refused_by_key() {
    let of_key = |key: &str, problem| Error::Key { key: key.into(), problem };
    assert_eq!(refusal(Writer::new().set("k", 1_u32).set("k", 2_u32)), of_key("k", Problem::Duplicate));
    let mut deep = Array::U8(vec![]);
    for _ in 0..3 {
        deep = Array::Array(vec![deep]);
    }
    File::parse(&Writer::new().set("deep", deep.clone()).to_bytes()).unwrap();
    let deeper = Array::Array(vec![deep]);
    assert_eq!(refusal(Writer::new().set("deep", deeper)), of_key("deep", Problem::Nested { most: 4 }));
    for alignment in [3_u32, 48, u32::MAX] {
        let problem = Problem::Alignment { alignment: alignment.into() };
        let refused = refusal(Writer::new().set("general.alignment", alignment));
        assert_eq!(refused, of_key("general.alignment", problem));
    }
    assert!(matches!(refusal(Writer::new().set("general.alignment", "32")), Error::Key { .. }));
    let split = refusal(Writer::new().set("split.count", Value::U16(3)));
    assert!(split == Error::Split { count: 3 } && split.is_unsupported());
    File::parse(&Writer::new().set("split.count", Value::U16(1)).to_bytes()).unwrap();

    let mut bytes = Writer::new().set("key", true).to_bytes();
    let last = bytes.len() - 1;
    bytes[last] = 2;
    assert_eq!(File::parse(&bytes), Err(of_key("key", Problem::Bool(2))));
    bytes[last - 4] = 13;
    assert_eq!(File::parse(&bytes), Err(of_key("key", Problem::ValueType(13))));
    let key = bytes.windows(3).position(|window| window == b"key").unwrap();
    bytes[key] = 0xff;
    let problem = Problem::NotUtf8;
    assert_eq!(File::parse(&bytes), Err(Error::Entry { kind: "metadata entry", index: 0, problem }));
    let long = "k".repeat(65_536);
    let problem = Problem::TooLong { length: 65_536, most: 65_535 };
    let refused = refusal(Writer::new().set(&long, 1_u32));
    assert_eq!(refused, Error::Entry { kind: "metadata entry", index: 0, problem });
    File::parse(&Writer::new().set(&long[1..], 1_u32).to_bytes()).unwrap();
}

#[test]
fn messages_show_names_harmless_and_short() {
    let name = format!("\x1b[2J\n{}", "x".repeat(5000));
    let text = refusal(Writer::new().set(&name, 1_u32).set(&name, 1_u32)).to_string();
    assert!(text.len() < 200 && text.contains("\\u{1b}[2J\\n") && text.contains('…'), "{text}");
}

#[test]
fn a_file_without_tensors_ends_where_it_likes() {
    let bytes = Writer::new().set("k", 1_u32).to_bytes();
    let file = File::parse(&bytes).unwrap();
    assert!(file.tensors().is_empty() && file.data_start == bytes.len());
    assert!(matches!(file.tensor("w"), Err(Error::MissingTensor { .. })));
}

/// A file on the disk, removed afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn with(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("overdrive-gguf-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("the directory for temporary files can be written to");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn files_on_the_disk_are_read_in_parts_until_their_head_ends() {
    // Heads around the sizes of the parts, each longer than the first one.
    for n_tokens in [10, 200_000, 900_000] {
        let tokens: Vec<String> = (0..n_tokens).map(|i| format!("token{i}")).collect();
        let mut writer = Writer::new();
        writer.set("tokens", tokens).set("after", 5_u32).tensor("w", &[32], Format::F32, vec![9; 128]);
        let bytes = writer.to_bytes();
        let scratch = Scratch::with(&n_tokens.to_string(), &bytes);
        let mapped = MappedFile::open(&scratch.0).unwrap();
        let file = File::read(&mapped).unwrap();
        assert_eq!(file, File::parse(&bytes).unwrap());
        let (same, head) = File::read_with_head(&mapped).unwrap();
        assert_eq!((same, &head[..]), (file.clone(), &bytes[..file.data_start]));
        assert_eq!(mapped.as_ref()[file.tensor("w").unwrap().range.clone()], [9; 128]);

        let cut = std::fs::OpenOptions::new().write(true).open(&scratch.0).unwrap();
        cut.set_len(bytes.len() as u64 - 1).unwrap();
        match File::read(&mapped) {
            // Seen where the head is read as far as the end.
            Err(ReadError::Io(error)) => assert!(error.to_string().contains("when it was opened")),
            Ok(_) => assert!(bytes.len() > 4 << 20),
            Err(ReadError::Gguf(error)) => panic!("{error}"),
        }
        let mut data = [0; 128];
        assert!(mapped.read_at(file.tensor("w").unwrap().range.start, &mut data).is_err());
        let short = MappedFile::open(&scratch.0).unwrap();
        assert!(matches!(File::read(&short), Err(ReadError::Gguf(Error::Tensor { .. }))));
    }
}
