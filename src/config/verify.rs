//! Checks everything but the rules: ranges, addresses, stores, and what the parts say about each other.

use super::profile::{PROFILES, profile};
use super::read::Raw;
use super::source::{Source, quoted};
use crate::core::units::{Size, Span};
use crate::pipeline::settings::{SettleAfter, StoreKind, Unmatched, UpstreamSettings};
use crate::serve::settings::{Address, Listen};

/// Notes every fault, and tidies what may be written in several ways.
pub(super) fn all(source: &mut Source<'_>, raw: &mut Raw) {
    limits(source, raw);
    proxy(source, raw);
    admin(source, raw);
    upstream(source, "upstream", &mut raw.pipeline.upstream);
    for (name, settings) in &mut raw.pipeline.upstreams {
        let path = format!("upstreams.{name}");
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            let remedy = "name a store with letters, digits, `-` and `_`";
            source.fault(&path, format!("{name:?} is no name of a store"), remedy);
        }
        upstream(source, &path, settings);
    }
    positive(source, "lease.timeout", raw.lease.timeout);
    path(source, "lease.path", Some(&raw.lease.path));
    path(source, "ledger.path", raw.ledger.path.as_ref());
    fence(source, raw);
}

fn positive(source: &mut Source<'_>, key: &str, span: Span) {
    if span.0.is_zero() {
        source.fault(
            key,
            format!("`{key}` is zero"),
            "write a duration above zero, such as \"1s\"",
        );
    }
}

fn path(source: &mut Source<'_>, key: &str, path: Option<&std::path::PathBuf>) {
    if path.is_some_and(|path| path.as_os_str().is_empty()) {
        source.fault(
            key,
            format!("`{key}` is empty"),
            "write the path of a file, such as \"fencegate.redb\"",
        );
    }
}

fn limits(source: &mut Source<'_>, raw: &Raw) {
    /// What is withheld whole whatever the limit says; a smaller limit could not be kept.
    const LEAST_DOCUMENT: Size = Size(64 << 10);
    const LEAST_HEAD: Size = Size(8 << 10);
    let limits = &raw.pipeline.limits;
    positive(source, "proxy.limits.header_time", limits.header_time);
    positive(source, "proxy.limits.body_idle", limits.body_idle);
    let mut least = |key: &str, value: Size, least: Size, why: &str| {
        if value < least {
            let what = format!("`{key}` is {value}, less than {why}");
            source.fault(key, what, format!("write \"{least}\" or more"));
        }
    };
    least("proxy.limits.head", limits.head, LEAST_HEAD, "signed requests need");
    let why = "what is always withheld whole";
    least("proxy.limits.max_document", limits.max_document, LEAST_DOCUMENT, why);
    let why = "one document of `proxy.limits.max_document`";
    least("proxy.limits.max_buffered", limits.max_buffered, limits.max_document, why);
    for (key, count) in
        [("proxy.limits.headers", limits.headers), ("proxy.limits.connections", limits.connections)]
    {
        if count == 0 {
            source.fault(key, format!("`{key}` is 0, so nothing passes"), "write at least 1");
        }
    }
}

/// The addresses under a key, with a fault for each that is none.
fn addresses(source: &mut Source<'_>, key: &str, listen: &Listen) -> Vec<Address> {
    let one = matches!(listen, Listen::One(_));
    if listen.as_slice().is_empty() {
        source.fault(key, format!("`{key}` is an empty list"), "write at least one address");
    }
    let mut good = Vec::new();
    for (index, text) in listen.as_slice().iter().enumerate() {
        let place = if one { key.to_owned() } else { format!("{key}.{index}") };
        match Address::parse(text) {
            None => {
                let remedy = "write an IP address and a port as \"127.0.0.1:8080\" or \"[::1]:8080\", or \"unix:/absolute/path\"";
                source.fault(
                    &place,
                    format!("`{key}` has {}, which is no address", quoted(text)),
                    remedy,
                );
            }
            Some(address) if good.contains(&address) && !is_any_port(&address) => {
                source.fault(&place, format!("`{key}` has {} twice", quoted(text)), "drop one");
            }
            Some(address) => good.push(address),
        }
    }
    good
}

fn is_any_port(address: &Address) -> bool {
    matches!(address, Address::Tcp(address) if address.port() == 0)
}

fn proxy(source: &mut Source<'_>, raw: &Raw) {
    positive(source, "proxy.shutdown_timeout", raw.proxy.shutdown_timeout);
    let listen = addresses(source, "proxy.listen", &raw.proxy.listen);
    let settings = &raw.pipeline;
    let is_s3 = |upstream: &UpstreamSettings| upstream.kind == StoreKind::S3;
    let s3 = is_s3(&settings.upstream) || settings.upstreams.values().any(is_s3);
    if s3 && settings.hosts.is_empty() && listen.iter().any(Address::is_wildcard) {
        source.fault(
            "proxy.listen",
            "`proxy.listen` takes every address of the machine, and some S3 stores read the bucket from the Host",
            "name the Hosts that clients use, as proxy.hosts = [\"s3.internal\"], or listen on one address",
        );
    }
    if settings.virtual_hosts && settings.hosts.is_empty() {
        let remedy = "write the name behind the bucket, as proxy.hosts = [\"s3.internal\"], or drop `virtual_hosts`";
        source.fault("proxy.virtual_hosts", "`proxy.virtual_hosts` needs `proxy.hosts`", remedy);
    }
    for (index, host) in settings.hosts.iter().enumerate() {
        let place = format!("proxy.hosts.{index}");
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
        let remedy = if host.chars().any(|c| c.is_ascii_uppercase()) {
            "write it in lower case; it is compared without case"
        } else if host.ends_with('.') {
            "drop the dot at the end"
        } else if host.parse::<std::net::IpAddr>().is_ok() {
            // It passes anyway; and a file that has nothing else to name has to be able to name it.
            continue;
        } else if host.contains(':') {
            "write the name alone, without port or scheme"
        } else if host.is_empty() || host.starts_with('.') || !host.chars().all(plain) {
            "write a name such as \"s3.internal\""
        } else {
            continue;
        };
        source.fault(
            &place,
            format!("`proxy.hosts` has {}, which is no host name as compared", quoted(host)),
            remedy,
        );
    }
}

fn admin(source: &mut Source<'_>, raw: &Raw) {
    let listen = addresses(source, "admin.listen", &raw.admin.listen);
    if raw.admin.tokens.is_empty()
        && !source.has("admin.tokens")
        && !listen.iter().all(Address::is_local)
    {
        source.fault(
            "admin.listen",
            "`admin.listen` is reachable from other machines, and `admin.tokens` is not set",
            "write admin.tokens = [{ file = \"admin.token\" }], or listen on 127.0.0.1",
        );
    } else if raw.admin.tokens.is_empty()
        && source.has("admin.tokens")
        && !listen.iter().all(Address::is_local)
    {
        let remedy = "put a token into the list, or listen on 127.0.0.1";
        source.fault(
            "admin.tokens",
            "`admin.tokens` has no token, and `admin.listen` is reachable from other machines",
            remedy,
        );
    }
    let proxy: Vec<_> =
        raw.proxy.listen.as_slice().iter().filter_map(|text| Address::parse(text)).collect();
    if let Some(both) =
        listen.iter().find(|address| proxy.contains(address) && !is_any_port(address))
    {
        let shown = match both {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(path) => path.display().to_string(),
        };
        source.fault(
            "admin.listen",
            format!("`admin.listen` and `proxy.listen` both have {shown}"),
            "give them different addresses",
        );
    }
}

fn upstream(source: &mut Source<'_>, table: &str, settings: &mut UpstreamSettings) {
    // A missing URL has its fault already.
    let key = format!("{table}.url");
    if source.has(&key) {
        if let Some((what, remedy)) = url_fault(&settings.url) {
            source.fault(&key, format!("`{key}` {what}"), remedy);
        } else if settings.url.ends_with('/') && !settings.url.starts_with("unix:") {
            settings.url.pop();
        }
    }
    if let Some(name) = &settings.profile {
        let key = format!("{table}.profile");
        if settings.kind == StoreKind::Rest {
            let remedy = "declare its facts instead, such as torn_uploads = \"discarded\"";
            source.fault(&key, format!("`{key}` is set, and profiles are of S3 stores"), remedy);
        } else if profile(name).is_none() {
            let names = PROFILES.iter().map(|profile| profile.name);
            let remedy = match super::fault::closest(name, names.clone()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!(
                    "known are {}; for another store declare its facts, such as torn_uploads = \"discarded\"",
                    names.collect::<Vec<_>>().join(", ")
                ),
            };
            source.fault(&key, format!("`{key}` names no known store"), remedy);
        }
    }
    for (name, span) in [
        ("connect_timeout", settings.connect_timeout),
        ("answer_timeout", settings.answer_timeout),
        ("idle_timeout", settings.idle_timeout),
    ] {
        positive(source, &format!("{table}.{name}"), span);
    }
}

/// What is wrong with the URL of a store. Never quotes it: it may hold a password.
fn url_fault(url: &str) -> Option<(&'static str, &'static str)> {
    const WRITE: &str = "write \"http://host:port\", \"https://host\" or \"unix:/path\"";
    if let Some(path) = url.strip_prefix("unix:") {
        let absolute = path.len() > 1 && path.starts_with('/') && !path.contains('\0');
        return (!absolute)
            .then_some(("has no absolute path", "write it as \"unix:/run/store.sock\""));
    }
    let Some(rest) = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")) else {
        return Some(("is no http, https or unix URL", WRITE));
    };
    if rest.contains('@') {
        let remedy = "take the credentials off; clients sign for themselves";
        return Some(("has credentials in it", remedy));
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#']) {
        let remedy = "end it after the host and port; paths go upstream as clients send them (see `add_prefix` for kind rest)";
        return Some(("has a path or a query", remedy));
    }
    let good = authority.parse::<http::uri::Authority>().is_ok_and(|parsed| {
        let port = authority[parsed.host().len()..].strip_prefix(':');
        let port_good = authority.len() == parsed.host().len()
            || port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
        !parsed.host().is_empty() && port_good
    });
    (!good).then_some(("has no host, or a port out of range", WRITE))
}

fn fence(source: &mut Source<'_>, raw: &Raw) {
    let fence = &raw.pipeline.fence;
    positive(source, "fence.revalidate_after", fence.revalidate_after);
    positive(source, "fence.watch_lag", fence.watch_lag);
    settle_after(source, "fence.settle_after", Some(fence.settle_after));
    if fence.unmatched_writes == Unmatched::Pass {
        source.warn(
            "fence.unmatched_writes",
            "writes that no rule covers pass without a token",
            "write a rule with fence = \"none\" for the keys meant, and unmatched_writes = \"refuse\"",
        );
    }
}

/// Of a rule or of `[fence]`.
pub(super) fn settle_after(source: &mut Source<'_>, key: &str, value: Option<SettleAfter>) {
    match value {
        Some(SettleAfter::After(span)) if span.0.is_zero() => {
            let remedy = "write how long the store may go on with a request whose connection is gone, or \"never\"";
            source.fault(key, "`settle_after` is zero: an abandoned write would count as settled at once", remedy);
        }
        Some(SettleAfter::Never) => source.warn(
            key,
            "settle_after = \"never\": a write without a definite answer blocks every successor",
            "be ready to end it with `fencegate fence settle RESOURCE`, once you know what the store holds",
        ),
        _ => {}
    }
}
