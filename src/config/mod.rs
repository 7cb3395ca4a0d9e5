//! L4: assembles and validates the configuration: one TOML file.
//!
//! Every fault of a file is reported, with its place and its remedy; see [`ConfigErrors`]. Reading is in
//! `read`, rules that concern several keys in `verify` and `rules`, levels in [`level`].

mod fault;
pub mod level;
mod print;
pub mod profile;
mod read;
mod rules;
mod source;
mod verify;

use std::path::{Path, PathBuf};

use crate::core::rules::RuleTable;
use crate::pipeline::settings::{Level, PipelineSettings};
use crate::serve::settings::{AdminSettings, ProxySettings};
use crate::store::secret::SecretSource;
use crate::{lease, ledger};

pub use fault::{ConfigErrors, Fault};
use level::RuleLevel;
use source::Source;

/// A configuration without faults. Paths in it are absolute.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it came from, as it was named.
    pub file: PathBuf,
    /// The directory that its relative paths start from; absolute.
    pub dir: PathBuf,
    /// What the request path needs.
    pub pipeline: PipelineSettings,
    /// Where clients connect.
    pub proxy: ProxySettings,
    /// Where the lease API listens.
    pub admin: AdminSettings,
    /// Who keeps the leases.
    pub lease: lease::Config,
    /// Who keeps marks and permits.
    pub ledger: ledger::Config,
    /// The compiled rules, in the order of `pipeline.rules`.
    pub rules: RuleTable,
    /// The level of each rule, in the same order; `None` for those without a fence.
    pub levels: Vec<Option<RuleLevel>>,
    /// What works and yet may not be meant.
    pub warnings: Vec<Fault>,
}

/// Reads and checks a file.
///
/// # Errors
/// [`ConfigErrors`] with every fault, or with the one that the file cannot be read.
pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
    let text = std::fs::read(path).map_err(|cause| unreadable(path, &cause.to_string()))?;
    let text = String::from_utf8(text).map_err(|_| unreadable(path, "it is not UTF-8"))?;
    parse(path, &text)
}

fn unreadable(path: &Path, why: &str) -> ConfigErrors {
    ConfigErrors(vec![Fault {
        file: path.display().to_string(),
        line: 0,
        column: 0,
        what: format!("the configuration cannot be read: {why}"),
        remedy: "name the file with --config or FENCEGATE_CONFIG (default fencegate.toml)".into(),
    }])
}

/// Checks a text as the file `path` would hold it; the file need not exist.
///
/// # Errors
/// [`ConfigErrors`] with every fault.
pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigErrors> {
    let whole = std::path::absolute(path).map_err(|cause| unreadable(path, &cause.to_string()))?;
    let dir = whole.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    let (mut source, root) = Source::parse(&path.display().to_string(), text);
    let raw = root.and_then(|root| read::file(&mut source, root));
    let read = raw.and_then(|mut raw| {
        verify::all(&mut source, &mut raw);
        let rules = rules::all(&mut source, &raw);
        rules.filter(|_| source.is_clean()).map(|rules| (raw, rules))
    });
    let (faults, warnings) = source.finish();
    let Some((mut raw, rules)) = read else {
        return Err(ConfigErrors(faults));
    };
    raw.lease.path = dir.join(raw.lease.path);
    raw.ledger.path = Some(match raw.ledger.path {
        Some(path) => dir.join(path),
        None => raw.lease.path.clone(),
    });
    for token in &mut raw.admin.tokens {
        if let SecretSource::File(source) = token {
            source.file = dir.join(&source.file);
        }
    }
    Ok(Config {
        file: path.to_path_buf(),
        dir,
        pipeline: raw.pipeline,
        proxy: raw.proxy,
        admin: raw.admin,
        lease: raw.lease,
        ledger: raw.ledger,
        rules: rules.table,
        levels: rules.levels,
        warnings,
    })
}

/// A level as the file names it.
pub fn name_of(level: Level) -> &'static str {
    match level {
        Level::Advisory => "advisory",
        Level::Drained => "drained",
    }
}

#[cfg(test)]
mod tests;
