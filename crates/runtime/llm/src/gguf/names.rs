//! Finding things by name without a second copy of the names.
//!
//! In: how many things there are, and each one's name. Out: a list of their numbers in the order of the names.

/// The numbers of named things, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    in_order: Vec<u32>,
}

impl Names {
    /// For things 0 to `n`, of which there are fewer than 2**32. The error is a thing whose name an earlier one has.
    pub(super) fn of<'a>(n: usize, name: impl Fn(usize) -> &'a str) -> Result<Self, usize> {
        let mut in_order: Vec<u32> = (0..n as u32).collect();
        in_order.sort_unstable_by_key(|i| (name(*i as usize), *i));
        let same = in_order.windows(2).find(|pair| name(pair[0] as usize) == name(pair[1] as usize));
        match same {
            Some(pair) => Err(pair[1] as usize),
            None => Ok(Self { in_order }),
        }
    }

    /// The thing with this name.
    pub(super) fn find<'a>(&self, wanted: &str, name: impl Fn(usize) -> &'a str) -> Option<usize> {
        let place = self.in_order.binary_search_by(|i| name(*i as usize).cmp(wanted)).ok()?;
        Some(self.in_order[place] as usize)
    }
}
