//! Text that arrives in pieces: characters that span tokens, and strings that end a generation.
//!
//! In: bytes of tokens as they are drawn. Out: text that can be shown at once, because nothing that follows changes it.
//! Must not know: tokens, models.

mod stop;
mod stream;

pub use stop::{EmptyStop, Found, StopMatcher};
pub use stream::TextStream;
