//! What goes into a gate and comes out of it.

use std::fmt;
use std::time::Duration;

use crate::core::{Millis, Token};

/// One start of one replica: 128 random bits, fresh every time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

/// A permit's name: which incarnation took it, and its how-manieth it was. Never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId {
    /// Who took it.
    pub incarnation: Incarnation,
    /// Unique in the incarnation.
    pub serial: u64,
}

/// Names a waiting request; chosen by the driver, unique in a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Names an admitted write; chosen by the gate, unique in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExchangeId(pub u64);

/// Names something outside the gate that holds it up; chosen by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub u64);

/// What a request needs from the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A write: raise, look, take.
    Write,
    /// A fenced read or the barrier: raise, look.
    Pass,
}

/// A request at the gate, its token already validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entering {
    /// Its name.
    pub ticket: Ticket,
    /// Its token.
    pub token: Token,
    /// What it needs.
    pub kind: Kind,
    /// When it gives up.
    pub deadline: Millis,
    /// How many may wait with it.
    pub max_waiting: usize,
    /// How long an unknown outcome blocks successors.
    pub settle_after: Quarantine,
}

/// The gate's answer to [`Entering`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Admitted from memory.
    Admitted(Admitted),
    /// An [`Action::Admit`] or [`Action::Refuse`] with its ticket will follow.
    Waiting,
    /// Refused.
    Denied(Denied),
}

/// What an admitted request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admitted {
    /// A write: it must be settled exactly once.
    Write(ExchangeId),
    /// A read or the barrier.
    Pass,
}

/// Why a request was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denied {
    /// The mark is higher than its token.
    Stale,
    /// Too many wait already.
    Full,
    /// Older operations had not settled by its deadline.
    Drain {
        /// When what blocks will end, as far as is known.
        ends: Option<Millis>,
        /// Whether an outcome is unknown (or else still pending).
        unknown: bool,
    },
    /// The ledger did not confirm a step.
    Ledger,
    /// The resource fails closed.
    Closed,
}

/// How long an unknown outcome blocks successors, counted from when it was abandoned. Ordered by length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quarantine {
    /// This long.
    For(Duration),
    /// Until an operator says so.
    Never,
}

/// Whether an outcome under a permit is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Taint {
    /// No.
    Clear,
    /// Yes; it ends by itself then.
    Until(Millis),
    /// Yes; an operator ends it.
    Forever,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The write will never take effect: its tail was not sent.
    NotSent,
    /// The store answered definitely.
    Answered {
        /// Whether it did the write.
        applied: bool,
    },
    /// It may have taken effect, or may yet.
    Unknown,
}

/// The verdict at the commit point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Commit {
    /// Counted: hand the tail over now.
    Go,
    /// The last validation is too old: validate again, then ask again.
    Revalidate,
    /// A newer token was admitted: never send the tail.
    Cut,
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Make the mark at least this, durably; then call [`raised`](super::Gate::raised).
    Raise {
        /// The token.
        token: Token,
    },
    /// Read the permits of lower tokens; then call [`looked`](super::Gate::looked).
    Look {
        /// Lower than this.
        token: Token,
    },
    /// Record a permit, guarded by mark = token, durably; then call [`taken`](super::Gate::taken).
    Take {
        /// Its id.
        id: PermitId,
        /// Its token.
        token: Token,
    },
    /// Remove a permit; then call [`given_back`](super::Gate::given_back).
    GiveBack {
        /// Its id.
        id: PermitId,
    },
    /// Tell a waiting request that it is admitted.
    Admit {
        /// Which one.
        ticket: Ticket,
        /// What it got.
        admitted: Admitted,
    },
    /// Tell a waiting request that it is refused.
    Refuse {
        /// Which one.
        ticket: Ticket,
        /// Why.
        why: Denied,
    },
    /// Abandon this exchange before its tail; then settle it.
    Cut {
        /// Which one.
        exchange: ExchangeId,
    },
}

/// A permit of another incarnation, as a look found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sighting {
    /// Its id.
    pub id: PermitId,
    /// Its token.
    pub token: Token,
    /// When it stops blocking: if its owner is proven dead, the latest instant from which its
    /// exchanges are known to be abandoned plus the quarantine; else `Forever`.
    pub taint: Taint,
}

/// A permit of this replica, as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PermitState {
    /// Its id.
    pub id: PermitId,
    /// Its token.
    pub token: Token,
    /// Exchanges past their commit point.
    pub counted: usize,
    /// Exchanges before it.
    pub open: usize,
    /// Whether an outcome is unknown.
    pub taint: Taint,
}

/// The rules that keep the promise, each of which a test can switch off to see the promise broken.
/// Production runs with [`Guards::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guards {
    /// A permit stays while exchanges under it are counted.
    pub drain: bool,
    /// Lower permits are looked for before one is taken.
    pub look: bool,
    /// The mark is raised before the look, not after it.
    pub raise_first: bool,
    /// The commit point checks for a cut.
    pub commit_check: bool,
    /// An unknown outcome keeps its permit until the quarantine ends.
    pub unknown_taints: bool,
    /// A counted exchange is never cut.
    pub counted_stays: bool,
    /// A permit is confirmed by the ledger before its first commit point.
    pub take_first: bool,
}

// === impl Guards ===

impl Guards {
    /// All of them.
    pub const ALL: Guards = Guards {
        drain: true,
        look: true,
        raise_first: true,
        commit_check: true,
        unknown_taints: true,
        counted_stays: true,
        take_first: true,
    };
}

// === impl Taint ===

impl Taint {
    /// The taint of something abandoned at `since`.
    pub fn from(since: Millis, quarantine: Quarantine) -> Taint {
        match quarantine {
            Quarantine::For(time) => Taint::Until(since + time),
            Quarantine::Never => Taint::Forever,
        }
    }

    /// When it ends: `None` if there is none, [`Millis::NEVER`] if an operator ends it.
    pub fn ends(self) -> Option<Millis> {
        match self {
            Taint::Clear => None,
            Taint::Until(at) => Some(at),
            Taint::Forever => Some(Millis::NEVER),
        }
    }

    /// Whether it is over.
    pub fn is_over(self, now: Millis) -> bool {
        self.ends().is_none_or(|ends| ends <= now)
    }
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
