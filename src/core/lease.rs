//! One lease as its backend sees it: verdicts on a token.

use super::Token;

/// What a lease backend says of one token of one resource.
///
/// `L` is the latest token issued for the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Token = L and the lease is running.
    Live,
    /// Token = L, the lease is over, nobody has acquired since.
    Expired,
    /// Token = L and its holder gave it back.
    Released,
    /// Token < L.
    Stale,
    /// Token > L, or nothing was ever issued for the resource.
    NeverIssued,
}

/// A verdict with the latest token it was judged against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Validation {
    /// The verdict.
    pub verdict: Verdict,
    /// The latest token issued; `None` if none ever was.
    pub latest: Option<Token>,
}
