//! The gate against an adversary: exhaustive search over small worlds, and a plain reference over large ones.

mod explore;
mod reference;
mod table;
mod world;
