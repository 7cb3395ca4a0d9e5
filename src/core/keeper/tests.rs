use proptest::prelude::*;

use super::*;

const TTL: Duration = Duration::from_secs(30);

fn granted() -> Keeper {
    Keeper::new(TTL, Millis(100_000))
}

fn unrenewed() -> Step {
    Step::Lost(Lost { why: Why::Unrenewed, gone_by: Millis(127_000) })
}

#[test]
fn a_lease_is_renewed_at_a_third_stopped_at_two_thirds_and_gone_at_nine_tenths() {
    let deadlines = granted().deadlines();
    let want =
        Deadlines { stop_at: Millis(120_000), gone_by: Millis(127_000), ends_at: Millis(130_000) };
    assert_eq!(deadlines, want);
    let cases = [
        ("fresh", 100_000, Step::Wait { until: Millis(110_000) }),
        ("just before a third", 109_999, Step::Wait { until: Millis(110_000) }),
        ("at a third", 110_000, Step::Renew),
        ("just before two thirds", 119_999, Step::Renew),
        ("at two thirds", 120_000, unrenewed()),
        ("woken after its end", 190_000, unrenewed()),
    ];
    for (case, now, want) in cases {
        assert_eq!(granted().poll(Millis(now)), want, "{case}");
    }
}

#[test]
fn an_answer_counts_from_when_its_call_was_sent() {
    let mut keeper = granted();
    keeper.sent(Millis(110_000));
    assert_eq!(keeper.poll(Millis(110_000)), Step::Wait { until: Millis(115_000) });
    keeper.answered(Renewal::Kept, Millis(114_000));
    assert_eq!(keeper.deadlines().ends_at, Millis(140_000));
    assert_eq!(keeper.poll(Millis(114_000)), Step::Wait { until: Millis(120_000) });
}

#[test]
fn an_answer_read_after_a_pause_does_not_revive_the_lease() {
    let mut keeper = granted();
    keeper.sent(Millis(110_000));
    keeper.answered(Renewal::Kept, Millis(190_000));
    let lost = Lost { why: Why::Unrenewed, gone_by: Millis(137_000) };
    assert_eq!(keeper.poll(Millis(190_000)), Step::Lost(lost));
}

#[test]
fn a_silent_server_is_asked_twice_before_the_holder_stops() {
    let mut keeper = granted();
    let mut asked = Vec::new();
    let mut now = Millis(100_000);
    let lost = loop {
        match keeper.poll(now) {
            Step::Renew => {
                keeper.sent(now);
                asked.push(now.0);
            }
            Step::Wait { until } => now = until,
            Step::GiveUp => {}
            Step::Lost(lost) => break lost,
        }
    };
    assert_eq!(asked, [110_000, 117_500]);
    assert_eq!((lost.why, now), (Why::Unrenewed, Millis(120_000)));
}

#[test]
fn a_server_that_fails_at_once_is_asked_again_and_again_until_the_holder_stops() {
    let mut keeper = granted();
    let mut now = Millis(100_000);
    let mut asked = 0;
    while let step @ (Step::Renew | Step::Wait { .. }) = keeper.poll(now) {
        match step {
            Step::Wait { until } => now = until,
            _ => {
                keeper.sent(now);
                keeper.answered(Renewal::Unknown, now);
                asked += 1;
            }
        }
    }
    assert_eq!((asked, now), (4, Millis(120_000)));
}

#[test]
fn a_refusal_ends_the_lease_at_once() {
    let cases = [
        ("early: the usual grace", 110_000, 117_000),
        ("late: not past nine tenths of the TTL", 124_000, 127_000),
        ("after a pause: in the past", 190_000, 127_000),
    ];
    for (case, now, gone_by) in cases {
        let mut keeper = granted();
        keeper.sent(Millis(110_000));
        keeper.answered(Renewal::Refused, Millis(now));
        let lost = Lost { why: Why::Refused, gone_by: Millis(gone_by) };
        assert_eq!(keeper.poll(Millis(now)), Step::Lost(lost), "{case}");
    }
}

#[test]
fn what_is_lost_stays_lost() {
    let mut keeper = granted();
    keeper.sent(Millis(119_000));
    assert_eq!(keeper.poll(Millis(120_000)), unrenewed());
    keeper.answered(Renewal::Kept, Millis(120_001));
    assert_eq!(keeper.poll(Millis(120_001)), unrenewed());
}

/// What the driver may meet: time passes (also a pause), and the renewal under way comes to something.
#[derive(Clone, Copy, Debug)]
enum Event {
    Pass(u64),
    Answer(Renewal),
}

fn event() -> impl Strategy<Value = Event> {
    let answer = prop_oneof![
        4 => Just(Renewal::Kept),
        2 => Just(Renewal::Unknown),
        1 => Just(Renewal::Refused),
    ];
    prop_oneof![
        4 => (0_u64..2_000).prop_map(Event::Pass),
        1 => (0_u64..40_000).prop_map(Event::Pass),
        3 => answer.prop_map(Event::Answer),
    ]
}

proptest! {
    /// However calls and pauses interleave: the holder is told to stop in time, counted from the last
    /// successful call that was sent, and is never told otherwise afterwards.
    #[test]
    fn no_holder_outlives_the_last_lease_it_asked_for(
        ttl in 1_000_u64..60_000,
        events in proptest::collection::vec(event(), 1..200),
    ) {
        let ttl = Duration::from_millis(ttl);
        let mut now = Millis(5_000);
        let mut keeper = Keeper::new(ttl, now);
        // The server's side, at its earliest: the lease ends a TTL after the call was sent.
        let mut ends = now + ttl;
        let mut under_way = None;
        let mut lost = None;
        for event in events {
            match event {
                Event::Pass(ms) => now = now + Duration::from_millis(ms),
                Event::Answer(renewal) => {
                    if under_way.is_some() && renewal == Renewal::Kept && lost.is_none() {
                        ends = under_way.expect("just looked") + ttl;
                    }
                    keeper.answered(renewal, now);
                    under_way = None;
                }
            }
            let step = keeper.poll(now);
            if let Some(before) = lost {
                prop_assert_eq!(step, Step::Lost(before));
                continue;
            }
            match step {
                Step::Renew => {
                    prop_assert!(under_way.is_none() && now < ends);
                    keeper.sent(now);
                    under_way = Some(now);
                }
                Step::GiveUp => under_way = None,
                Step::Wait { until } => {
                    prop_assert!(until > now, "a wait that is over");
                    prop_assert!(until + ttl * 3 / 10 <= ends, "sleeps past the time to stop");
                }
                Step::Lost(at) => {
                    prop_assert!(at.gone_by + ttl / 20 < ends, "gone too late");
                    lost = Some(at);
                }
            }
        }
    }
}
