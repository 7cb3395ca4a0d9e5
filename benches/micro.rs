//! Micro-benchmarks of what every request pays for.

mod rules;

fn main() {
    divan::main();
}
