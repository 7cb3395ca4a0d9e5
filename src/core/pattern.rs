//! Patterns of `match`, and the resource names they make. See `rules`.
