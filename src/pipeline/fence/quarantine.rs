//! How long what an earlier process left behind blocks a resource: nothing in the ledger says by which
//! rule it was admitted.

use crate::core::Resource;
use crate::core::gate::Quarantine;
use crate::core::template::Template;

/// `settle_after` of every rule, by the resources that the rule may make.
#[derive(Clone, Debug)]
pub struct Quarantines {
    general: Quarantine,
    rules: Vec<(Template, Quarantine)>,
}

// === impl Quarantines ===

impl Quarantines {
    /// * `general` — what `[fence]` says, for a resource that no rule makes.
    /// * `rules` — what each fenced rule says.
    pub fn new(general: Quarantine, rules: Vec<(Template, Quarantine)>) -> Quarantines {
        Quarantines { general, rules }
    }

    /// The longest of all rules that may make this resource.
    pub fn of(&self, resource: &Resource) -> Quarantine {
        let may_make = self.rules.iter().filter(|(rule, _)| rule.may_make(resource.as_str()));
        may_make.map(|(_, quarantine)| *quarantine).max().unwrap_or(self.general)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_longest_of_the_rules_that_may_make_a_resource_counts() {
        let rule = |text, quarantine| (Template::parse(text).unwrap(), quarantine);
        let seconds = |count| Quarantine::For(Duration::from_secs(count));
        let all = Quarantines::new(
            seconds(60),
            vec![rule("wal/{x}", seconds(5)), rule("{y}/main", Quarantine::Never)],
        );
        for (name, want) in
            [("wal/other", seconds(5)), ("wal/main", Quarantine::Never), ("state", seconds(60))]
        {
            assert_eq!(all.of(&Resource::new(name).unwrap()), want, "{name}");
        }
    }
}
