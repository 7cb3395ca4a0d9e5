//! Durations in fixed buckets.

use std::time::Duration;

use super::bank::Bank;

/// Upper bounds, in microseconds: from a look into memory to the longest wait that is configured by
/// default (`answer_timeout`, `settle_after`). Fixed, so that replicas and versions can be added up.
pub(super) const BOUNDS: [u64; 18] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
];

/// Where the sum of all durations is, behind the bucket of what is longer than every bound.
const SUM: usize = BOUNDS.len() + 1;

/// How many durations fell into which bucket, and their sum.
pub(super) struct Histogram(Bank);

// === impl Histogram ===

impl Histogram {
    pub fn new(lanes: usize) -> Histogram {
        Histogram(Bank::new(lanes, SUM + 1))
    }

    /// Counts one duration: two relaxed adds on this thread's lane.
    pub fn record(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.0.add(BOUNDS.partition_point(|bound| *bound < micros), 1);
        self.0.add(SUM, micros);
    }

    /// For each bound, how many were not longer; and at last how many there were.
    pub fn cumulated(&self) -> Vec<u64> {
        let mut sum = 0;
        (0..SUM)
            .map(|bucket| {
                sum += self.0.sum(bucket);
                sum
            })
            .collect()
    }

    /// The sum of all durations, in seconds.
    pub fn seconds(&self) -> f64 {
        self.0.sum(SUM) as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_is_not_shorter() {
        let histogram = Histogram::new(1);
        for micros in [0, 100, 101, 1_000_000, 120_000_000, 120_000_001] {
            histogram.record(Duration::from_micros(micros));
        }
        let cumulated = histogram.cumulated();
        let at = |bound: u64| cumulated[BOUNDS.iter().position(|b| *b == bound).unwrap()];
        assert_eq!((at(100), at(250), at(500_000), at(1_000_000)), (2, 3, 3, 4));
        assert_eq!((at(120_000_000), *cumulated.last().unwrap()), (5, 6));
        assert!((histogram.seconds() - 241.000_202).abs() < 1e-6, "{}", histogram.seconds());
        assert!(BOUNDS.is_sorted());
    }
}
