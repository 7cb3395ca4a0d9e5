//! What every ledger promises: raise, look, take, give back.

use fencegate::core::{Resource, Token};
use fencegate::ledger::{Incarnation, Ledger, PermitId, PermitRecord};

fn t(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn resource() -> Resource {
    Resource::new("wal/main").unwrap()
}

fn id(incarnation: u128, serial: u64) -> PermitId {
    PermitId { incarnation: Incarnation(incarnation), serial }
}

pub async fn a_mark_only_rises(ledger: impl Ledger) {
    let r = resource();
    assert_eq!(ledger.mark(&r).await.unwrap(), None);
    for (token, mark) in [(5, 5), (3, 5), (5, 5), (9, 9), (1, 9)] {
        assert_eq!(ledger.raise(&r, t(token)).await.unwrap(), t(mark), "raise to {token}");
        assert_eq!(ledger.mark(&r).await.unwrap(), Some(t(mark)));
    }
    let other = Resource::new("wal/other").unwrap();
    assert_eq!(ledger.mark(&other).await.unwrap(), None);
}

pub async fn a_permit_is_taken_only_at_the_mark(ledger: impl Ledger) {
    let r = resource();
    assert!(!ledger.take(&r, id(1, 1), t(5)).await.unwrap(), "no mark yet");
    ledger.raise(&r, t(5)).await.unwrap();
    for (token, taken) in [(4, false), (6, false), (5, true)] {
        assert_eq!(ledger.take(&r, id(1, token), t(token)).await.unwrap(), taken, "{token}");
    }
    ledger.raise(&r, t(6)).await.unwrap();
    assert!(!ledger.take(&r, id(1, 9), t(5)).await.unwrap(), "overtaken");
    let only = PermitRecord { id: id(1, 5), token: t(5) };
    assert_eq!(ledger.permits(&r).await.unwrap(), [only]);
}

pub async fn a_look_shows_permits_of_lower_tokens_of_every_replica(ledger: impl Ledger) {
    let r = resource();
    for (token, incarnation) in [(5, 1), (7, 2), (9, 1)] {
        ledger.raise(&r, t(token)).await.unwrap();
        assert!(ledger.take(&r, id(incarnation, token), t(token)).await.unwrap());
    }
    for (token, want) in [(5, 0), (6, 1), (7, 1), (9, 2), (10, 3)] {
        assert_eq!(ledger.look(&r, t(token)).await.unwrap().len(), want, "below {token}");
    }
    let other = Resource::new("wal/other").unwrap();
    assert_eq!(ledger.look(&other, t(10)).await.unwrap(), []);
}

pub async fn a_permit_given_back_is_gone_and_may_be_given_back_again(ledger: impl Ledger) {
    let r = resource();
    ledger.raise(&r, t(5)).await.unwrap();
    for serial in [1, 2] {
        assert!(ledger.take(&r, id(1, serial), t(5)).await.unwrap());
    }
    for _ in 0..2 {
        ledger.give_back(&r, id(1, 1)).await.unwrap();
        let left = PermitRecord { id: id(1, 2), token: t(5) };
        assert_eq!(ledger.look(&r, t(6)).await.unwrap(), [left]);
    }
    ledger.give_back(&r, id(7, 7)).await.unwrap();
    ledger.give_back(&Resource::new("unknown").unwrap(), id(1, 1)).await.unwrap();
}

/// The whole suite for one ledger; the fixture derefs to it.
macro_rules! ledger_suite {
    ($ledger:ident, $make:expr) => {
        mod $ledger {
            ledger_suite!(@tests $make,
                a_mark_only_rises,
                a_permit_is_taken_only_at_the_mark,
                a_look_shows_permits_of_lower_tokens_of_every_replica,
                a_permit_given_back_is_gone_and_may_be_given_back_again,
            );
        }
    };
    (@tests $make:expr, $($rule:ident,)*) => {$(
        #[tokio::test]
        async fn $rule() {
            let (ledger, _keep) = $make;
            super::$rule(ledger).await;
        }
    )*};
}

ledger_suite!(memory, (fencegate::ledger::memory::MemoryLedger::new(), ()));
#[cfg(feature = "embedded")]
ledger_suite!(embedded, crate::contract::embedded::ledger());
