//! Records of one size in a stream of bytes.

/// Calls `each` with every complete record of `size` bytes, however the stream was cut. `rest` holds
/// what is there of an incomplete one between calls; it starts out empty.
pub(crate) fn split(
    rest: &mut Vec<u8>,
    size: usize,
    mut bytes: &[u8],
    mut each: impl FnMut(&[u8]),
) {
    if !rest.is_empty() {
        let missing = (size - rest.len()).min(bytes.len());
        let (head, tail) = bytes.split_at(missing);
        rest.extend_from_slice(head);
        bytes = tail;
        if rest.len() < size {
            return;
        }
        each(rest);
        rest.clear();
    }
    let records = bytes.chunks_exact(size);
    let incomplete = records.remainder();
    records.for_each(&mut each);
    rest.extend_from_slice(incomplete);
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn however_the_stream_is_cut() {
        let stream: Vec<u8> = (0..200).collect();
        for size in [1, 7, 50, 200] {
            for cut in 1..stream.len() {
                let (mut rest, mut records) = (Vec::new(), Vec::new());
                for bytes in stream.chunks(cut) {
                    split(&mut rest, size, bytes, |record| {
                        records.push(record.to_vec())
                    });
                }
                let whole: Vec<_> = stream.chunks_exact(size).map(<[u8]>::to_vec).collect();
                assert_eq!(records, whole, "records of {size} in pieces of {cut}");
                assert_eq!(rest, stream.chunks_exact(size).remainder());
            }
        }
    }
}
