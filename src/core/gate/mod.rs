//! One resource's whole protocol on one replica: enter, commit point, cut, drain, settle, give back.

use std::fmt;

/// One start of one replica: 128 random bits, fresh every time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

/// A permit's name: which incarnation took it, and its how-manieth it was. Never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId {
    /// Who took it.
    pub incarnation: Incarnation,
    /// 1 for its first permit; grows by one with each.
    pub serial: u64,
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{}", self.incarnation.0, self.serial)
    }
}

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
