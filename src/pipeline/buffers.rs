//! How large one connection's buffer may be: the more connections a thread has, the smaller.

/// The most that one read or write of a connection moves, in bytes, when its thread has this many
/// connections on the same side. hyper begins small and grows up to it, so an idle connection costs little.
///
/// A busy upload holds up to three such pieces: one being read, one that may be the tail, one being
/// written. Few uploads get the size that costs the least time for each byte; a thousand together stay
/// within some hundred MiB. `docs/performance.md` has the figures.
pub fn size(connections: usize) -> usize {
    match connections {
        0..=4 => 400 << 10,
        5..=16 => 256 << 10,
        17..=64 => 96 << 10,
        // No smaller: a request head has to fit.
        _ => 64 << 10,
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn all_connections_of_a_thread_together_stay_bounded() {
        let total = |connections: usize| (1..=connections).map(size).sum::<usize>() * 3;
        assert!(total(32) < 20 << 20, "{}", total(32));
        assert!(total(500) < 130 << 20, "{}", total(500));
        assert!(total(5_000) < 1_000 << 20, "{}", total(5_000));
    }
}
