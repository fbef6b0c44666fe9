//! Results of a pass as rows, to add up those of several processes.

/// Kind of row, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Spans by length.
    Lengths,
    /// Tokens by id.
    Tokens,
    /// Seams by the index of their counter in the sketch.
    Seams,
    /// Sampled pieces by level and ids.
    Sample,
    /// Fragments by ids.
    Fragments,
}

impl Table {
    pub const ALL: [(&'static str, Self); 5] = [
        ("lengths", Self::Lengths),
        ("tokens", Self::Tokens),
        ("seams", Self::Seams),
        ("sample", Self::Sample),
        ("fragments", Self::Fragments),
    ];

    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, table)| *table).ok_or_else(|| format!("{name:?} is not a table of a pass"))
    }
}

/// Counts by key, a sequence of numbers. Sorted by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    pub keys: Vec<u32>,
    pub offsets: Vec<i64>,
    pub counts: Vec<u64>,
}

impl Default for Rows {
    fn default() -> Self {
        Self { keys: Vec::new(), offsets: vec![0], counts: Vec::new() }
    }
}

impl Rows {
    /// Appends a row, whose key is `first` and `rest`.
    pub(super) fn push(&mut self, first: &[u32], rest: &[u32], count: u64) {
        for part in [first, rest] {
            self.keys.extend_from_slice(part);
        }
        self.offsets.push(self.keys.len() as i64);
        self.counts.push(count);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u32], u64)> {
        rows(&self.keys, &self.offsets, &self.counts)
    }
}

/// Pairs of key and count. `offsets` delimit the keys.
pub fn rows<'a>(
    keys: &'a [u32],
    offsets: &'a [i64],
    counts: &'a [u64],
) -> impl Iterator<Item = (&'a [u32], u64)> + use<'a> {
    offsets.windows(2).map(|bounds| &keys[bounds[0] as usize..bounds[1] as usize]).zip(counts.iter().copied())
}

/// Adds to a 64-bit count.
pub(super) fn add(sum: &mut u64, count: u64) -> Result<(), String> {
    *sum = sum.checked_add(count).ok_or("a count does not fit 64 bits; use smaller weights")?;
    Ok(())
}
