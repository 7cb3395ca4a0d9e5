//! Micro-benchmarks of what every request pays for.

fn main() {
    divan::main();
}
