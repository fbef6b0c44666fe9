//! Encoded documents as files of tokens hold them.

/// Ids as wide as a file has them.
pub trait Width: Copy {
    fn of(id: u32) -> Self;
}

impl Width for u16 {
    /// Cuts off what does not fit: a file that is so narrow is of a vocabulary that fits.
    fn of(id: u32) -> Self {
        id as u16
    }
}

impl Width for u32 {
    fn of(id: u32) -> Self {
        id
    }
}

/// Documents one behind the other, each after `mark`; the bytes that each one's tokens spell; and the first document
/// that has the mark among its own ids. `lengths`: bytes of a token by id. Fails where ids or offsets do not fit.
#[allow(clippy::type_complexity)]
pub fn stream<T: Width>(
    ids: &[u32],
    offsets: &[i64],
    lengths: &[u32],
    mark: u32,
) -> Result<(Vec<T>, Vec<i64>, Option<usize>), String> {
    let documents = offsets.len().saturating_sub(1);
    let mut stream = Vec::with_capacity(ids.len() + documents);
    let mut spelled = Vec::with_capacity(documents);
    let mut marked = None;
    for (i, bounds) in offsets.windows(2).enumerate() {
        let document = usize::try_from(bounds[0])
            .ok()
            .zip(usize::try_from(bounds[1]).ok())
            .and_then(|(start, end)| ids.get(start..end))
            .ok_or_else(|| format!("offsets of document {i} do not fit the {} ids", ids.len()))?;
        stream.push(T::of(mark));
        let mut bytes = 0;
        let mut found = false;
        for &id in document {
            let length = lengths.get(id as usize).ok_or_else(|| format!("the id {id} has no length"))?;
            bytes += i64::from(*length);
            found |= id == mark;
            stream.push(T::of(id));
        }
        spelled.push(bytes);
        if found && marked.is_none() {
            marked = Some(i);
        }
    }
    Ok((stream, spelled, marked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_marked_and_measured() {
        let lengths = [1, 2, 5, 0];
        let (found, spelled, marked) = stream::<u16>(&[0, 1, 2, 2], &[0, 2, 2, 4], &lengths, 3).unwrap();
        assert_eq!((found, spelled, marked), (vec![3, 0, 1, 3, 3, 2, 2], vec![3, 0, 10], None));
        let (found, spelled, marked) = stream::<u32>(&[3, 1, 3], &[1, 2, 3], &lengths, 3).unwrap();
        assert_eq!((found, spelled, marked), (vec![3, 1, 3, 3], vec![2, 0], Some(1)));
        assert!(stream::<u16>(&[4], &[0, 1], &lengths, 3).is_err());
        assert!(stream::<u16>(&[0], &[0, 2], &lengths, 3).is_err());
        assert!(stream::<u16>(&[], &[], &lengths, 3).unwrap().0.is_empty());
    }
}
