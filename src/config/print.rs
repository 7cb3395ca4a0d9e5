//! The effective file: every key with the value in force; secrets of the file itself as `***`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::Config;
use crate::core::units::Span;
use crate::pipeline::settings::{FenceSettings, Limits, RuleSettings, UpstreamSettings};
use crate::serve::settings::{AdminSettings, Listen};
use crate::{lease, ledger};

/// The file's shape, in the order in which it is printed.
#[derive(Serialize)]
struct File<'c> {
    proxy: Proxy<'c>,
    upstream: &'c UpstreamSettings,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    upstreams: &'c BTreeMap<String, UpstreamSettings>,
    lease: &'c lease::Config,
    ledger: &'c ledger::Config,
    fence: &'c FenceSettings,
    admin: &'c AdminSettings,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    rule: &'c [RuleSettings],
}

#[derive(Serialize)]
struct Proxy<'c> {
    listen: &'c Listen,
    hosts: &'c [String],
    virtual_hosts: bool,
    shutdown_timeout: Span,
    limits: &'c Limits,
}

impl Config {
    /// The effective file. It parses again, to the same configuration but for secrets written in it.
    pub fn print(&self) -> String {
        let pipeline = &self.pipeline;
        let file = File {
            proxy: Proxy {
                listen: &self.proxy.listen,
                hosts: &pipeline.hosts,
                virtual_hosts: pipeline.virtual_hosts,
                shutdown_timeout: self.proxy.shutdown_timeout,
                limits: &pipeline.limits,
            },
            upstream: &pipeline.upstream,
            upstreams: &pipeline.upstreams,
            lease: &self.lease,
            ledger: &self.ledger,
            fence: &pipeline.fence,
            admin: &self.admin,
            rule: &pipeline.rules,
        };
        let mut text = String::new();
        let _ = writeln!(text, "# The effective configuration of {}.", self.file.display());
        let _ =
            writeln!(text, "# A rule without a key of [fence] has the value that stands there.\n");
        text + &toml::to_string(&file).expect("the settings have a form in TOML")
    }
}
