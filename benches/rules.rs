//! The rule table: what finding a key's rule and resource costs with few and with many rules.

use divan::{Bencher, black_box};
use fencegate::core::pattern::Pattern;
use fencegate::core::rules::{Rule, RuleTable};
use fencegate::core::template::Template;

fn rule(pattern: &str, resource: &str) -> Rule {
    let pattern = Pattern::parse(pattern).expect("the pattern is well formed");
    let template = Template::parse(resource).expect("the template is well formed");
    Rule::new(vec![pattern], Some(&template), None).expect("the rule is well formed")
}

/// A table as a platform team has it: a bucket a team, a few forms of rule in each.
fn table(rules: usize) -> RuleTable {
    let rule = |n: usize| match n % 4 {
        0 => rule(&format!("team{n}/wal/{{cluster}}/**"), &format!("wal{n}/{{cluster}}")),
        1 => rule(&format!("lake/t{n}/{{table**}}/_delta_log/**"), &format!("delta{n}/{{table}}")),
        2 => rule(&format!("*/state-{n}-{{env}}.json"), "state/{env}"),
        _ => rule(&format!("team{n}/**"), &format!("team{n}")),
    };
    RuleTable::new((0..rules).map(rule).collect())
}

const SIZES: [usize; 2] = [10, 10_000];

fn lookup(bencher: Bencher, rules: usize, key: &str) {
    let table = table(rules);
    bencher.bench(|| table.lookup(black_box("PUT"), black_box(key)).expect("the name is good"));
}

#[divan::bench(args = SIZES)]
fn captured_resource(bencher: Bencher, rules: usize) {
    lookup(bencher, rules, &format!("team{}/wal/main/000000010000000A", (rules - 1) / 4 * 4));
}

#[divan::bench(args = SIZES)]
fn fixed_resource(bencher: Bencher, rules: usize) {
    lookup(bencher, rules, &format!("team{}/some/key/below", rules / 4 * 4 - 1));
}

#[divan::bench(args = SIZES)]
fn many_in_the_middle(bencher: Bencher, rules: usize) {
    let last = (rules - 2) / 4 * 4 + 1;
    lookup(bencher, rules, &format!("lake/t{last}/sales/eu/_delta_log/00000000000000000007.json"));
}

#[divan::bench(args = SIZES)]
fn wildcard_segment(bencher: Bencher, rules: usize) {
    lookup(bencher, rules, &format!("tf/state-{}-prod.json", (rules - 3) / 4 * 4 + 2));
}

#[divan::bench(args = SIZES)]
fn no_rule(bencher: Bencher, rules: usize) {
    lookup(bencher, rules, "nobody/knows/this/key");
}

#[divan::bench(args = SIZES)]
fn prefix_cover(bencher: Bencher, rules: usize) {
    let table = table(rules);
    let prefix = format!("team{}/", rules / 4 * 4 - 1);
    bencher.bench(|| table.prefix_cover(black_box(&prefix)));
}
