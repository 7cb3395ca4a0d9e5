//! Every reachable state of small worlds: the protocol keeps the promise, and breaks it without any one guard.

use std::collections::VecDeque;

use super::world::{SAFE, Setup, World};
use crate::core::gate::{Guards, Kind};

#[derive(Debug, PartialEq, Eq)]
enum Finding {
    Safe,
    Unsafe,
}

/// Breadth first, so a counter-example is a shortest one. Also finds states from which the new holder
/// can never get through.
fn explore(setup: &Setup) -> (Finding, usize, usize) {
    let start = World::new(setup);
    let mut ids = hashbrown::HashMap::<World, usize>::from_iter([(start.clone(), 0)]);
    let mut parents: Vec<Vec<usize>> = vec![Vec::new()];
    // A state at the end of the world's time says nothing about what more time would bring.
    let mut done = vec![start.new_began];
    let mut todo = VecDeque::from([start]);
    while let Some(world) = todo.pop_front() {
        let from = ids[&world];
        for next in world.next(setup) {
            if next.broken {
                return (Finding::Unsafe, ids.len(), 0);
            }
            let id = *ids.entry(next.clone()).or_insert_with(|| {
                parents.push(Vec::new());
                done.push(next.new_began || next.is_late());
                todo.push_back(next);
                done.len() - 1
            });
            parents[id].push(from);
        }
        assert!(ids.len() < 3_000_000, "the world is too large to search: {setup:?}");
    }
    let mut reach: Vec<usize> = (0..done.len()).filter(|id| done[*id]).collect();
    while let Some(id) = reach.pop() {
        for &parent in &parents[id] {
            if !done[parent] {
                done[parent] = true;
                reach.push(parent);
            }
        }
    }
    let stuck = done.iter().filter(|reached| !**reached).count();
    (Finding::Safe, ids.len(), stuck)
}

#[test]
fn the_protocol_keeps_the_promise_in_every_reachable_state() {
    let worlds = [
        ("one replica", SAFE),
        ("one replica, lost ledger answers", Setup { losses: 2, asks: [1, 2], ..SAFE }),
        ("one replica, time passes", Setup { time: true, losses: 0, ..SAFE }),
        (
            "one replica, crash and return",
            Setup { crashes: true, time: true, losses: 0, asks: [1, 1], ..SAFE },
        ),
        ("one replica, the new holder only reads", Setup { kind: Kind::Pass, ..SAFE }),
        ("two replicas", Setup { replicas: 2, losses: 0, ..SAFE }),
        ("two replicas, lost answers", Setup { replicas: 2, asks: [1, 1], ..SAFE }),
    ];
    for (name, setup) in worlds {
        let (finding, states, _) = explore(&setup);
        println!("{name}: {states} states");
        assert_eq!(finding, Finding::Safe, "{name}");
        assert!(states > 20, "{name}: only {states} states were reached");
    }
}

#[test]
fn the_new_holder_can_always_still_get_through_once_quarantines_end() {
    for replicas in [1, 2] {
        let setup = Setup { time: true, losses: 0, asks: [1, 1], replicas, ..SAFE };
        let (finding, states, stuck) = explore(&setup);
        assert_eq!(finding, Finding::Safe);
        assert_eq!(stuck, 0, "of {states} states, {replicas} replicas");
    }
}

#[test]
fn the_promise_breaks_without_any_one_guard() {
    let all = Guards::ALL;
    let one = SAFE;
    let two = Setup { replicas: 2, losses: 0, ..SAFE };
    let crash = Setup { crashes: true, time: true, losses: 0, asks: [1, 1], ..SAFE };
    let variants = [
        ("given back while counted", Guards { drain: false, ..all }, one),
        ("no look for lower permits, two replicas", Guards { look: false, ..all }, two),
        ("no look for lower permits, one replica", Guards { look: false, ..all }, one),
        ("look, then raise", Guards { raise_first: false, ..all }, two),
        ("checked at the head only", Guards { commit_check: false, ..all }, one),
        ("time-out taken for 'did not happen'", Guards { unknown_taints: false, ..all }, one),
        ("cut past its commit point", Guards { counted_stays: false, ..all }, one),
        ("permit not durable before the commit point", Guards { take_first: false, ..all }, crash),
    ];
    for (name, guards, setup) in variants {
        let (finding, states, _) = explore(&Setup { guards, ..setup });
        println!("{name}: counter-example after {states} states");
        assert_eq!(finding, Finding::Unsafe, "{name}");
    }
}
