//! `fencegate serve`: runs the proxy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::ConfigFile;
use super::exit::Exit;
use crate::config::{self, Config};
use crate::pipeline::settings::{TornUploads, UpstreamSettings};
use crate::serve::{self, Ended, Setup};
use crate::telemetry::log::{self, LogFormat};

/// Run the proxy and the lease API.
///
/// SIGHUP reloads rules, limits and tokens; a bad file changes nothing. SIGTERM or SIGINT ends: no new
/// requests, those in flight finish within `proxy.shutdown_timeout`; a second one ends at once.
#[derive(Args, Debug)]
pub struct Serve {
    #[command(flatten)]
    file: ConfigFile,
    /// How log lines are written to standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text, env = "FENCEGATE_LOG_FORMAT")]
    log_format: LogFormat,
}

// === impl Serve ===

impl Serve {
    /// Runs the command.
    pub fn run(self) -> Exit {
        if let Err(error) = log::init(self.log_format) {
            eprintln!("fencegate: {}", log::chain(&error));
            return Exit::Usage;
        }
        let config = match config::load(&self.file.config) {
            Ok(config) => config,
            Err(errors) => {
                eprintln!("{errors}");
                return Exit::Usage;
            }
        };
        for warning in &config.warnings {
            tracing::warn!(%warning, "configuration");
        }
        for (place, (rule, level)) in config.pipeline.rules.iter().zip(&config.levels).enumerate() {
            if let (Some(level), Some(resource)) = (level, &rule.resource) {
                let level = config::name_of(level.level);
                tracing::info!(rule = place + 1, resource, level, "rule");
            }
        }
        let path: PathBuf = self.file.config;
        let load = move || load(&path);
        match serve::run(setup(config), Arc::new(load)) {
            Ok(Ended::Drained) => Exit::Done,
            Ok(Ended::Cut) => Exit::Refused,
            Err(error) => {
                eprintln!("fencegate: {}", log::chain(&error));
                Exit::Unreachable
            }
        }
    }
}

fn load(path: &Path) -> Result<Setup, String> {
    config::load(path).map(setup).map_err(|errors| errors.to_string())
}

fn setup(config: Config) -> Setup {
    let rules_status = super::check::rules_status(&config);
    Setup {
        pipeline: config.pipeline,
        rules: config.rules,
        discards_torn,
        proxy: config.proxy,
        admin: config.admin,
        lease: config.lease,
        ledger: config.ledger,
        rules_status,
    }
}

/// U3: as declared, else as the profile knows it, else not proven.
pub(super) fn discards_torn(upstream: &UpstreamSettings) -> bool {
    let known = upstream
        .profile
        .as_deref()
        .and_then(config::profile::profile)
        .map(|profile| profile.torn_uploads);
    upstream.torn_uploads.or(known) == Some(TornUploads::Discarded)
}
