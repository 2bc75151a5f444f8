//! Bump allocation: memory that is handed out by moving a pointer and taken back all at once.
//!
//! In: sizes. Out: addresses aligned to 64 bytes. Scopes nest: leaving one takes back what was handed out since it was
//! entered, at once when no view of it is alive, otherwise when the last goes. A view remembers the scope it counts for.
//! Must not know: threads (the owner serialises) and Python.

use crate::block::{ALIGN, Block};
use crate::error::Error;

/// Smallest chunk that is allocated, in bytes.
const SMALLEST: usize = 64 << 10;

/// Where a pointer stood: everything behind it is free after a rewind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    chunk: usize,
    next: usize,
}

#[derive(Debug)]
struct Chunk {
    block: Block,
    bytes: usize,
}

#[derive(Debug)]
struct Scope {
    mark: Mark,
    /// Views that were handed out while this scope was the innermost.
    views: usize,
    /// Its block of code has ended; it goes when `views` is 0 and nothing lies above it.
    left: bool,
}

/// The arena.
#[derive(Debug)]
pub struct Arena {
    /// Address of the next free byte, a multiple of 64, and of the end of the current chunk.
    next: usize,
    end: usize,
    current: usize,
    chunks: Vec<Chunk>,
    /// Innermost last; the first is the arena's own and is never left.
    scopes: Vec<Scope>,
    closed: bool,
}

impl Arena {
    /// An arena whose first chunk has room for `bytes`. Nothing is allocated for 0.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(bytes: usize) -> Result<Arena, Error> {
        let mut arena =
            Arena { next: 0, end: 0, current: 0, chunks: Vec::new(), scopes: Vec::new(), closed: false };
        if bytes > 0 {
            arena.grow(bytes)?;
            arena.go_to(0);
        }
        arena.scopes.push(Scope { mark: arena.mark(), views: 0, left: false });
        Ok(arena)
    }

    /// Hands out `bytes` that stay until the pointer is rewound: the native way, no view is counted.
    ///
    /// # Errors
    /// `OutOfMemory`, `Closed`.
    #[inline]
    pub fn alloc(&mut self, bytes: usize) -> Result<*mut u8, Error> {
        let start = self.next;
        // No overflow: `end` is an address, and so is below `isize::MAX`; a larger size fails the comparison.
        if bytes <= self.end - start {
            self.next = (start + bytes).next_multiple_of(ALIGN).min(self.end);
            // A request of no bytes with no chunk at all gets an aligned address that is never read.
            return Ok(std::ptr::with_exposed_provenance_mut(if start == 0 { ALIGN } else { start }));
        }
        self.alloc_slowly(bytes)
    }

    /// Hands out `bytes` and counts a view of them. Give the returned scope to `drop_view` when it dies.
    ///
    /// # Errors
    /// As `alloc`.
    #[inline]
    pub fn view(&mut self, bytes: usize) -> Result<(*mut u8, usize), Error> {
        if self.closed {
            return Err(Error::Closed { what: "arena" });
        }
        let data = self.alloc(bytes)?;
        let scope = self.scopes.len() - 1;
        self.scopes[scope].views += 1;
        Ok((data, scope))
    }

    /// A view that `view` counted is gone.
    pub fn drop_view(&mut self, scope: usize) {
        self.scopes[scope].views -= 1;
        self.take_back();
    }

    /// Opens a scope.
    ///
    /// # Errors
    /// `Closed`.
    pub fn enter(&mut self) -> Result<(), Error> {
        if self.closed {
            return Err(Error::Closed { what: "arena" });
        }
        self.scopes.push(Scope { mark: self.mark(), views: 0, left: false });
        Ok(())
    }

    /// Ends the innermost open scope. Memory with live views stays until the last of them goes. No effect when no
    /// scope is open.
    pub fn leave(&mut self) {
        if let Some(scope) = self.scopes.iter_mut().skip(1).rev().find(|scope| !scope.left) {
            scope.left = true;
        }
        self.take_back();
    }

    /// Takes back what was handed out since the innermost open scope was entered.
    ///
    /// # Errors
    /// `InUse` while a view of it is alive, `Closed`.
    pub fn reset(&mut self) -> Result<(), Error> {
        if self.closed {
            return Err(Error::Closed { what: "arena" });
        }
        // The first scope is never left, so there is one.
        let open = self.scopes.iter().rposition(|scope| !scope.left).unwrap_or(0);
        let views: usize = self.scopes[open..].iter().map(|scope| scope.views).sum();
        if views > 0 {
            return Err(Error::InUse { what: "arena", views });
        }
        self.scopes.truncate(open + 1);
        self.rewind(self.scopes[open].mark);
        Ok(())
    }

    /// Frees all memory. A second call has no effect.
    ///
    /// # Errors
    /// `InUse` while any view is alive.
    pub fn close(&mut self) -> Result<(), Error> {
        let views = self.views();
        if views > 0 {
            return Err(Error::InUse { what: "arena", views });
        }
        self.closed = true;
        self.scopes.truncate(1);
        self.chunks.clear();
        (self.next, self.end, self.current) = (0, 0, 0);
        Ok(())
    }

    /// Views that are alive.
    pub fn views(&self) -> usize {
        self.scopes.iter().map(|scope| scope.views).sum()
    }

    /// Bytes handed out and not taken back, padding included.
    pub fn used(&self) -> usize {
        let before: usize = self.chunks[..self.current].iter().map(|chunk| chunk.bytes).sum();
        before + self.chunks.get(self.current).map_or(0, |chunk| self.next - chunk.block.data().addr())
    }

    /// Bytes that are held from the system.
    pub fn capacity(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes).sum()
    }

    /// True after `close`.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Where the pointer stands.
    pub fn mark(&self) -> Mark {
        Mark { chunk: self.current, next: self.next }
    }

    /// Moves the pointer back to where it stood. What was handed out since then must not be used any more.
    pub fn rewind(&mut self, mark: Mark) {
        if self.chunks.is_empty() {
            return;
        }
        self.go_to(mark.chunk);
        if mark.next != 0 {
            self.next = mark.next;
        }
    }

    fn take_back(&mut self) {
        while let Some(scope) = self.scopes.last()
            && scope.left
            && scope.views == 0
        {
            let mark = scope.mark;
            self.scopes.pop();
            self.rewind(mark);
        }
    }

    /// Makes a chunk the current one, empty.
    fn go_to(&mut self, chunk: usize) {
        self.current = chunk;
        self.next = self.chunks[chunk].block.data().expose_provenance();
        self.end = self.next + self.chunks[chunk].bytes;
    }

    #[cold]
    fn alloc_slowly(&mut self, bytes: usize) -> Result<*mut u8, Error> {
        if self.closed {
            return Err(Error::Closed { what: "arena" });
        }
        let mut following = if self.chunks.is_empty() { 0 } else { self.current + 1 };
        while following < self.chunks.len() && self.chunks[following].bytes < bytes {
            following += 1;
        }
        if following == self.chunks.len() {
            self.grow(bytes)?;
        }
        self.go_to(following);
        self.alloc(bytes)
    }

    /// Appends a chunk with room for `bytes`, at least as large as all before it together.
    fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        let exact = bytes.checked_next_multiple_of(ALIGN).ok_or(Error::OutOfMemory { bytes })?;
        let wanted = exact.max(self.capacity()).max(SMALLEST);
        // A machine that cannot double may still have what is needed now.
        let (block, bytes) = match Block::new(wanted, ALIGN, false) {
            Ok(block) => (block, wanted),
            Err(_) => (Block::new(exact, ALIGN, false)?, exact),
        };
        self.chunks.push(Chunk { block, bytes });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_left_scope_is_taken_back_when_its_last_view_goes() {
        let mut arena = Arena::new(1 << 12).unwrap();
        let (_, base) = arena.view(100).unwrap();
        let used = arena.used();
        arena.enter().unwrap();
        let (first, scope) = arena.view(100).unwrap();
        arena.leave();
        assert!(arena.used() > used);
        let (second, later) = arena.view(10).unwrap(); // lies above memory that is still in use
        assert!(second > first);
        arena.drop_view(scope);
        assert!(arena.used() > used);
        assert_eq!(arena.reset(), Err(Error::InUse { what: "arena", views: 2 }));
        arena.drop_view(later);
        assert_eq!(arena.used(), used);
        arena.drop_view(base);
        arena.reset().unwrap();
        assert_eq!(arena.used(), 0);
        arena.close().unwrap();
        assert!(matches!(arena.view(1), Err(Error::Closed { .. })));
        assert!(matches!(arena.alloc(1), Err(Error::Closed { .. })));
        assert_eq!(arena.capacity(), 0);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let mut arena = Arena::new(0).unwrap();
        for bytes in [usize::MAX, isize::MAX as usize, usize::MAX - 63] {
            assert!(matches!(arena.alloc(bytes), Err(Error::OutOfMemory { .. })));
        }
        assert_eq!(arena.alloc(0).unwrap() as usize % ALIGN, 0);
        assert!(arena.alloc(1).is_ok());
    }

    #[derive(Clone, Debug)]
    enum Step {
        View(usize),
        Drop(usize),
        Enter,
        Leave,
        Reset,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0usize..40_000).prop_map(Step::View),
            4 => (0usize..64).prop_map(Step::Drop),
            1 => Just(Step::Enter),
            1 => Just(Step::Leave),
            1 => Just(Step::Reset),
        ]
    }

    proptest! {
        #[test]
        fn live_views_never_overlap(steps in proptest::collection::vec(step(), 1..80)) {
            let mut arena = Arena::new(0).unwrap();
            let mut live: Vec<(usize, usize, usize)> = Vec::new();
            for step in steps {
                match step {
                    Step::View(bytes) => {
                        let (data, scope) = arena.view(bytes).unwrap();
                        let start = data.addr();
                        prop_assert_eq!(start % ALIGN, 0);
                        for &(other, length, _) in &live {
                            prop_assert!(start + bytes <= other || other + length <= start || bytes == 0 || length == 0);
                        }
                        live.push((start, bytes, scope));
                    }
                    Step::Drop(which) if !live.is_empty() => {
                        let (_, _, scope) = live.swap_remove(which % live.len());
                        arena.drop_view(scope);
                    }
                    Step::Drop(_) => {}
                    Step::Enter => arena.enter().unwrap(),
                    Step::Leave => arena.leave(),
                    Step::Reset => { let _ = arena.reset(); }
                }
                prop_assert_eq!(arena.views(), live.len());
            }
            for (_, _, scope) in live.drain(..) {
                arena.drop_view(scope);
            }
            prop_assert!(arena.close().is_ok());
        }
    }
}
