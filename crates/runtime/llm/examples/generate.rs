//! Continues a prompt and says how fast: `generate MODEL.gguf PROMPT N [--profile] [--threads N] [--level NAME] [--prompt N]`.
//!
//! `--prompt N` repeats the prompt until it has `N` tokens. The level is one of scalar, avx2, avx512, amx. Prompt and
//! generation are timed apart.

use std::error::Error;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use overdrive_kernels::{Level, set_level};
use overdrive_llm::sampling::Sampling;
use overdrive_llm::{GenerateOptions, Generation, LoadOptions, Model, OpProfile};

struct Arguments {
    model: PathBuf,
    prompt: String,
    n_tokens: usize,
    n_prompt: Option<usize>,
    wants_profile: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let begin = Instant::now();
    let model = Arc::new(Model::load(&arguments.model, &LoadOptions::default(), &mut |_, _| go_on())?);
    say(&format!(
        "loaded in {:.0} ms, {:.1} MB resident\n",
        1e3 * begin.elapsed().as_secs_f64(),
        resident()
    ))?;
    let tokenizer = model.tokenizer().ok_or("the file has no tokenizer")?;
    let mut tokens = tokenizer.encode(&arguments.prompt, true, true)?;
    if let Some(n) = arguments.n_prompt {
        tokens = tokens.iter().copied().cycle().take(n).collect();
    }
    let n_prompt = tokens.len();
    let options = GenerateOptions {
        sampling: Sampling::greedy(),
        max_tokens: Some(arguments.n_tokens),
        ignore_end: true,
        ..GenerateOptions::default()
    };
    let mut generation = Generation::new(Arc::clone(&model), vec![(model.sequence(), tokens)], options)?;
    let (mut of_prompt, mut of_generation) = (OpProfile::new(), OpProfile::new());
    let mut times = Vec::new();
    while !generation.is_done() {
        let profile = if times.is_empty() { &mut of_prompt } else { &mut of_generation };
        let begin = Instant::now();
        let events = generation.step(&mut go_on, arguments.wants_profile.then_some(profile))?;
        times.push(begin.elapsed());
        for event in events {
            say(&event.text)?;
        }
    }
    say("\n")?;
    let (prompt, generated) = times.split_first().ok_or("no token was asked for")?;
    rate("prompt", n_prompt, *prompt)?;
    rate("generation", generated.len(), generated.iter().sum())?;
    say(&format!("{:.1} MB resident\n", resident()))?;
    if arguments.wants_profile {
        table("prompt", &of_prompt)?;
        table("generation", &of_generation)?;
    }
    Ok(())
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    const USAGE: &str =
        "usage: generate MODEL.gguf PROMPT N [--profile] [--threads N] [--level NAME] [--prompt N]";
    let mut plain = Vec::new();
    let (mut n_prompt, mut wants_profile) = (None, false);
    let mut all = std::env::args().skip(1);
    while let Some(argument) = all.next() {
        match argument.as_str() {
            "--profile" => wants_profile = true,
            "--threads" => overdrive_pool::set_threads(all.next().ok_or(USAGE)?.parse()?)?,
            "--level" => set_level(Level::from_name(&all.next().ok_or(USAGE)?).ok_or("no such level")?)?,
            "--prompt" => n_prompt = Some(all.next().ok_or(USAGE)?.parse()?),
            _ => plain.push(argument),
        }
    }
    let [model, prompt, n_tokens] = <[String; 3]>::try_from(plain).map_err(|_| USAGE)?;
    let (model, n_tokens) = (PathBuf::from(model), n_tokens.parse()?);
    Ok(Arguments { model, prompt, n_tokens, n_prompt, wants_profile })
}

fn go_on() -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn say(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn rate(name: &str, n: usize, time: Duration) -> std::io::Result<()> {
    let seconds = time.as_secs_f64();
    say(&format!("{name}: {n} tokens in {:.1} ms, {:.1} tokens/s\n", 1e3 * seconds, n as f64 / seconds))
}

fn table(name: &str, profile: &OpProfile) -> std::io::Result<()> {
    say(&format!("{name:<12} {:>7} {:>9} {:>6} {:>8} {:>8}\n", "calls", "ms", "%", "GB/s", "GOP/s"))?;
    let all = profile.time().as_secs_f64();
    for (operator, cost) in profile.costs().filter(|(_, cost)| cost.n_calls > 0) {
        let seconds = cost.time.as_secs_f64();
        say(&format!(
            "  {:<10} {:>7} {:>9.2} {:>6.1} {:>8.2} {:>8.1}\n",
            operator.name(),
            cost.n_calls,
            1e3 * seconds,
            100.0 * seconds / all,
            cost.n_bytes as f64 / seconds / 1e9,
            cost.n_operations as f64 / seconds / 1e9
        ))?;
    }
    Ok(())
}

/// Megabytes of memory that the process has, as the system counts them.
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<f64>().ok());
    pages.map_or(f64::NAN, |pages| pages * 4096.0 / 1e6)
}
