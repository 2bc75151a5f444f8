//! Chat templates: messages to the text that a model was trained to continue.
//!
//! In: a template in Jinja, as a model's file carries it, and messages. Out: text, or an error with the template's line.
//! The environment is the one that Hugging Face's templates are written for: blocks are trimmed, loops have `break`,
//! strings have Python's methods, and there are `raise_exception`, `strftime_now` and `tojson`. A template is a program
//! from whoever sent the file: it reaches nothing outside, and what it may do is counted.

mod date;
mod json;
mod sums;

use std::fmt;
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, ErrorKind, State, UndefinedBehavior, context};
use minijinja_contrib::pycompat::unknown_method_callback;

use crate::gguf;

/// Bytes of the longest template that is read; those of models have some 10 kB.
const LONGEST: usize = 1 << 16;
/// Bytes of stack for compiling and rendering: enough for the deepest nesting that a template of this length spells, or
/// makes at run time. Only what is used is ever backed by memory.
const STACK: usize = 256 << 20;
/// Steps and bytes that one rendering may use, besides some for each byte of the messages; a tenth of
/// a second, about. Templates of models use some thousand.
const FUEL: u64 = 300_000;
const FUEL_PER_BYTE: u64 = 64;
/// How deep macros may call each other.
const DEPTH: usize = 100;
const NAME: &str = "chat_template";

/// What one participant said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// The text.
    pub content: String,
}

/// A compiled template. It never changes, so threads share it.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

/// Why there is no text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each holds what its name says")]
pub enum TemplateError {
    /// The template is no Jinja, is too long, or goes wrong with these messages. The line begins with 1.
    Failed { problem: String, line: Option<usize> },
    /// The template itself refuses the messages, in its own words.
    Raised { message: String },
    /// The template does not come to an end within the steps and the memory it may use.
    Endless { line: Option<usize> },
}

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the texts of the tokens that begin and end a text.
    ///
    /// # Errors
    /// `TemplateError::Failed` where it is no Jinja.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        if source.len() > LONGEST {
            let problem = format!("{} bytes; templates have at most {LONGEST}", source.len());
            return Err(TemplateError::Failed { problem, line: None });
        }
        let environment = with_deep_stack(|| environment(source))?;
        Ok(ChatTemplate { environment, bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// The template of a file; none where it has none. `text_of` gives the text of a token.
    ///
    /// # Errors
    /// `TemplateError::Failed` where the file's template is no text or no Jinja.
    pub fn from_gguf(
        metadata: &gguf::Metadata,
        tokenizer: &crate::tokenizer::Tokenizer,
    ) -> Result<Option<Self>, TemplateError> {
        let source: Option<&str> = metadata
            .get("tokenizer.chat_template")
            .map_err(|error| TemplateError::Failed { problem: error.to_string(), line: None })?;
        let text_of = |id: Option<u32>| {
            let piece = id.and_then(|id| tokenizer.piece(id).ok()).unwrap_or_default();
            String::from_utf8_lossy(piece).into_owned()
        };
        source
            .map(|source| Self::new(source, &text_of(tokenizer.bos()), &text_of(tokenizer.eos())))
            .transpose()
    }

    /// The text of a conversation. With `add_generation_prompt` it ends where the assistant's answer begins. The text may
    /// name tokens of control and may begin with `bos` itself: encode it with `parse_special`, without `add_special`.
    ///
    /// # Errors
    /// `TemplateError` with the template's line, or in the template's own words.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, TemplateError> {
        self.render_at(messages, add_generation_prompt, SystemTime::now())
    }

    /// As `render`, for templates that ask for the date.
    ///
    /// # Errors
    /// Those of `render`.
    pub fn render_at(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        now: SystemTime,
    ) -> Result<String, TemplateError> {
        with_deep_stack(|| self.render_here(messages, add_generation_prompt, now))
    }

    fn render_here(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        now: SystemTime,
    ) -> Result<String, TemplateError> {
        let n_bytes: usize = messages.iter().map(|message| message.role.len() + message.content.len()).sum();
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| context! { role => &*message.role, content => &*message.content })
            .collect();
        // The copy shares the compiled template; fuel and date are of this rendering alone.
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL.saturating_add((n_bytes as u64).saturating_mul(FUEL_PER_BYTE))));
        environment.add_function("strftime_now", move |format: &str| date::format(now, format));
        let context = context! {
            messages,
            add_generation_prompt,
            bos_token => &*self.bos,
            eos_token => &*self.eos,
        };
        Ok(environment.get_template(NAME)?.render(context)?)
    }
}

/// The environment that templates are written for, with this one.
fn environment(source: &str) -> Result<Environment<'static>, TemplateError> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    environment.set_syntax(syntax.clone());
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(method);
    environment.set_recursion_limit(DEPTH);
    environment.add_filter("tojson", json::to_json);
    environment.set_formatter(sums::print);
    environment.add_filter(sums::FILTER, sums::counted);
    // Joins lists without counting, and is not in Jinja.
    environment.remove_filter("chain");
    environment.add_function("raise_exception", raise);
    environment.add_template_owned(NAME, sums::count(source, syntax)?)?;
    Ok(environment)
}

/// Runs something that may need more stack than the caller has.
fn with_deep_stack<T: Send>(
    work: impl FnOnce() -> Result<T, TemplateError> + Send,
) -> Result<T, TemplateError> {
    let failed = |problem: String| TemplateError::Failed { problem, line: None };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| failed(format!("no thread to render in: {error}")))?;
        thread.join().map_err(|_| failed("the template engine panicked; please report this".to_owned()))?
    })
}

/// Python's methods of strings, lists and maps.
fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    arguments: &[Value],
) -> Result<Value, minijinja::Error> {
    match value.as_str() {
        // The library's form takes only spaces for the beginning of a word.
        Some(text) if name == "title" && arguments.is_empty() => {
            state.consume_fuel(text.len() as u64 / 64)?;
            Ok(Value::from(title(text)))
        }
        _ => unknown_method_callback(state, value, name, arguments),
    }
}

/// Letters behind anything but a letter in upper case, all others in lower case.
fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut is_behind_letter = false;
    for character in text.chars() {
        if is_behind_letter {
            titled.extend(character.to_lowercase());
        } else {
            titled.extend(character.to_uppercase());
        }
        is_behind_letter = character.is_alphabetic();
    }
    titled
}

/// What a template's `raise_exception` is.
fn raise(message: &str) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, "raise_exception")
        .with_source(Raised(message.to_owned())))
}

/// The words of a template that refuses, on their way through the engine.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

impl From<minijinja::Error> for TemplateError {
    fn from(error: minijinja::Error) -> Self {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(here) = cause {
            if let Some(Raised(message)) = here.downcast_ref() {
                return TemplateError::Raised { message: message.clone() };
            }
            if let Some(here) = here.downcast_ref::<minijinja::Error>()
                && here.kind() == ErrorKind::OutOfFuel
            {
                return TemplateError::Endless { line: error.line() };
            }
            cause = here.source();
        }
        let problem = match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        TemplateError::Failed { problem, line: error.line() }
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = match self {
            TemplateError::Raised { message } => {
                return write!(f, "the chat template refuses these messages: {message}");
            }
            TemplateError::Failed { problem, line } => {
                write!(f, "the chat template fails: {problem}")?;
                line
            }
            TemplateError::Endless { line } => {
                f.write_str("the chat template was stopped: it uses more time or memory than it may")?;
                line
            }
        };
        line.map_or(Ok(()), |line| write!(f, " (line {line} of the template)"))
    }
}

impl std::error::Error for TemplateError {}

#[cfg(test)]
mod tests;
