//! `docs/reference/refusals.md` against the code: every status, code and type, and nothing else.

use std::collections::BTreeSet;
use std::time::Duration;

use fencegate::core::token::TokenError;
use fencegate::core::{Resource, Token};
use fencegate::pipeline::refusal::{Refusal, TokenFault};

/// One of each. The match has no catch-all: a new variant does not compile before it is listed here.
fn every_refusal() -> Vec<Refusal> {
    let resource = || Resource::new("wal/main").unwrap();
    let (presented, second) = (Token::MIN, Duration::from_secs(1));
    let text = || "x".to_owned();
    let all = vec![
        Refusal::StaleToken { resource: resource(), presented },
        Refusal::LeaseReleased { resource: resource(), presented },
        Refusal::LeaseExpired { resource: resource(), presented },
        Refusal::MissingToken { resource: resource() },
        Refusal::InvalidToken { fault: TokenFault::Malformed(TokenError::Empty) },
        Refusal::UnknownToken { resource: resource(), presented },
        Refusal::NoRule { key: text() },
        Refusal::MultipleResources { first: (text(), text()), second: (text(), text()) },
        Refusal::AmbiguousKey { key: text(), why: text() },
        Refusal::InvalidRequest { why: text() },
        Refusal::UnknownOperation { what: text() },
        Refusal::Misdirected { host: text() },
        Refusal::TooLarge { what: "x", limit: 1, key: "k" },
        Refusal::BodyTimeout,
        Refusal::Draining { resource: resource(), retry_after: second, why: text() },
        Refusal::Busy { what: "x", retry_after: second },
        Refusal::FenceUnavailable { resource: resource(), why: text() },
        Refusal::ShuttingDown,
        Refusal::UpstreamFailed { unknown: true, why: text() },
        Refusal::UpstreamTimeout { unknown: true },
        Refusal::Internal,
    ];
    for refusal in &all {
        match refusal {
            Refusal::StaleToken { .. }
            | Refusal::LeaseReleased { .. }
            | Refusal::LeaseExpired { .. }
            | Refusal::MissingToken { .. }
            | Refusal::InvalidToken { .. }
            | Refusal::UnknownToken { .. }
            | Refusal::NoRule { .. }
            | Refusal::MultipleResources { .. }
            | Refusal::AmbiguousKey { .. }
            | Refusal::InvalidRequest { .. }
            | Refusal::UnknownOperation { .. }
            | Refusal::Misdirected { .. }
            | Refusal::TooLarge { .. }
            | Refusal::BodyTimeout
            | Refusal::Draining { .. }
            | Refusal::Busy { .. }
            | Refusal::FenceUnavailable { .. }
            | Refusal::ShuttingDown
            | Refusal::UpstreamFailed { .. }
            | Refusal::UpstreamTimeout { .. }
            | Refusal::Internal => {}
        }
    }
    all
}

#[test]
fn the_page_of_refusals_lists_exactly_those_of_the_code() {
    let page = include_str!("../../docs/reference/refusals.md");
    let listed: BTreeSet<(String, String, String)> = page
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> =
                line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            let ["", _, status, code, rest, ""] = cells[..] else { return None };
            let status = status.parse::<u16>().ok()?;
            Some((status.to_string(), code.to_owned(), rest.to_owned()))
        })
        .collect();
    let known: BTreeSet<(String, String, String)> = every_refusal()
        .iter()
        .map(|refusal| refusal.rank(false))
        .map(|rank| {
            (
                rank.status.as_u16().to_string(),
                rank.code.to_owned(),
                format!("/errors/{}", rank.rest),
            )
        })
        .collect();
    assert_eq!(listed, known);
}

#[test]
fn only_a_412_changes_for_a_conditional_request_and_every_503_says_when_to_come_back() {
    for refusal in every_refusal() {
        let (plain, conditional) = (refusal.rank(false), refusal.rank(true));
        let wanted = if plain.status == 412 { 403 } else { plain.status.as_u16() };
        assert_eq!(conditional.status.as_u16(), wanted, "{refusal:?}");
        assert_eq!(conditional.code, plain.code);
        assert_eq!(refusal.retry_after().is_some(), plain.status == 503, "{refusal:?}");
        assert!(refusal.text().ends_with('.'), "{refusal:?}");
    }
}
