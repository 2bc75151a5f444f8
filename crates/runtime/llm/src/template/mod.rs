//! Chat templates: messages to the text that a model was trained to continue.
//!
//! In: a template in Jinja, as a model's file carries it, and messages. Out: text, or an error with the template's line.
//! The environment is the one that Hugging Face's templates are written for: blocks are trimmed, loops have `break`,
//! strings have Python's methods, and there are `raise_exception`, `strftime_now` and `tojson`. A template is a program
//! from whoever sent the file: it reaches nothing outside, and what it may do is counted.

mod date;
mod json;
mod rewrite;
mod weight;

use std::fmt;

use chrono::{DateTime, Local, TimeZone};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, ErrorKind, State, UndefinedBehavior, context};
use minijinja_contrib::pycompat::unknown_method_callback;

use crate::gguf;
use crate::tokenizer::Tokenizer;

/// Bytes of the longest template that is read; those of models have some 10 kB.
const LONGEST: usize = 1 << 16;
/// Bytes of stack for compiling and rendering: enough for the deepest nesting that a template of this length spells, or
/// makes at run time. Only what is used is ever backed by memory.
const STACK: usize = 256 << 20;
/// Steps that one rendering may use, some more for each message and each byte of it; a step pays for 64 bytes of text as
/// well. A tenth of a second, about. Templates of models use some thousand.
const FUEL: u64 = 300_000;
const FUEL_PER_MESSAGE: u64 = 1_000;
const FUEL_PER_BYTE: u64 = 4;
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

    /// The template that a file's metadata holds, with the names of the tokenizer's tokens.
    ///
    /// # Errors
    /// `TemplateError::Failed` where it is no text or no Jinja.
    pub fn of_value(value: &gguf::Value, tokenizer: &Tokenizer) -> Result<Self, TemplateError> {
        let source = match value {
            gguf::Value::String(bytes) => std::str::from_utf8(bytes).map_err(|error| error.to_string()),
            other => Err(format!("the file has {} in its place", other.type_name())),
        };
        let source = source.map_err(|problem| TemplateError::Failed { problem, line: None })?;
        let text_of = |id: Option<u32>| {
            let piece = id.and_then(|id| tokenizer.piece(id).ok()).unwrap_or_default();
            String::from_utf8_lossy(piece).into_owned()
        };
        Self::new(source, &text_of(tokenizer.bos()), &text_of(tokenizer.eos()))
    }

    /// The text of a conversation. With `add_generation_prompt` it ends where the assistant's answer begins. The text may
    /// name tokens of control and may begin with `bos` itself: encode it with `parse_special`, without `add_special`.
    ///
    /// # Errors
    /// `TemplateError` with the template's line, or in the template's own words.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, TemplateError> {
        self.render_at(messages, add_generation_prompt, Local::now())
    }

    /// As `render`, at a time of which templates ask the date; `render` gives them the local time of now.
    ///
    /// # Errors
    /// Those of `render`.
    pub fn render_at<Zone>(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        now: DateTime<Zone>,
    ) -> Result<String, TemplateError>
    where
        Zone: TimeZone<Offset: Send + Sync> + Send + Sync + 'static,
    {
        with_deep_stack(|| self.render_here(messages, add_generation_prompt, now))
    }

    fn render_here<Zone>(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        now: DateTime<Zone>,
    ) -> Result<String, TemplateError>
    where
        Zone: TimeZone<Offset: Send + Sync> + Send + Sync + 'static,
    {
        let n_bytes: usize = messages.iter().map(|message| message.role.len() + message.content.len()).sum();
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| context! { role => &*message.role, content => &*message.content })
            .collect();
        // The copy shares the compiled template; fuel and date are of this rendering alone.
        let mut environment = self.environment.clone();
        let more = FUEL_PER_MESSAGE * messages.len() as u64 + FUEL_PER_BYTE * n_bytes as u64;
        environment.set_fuel(Some(FUEL + more));
        environment.add_function("strftime_now", move |format: &str| date::format(&now, format));
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
    weight::install(&mut environment);
    environment.add_function("raise_exception", raise);
    environment.add_template_owned(NAME, rewrite::rewrite(source, syntax)?)?;
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
    weight::pay_method(state, value, name, arguments)?;
    match value.as_str() {
        // The library's form takes only spaces for the beginning of a word.
        Some(text) if name == "title" && arguments.is_empty() => Ok(Value::from(title(text))),
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
