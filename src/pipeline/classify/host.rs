//! Whether `Host` is ours, and which bucket it names.
//!
//! Some stores read a bucket from `Host`: a name that we took for path style and the store for a bucket
//! would match one rule and write another. So an unknown name is refused, not ignored.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::pipeline::refusal::Refusal;

/// The bucket that `Host` names in virtual-host style, or `None` for path style (S3).
///
/// * `host`: the field's value as sent, with or without a port.
/// * `hosts`: our names, from `[proxy] hosts`. IP literals and `localhost` always pass.
/// * `virtual_hosts`: whether `<bucket>.` may stand before one of `hosts`.
///
/// # Errors
/// [`Refusal::Misdirected`] for any other name, and for one that two of `hosts` would split differently.
pub fn host_bucket(
    host: &str,
    hosts: &[String],
    virtual_hosts: bool,
) -> Result<Option<String>, Refusal> {
    let misdirected = || Refusal::Misdirected { host: host.to_owned() };
    let name = match parse(host).ok_or_else(misdirected)? {
        Authority::Address => return Ok(None),
        Authority::Name(name) => name.to_ascii_lowercase(),
    };
    if name == "localhost" || hosts.iter().any(|own| same(own, &name)) {
        return Ok(None);
    }
    if !virtual_hosts {
        return Err(misdirected());
    }
    let mut buckets = hosts.iter().filter_map(|own| bucket_before(&name, own));
    match (buckets.next(), buckets.find(|_| true)) {
        (Some(bucket), None) if is_bucket(bucket) => Ok(Some(bucket.to_owned())),
        _ => Err(misdirected()),
    }
}

/// Whether `Host` may be used with a REST store: any, unless `hosts` is set.
///
/// # Errors
/// [`Refusal::Misdirected`] if it is not in `hosts`.
pub fn accept_host(host: &str, hosts: &[String]) -> Result<(), Refusal> {
    if hosts.is_empty() {
        return Ok(());
    }
    host_bucket(host, hosts, false).map(|_| ())
}

enum Authority<'a> {
    /// An IP literal.
    Address,
    /// A name, without port and without a trailing dot.
    Name(&'a str),
}

fn parse(host: &str) -> Option<Authority<'_>> {
    let is_port = |port: &str| port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
    if let Some(rest) = host.strip_prefix('[') {
        let (address, after) = rest.split_once(']')?;
        let port = if after.is_empty() { "" } else { after.strip_prefix(':')? };
        return (address.parse::<Ipv6Addr>().is_ok() && is_port(port))
            .then_some(Authority::Address);
    }
    let name = match host.split_once(':') {
        None => host,
        Some((name, port)) if is_port(port) => name,
        Some(_) => return None,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.parse::<Ipv4Addr>().is_ok() {
        return Some(Authority::Address);
    }
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    (!name.is_empty() && name.bytes().all(is_name)).then_some(Authority::Name(name))
}

fn same(own: &str, name: &str) -> bool {
    own.strip_suffix('.').unwrap_or(own).eq_ignore_ascii_case(name)
}

fn bucket_before<'n>(name: &'n str, own: &str) -> Option<&'n str> {
    let own = own.strip_suffix('.').unwrap_or(own).to_ascii_lowercase();
    name.strip_suffix(own.as_str())?.strip_suffix('.')
}

fn is_bucket(bucket: &str) -> bool {
    bucket.split('.').all(|label| !label.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn only_our_names_and_addresses_pass() {
        let ours = hosts(&["s3.internal", "Other.Example."]);
        let pass = [
            "s3.internal",
            "S3.INTERNAL:9000",
            "s3.internal.",
            "other.example",
            "localhost",
            "LOCALHOST.:80",
            "127.0.0.1:9000",
            "10.0.0.1",
            "[::1]:9000",
            "[fe80::1]",
            "localhost:",
        ];
        for host in pass {
            for virtual_hosts in [false, true] {
                assert_eq!(host_bucket(host, &ours, virtual_hosts), Ok(None), "{host}");
            }
        }
        let refused = [
            "wal.localhost",
            "WAL.localhost",
            "wal.localhost.",
            "wal.localhost:9000",
            "s3.internal.evil",
            "evils3.internal",
            "s3.internal..",
            "",
            ":80",
            ".",
            "user@s3.internal",
            "s3.internal:80:80",
            "s3.internal:x",
            "s3.internal:123456",
            "[::1",
            "[::1]x",
            "[s3.internal]",
            "127.1",
            "0x7f.0.0.1",
            "s3.internal/x",
            "s3 .internal",
            ".s3.internal",
            "a..s3.internal",
        ];
        for host in refused {
            for virtual_hosts in [false, true] {
                let want = Err(Refusal::Misdirected { host: host.to_owned() });
                assert_eq!(host_bucket(host, &ours, virtual_hosts), want, "{host}");
            }
        }
    }

    #[test]
    fn a_bucket_stands_before_one_of_our_names_only_if_virtual_hosts_are_on() {
        let ours = hosts(&["s3.internal", "localhost"]);
        for (host, bucket) in [
            ("wal.s3.internal", "wal"),
            ("WAL.S3.Internal.:80", "wal"),
            ("a.b.s3.internal", "a.b"),
            ("wal.localhost:9000", "wal"),
        ] {
            assert_eq!(host_bucket(host, &ours, true), Ok(Some(bucket.to_owned())), "{host}");
            assert!(host_bucket(host, &ours, false).is_err(), "{host}");
        }
        let nested = hosts(&["internal", "s3.internal"]);
        assert!(host_bucket("wal.s3.internal", &nested, true).is_err(), "two ways to split it");
        assert_eq!(host_bucket("s3.internal", &nested, true), Ok(None));
    }

    #[test]
    fn a_rest_store_takes_any_host_unless_names_are_set() {
        assert_eq!(accept_host("anything at all", &[]), Ok(()));
        assert_eq!(accept_host("state.internal:80", &hosts(&["state.internal"])), Ok(()));
        assert!(accept_host("evil", &hosts(&["state.internal"])).is_err());
    }

    proptest! {
        #[test]
        fn no_host_panics(host in ".{0,30}", own in ".{0,10}") {
            let _ = host_bucket(&host, &[own], true);
        }
    }
}
