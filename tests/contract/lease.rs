//! What every lease backend promises. A suite is one macro line; a fixture makes the backend.

use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fencegate::core::lease::Verdict;
use fencegate::core::{Holder, Resource, Token};
use fencegate::lease::{Ask, Grant, LeaseBackend, LeaseError};
use futures_util::poll;

/// Longest wait for anything that must happen.
const DEADLINE: Duration = Duration::from_secs(20);

/// A running backend under test.
pub trait Fixture {
    /// The backend.
    type Lease: LeaseBackend + Clone;
    /// A handle on it.
    fn lease(&self) -> Self::Lease;
    /// Lets time pass on the backend's clock.
    fn pass(&self, time: Duration) -> impl Future<Output = ()> + Send;
    /// Stops the backend as it is and starts it again on the same data.
    fn restart(&mut self) -> impl Future<Output = ()> + Send;
}

fn resource() -> Resource {
    Resource::new("wal/main").unwrap()
}

fn ask(holder: &str) -> Ask {
    Ask {
        resource: resource(),
        holder: Holder::new(holder).unwrap(),
        ttl: Duration::from_secs(10),
        wait: Duration::ZERO,
        request_id: None,
    }
}

fn waiting(holder: &str, seconds: u64) -> Ask {
    Ask { wait: Duration::from_secs(seconds), ..ask(holder) }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("{what}: no end"))
}

async fn verdict(lease: &impl LeaseBackend, token: Token) -> Verdict {
    lease.validate(&resource(), token).await.unwrap().verdict
}

fn is_held<T: std::fmt::Debug>(result: &Result<T, LeaseError>, by: &str) -> bool {
    matches!(result, Err(LeaseError::Held { holder, .. }) if holder.as_str() == by)
}

fn is_lost<T: std::fmt::Debug>(result: &Result<T, LeaseError>) -> bool {
    matches!(result, Err(LeaseError::Lost { .. }))
}

// === C1 to C8: acquire, renew, release ===

pub async fn c1_a_free_resource_is_granted_and_its_token_is_live(fixture: impl Fixture) {
    let lease = fixture.lease();
    let grant = lease.acquire(ask("a")).await.unwrap();
    assert_eq!(verdict(&lease, grant.token).await, Verdict::Live);
    assert_eq!(grant.ttl, Duration::from_secs(10));
    assert!(grant.expires_in <= grant.ttl && grant.expires_in > Duration::from_secs(5));
    let view = lease.inspect(&resource()).await.unwrap().unwrap();
    assert_eq!((view.token, view.holder.as_str(), view.live), (grant.token, "a", true));
}

pub async fn c2_a_held_lease_is_refused_to_others_and_to_its_own_name(fixture: impl Fixture) {
    let lease = fixture.lease();
    let grant = lease.acquire(ask("a")).await.unwrap();
    for holder in ["b", "a"] {
        let refused = lease.acquire(ask(holder)).await;
        assert!(is_held(&refused, "a"), "{holder}: {refused:?}");
    }
    assert_eq!(verdict(&lease, grant.token).await, Verdict::Live);
}

pub async fn c3_of_twenty_at_once_exactly_one_wins(fixture: impl Fixture) {
    let lease = fixture.lease();
    let asks = (0..20).map(|n| {
        let (lease, ask) = (lease.clone(), ask(&format!("h{n}")));
        tokio::spawn(async move { lease.acquire(ask).await.is_ok() })
    });
    let asks: Vec<_> = asks.collect();
    let mut winners = 0;
    for ask in asks {
        winners += usize::from(within("acquire", ask).await.unwrap());
    }
    assert_eq!(winners, 1);
}

pub async fn c4_a_renewed_lease_outlives_its_first_ttl(fixture: impl Fixture) {
    let lease = fixture.lease();
    let grant = lease.acquire(ask("a")).await.unwrap();
    for _ in 0..3 {
        fixture.pass(Duration::from_secs(6)).await;
        let renewed = lease.renew(&resource(), grant.token, None).await.unwrap();
        assert_eq!((renewed.token, renewed.ttl), (grant.token, grant.ttl));
        assert_eq!(verdict(&lease, grant.token).await, Verdict::Live);
    }
    let longer = Some(Duration::from_secs(60));
    let renewed = lease.renew(&resource(), grant.token, longer).await.unwrap();
    assert!(renewed.expires_in > Duration::from_secs(50), "{renewed:?}");
}

pub async fn c5_a_lost_lease_is_not_renewed(fixture: impl Fixture) {
    let lease = fixture.lease();
    let expired = lease.acquire(ask("a")).await.unwrap().token;
    fixture.pass(Duration::from_secs(11)).await;
    assert!(is_lost(&lease.renew(&resource(), expired, None).await), "expired, no successor");
    let released = lease.acquire(ask("b")).await.unwrap().token;
    assert!(is_lost(&lease.renew(&resource(), expired, None).await), "replaced");
    lease.release(&resource(), released).await.unwrap();
    assert!(is_lost(&lease.renew(&resource(), released, None).await), "released");
    let bumped = lease.bump(&resource(), None).await.unwrap();
    assert!(is_lost(&lease.renew(&resource(), bumped, None).await), "nobody's");
}

pub async fn c6_only_the_latest_token_releases_and_may_repeat_it(fixture: impl Fixture) {
    let lease = fixture.lease();
    let old = lease.acquire(ask("a")).await.unwrap().token;
    lease.release(&resource(), old).await.unwrap();
    lease.release(&resource(), old).await.unwrap();
    let new = lease.acquire(ask("a")).await.unwrap().token;
    assert!(is_lost(&lease.release(&resource(), old).await));
    assert!(is_lost(&lease.release(&resource(), new.next().unwrap()).await));
    assert_eq!(verdict(&lease, new).await, Verdict::Live);
}

pub async fn c7_a_released_token_is_released_then_stale(fixture: impl Fixture) {
    let lease = fixture.lease();
    let old = lease.acquire(ask("a")).await.unwrap().token;
    lease.release(&resource(), old).await.unwrap();
    assert_eq!(verdict(&lease, old).await, Verdict::Released);
    let new = lease.acquire(ask("b")).await.unwrap().token;
    assert_eq!(verdict(&lease, old).await, Verdict::Stale);
    assert_eq!(verdict(&lease, new).await, Verdict::Live);
}

pub async fn c8_tokens_of_1000_grants_strictly_increase(fixture: impl Fixture) {
    let lease = fixture.lease();
    let mut last = None;
    for _ in 0..1_000 {
        let token = lease.acquire(ask("a")).await.unwrap().token;
        assert!(Some(token) > last, "{token} after {last:?}");
        last = Some(token);
        lease.release(&resource(), token).await.unwrap();
    }
}

// === C10 to C14: restart, expiry, unknown tokens ===

pub async fn c10_a_restart_keeps_tokens_growing_and_the_lease_with_its_holder(
    mut fixture: impl Fixture,
) {
    let grant = fixture.lease().acquire(ask("a")).await.unwrap();
    fixture.restart().await;
    let lease = fixture.lease();
    assert_eq!(verdict(&lease, grant.token).await, Verdict::Live);
    assert!(is_held(&lease.acquire(ask("b")).await, "a"));
    lease.release(&resource(), grant.token).await.unwrap();
    fixture.restart().await;
    let lease = fixture.lease();
    assert_eq!(verdict(&lease, grant.token).await, Verdict::Released);
    assert!(lease.acquire(ask("b")).await.unwrap().token > grant.token);
}

pub async fn c11_a_lease_runs_until_its_ttl_and_no_longer(fixture: impl Fixture) {
    let lease = fixture.lease();
    let first = lease.acquire(ask("a")).await.unwrap().token;
    fixture.pass(Duration::from_secs(9)).await;
    assert_eq!(verdict(&lease, first).await, Verdict::Live);
    assert!(is_held(&lease.acquire(ask("b")).await, "a"));
    fixture.pass(Duration::from_secs(2)).await;
    assert_eq!(verdict(&lease, first).await, Verdict::Expired);
    assert!(!lease.inspect(&resource()).await.unwrap().unwrap().live);
    assert!(lease.acquire(ask("b")).await.unwrap().token > first);
    assert_eq!(verdict(&lease, first).await, Verdict::Stale);
}

pub async fn c12_a_restart_never_frees_a_lease_early(mut fixture: impl Fixture) {
    let lease = fixture.lease();
    let grant = lease.acquire(ask("a")).await.unwrap();
    // Renewed for longer than it was granted: the restart must know.
    lease.renew(&resource(), grant.token, Some(Duration::from_secs(40))).await.unwrap();
    drop(lease);
    fixture.pass(Duration::from_secs(5)).await;
    fixture.restart().await;
    fixture.pass(Duration::from_secs(34)).await;
    let lease = fixture.lease();
    assert_eq!(verdict(&lease, grant.token).await, Verdict::Live);
    assert!(is_held(&lease.acquire(ask("b")).await, "a"));
    fixture.pass(Duration::from_secs(51)).await;
    lease.acquire(ask("b")).await.unwrap();
}

pub async fn c13_a_token_never_issued_is_not_valid(fixture: impl Fixture) {
    let lease = fixture.lease();
    let token = lease.acquire(ask("a")).await.unwrap().token;
    let cases = [
        ("current + 1", token.next().unwrap(), Verdict::NeverIssued),
        ("current - 1", Token::new(token.get() - 1).unwrap(), Verdict::Stale),
        ("the smallest", Token::MIN, Verdict::Stale),
        ("the greatest", Token::MAX, Verdict::NeverIssued),
    ];
    for (case, token, want) in cases {
        assert_eq!(verdict(&lease, token).await, want, "{case}");
    }
    // None of these questions changed anything.
    assert_eq!(verdict(&lease, token).await, Verdict::Live);
}

pub async fn c14_an_unknown_resource_is_refused_and_no_error(fixture: impl Fixture) {
    let lease = fixture.lease();
    let validation = lease.validate(&resource(), Token::MIN).await.unwrap();
    assert_eq!((validation.verdict, validation.latest), (Verdict::NeverIssued, None));
    assert_eq!(lease.inspect(&resource()).await.unwrap(), None);
    assert!(is_lost(&lease.renew(&resource(), Token::MIN, None).await));
    assert!(is_lost(&lease.release(&resource(), Token::MIN).await));
}

// === C18, C23, C24, C26 ===

pub async fn c18_a_stop_longer_than_the_ttl_ends_the_lease(fixture: impl Fixture) {
    let lease = fixture.lease();
    let grant = lease.acquire(ask("a")).await.unwrap();
    // The clock that counts suspend jumps; nothing of the backend ran meanwhile.
    fixture.pass(Duration::from_secs(3_600)).await;
    assert_eq!(verdict(&lease, grant.token).await, Verdict::Expired);
    assert!(is_lost(&lease.renew(&resource(), grant.token, None).await));
}

pub async fn c23_hostile_names_are_resources_of_their_own(fixture: impl Fixture) {
    let lease = fixture.lease();
    let long = "n".repeat(1_024);
    let names = [
        "lead", "/lead", "a/b", "a//b", "a/", "a", "..", "a/../b", "é", "e\u{301}", "あ",
        "\u{e000}", "{}", "{a}", "%2F", "Lead", &long,
    ];
    let mut tokens = Vec::new();
    for name in names {
        let ask = Ask { resource: Resource::new(name).unwrap(), ..ask("a") };
        tokens.push(lease.acquire(ask).await.unwrap_or_else(|error| panic!("{name:?}: {error}")));
    }
    for grant in &tokens {
        let validation = lease.validate(&grant.resource, grant.token).await.unwrap();
        assert_eq!(validation.verdict, Verdict::Live, "{}", grant.resource);
    }
    let mut listed = Vec::new();
    while let page = lease.list("", listed.last().map(String::as_str), 3).await.unwrap()
        && !page.is_empty()
    {
        listed.extend(page.iter().map(|view| view.resource.as_str().to_owned()));
    }
    let mut want: Vec<_> = names.map(str::to_owned).into();
    want.sort();
    assert_eq!(listed, want);
    let below = lease.list("a/", None, 100).await.unwrap();
    assert!(below.iter().all(|view| view.resource.as_str().starts_with("a/")));
    assert_eq!(below.len(), 4);
}

pub async fn c24_tokens_above_2_53_are_exact_up_to_the_last_one(mut fixture: impl Fixture) {
    let lease = fixture.lease();
    let above = Token::new((1 << 53) + 1).unwrap();
    let bumped = lease.bump(&resource(), Some(above)).await.unwrap();
    assert_eq!(bumped.get(), (1 << 53) + 2);
    let token = lease.acquire(ask("a")).await.unwrap().token;
    assert_eq!(token.get(), (1 << 53) + 3);
    drop(lease);
    fixture.restart().await;
    let lease = fixture.lease();
    assert_eq!(verdict(&lease, token).await, Verdict::Live);

    let last_but_one = Token::new(Token::MAX.get() - 2).unwrap();
    lease.bump(&resource(), Some(last_but_one)).await.unwrap();
    let last = lease.acquire(ask("a")).await.unwrap().token;
    assert_eq!(last, Token::MAX);
    lease.release(&resource(), last).await.unwrap();
    let none_left = lease.acquire(ask("a")).await;
    assert!(matches!(none_left, Err(LeaseError::Exhausted { .. })), "{none_left:?}");
    assert!(matches!(lease.bump(&resource(), None).await, Err(LeaseError::Exhausted { .. })));
}

pub async fn c26_values_out_of_range_are_refused(fixture: impl Fixture) {
    let lease = fixture.lease();
    let ttl = |ms| Ask { ttl: Duration::from_millis(ms), ..ask("a") };
    let id = |id: &str| Ask { request_id: Some(id.to_owned()), ..ask("a") };
    let cases = [
        ("ttl 0", ttl(0)),
        ("ttl below 1 s", ttl(999)),
        ("ttl above 24 h", ttl(86_400_001)),
        ("wait above 60 s", waiting("a", 61)),
        ("empty request id", id("")),
        ("long request id", id(&"x".repeat(129))),
        ("request id with a newline", id("a\nb")),
        ("request id beyond ASCII", id("é")),
    ];
    for (case, ask) in cases {
        let refused = lease.acquire(ask).await;
        assert!(matches!(refused, Err(LeaseError::Invalid { .. })), "{case}: {refused:?}");
    }
    assert_eq!(lease.inspect(&resource()).await.unwrap(), None);
    let shortest = lease.acquire(ttl(1_000)).await.unwrap();
    let refused = lease.renew(&resource(), shortest.token, Some(Duration::ZERO)).await;
    assert!(matches!(refused, Err(LeaseError::Invalid { .. })), "{refused:?}");
    lease.release(&resource(), shortest.token).await.unwrap();
    lease.acquire(ttl(86_400_000)).await.unwrap();
}

// === beyond the C rules ===

pub async fn a_repeated_request_id_gets_the_same_grant_while_it_lasts(mut fixture: impl Fixture) {
    let lease = fixture.lease();
    let with = |holder: &str, id: &str| Ask { request_id: Some(id.to_owned()), ..ask(holder) };
    let first = lease.acquire(with("a", "r1")).await.unwrap().token;
    assert_eq!(lease.acquire(with("a", "r1")).await.unwrap().token, first);
    assert!(is_held(&lease.acquire(with("a", "r2")).await, "a"));
    assert!(is_held(&lease.acquire(with("b", "r1")).await, "a"));
    drop(lease);
    fixture.restart().await;
    let lease = fixture.lease();
    assert_eq!(lease.acquire(with("a", "r1")).await.unwrap().token, first);
    fixture.pass(Duration::from_secs(11)).await;
    let second = lease.acquire(with("a", "r1")).await.unwrap().token;
    assert!(second > first, "expired: a new grant");
    lease.release(&resource(), second).await.unwrap();
    assert!(lease.acquire(with("a", "r1")).await.unwrap().token > second, "released: a new grant");
}

pub async fn a_bump_makes_every_token_stale_and_frees_the_lease(fixture: impl Fixture) {
    let lease = fixture.lease();
    let old = lease.acquire(ask("a")).await.unwrap().token;
    let above = Token::new(old.get() + 1_000_000_000).unwrap();
    let bumped = lease.bump(&resource(), Some(above)).await.unwrap();
    assert!(bumped > above);
    assert_eq!(verdict(&lease, old).await, Verdict::Stale);
    assert_eq!(verdict(&lease, above).await, Verdict::Stale);
    assert_eq!(verdict(&lease, bumped).await, Verdict::Released);
    assert!(is_lost(&lease.renew(&resource(), old, None).await));
    assert!(lease.acquire(ask("b")).await.unwrap().token > bumped);
}

pub async fn waiters_are_served_in_arrival_order(fixture: impl Fixture) {
    let lease = fixture.lease();
    let mut grant = lease.acquire(ask("first")).await.unwrap();
    let (served, mut next) = tokio::sync::mpsc::unbounded_channel::<Grant>();
    let mut tasks = Vec::new();
    for n in 0..10 {
        let (lease, served) = (lease.clone(), served.clone());
        tasks.push(tokio::spawn(async move {
            served.send(lease.acquire(waiting(&format!("w{n}"), 60)).await.unwrap()).unwrap();
        }));
        // A spawned task joins the queue when it first runs, and tasks first run in order.
        tokio::task::yield_now().await;
    }
    for n in 0..10 {
        lease.release(&resource(), grant.token).await.unwrap();
        let newer = within("the next waiter", next.recv()).await.unwrap();
        assert_eq!(newer.holder.as_str(), format!("w{n}"));
        assert!(newer.token > grant.token);
        assert_eq!(verdict(&lease, newer.token).await, Verdict::Live);
        grant = newer;
    }
    for task in tasks {
        task.await.unwrap();
    }
}

pub async fn a_waiter_gets_the_lease_when_it_expires(fixture: impl Fixture) {
    let lease = fixture.lease();
    let first = lease.acquire(ask("a")).await.unwrap().token;
    let waiter = tokio::spawn({
        let lease = lease.clone();
        async move { lease.acquire(waiting("b", 60)).await }
    });
    tokio::task::yield_now().await;
    fixture.pass(Duration::from_secs(9)).await;
    assert!(!waiter.is_finished());
    fixture.pass(Duration::from_secs(2)).await;
    assert!(within("the waiter", waiter).await.unwrap().unwrap().token > first);
}

pub async fn a_wait_that_ends_names_the_holder_and_leaves_the_queue(fixture: impl Fixture) {
    let lease = fixture.lease();
    let first = lease.acquire(ask("a")).await.unwrap().token;
    let refused = lease.acquire(waiting("b", 1)).await;
    assert!(is_held(&refused, "a"), "{refused:?}");
    lease.release(&resource(), first).await.unwrap();
    assert_eq!(lease.acquire(ask("c")).await.unwrap().holder.as_str(), "c");
}

pub async fn a_dropped_wait_holds_nothing(fixture: impl Fixture) {
    let lease = fixture.lease();
    let mut held = lease.acquire(ask("a")).await.unwrap().token;
    for _ in 0..20 {
        {
            // Dropped while it waits.
            let mut dropped = pin!(lease.acquire(waiting("dropped", 60)));
            assert!(poll!(&mut dropped).is_pending());
        }
        lease.release(&resource(), held).await.unwrap();
        for call in [ask("dropped"), waiting("dropped", 60)] {
            // Dropped while its grant is being made.
            let mut dropped = pin!(lease.acquire(call));
            assert!(poll!(&mut dropped).is_pending());
        }
        let next = within("the next", lease.acquire(waiting("next", 10))).await.unwrap();
        assert!(next.token > held);
        held = next.token;
    }
}

pub async fn racing_holders_never_overlap(fixture: impl Fixture) {
    let lease = fixture.lease();
    let inside = Arc::new(AtomicUsize::new(0));
    let highest = Arc::new(AtomicU64::new(0));
    // Runtimes of their own, as the proxy's threads are.
    let threads = (0..2).map(|n| {
        let (lease, inside, highest) = (lease.clone(), inside.clone(), highest.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let mut tokens = HashSet::new();
                for _ in 0..500 {
                    let grant = lease.acquire(waiting(&format!("h{n}"), 60)).await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
                    let before = highest.swap(grant.token.get(), Ordering::SeqCst);
                    assert!(before < grant.token.get(), "tokens go back");
                    assert!(tokens.insert(grant.token));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    lease.release(&resource(), grant.token).await.unwrap();
                }
                tokens
            })
        })
    });
    let threads: Vec<_> = threads.collect();
    let joined = tokio::task::spawn_blocking(move || {
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let tokens = joined.await.unwrap();
    assert!(tokens[0].is_disjoint(&tokens[1]), "one token, two holders");
}

/// The whole suite for one backend: `lease_suite!(name, async expression that makes the fixture)`.
macro_rules! lease_suite {
    ($backend:ident, $fixture:expr) => {
        mod $backend {
            lease_suite!(@tests $fixture,
                c1_a_free_resource_is_granted_and_its_token_is_live,
                c2_a_held_lease_is_refused_to_others_and_to_its_own_name,
                c3_of_twenty_at_once_exactly_one_wins,
                c4_a_renewed_lease_outlives_its_first_ttl,
                c5_a_lost_lease_is_not_renewed,
                c6_only_the_latest_token_releases_and_may_repeat_it,
                c7_a_released_token_is_released_then_stale,
                c8_tokens_of_1000_grants_strictly_increase,
                c10_a_restart_keeps_tokens_growing_and_the_lease_with_its_holder,
                c11_a_lease_runs_until_its_ttl_and_no_longer,
                c12_a_restart_never_frees_a_lease_early,
                c13_a_token_never_issued_is_not_valid,
                c14_an_unknown_resource_is_refused_and_no_error,
                c18_a_stop_longer_than_the_ttl_ends_the_lease,
                c23_hostile_names_are_resources_of_their_own,
                c24_tokens_above_2_53_are_exact_up_to_the_last_one,
                c26_values_out_of_range_are_refused,
                a_repeated_request_id_gets_the_same_grant_while_it_lasts,
                a_bump_makes_every_token_stale_and_frees_the_lease,
                waiters_are_served_in_arrival_order,
                a_waiter_gets_the_lease_when_it_expires,
                a_wait_that_ends_names_the_holder_and_leaves_the_queue,
                a_dropped_wait_holds_nothing,
                racing_holders_never_overlap,
            );
        }
    };
    (@tests $fixture:expr, $($rule:ident,)*) => {$(
        #[tokio::test]
        async fn $rule() {
            super::$rule($fixture.await).await;
        }
    )*};
}

#[cfg(feature = "embedded")]
lease_suite!(embedded, crate::contract::embedded::fixture());
