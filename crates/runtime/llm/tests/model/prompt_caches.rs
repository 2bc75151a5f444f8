//! Sequences in files: read back bit for bit, or refused.

use overdrive_kernels::KvFormat;
use overdrive_llm::{Error, Kind, LoadOptions, Model, Sequence};

use crate::tiny::{Scratch, Shape, Tiny};
use crate::{all_logits, go_on, load, tokens};

fn model(kv: KvFormat) -> Model {
    let options = LoadOptions { kv, ..LoadOptions::default() };
    Model::load(&Tiny::new(Shape::default()).file().0, &options, &mut |_, _| go_on()).unwrap()
}

fn saved(sequence: &Sequence) -> Scratch {
    let file = Scratch::empty();
    sequence.save(&file.0).unwrap();
    file
}

fn restored(model: &Model, bytes: &[u8]) -> Result<Sequence, Error> {
    model.restore(&Scratch::with(bytes).0)
}

#[test]
fn read_back_bit_for_bit() {
    for kv in [KvFormat::F16, KvFormat::Q8] {
        let model = model(kv);
        let (prompt, rest) = (tokens(1, 100, 272), tokens(2, 20, 272));
        for n in [0, 1, 64, 100] {
            let mut sequence = model.sequence();
            all_logits(&model, &mut sequence, &prompt[..n]);
            let mut restored = model.restore(&saved(&sequence).0).unwrap();
            assert_eq!(restored.tokens(), &prompt[..n]);
            assert!(all_logits(&model, &mut restored, &rest) == all_logits(&model, &mut sequence, &rest));
        }
    }
}

#[test]
fn cut_and_damaged_files_are_refused() {
    let model = model(KvFormat::F16);
    let mut sequence = model.sequence();
    all_logits(&model, &mut sequence, &tokens(1, 20, 272));
    let bytes = std::fs::read(&saved(&sequence).0).unwrap();
    assert!(restored(&model, &bytes).is_ok());
    for n in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        let error = restored(&model, &bytes[..n]).err().unwrap();
        assert!(matches!(error, Error::PromptCache { .. }), "{n} bytes: {error}");
        assert_eq!(error.kind(), Kind::Value);
    }
    for at in (0..200).chain((200..bytes.len()).step_by(61)) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        assert!(restored(&model, &damaged).is_err(), "byte {at} may be anything");
    }
    assert!(restored(&model, &[&bytes[..], b"x"].concat()).is_err());
}

#[test]
fn files_of_others_are_refused() {
    let model = model(KvFormat::F16);
    let mut sequence = model.sequence();
    all_logits(&model, &mut sequence, &tokens(1, 20, 272));
    let file = saved(&sequence);
    let other = load(&Tiny::new(Shape { is_tied: true, ..Shape::default() }));
    assert!(matches!(other.restore(&file.0), Err(Error::OtherModel { .. })));
    let options = LoadOptions { n_ctx: Some(19), ..LoadOptions::default() };
    let short = Model::load(&Tiny::new(Shape::default()).file().0, &options, &mut |_, _| go_on()).unwrap();
    assert!(matches!(short.restore(&file.0), Err(Error::TooLong { n_tokens: 20, n_ctx: 19 })));
    let missing = model.restore(&Scratch::empty().0).err().unwrap();
    assert_eq!(missing.kind(), Kind::Os);
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    let directory = Scratch::empty();
    std::fs::create_dir(&directory.0).unwrap();
    let target = directory.0.join("taken");
    std::fs::create_dir(&target).unwrap();
    let error = model(KvFormat::F16).sequence().save(&target).unwrap_err();
    assert_eq!(error.kind(), Kind::Os);
    assert!(error.to_string().contains("taken"), "{error}");
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 1);
    std::fs::remove_dir_all(&directory.0).unwrap();
    let error = model(KvFormat::F16).sequence().save(&directory.0.join("nowhere")).unwrap_err();
    assert_eq!(error.kind(), Kind::Os);
}
