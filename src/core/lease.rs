//! One lease as its backend sees it: who may acquire, what a token is worth, which token comes next.
//!
//! The record is the embedded backend's own; the verdicts are every backend's. All instants here are
//! CLOCK_BOOTTIME: a lease must run out while the machine is suspended.

use std::time::Duration;

use super::{Holder, Millis, Token};

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

/// Where a lease is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Granted. Whether it still runs is a question of the time.
    Granted,
    /// Ran out, and somebody noticed. Never runs again.
    Expired,
    /// Given back by its holder.
    Released,
    /// Ended by an operator or a restored database. Nobody was ever given its token.
    Revoked,
}

/// The latest lease of one resource: all that its backend has to remember.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The latest token.
    pub token: Token,
    /// Whom it was granted to.
    pub holder: Holder,
    /// The id of the ask that it answered.
    pub request_id: Option<Box<str>>,
    /// The end of the lease unless renewed.
    pub until: Millis,
    /// The TTL it was granted with, in milliseconds: what a renewal adds unless it says otherwise.
    pub ttl_ms: u32,
    /// The longest TTL it was granted or renewed with, in milliseconds: what a restart, which has
    /// lost `until`, must assume is left.
    pub longest_ms: u32,
    /// Where it is in its life.
    pub phase: Phase,
}

/// What an ask for a lease comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// Nobody has it.
    Free,
    /// The asker has it already: this very ask was granted, and its answer got lost.
    Replay,
    /// It runs until then. Also for an asker of the same name: a name is a label, not a credential.
    Held {
        /// Its end unless renewed.
        until: Millis,
    },
}

/// What a renewal did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewed {
    /// The lease runs on.
    Yes,
    /// It would run longer than a restart would assume: `longest_ms` must be durable first.
    /// Nothing has changed.
    Longer,
    /// The token does not hold a running lease. Nothing has changed.
    Lost,
}

/// What a release did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// The lease is given back.
    Done,
    /// It had been before, by the same token.
    Already,
    /// The token is not the latest. Nothing has changed.
    Lost,
}

// === impl Record ===

impl Record {
    /// Whether the lease runs at `boot_now`. The instant of its end is no longer in it.
    pub fn runs(&self, boot_now: Millis) -> bool {
        self.phase == Phase::Granted && boot_now < self.until
    }

    /// What is left of it at `boot_now`.
    pub fn left(&self, boot_now: Millis) -> Duration {
        match self.runs(boot_now) {
            true => boot_now.until(self.until),
            false => Duration::ZERO,
        }
    }

    /// Judges a token.
    pub fn verdict(&self, token: Token, boot_now: Millis) -> Verdict {
        if token < self.token {
            return Verdict::Stale;
        }
        if token > self.token {
            return Verdict::NeverIssued;
        }
        match self.phase {
            Phase::Granted if boot_now < self.until => Verdict::Live,
            Phase::Granted | Phase::Expired => Verdict::Expired,
            // A revoked token has no holder, and "expired" would pass where liveness is not
            // required: it is as good as given back.
            Phase::Released | Phase::Revoked => Verdict::Released,
        }
    }

    /// What an ask comes to. Changes nothing.
    pub fn asked(&self, holder: &Holder, request_id: Option<&str>, boot_now: Millis) -> Asked {
        if !self.runs(boot_now) {
            return Asked::Free;
        }
        let same_ask = request_id.is_some() && request_id == self.request_id.as_deref();
        match same_ask && *holder == self.holder {
            true => Asked::Replay,
            false => Asked::Held { until: self.until },
        }
    }

    /// Extends the running lease to `ttl_ms` from now; never shortens it, so that of two renewals
    /// under way neither takes back what the other promised.
    pub fn renew(&mut self, token: Token, ttl_ms: u32, boot_now: Millis) -> Renewed {
        if token != self.token || !self.runs(boot_now) {
            return Renewed::Lost;
        }
        if ttl_ms > self.longest_ms {
            return Renewed::Longer;
        }
        self.until = self.until.max(boot_now + Duration::from_millis(ttl_ms.into()));
        Renewed::Yes
    }

    /// Gives the lease back, also one that has run out: from then on its token is refused for good.
    pub fn release(&mut self, token: Token) -> Release {
        if token != self.token {
            return Release::Lost;
        }
        match self.phase {
            Phase::Granted | Phase::Expired => {
                self.phase = Phase::Released;
                Release::Done
            }
            Phase::Released => Release::Already,
            Phase::Revoked => Release::Lost,
        }
    }

    /// Notices that the lease has run out. `true` the first time.
    pub fn expire(&mut self, boot_now: Millis) -> bool {
        let over = self.phase == Phase::Granted && boot_now >= self.until;
        if over {
            self.phase = Phase::Expired;
        }
        over
    }

    /// Ends the lease from outside, with a token above it that nobody holds.
    pub fn revoke(&mut self, token: Token) {
        self.token = token;
        self.phase = Phase::Revoked;
        self.request_id = None;
    }
}

/// The next token: greater than every token before and than the floor, and not below the wall
/// clock in microseconds, so that even a database that lost records does not repeat a number.
/// A clock that steps back changes nothing. `None` above [`Token::MAX`].
pub fn next_token(latest: Option<Token>, floor: Option<Token>, wall_us: u64) -> Option<Token> {
    let highest = latest.max(floor).map_or(0, Token::get);
    Token::new(wall_us.max(highest.saturating_add(1)).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    fn name(holder: &str) -> Holder {
        Holder::new(holder).unwrap()
    }

    fn granted() -> Record {
        Record {
            token: t(7),
            holder: name("a"),
            request_id: Some("r1".into()),
            until: Millis(1_000),
            ttl_ms: 500,
            longest_ms: 500,
            phase: Phase::Granted,
        }
    }

    fn in_phase(phase: Phase) -> Record {
        Record { phase, ..granted() }
    }

    #[test]
    fn verdict_depends_on_the_token_the_phase_and_the_time() {
        use Verdict::*;
        let cases = [
            ("before its end", Phase::Granted, 7, 999, Live),
            ("at its end", Phase::Granted, 7, 1_000, Expired),
            ("noticed, and the time is odd", Phase::Expired, 7, 0, Expired),
            ("given back", Phase::Released, 7, 0, Released),
            ("revoked", Phase::Revoked, 7, 0, Released),
            ("older", Phase::Granted, 6, 0, Stale),
            ("older, given back", Phase::Released, 6, 0, Stale),
            ("newer", Phase::Granted, 8, 0, NeverIssued),
            ("newest possible", Phase::Revoked, i64::MAX as u64, 0, NeverIssued),
        ];
        for (case, phase, token, now, want) in cases {
            assert_eq!(in_phase(phase).verdict(t(token), Millis(now)), want, "{case}");
        }
    }

    #[test]
    fn an_ask_is_free_a_replay_or_held() {
        let held = Asked::Held { until: Millis(1_000) };
        let cases = [
            ("another holder", Phase::Granted, "b", None, 0, held),
            ("the same name is only a label", Phase::Granted, "a", None, 0, held),
            ("the same name, another id", Phase::Granted, "a", Some("r2"), 0, held),
            ("another name with the id", Phase::Granted, "b", Some("r1"), 0, held),
            ("the very ask", Phase::Granted, "a", Some("r1"), 999, Asked::Replay),
            ("the very ask, too late", Phase::Granted, "a", Some("r1"), 1_000, Asked::Free),
            ("the very ask, given back", Phase::Released, "a", Some("r1"), 0, Asked::Free),
            ("over", Phase::Granted, "b", None, 1_000, Asked::Free),
            ("noticed to be over", Phase::Expired, "b", None, 0, Asked::Free),
            ("revoked", Phase::Revoked, "b", None, 0, Asked::Free),
        ];
        for (case, phase, holder, id, now, want) in cases {
            let got = in_phase(phase).asked(&name(holder), id, Millis(now));
            assert_eq!(got, want, "{case}");
        }
    }

    #[test]
    fn renew_extends_only_a_running_lease_of_that_token() {
        let cases = [
            ("running", Phase::Granted, 7, 500, 900, Renewed::Yes, 1_400),
            ("running, shorter than what is left", Phase::Granted, 7, 10, 900, Renewed::Yes, 1_000),
            ("longer than a restart assumes", Phase::Granted, 7, 501, 900, Renewed::Longer, 1_000),
            ("at its end", Phase::Granted, 7, 500, 1_000, Renewed::Lost, 1_000),
            ("noticed to be over", Phase::Expired, 7, 500, 0, Renewed::Lost, 1_000),
            ("given back", Phase::Released, 7, 500, 0, Renewed::Lost, 1_000),
            ("revoked", Phase::Revoked, 7, 500, 0, Renewed::Lost, 1_000),
            ("an older token", Phase::Granted, 6, 500, 0, Renewed::Lost, 1_000),
            ("a newer token", Phase::Granted, 8, 500, 0, Renewed::Lost, 1_000),
        ];
        for (case, phase, token, ttl, now, want, until) in cases {
            let mut record = in_phase(phase);
            assert_eq!(record.renew(t(token), ttl, Millis(now)), want, "{case}");
            assert_eq!(record.until, Millis(until), "{case}");
        }
    }

    #[test]
    fn release_is_for_the_latest_token_and_may_be_repeated() {
        let cases = [
            ("running or over", Phase::Granted, 7, Release::Done, Phase::Released),
            ("noticed to be over", Phase::Expired, 7, Release::Done, Phase::Released),
            ("again", Phase::Released, 7, Release::Already, Phase::Released),
            ("revoked", Phase::Revoked, 7, Release::Lost, Phase::Revoked),
            ("older", Phase::Granted, 6, Release::Lost, Phase::Granted),
            ("newer", Phase::Granted, 8, Release::Lost, Phase::Granted),
        ];
        for (case, phase, token, want, after) in cases {
            let mut record = in_phase(phase);
            assert_eq!(record.release(t(token)), want, "{case}");
            assert_eq!(record.phase, after, "{case}");
        }
    }

    #[test]
    fn expire_notices_the_end_once() {
        let mut record = granted();
        assert!(!record.expire(Millis(999)));
        assert!(record.expire(Millis(1_000)));
        assert!(!record.expire(Millis(1_001)));
        assert_eq!(record.phase, Phase::Expired);
    }

    #[test]
    fn revoke_leaves_a_token_that_nobody_holds() {
        let mut record = granted();
        record.revoke(t(9));
        assert_eq!(record.verdict(t(7), Millis(0)), Verdict::Stale);
        assert_eq!(record.verdict(t(9), Millis(0)), Verdict::Released);
        assert_eq!(record.asked(&name("a"), Some("r1"), Millis(0)), Asked::Free);
    }

    #[test]
    fn the_next_token_is_above_all_before_it_and_not_below_the_clock() {
        let max = i64::MAX as u64;
        let cases = [
            ("first, no clock", None, None, 0, Some(1)),
            ("first", None, None, 50, Some(50)),
            ("clock ahead", Some(7), None, 50, Some(50)),
            ("clock at the latest", Some(50), None, 50, Some(51)),
            ("clock stepped back", Some(70), None, 50, Some(71)),
            ("floor above all", Some(70), Some(90), 50, Some(91)),
            ("the last one", Some(max - 1), None, 50, Some(max)),
            ("used up", Some(max), None, 50, None),
            ("used up by the floor", None, Some(max), 50, None),
            ("clock out of range", Some(7), None, u64::MAX, None),
        ];
        for (case, latest, floor, wall, want) in cases {
            let got = next_token(latest.map(t), floor.map(t), wall);
            assert_eq!(got, want.map(t), "{case}");
        }
    }

    proptest::proptest! {
        #[test]
        fn tokens_only_grow(clocks in proptest::collection::vec(0..=1_000_u64, 1..50), floor in 0..500_u64) {
            let mut latest = None;
            for wall in clocks {
                let next = next_token(latest, Token::new(floor), wall);
                proptest::prop_assert!(next > latest && next > Token::new(floor));
                latest = next;
            }
        }
    }
}
