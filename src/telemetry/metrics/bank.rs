//! Cells that many threads add to without sharing a cache line.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Cells in one line.
const WIDTH: usize = 16;

/// Some cells for each of some lanes; a thread always adds in the same lane.
pub(super) struct Bank {
    lines: Box<[Line]>,
    lines_per_lane: usize,
}

/// 128 bytes: two cache lines, for processors fetch them in pairs.
#[repr(align(128))]
struct Line([AtomicU64; WIDTH]);

// === impl Bank ===

impl Bank {
    /// `cells` cells, all zero, in each of `lanes` lanes.
    pub fn new(lanes: usize, cells: usize) -> Bank {
        let lines_per_lane = cells.div_ceil(WIDTH);
        let line = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Bank { lines: (0..lanes * lines_per_lane).map(line).collect(), lines_per_lane }
    }

    /// Adds on this thread's lane: one relaxed add. A negative number wraps, and the sum wraps back.
    pub fn add(&self, cell: usize, by: u64) {
        let lanes = self.lines.len() / self.lines_per_lane;
        self.cell(lane() % lanes, cell).fetch_add(by, Ordering::Relaxed);
    }

    /// Over all lanes.
    pub fn sum(&self, cell: usize) -> u64 {
        let lanes = self.lines.len() / self.lines_per_lane;
        (0..lanes).fold(0, |sum: u64, lane| {
            sum.wrapping_add(self.cell(lane, cell).load(Ordering::Relaxed))
        })
    }

    fn cell(&self, lane: usize, cell: usize) -> &AtomicU64 {
        &self.lines[lane * self.lines_per_lane + cell / WIDTH].0[cell % WIDTH]
    }
}

/// Which lane this thread adds in: threads are numbered as they first count something.
fn lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    MINE.with(|mine| *mine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_do_not_mix_and_lanes_add_up() {
        let bank = Bank::new(3, WIDTH + 2);
        std::thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| (0..WIDTH + 2).for_each(|cell| bank.add(cell, cell as u64)));
            }
        });
        for cell in 0..WIDTH + 2 {
            assert_eq!(bank.sum(cell), 5 * cell as u64, "cell {cell}");
        }
    }
}
