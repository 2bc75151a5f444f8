//! Where the weights of a matrix lie: 16 rows side by side, so that they are the lanes of a vector.
//!
//! A *group* is 16 rows (the last one is filled with zeros), cut into *blocks* of 32 columns; up to 8 blocks are a *cell*: first
//! their scales, then their codes, so that a product reads one stream. A *code vector* is 4 columns of the 16 rows, 64 bytes: the
//! byte of row `r` and column `4 i + j` is `4 r + j` of vector `i`. Vectors `i` and `i + 4` share 64 bytes, as low and high halves.
//! Bits beyond the fourth follow in planes. F32 and F16 lie 16 rows side by side for each column; BF16 for each two columns, whose
//! values of a row are together, and zeros fill the last block: sixteen such vectors are a tile.

use crate::format::Format;

/// Rows in a group.
pub(crate) const LANES: usize = 16;
/// Columns in a block.
pub(crate) const BLOCK: usize = 32;
/// Blocks in a cell of packed weights.
pub(crate) const CELL: usize = 8;
/// Blocks in a span: 128 columns of a K format, whose scales are integers times one number.
pub(crate) const SPAN: usize = 4;

/// How the codes of a block are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codes {
    /// 4 x 64 bytes of halves.
    Four,
    /// As `Four`, then 8 words of 64 bits: bit `4 r + j` of word `i` is the fifth of that byte of code vector `i`.
    Five,
    /// As `Four`, then 2 x 64 bytes: bits `2 f` and `2 f + 1` of bytes of plane `p` are the fifth and sixth of code vector `4 p + f`.
    Six,
    /// 8 code vectors.
    Eight,
}

impl Codes {
    /// Bytes of a block.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Four => 256,
            Self::Five => 320,
            Self::Six => 384,
            Self::Eight => 512,
        }
    }
}

/// How the scales of a cell are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scales {
    /// For each block 16 scales (f16).
    Half,
    /// For each block 16 scales, 16 minima (f16).
    HalfMin,
    /// 16 scales and 16 minima (f16) of 256 columns; then for each block 16 factors of the one (u8), 16 of the other.
    Super,
    /// 16 scales (f16) of 256 columns, 32 bytes unused; then for each block 16 factors of its first 16 columns (i8), 16 of its last.
    SuperHalves,
    /// A cell is one block: 16 scales (f32). Into this and the following weights are unpacked.
    Single,
    /// A cell is one block: 16 scales, 16 minima (f32).
    SingleMin,
    /// A cell is a span: 16 scales (f32); then for each block 16 factors of them (i32), 16 minima (f32).
    SpanMin,
    /// A cell is a span: 16 scales (f32); then for each block 16 factors of its first 16 columns (i32), 16 of its last.
    SpanHalves,
}

impl Scales {
    /// Whether blocks have minima; the zero point is 0 then.
    pub(crate) const fn has_minima(self) -> bool {
        matches!(self, Self::HalfMin | Self::Super | Self::SingleMin | Self::SpanMin)
    }

    /// Whether the halves of blocks have factors of their own.
    pub(crate) const fn has_halves(self) -> bool {
        matches!(self, Self::SuperHalves | Self::SpanHalves)
    }

    /// Blocks that are summed as integers before they are scaled: as many as activations have one step for.
    pub(crate) const fn span(self) -> usize {
        match self {
            Self::Half | Self::HalfMin | Self::Single | Self::SingleMin => 1,
            Self::Super | Self::SuperHalves | Self::SpanMin | Self::SpanHalves => SPAN,
        }
    }

    /// Most blocks in a cell.
    pub(crate) const fn cell(self) -> usize {
        match self {
            Self::Half | Self::HalfMin | Self::Super | Self::SuperHalves => CELL,
            Self::Single | Self::SingleMin => 1,
            Self::SpanMin | Self::SpanHalves => SPAN,
        }
    }

    /// Bytes in front of the codes of a cell of `n_blocks`.
    pub(crate) const fn bytes(self, n_blocks: usize) -> usize {
        let bytes = match self {
            Self::Half => 32 * n_blocks,
            Self::HalfMin | Self::Single => 64 * n_blocks,
            Self::Super | Self::SuperHalves => 64 + 32 * n_blocks,
            Self::SingleMin => 128 * n_blocks,
            Self::SpanMin | Self::SpanHalves => 64 + 128 * n_blocks,
        };
        bytes.next_multiple_of(64)
    }

    /// The same, unpacked.
    pub(crate) const fn unpacked(self) -> Self {
        match self {
            Self::Half | Self::Single => Self::Single,
            Self::HalfMin | Self::SingleMin => Self::SingleMin,
            Self::Super | Self::SpanMin => Self::SpanMin,
            Self::SuperHalves | Self::SpanHalves => Self::SpanHalves,
        }
    }
}

/// Layout of a quantised format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    pub(crate) codes: Codes,
    pub(crate) scales: Scales,
    /// What stands for zero: a weight is `scale (code - zero)`, or `scale code + minimum`.
    pub(crate) zero: u8,
}

impl Packing {
    /// None for formats that are not quantised.
    pub(crate) const fn of(format: Format) -> Option<Self> {
        let (codes, scales, zero) = match format {
            Format::F32 | Format::F16 | Format::BF16 => return None,
            Format::Q4_0 => (Codes::Four, Scales::Half, 8),
            Format::Q4_1 => (Codes::Four, Scales::HalfMin, 0),
            Format::Q5_0 => (Codes::Five, Scales::Half, 16),
            Format::Q5_1 => (Codes::Five, Scales::HalfMin, 0),
            Format::Q8_0 => (Codes::Eight, Scales::Half, 128),
            Format::Q4K => (Codes::Four, Scales::Super, 0),
            Format::Q5K => (Codes::Five, Scales::Super, 0),
            Format::Q6K => (Codes::Six, Scales::SuperHalves, 32),
        };
        Some(Self { codes, scales, zero })
    }

    /// Bytes of a cell of `n_blocks`.
    pub(crate) const fn cell_bytes(self, n_blocks: usize) -> usize {
        self.scales.bytes(n_blocks) + n_blocks * self.codes.bytes()
    }

    /// Bytes in front of this block's cell in a group.
    pub(crate) const fn cell_start(self, block: usize) -> usize {
        let cell = self.scales.cell();
        block / cell * self.cell_bytes(cell)
    }

    /// Bytes of `n_blocks` from the start of a group.
    pub(crate) const fn run_bytes(self, n_blocks: usize) -> usize {
        let rest = n_blocks % self.scales.cell();
        self.cell_start(n_blocks) + if rest == 0 { 0 } else { self.cell_bytes(rest) }
    }
}

/// Bytes of one group of 16 rows; none where that leaves `usize`.
pub(crate) fn group_bytes(format: Format, n_cols: usize) -> Option<usize> {
    // No format takes more than 4 bytes and a cell's padding for a weight.
    n_cols.checked_mul(LANES * 8)?.checked_add(4096)?;
    Some(match Packing::of(format) {
        Some(packing) => packing.run_bytes(n_cols / BLOCK),
        None if format == Format::BF16 => n_cols.next_multiple_of(BLOCK) * LANES * 2,
        None => (n_cols * LANES * format.block_bytes()).next_multiple_of(64),
    })
}

/// The kinds of codes and scales as types, so that kernels are compiled for each.
macro_rules! kinds {
    ($trait:ident, $kind:ident: $($name:ident)*) => {
        pub(crate) trait $trait {
            const KIND: $kind;
        }
        $(
            pub(crate) struct $name;
            impl $trait for $name {
                const KIND: $kind = $kind::$name;
            }
        )*
    };
}

kinds!(CodesKind, Codes: Four Five Six Eight);
kinds!(ScalesKind, Scales: Half HalfMin Super SuperHalves Single SingleMin SpanMin SpanHalves);

/// Names the types of a packing in an expression.
macro_rules! with_packing {
    ($packing:expr, $C:ident, $S:ident => $body:expr) => {
        with_packing!(@ $packing, $C, $S, $body,
            (Four, Half) (Four, HalfMin) (Four, Super) (Five, Half) (Five, HalfMin) (Five, Super) (Six, SuperHalves)
            (Eight, Half))
    };
    (@ $packing:expr, $C:ident, $S:ident, $body:expr, $(($codes:ident, $scales:ident))*) => {
        match ($packing.codes, $packing.scales) {
            $(($crate::linear::layout::Codes::$codes, $crate::linear::layout::Scales::$scales) => {
                type $C = $crate::linear::layout::$codes;
                type $S = $crate::linear::layout::$scales;
                $body
            })*
            (codes, scales) => unreachable!("no format is packed as {codes:?} with {scales:?}"),
        }
    };
}
pub(crate) use with_packing;
