//! The ordered rule table: first match wins; indexed by literal segments.
