#![expect(unsafe_code, reason = "x")]
use super::frame::Thread;
pub fn own_tools() -> u8 {
    0
}
pub unsafe fn has_foreign_tracer(thread: Thread) -> bool {
    unsafe { thread.has_tracer() }
}
