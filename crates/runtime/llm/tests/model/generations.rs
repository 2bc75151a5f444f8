//! Generations against a loop over `forward`, alone and together, and each way in which they end.

use std::ops::ControlFlow;
use std::sync::Arc;

use overdrive_kernels::Format;
use overdrive_llm::sampling::Sampling;
use overdrive_llm::{
    Error, Event, Finish, GenerateOptions, Generation, Kind, Likelihood, Model, Overflow, Part, Want,
};

use crate::tiny::{Random, Shape, Tiny};
use crate::{all_logits, go_on, load, tokens};

fn model(n_ctx: usize) -> Arc<Model> {
    Arc::new(load(&Tiny::new(Shape { n_ctx, format: Format::Q8_0, ..Shape::default() })))
}

fn greedy(max_tokens: usize) -> GenerateOptions {
    let sampling = Sampling::greedy();
    GenerateOptions { sampling, max_tokens: Some(max_tokens), ignore_end: true, ..GenerateOptions::default() }
}

fn try_start(model: &Arc<Model>, prompt: &[u32], options: GenerateOptions) -> Result<Generation, Error> {
    Generation::new(Arc::clone(model), vec![(model.sequence(), prompt.to_vec())], options)
}

/// All events until the end.
fn run(generation: &mut Generation) -> Vec<Event> {
    let mut all = Vec::new();
    while !generation.is_done() {
        let events = generation.step(&mut go_on, None).unwrap();
        assert!(!events.is_empty());
        all.extend(events);
    }
    assert!(generation.step(&mut go_on, None).unwrap().is_empty());
    all
}

fn alone(model: &Arc<Model>, prompt: &[u32], options: GenerateOptions) -> Vec<Event> {
    run(&mut try_start(model, prompt, options).unwrap())
}

fn ids(events: &[Event]) -> Vec<u32> {
    events.iter().filter_map(|event| event.token).collect()
}

fn text(events: &[Event]) -> String {
    events.iter().map(|event| event.text.as_str()).collect()
}

fn best(row: &[f32]) -> u32 {
    let best = |a: (u32, f32), b: (u32, &f32)| if *b.1 > a.1 { (b.0, *b.1) } else { a };
    (0..).zip(row).fold((0, f32::NEG_INFINITY), best).0
}

/// Greedy tokens by the plainest loop.
fn plain(model: &Model, prompt: &[u32], n: usize) -> Vec<u32> {
    let mut sequence = model.sequence();
    let (mut next, mut all) = (prompt.to_vec(), Vec::new());
    for _ in 0..n {
        let mut parts = [Part { sequence: &mut sequence, tokens: &next, logits: Want::Last }];
        let token = best(model.forward(&mut parts, &mut go_on, None).unwrap().last(0));
        all.push(token);
        next = vec![token];
    }
    all
}

#[test]
fn greedy_is_the_largest_logit_each_time() {
    let model = model(256);
    let prompt = tokens(5, 20, 256);
    let events = alone(&model, &prompt, greedy(30));
    assert_eq!(ids(&events), plain(&model, &prompt, 30));
    let finishes: Vec<_> = events.iter().map(|event| event.finish).collect();
    assert!(finishes[..29].iter().all(Option::is_none) && finishes[29] == Some(Finish::Length));
    let tokenizer = model.tokenizer().unwrap();
    assert_eq!(text(&events), tokenizer.decode(&ids(&events), true).unwrap());
}

#[test]
fn together_as_alone() {
    let model = model(256);
    let prompts: Vec<Vec<u32>> = [3, 40, 1, 17].iter().map(|n| tokens(*n as u64, *n, 256)).collect();
    for sampling in [Sampling::greedy(), Sampling { seed: Some(9), top_k: 40, ..Sampling::default() }] {
        let options =
            |n: usize| GenerateOptions { sampling: sampling.clone(), log_probs: Some(2), ..greedy(n) };
        let mut together = Generation::new(Arc::clone(&model), Vec::new(), greedy(1)).unwrap();
        for (i, prompt) in prompts.iter().enumerate() {
            // Each ends at another time.
            let number = together.push(model.sequence(), prompt.clone(), options(5 + 4 * i)).unwrap();
            assert_eq!(number, i);
        }
        let events = run(&mut together);
        for (i, prompt) in prompts.iter().enumerate() {
            let mut single = alone(&model, prompt, options(5 + 4 * i));
            single.iter_mut().for_each(|event| event.prompt = i);
            let of_this: Vec<_> = events.iter().filter(|event| event.prompt == i).cloned().collect();
            assert_eq!(of_this, single);
            assert_eq!(single.len(), 5 + 4 * i);
        }
    }
}

#[test]
fn interrupted_anywhere_and_continued() {
    let model = model(1400);
    let prompts = [tokens(1, 700, 256), tokens(2, 5, 256), tokens(3, 600, 256)];
    let start = || {
        let prompts = prompts.iter().map(|prompt| (model.sequence(), prompt.clone()));
        Generation::new(Arc::clone(&model), prompts.collect(), greedy(4)).unwrap()
    };
    let expected = run(&mut start());
    let mut generation = start();
    let (mut random, mut n_stopped, mut events) = (Random(1), 0, Vec::new());
    while !generation.is_done() {
        let mut now_and_then =
            || if random.below(3) == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        match generation.step(&mut now_and_then, None) {
            Ok(more) => events.extend(more),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Interrupted);
                n_stopped += 1;
            }
        }
    }
    assert_eq!(events, expected);
    assert!(n_stopped >= 4);
}

#[test]
fn stop_strings_and_tokens() {
    let model = model(256);
    let prompt = tokens(5, 20, 256);
    let events = alone(&model, &prompt, greedy(60));
    let whole = text(&events);
    let characters: Vec<char> = whole.chars().collect();
    let stop: String = characters[10..13].iter().collect();
    let before = &whole[..whole.find(&stop).unwrap()];
    let options = GenerateOptions { stop: vec!["never said".to_owned(), stop], ..greedy(60) };
    let stopped = alone(&model, &prompt, options);
    assert_eq!(text(&stopped), before);
    assert_eq!(stopped.last().unwrap().finish, Some(Finish::Stop));
    // What was held back for a stop string that did not come is given at the end.
    let held: String = characters[characters.len() - 3..].iter().chain(&['\u{1F600}']).collect();
    let options = GenerateOptions { stop: vec![held], ..greedy(60) };
    assert_eq!(text(&alone(&model, &prompt, options)), whole);
    // A token that ends.
    let ends = ids(&events)[7];
    let n = ids(&events).iter().position(|id| *id == ends).unwrap() + 1;
    let options = GenerateOptions { stop_tokens: vec![ends], ..greedy(60) };
    let ended = alone(&model, &prompt, options);
    assert_eq!(ids(&ended), ids(&events)[..n]);
    assert_eq!(ended.last().unwrap().finish, Some(Finish::EndOfText));
    // No token at all.
    let none = alone(&model, &prompt, greedy(0));
    assert_eq!(none, [Event { finish: Some(Finish::Length), ..Event::default() }]);
}

#[test]
fn the_models_own_end() {
    let model = model(256);
    let end = model.tokenizer().unwrap().eos().unwrap();
    // Draws from nearly all tokens alike, so that the end comes some time.
    let sampling = Sampling { temperature: 50.0, seed: Some(3), ..Sampling::default() };
    let options = GenerateOptions {
        sampling,
        ignore_end: false,
        overflow: Overflow::Shift { keep: 4 },
        ..greedy(5000)
    };
    let events = alone(&model, &tokens(5, 20, 256), options);
    assert_eq!(events.last().unwrap().token, Some(end));
    assert_eq!(events.last().unwrap().finish, Some(Finish::EndOfText));
    assert!(!text(&events).contains("<|end|>"));
}

#[test]
fn a_full_context_ends_the_text() {
    let model = model(40);
    let events = alone(&model, &tokens(5, 30, 256), GenerateOptions { max_tokens: None, ..greedy(1) });
    // The last one is chosen by a full context.
    assert_eq!(events.len(), 11);
    assert_eq!(events[10].finish, Some(Finish::Length));
    assert_eq!(alone(&model, &tokens(5, 40, 256), greedy(5)).len(), 1);
    let error = try_start(&model, &tokens(5, 41, 256), greedy(5)).err().unwrap();
    assert_eq!(error.kind(), Kind::Value);
    assert!(error.to_string().contains("41") && error.to_string().contains("40"), "{error}");
}

#[test]
fn a_full_context_forgets_its_older_half() {
    let model = model(40);
    let prompt = tokens(5, 30, 256);
    let options = GenerateOptions { overflow: Overflow::Shift { keep: 6 }, ..greedy(100) };
    let mut generation = try_start(&model, &prompt, options.clone()).unwrap();
    let got = ids(&run(&mut generation));
    assert!(generation.tokens(0).len() <= 40);
    assert_eq!(generation.tokens(0)[..6], prompt[..6]);
    let mut text = prompt;
    for id in got {
        let mut parts = [Part { sequence: &mut model.sequence(), tokens: &text, logits: Want::Last }];
        assert_eq!(id, best(model.forward(&mut parts, &mut go_on, None).unwrap().last(0)));
        text.push(id);
        if text.len() > 40 {
            text.drain(6..6 + (text.len() - 6) / 2);
        }
    }
    // A prompt that is too long is treated alike.
    let long = tokens(7, 200, 256);
    let mut generation = try_start(&model, &long, options).unwrap();
    assert_eq!(generation.tokens(0)[..6], long[..6]);
    assert!(long.ends_with(&generation.tokens(0)[6..]));
    assert_eq!(run(&mut generation).len(), 100);
    let options = GenerateOptions { overflow: Overflow::Shift { keep: 39 }, ..greedy(1) };
    assert_eq!(try_start(&model, &long, options).err().unwrap().kind(), Kind::Value);
}

#[test]
fn a_session_computes_only_what_is_new() {
    let model = model(256);
    let first = tokens(5, 50, 256);
    let mut generation = try_start(&model, &first, greedy(10)).unwrap();
    let answer = ids(&run(&mut generation));
    let sequence = generation.into_sequences().remove(0);
    assert_eq!(sequence.len(), 59);
    let second = [first, answer, tokens(6, 5, 256)].concat();
    let prompts = vec![(sequence, second.clone())];
    let mut generation = Generation::new(Arc::clone(&model), prompts, greedy(10)).unwrap();
    let mut profile = overdrive_llm::OpProfile::new();
    let mut events = generation.step(&mut go_on, Some(&mut profile)).unwrap();
    let head = profile.cost(overdrive_llm::Operator::GateUp).n_operations as usize;
    let config = model.config();
    // Six rows in the first layer, one in the last.
    assert_eq!(head, 2 * (6 + 1) * 2 * config.n_embed * config.n_ff);
    events.extend(run(&mut generation));
    assert_eq!(events, alone(&model, &second, greedy(10)));
}

#[test]
fn probabilities_are_those_of_the_model() {
    let model = model(256);
    let prompt = tokens(5, 20, 256);
    let options = GenerateOptions { log_probs: Some(3), ..greedy(1) };
    let event = alone(&model, &prompt, options).remove(0);
    let rows = all_logits(&model, &mut model.sequence(), &prompt);
    let row = &rows[19 * 272..];
    let sum = row.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
    let id = event.token.unwrap();
    assert!((f64::from(event.log_prob.unwrap()) - (f64::from(row[id as usize]) - sum)).abs() < 1e-5);
    assert_eq!(event.top.len(), 3);
    assert_eq!(event.top[0], (id, event.log_prob.unwrap()));
}

#[test]
fn cancelled() {
    let model = model(256);
    let mut generation = try_start(&model, &tokens(5, 20, 256), greedy(30)).unwrap();
    generation.step(&mut go_on, None).unwrap();
    assert_eq!(generation.cancel(0).unwrap().finish, Some(Finish::Interrupted));
    assert!(generation.is_done() && generation.cancel(0).is_none());
}

#[test]
fn refused_before_anything_is_computed() {
    let model = model(256);
    let refused = |prompt: &[u32], options| try_start(&model, prompt, options).err().unwrap().to_string();
    assert!(refused(&[], greedy(1)).starts_with("prompt: "));
    assert!(refused(&[300], greedy(1)).contains("token 300"));
    let sampling = Sampling { temperature: -1.0, ..Sampling::default() };
    assert!(refused(&[1], GenerateOptions { sampling, ..greedy(1) }).contains("temperature"));
    let stop = vec!["a".to_owned(), String::new()];
    assert!(refused(&[1], GenerateOptions { stop, ..greedy(1) }).starts_with("stop: "));
}

#[test]
fn likelihood_is_that_of_the_rows() {
    let model = model(64);
    let text = tokens(5, 100, 272);
    let Likelihood { log_probability, n_scored } =
        model.log_likelihood(&text, 60, &mut |_, _| go_on(), None).unwrap();
    assert_eq!(n_scored, 59 + 39);
    let mut expected = 0.0;
    for window in text.chunks(60) {
        let rows = all_logits(&model, &mut model.sequence(), window);
        for (row, next) in rows.chunks_exact(272).zip(&window[1..]) {
            let sum = row.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
            expected += f64::from(row[*next as usize]) - sum;
        }
    }
    assert!((log_probability - expected).abs() < 1e-3, "{log_probability} instead of {expected}");
    for window in [1, 65] {
        assert_eq!(
            model.log_likelihood(&text, window, &mut |_, _| go_on(), None).unwrap_err().kind(),
            Kind::Value
        );
    }
}
