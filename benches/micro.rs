//! Micro-benchmarks of what every request pays for; with the allocations of each.

mod gate;
mod rules;

#[global_allocator]
static ALLOCATIONS: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}
