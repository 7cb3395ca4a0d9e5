//! L4: assembles and validates the configuration; file, environment, flags.
