//! `fencegate check`: says whether a configuration is good, and what each rule may rely on.

use std::io::Write;

use clap::Args;
use serde::Serialize;

use super::ConfigFile;
use super::exit::Exit;
use super::live::{self, Look};
use crate::config::level::RuleLevel;
use crate::config::{self, Config, Fault};

/// Check the configuration; without a network, unless `--live` is given.
///
/// Shows each rule with its level and, for each assumption of the promise, why it holds or what to set.
/// Exits with 0 if the file is good, with or without warnings, and with 2 if it is not.
#[derive(Args, Debug)]
pub struct Check {
    #[command(flatten)]
    file: ConfigFile,
    /// Print the effective file instead: all defaults filled in, secrets as ***.
    #[arg(long, conflicts_with = "json")]
    print: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Look too whether the stores take connections and the database can be opened. Exits with 3 if not.
    #[arg(long, conflicts_with = "print")]
    live: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'c> {
    file: String,
    ok: bool,
    rules: Vec<RuleReport<'c>>,
    faults: &'c [Fault],
    warnings: &'c [Fault],
    notes: &'c [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<&'c [Look]>,
}

#[derive(Serialize)]
struct RuleReport<'c> {
    /// Its place, from 1.
    rule: usize,
    #[serde(rename = "match")]
    patterns: &'c [String],
    methods: Option<&'c [String]>,
    resource: Option<&'c str>,
    #[serde(flatten)]
    level: Option<&'c RuleLevel>,
}

/// What no configuration can change and every operator should know.
const NOTES: [&str; 2] = [
    "a machine that is rolled back to a snapshot, ledger included, cannot notice it from inside: run `fencegate fence bump RESOURCE` before it writes again",
    "the levels rest on what the file declares; nothing was probed, and writers that bypass fencegate are not stopped",
];

// === impl Check ===

impl Check {
    /// Runs the command.
    pub fn run(self) -> Exit {
        let loaded = config::load(&self.file.config);
        let looks = loaded.as_ref().ok().filter(|_| self.live).map(live::all);
        let text = match &loaded {
            Ok(config) if self.print => config.print(),
            Ok(config) if self.json => json(&Report { live: looks.as_deref(), ..report(config) }),
            Ok(config) => people(config) + &looks.as_deref().map(live::people).unwrap_or_default(),
            Err(errors) if self.json => json(&Report {
                file: self.file.config.display().to_string(),
                ok: false,
                rules: Vec::new(),
                faults: &errors.0,
                warnings: &[],
                notes: &[],
                live: None,
            }),
            Err(_) => String::new(),
        };
        // A reader that went away has seen what it wanted.
        let _ = std::io::stdout().lock().write_all(text.as_bytes());
        match loaded {
            Ok(_) if looks.is_some_and(|looks| looks.iter().any(|look| !look.ok)) => {
                Exit::Unreachable
            }
            Ok(_) => Exit::Done,
            Err(errors) => {
                if !self.json {
                    eprintln!("{errors}");
                }
                Exit::Usage
            }
        }
    }
}

fn json(report: &Report<'_>) -> String {
    serde_json::to_string_pretty(report).expect("the report has a form in JSON") + "\n"
}

fn report(config: &Config) -> Report<'_> {
    let rules = config.pipeline.rules.iter().zip(&config.levels).enumerate();
    let rules = rules.map(|(place, (rule, level))| RuleReport {
        rule: place + 1,
        patterns: rule.patterns.as_slice(),
        methods: rule.methods.as_deref(),
        resource: rule.resource.as_deref(),
        level: level.as_ref(),
    });
    Report {
        file: config.file.display().to_string(),
        ok: true,
        rules: rules.collect(),
        faults: &[],
        warnings: &config.warnings,
        notes: &NOTES,
        live: None,
    }
}

/// The rules and their levels, as `/v1/status` shows them.
pub(super) fn rules_status(config: &Config) -> serde_json::Value {
    serde_json::to_value(report(config).rules).unwrap_or_default()
}

/// The report as people read it.
fn people(config: &Config) -> String {
    let report = report(config);
    let mut lines = vec![format!("{}: ok", report.file)];
    for rule in &report.rules {
        lines.push(String::new());
        let methods = rule.methods.map(|all| format!(" ({})", all.join(", "))).unwrap_or_default();
        let target = match rule.resource {
            Some(resource) => format!("resource {resource}"),
            None => "no fence".to_owned(),
        };
        lines.push(format!(
            "rule {}: {}{methods} -> {target}",
            rule.rule,
            rule.patterns.join(", ")
        ));
        let Some(level) = rule.level else { continue };
        lines.push(format!("  level: {}", config::name_of(level.level)));
        for finding in &level.findings {
            lines.push(format!("  {} {:<8} {}", finding.assumption, finding.basis, finding.reason));
        }
    }
    lines.push(String::new());
    lines.extend(report.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    lines.join("\n") + "\n"
}
