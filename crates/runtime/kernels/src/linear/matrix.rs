//! A matrix of weights in the layout that products read.

#![expect(unsafe_code, reason = "threads fill disjoint groups")]

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::layout::{BLOCK, LANES, group_bytes};
use super::memory::{Memory, Parts, Room};
use super::oracle::{Unpacked, float_weight};
use super::repack::repack;
use crate::format::Format;

/// Bytes that one thread reads at a time: they are still near when they are brought into order.
const CHUNK: usize = 128 << 10;

/// A matrix of weights, laid out for vectors. The layout is the same on each processor.
pub struct Matrix {
    format: Format,
    n_rows: usize,
    n_cols: usize,
    /// Bytes of 16 rows.
    group_bytes: usize,
    groups: Memory,
}

/// Bytes or rows that do not have the shape they were said to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeError(pub String);

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ShapeError {}

/// Fills a slice with the bytes of a matrix, as a file holds it, from the one with this number on.
pub type Source<'a, E> = dyn Fn(usize, &mut [u8]) -> Result<(), E> + Sync + 'a;

/// Gives these bytes of a matrix, as a file holds it, to a function.
type Pieces<'a, E> = dyn Fn(Range<usize>, &mut dyn FnMut(&[u8])) -> Result<(), E> + Sync + 'a;

/// Why a matrix was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError<E> {
    /// There is none of that shape, or no room for it.
    Shape(ShapeError),
    /// What its source says.
    Source(E),
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix({} x {} of {})", self.n_rows, self.n_cols, self.format.name())
    }
}

impl Matrix {
    /// From blocks as a file holds them: `n_rows` (outputs) rows of `n_cols` (inputs) values. Copies them into another order, on
    /// all threads of the pool; the bytes are read once, front to back.
    ///
    /// # Errors
    /// `ShapeError` when the bytes are not that.
    pub fn new(format: Format, n_rows: usize, n_cols: usize, bytes: &[u8]) -> Result<Self, ShapeError> {
        let shape = Shape::new(format, n_rows, n_cols)
            .filter(|shape| shape.file_bytes == bytes.len())
            .ok_or_else(|| misfit(format, n_rows, n_cols, bytes.len()))?;
        let groups = Memory::lasting(shape.n_bytes);
        let source = |range, put: &mut dyn FnMut(&[u8])| {
            put(&bytes[range]);
            Ok::<(), ShapeError>(())
        };
        shape.fill(groups, &source).map_err(|error| match error {
            BuildError::Shape(error) | BuildError::Source(error) => error,
        })
    }

    /// As `new`, from bytes that the source gives. It is called on all threads of the pool, for pieces that fit a processor's
    /// cache, each once. Memory comes from the room, as much as [`Matrix::room_bytes`] says.
    ///
    /// # Errors
    /// `Shape` when there is no such matrix or too little room. `Source` with the first error of the source.
    pub fn read<E: Send>(
        format: Format,
        n_rows: usize,
        n_cols: usize,
        room: &mut Room,
        source: &Source<'_, E>,
    ) -> Result<Self, BuildError<E>> {
        let wrong = |problem| {
            BuildError::Shape(ShapeError(format!("{problem} {n_rows} x {n_cols} of {}", format.name())))
        };
        let shape = Shape::new(format, n_rows, n_cols).ok_or_else(|| wrong("no matrix has the shape"))?;
        let groups = room.take(shape.n_bytes).ok_or_else(|| wrong("too little room is left for"))?;
        let buffers = Mutex::new(Vec::<Vec<u8>>::new());
        let buffers = || buffers.lock().unwrap_or_else(PoisonError::into_inner);
        shape.fill(groups, &|range, put| {
            let mut buffer = buffers().pop().unwrap_or_default();
            if buffer.len() < range.len() {
                buffer.resize(range.len(), 0);
            }
            source(range.start, &mut buffer[..range.len()])?;
            put(&buffer[..range.len()]);
            buffers().push(buffer);
            Ok(())
        })
    }

    /// What a matrix takes of a [`Room`], in bytes; none where there is no such matrix.
    pub fn room_bytes(format: Format, n_rows: usize, n_cols: usize) -> Option<usize> {
        Shape::new(format, n_rows, n_cols).map(|shape| shape.n_bytes)
    }

    /// Outputs.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Inputs.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// How the weights were stored.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Bytes that one product reads; nearly those of the file.
    pub fn n_bytes(&self) -> usize {
        self.groups.len()
    }

    /// Decodes row `r` into `out`: the values that [`crate::decode`] gives for the row of the file.
    ///
    /// # Panics
    /// When there is no such row, or `out` is not `n_cols` long.
    pub fn row(&self, r: usize, out: &mut [f32]) {
        assert!(r < self.n_rows, "row {r} of {self:?}");
        assert_eq!(out.len(), self.n_cols, "values of a row of {self:?}");
        let (group, lane) = (self.group(r / LANES), r % LANES);
        if self.is_quantised() {
            for (b, out) in out.chunks_exact_mut(BLOCK).enumerate() {
                Unpacked::new(self.format, self.n_cols, group, b).decode(lane, out);
            }
        } else {
            for (k, out) in out.iter_mut().enumerate() {
                *out = float_weight(self.format, group, k, lane);
            }
        }
    }

    /// Whether products take 8-bit activations, not `f32`.
    pub fn is_quantised(&self) -> bool {
        self.format.block_values() > 1
    }

    pub(crate) fn n_groups(&self) -> usize {
        self.n_rows.div_ceil(LANES)
    }

    /// Bytes of rows `16 g` to `16 g + 15`.
    pub(crate) fn group(&self, g: usize) -> &[u8] {
        &self.groups.bytes()[g * self.group_bytes..][..self.group_bytes]
    }
}

fn misfit(format: Format, n_rows: usize, n_cols: usize, n_bytes: usize) -> ShapeError {
    ShapeError(format!("{n_bytes} bytes are not {n_rows} x {n_cols} of {}", format.name()))
}

/// What follows from format and lengths, all of it within `usize`.
struct Shape {
    format: Format,
    n_rows: usize,
    n_cols: usize,
    row_bytes: usize,
    /// As a file holds it.
    file_bytes: usize,
    group_bytes: usize,
    /// Of all groups.
    n_bytes: usize,
}

impl Shape {
    fn new(format: Format, n_rows: usize, n_cols: usize) -> Option<Self> {
        let row_bytes = format.row_bytes(n_cols)?;
        let file_bytes = row_bytes.checked_mul(n_rows)?;
        let group_bytes = group_bytes(format, n_cols)?;
        let n_bytes = n_rows.div_ceil(LANES).checked_mul(group_bytes)?;
        (n_bytes < isize::MAX as usize).then_some(Self {
            format,
            n_rows,
            n_cols,
            row_bytes,
            file_bytes,
            group_bytes,
            n_bytes,
        })
    }

    /// Fills all groups, on the pool. `source` gives their bytes.
    fn fill<E: Send>(self, mut groups: Memory, source: &Pieces<'_, E>) -> Result<Matrix, BuildError<E>> {
        let Self { format, n_rows, n_cols, row_bytes, file_bytes, group_bytes, n_bytes } = self;
        let source_bytes = row_bytes * LANES;
        let n_together = (CHUNK / source_bytes.max(1)).max(1);
        let n_groups = n_bytes.checked_div(group_bytes).unwrap_or(0);
        let parts = Parts::new(groups.bytes_mut());
        let failed = Mutex::new(None);
        let failed_or_not = || failed.lock().unwrap_or_else(PoisonError::into_inner);
        let ran = overdrive_pool::run(n_groups.div_ceil(n_together) as i64, &|chunks| {
            for chunk in chunks {
                let first = chunk as usize * n_together;
                let end = n_groups.min(first + n_together);
                // SAFETY: the groups of each chunk are filled once.
                let to = unsafe { parts.part(first * group_bytes, (end - first) * group_bytes) };
                let range = first * source_bytes..file_bytes.min(end * source_bytes);
                let done = source(range, &mut |bytes| {
                    for (bytes, group) in bytes.chunks(source_bytes).zip(to.chunks_exact_mut(group_bytes)) {
                        let mut rows = [&[][..]; LANES];
                        for (row, bytes) in rows.iter_mut().zip(bytes.chunks_exact(row_bytes)) {
                            *row = bytes;
                        }
                        repack(format, n_cols, &rows[..bytes.len() / row_bytes], group);
                    }
                });
                if let Err(error) = done {
                    failed_or_not().get_or_insert(error);
                }
                if failed_or_not().is_some() {
                    break;
                }
            }
        });
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(BuildError::Source(error));
        }
        ran.map_err(|_| {
            let problem = format!("weights of {} could not be brought into order", format.name());
            BuildError::Shape(ShapeError(problem))
        })?;
        Ok(Matrix { format, n_rows, n_cols, group_bytes, groups })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{BuildError, Matrix, ShapeError};
    use crate::format::Format;
    use crate::linear::memory::Room;

    #[test]
    fn matrices_are_read_piece_by_piece_into_one_room() {
        let shapes = [
            (Format::Q4K, 1003, 512),
            (Format::Q8_0, 35, 96),
            (Format::F32, 70, 5),
            (Format::Q6K, 4000, 256),
        ];
        let n_bytes =
            shapes.map(|(format, n_rows, n_cols)| Matrix::room_bytes(format, n_rows, n_cols).unwrap());
        let mut room = Room::new(n_bytes.iter().sum()).unwrap();
        let mut matrices = Vec::new();
        for (format, n_rows, n_cols) in shapes {
            let bytes: Vec<u8> = (0..format.row_bytes(n_cols).unwrap() * n_rows)
                .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0])
                .collect();
            let n_read = AtomicUsize::new(0);
            let source = |first: usize, out: &mut [u8]| {
                n_read.fetch_add(out.len(), Ordering::Relaxed);
                out.copy_from_slice(&bytes[first..first + out.len()]);
                Ok::<(), String>(())
            };
            let found = Matrix::read(format, n_rows, n_cols, &mut room, &source).unwrap();
            assert_eq!(n_read.into_inner(), bytes.len());
            let expected = Matrix::new(format, n_rows, n_cols, &bytes).unwrap();
            assert!((0..found.n_groups()).all(|g| found.group(g) == expected.group(g)), "{found:?}");
            matrices.push((found, expected));
        }
        let full = Matrix::read(Format::F32, 1, 1, &mut room, &|_, _| Ok::<(), String>(()));
        let problem = ShapeError("too little room is left for 1 x 1 of F32".into());
        assert_eq!(full.unwrap_err(), BuildError::Shape(problem));
        // Those that are left keep their bytes.
        drop(room);
        drop(matrices.drain(1..3));
        for (found, expected) in matrices {
            assert!((0..found.n_groups()).all(|g| found.group(g) == expected.group(g)), "{found:?}");
        }
    }

    #[test]
    fn an_error_of_the_source_ends_a_matrix() {
        let mut room = Room::new(Matrix::room_bytes(Format::F32, 5000, 64).unwrap()).unwrap();
        let source = |first: usize, _: &mut [u8]| if first > 300_000 { Err("cut") } else { Ok(()) };
        let error = Matrix::read(Format::F32, 5000, 64, &mut room, &source).unwrap_err();
        assert_eq!(error, BuildError::Source("cut"));
        let error = Matrix::read(Format::Q4K, 1, 32, &mut room, &source).unwrap_err();
        assert_eq!(error, BuildError::Shape(ShapeError("no matrix has the shape 1 x 32 of Q4_K".into())));
    }
}
