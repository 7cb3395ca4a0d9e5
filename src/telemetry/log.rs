//! Logs: set-up, field names, and what must never be in them.
//!
//! Everything goes to stderr, one event a line. tracing-subscriber 0.3.23 escapes terminal control
//! sequences in `Display` fields but not CR and LF, so text output is escaped once more as a whole
//! line: no value, whoever wrote it, can start a line of its own.

use std::fmt;
use std::io;

use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// Names of log fields. The words are those of the code, the configuration and the documents.
pub mod field {
    /// The thing fenced.
    pub const RESOURCE: &str = "resource";
    /// Who has the lease: a label.
    pub const HOLDER: &str = "holder";
    /// The fencing token.
    pub const TOKEN: &str = "token";
    /// Who asked: address and port, or `unix`.
    pub const PEER: &str = "peer";
    /// What was asked for.
    pub const ACTION: &str = "action";
    /// What became of it.
    pub const OUTCOME: &str = "outcome";
    /// The id that the answer carries, too.
    pub const REQUEST_ID: &str = "request_id";
}

/// How log lines look: `--log-format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `FENCEGATE_LOG` is no filter.
    #[error(
        "FENCEGATE_LOG={text:?} is not a log filter; write a level such as \"debug\", or \"info,fencegate::serve=debug\""
    )]
    Filter {
        /// What it says.
        text: String,
        /// What is wrong with it.
        #[source]
        cause: tracing_subscriber::filter::ParseError,
    },
    /// Something in this process has set up logging before.
    #[error("logging was set up twice; set it up once, at the start of the process")]
    Twice,
}

/// A query string without the values that give access: signatures, credentials, tokens, passwords.
///
/// Names stay, so that a log line still shows which way a request was signed. Names are compared as
/// decoded, without regard to case; when in doubt a value is left out.
#[derive(Clone, Copy)]
pub struct Redacted<'a>(pub &'a str);

/// One event a line, whatever is in its fields.
struct OneLine<E>(E);

// === set-up ===

/// Sends the log to stderr, filtered by `FENCEGATE_LOG` (default `info`). Call it once, at the start.
///
/// # Errors
/// [`LogError`] if the filter cannot be read or logging is set up already.
pub fn init(format: LogFormat) -> Result<(), LogError> {
    let filter = match std::env::var("FENCEGATE_LOG") {
        Ok(text) if !text.trim().is_empty() => filter(&text)?,
        _ => EnvFilter::new("info"),
    };
    let subscriber = subscriber(format, filter, io::stderr);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)
}

fn filter(text: &str) -> Result<EnvFilter, LogError> {
    EnvFilter::try_new(text).map_err(|cause| LogError::Filter { text: text.into(), cause })
}

fn subscriber<W>(
    format: LogFormat,
    filter: EnvFilter,
    writer: W,
) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(writer);
    match format {
        LogFormat::Text => {
            let line: Format<Full> = tracing_subscriber::fmt::format().with_ansi(false);
            Box::new(builder.event_format(OneLine(line)).finish())
        }
        LogFormat::Json => Box::new(builder.json().flatten_event(true).finish()),
    }
}

/// An error and all its causes on one line: `lease backend failed: connection refused`.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

// === impl OneLine ===

impl<S, N, E> FormatEvent<S, N> for OneLine<E>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    E: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        write_escaped(&mut writer, line.strip_suffix('\n').unwrap_or(&line))?;
        writer.write_char('\n')
    }
}

/// Writes `text` with every control character and line separator escaped.
fn write_escaped(to: &mut dyn fmt::Write, text: &str) -> fmt::Result {
    for c in text.chars() {
        // U+2028 and U+2029 end a line for some viewers; bidi overrides reorder one.
        if c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            write!(to, "{}", c.escape_default())?;
        } else {
            to.write_char(c)?;
        }
    }
    Ok(())
}

// === impl Redacted ===

impl fmt::Display for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, pair) in self.0.split('&').enumerate() {
            if i > 0 {
                f.write_str("&")?;
            }
            match pair.split_once('=') {
                Some((name, _)) if gives_access(name) => {
                    write_escaped(f, name)?;
                    f.write_str("=***")?;
                }
                _ => write_escaped(f, pair)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

/// Whether the value of a query parameter of this name, as sent, must stay out of logs.
fn gives_access(name: &str) -> bool {
    const PARTS: [&str; 9] = [
        "signature",
        "token",
        "credential",
        "password",
        "passwd",
        "secret",
        "accesskey",
        "apikey",
        "auth",
    ];
    let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy().to_ascii_lowercase();
    // The cursor of an S3 listing: no access, and the one thing that tells two pages apart.
    if name == "continuation-token" {
        return false;
    }
    let squeezed = name.replace(['-', '_'], "");
    matches!(squeezed.as_str(), "sig" | "pwd" | "pass" | "key")
        || PARTS.iter().any(|part| squeezed.contains(part))
}

/// What `log` writes as text on this thread, at every level.
#[cfg(test)]
pub(crate) fn captured(log: impl FnOnce()) -> String {
    captured_as(LogFormat::Text, log)
}

#[cfg(test)]
fn captured_as(format: LogFormat, log: impl FnOnce()) -> String {
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let sink = Sink::default();
    let to = sink.clone();
    let subscriber = subscriber(format, EnvFilter::new("trace"), move || to.clone());
    tracing::subscriber::with_default(subscriber, log);
    String::from_utf8(sink.0.lock().unwrap().clone()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_starts_a_line_of_its_own() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let evil = "a\r\nERROR forged\u{1b}[2J\u{2028}\u{85}x";
            let text = captured_as(
                format,
                || tracing::info!(shown = %evil, debugged = ?evil, "said {evil}"),
            );
            assert_eq!(text.matches('\n').count(), 1, "{text:?}");
            assert!(text.ends_with('\n'));
            assert!(!text.trim_end_matches('\n').contains(['\r', '\u{1b}']), "{text:?}");
        }
    }

    #[test]
    fn json_lines_are_objects_with_the_fields_at_the_top() {
        let text = captured_as(LogFormat::Json, || {
            tracing::info!({ field::RESOURCE } = "wal/\"main", "granted")
        });
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["resource"], "wal/\"main");
        assert_eq!(line["message"], "granted");
    }

    #[test]
    fn redacted_keeps_names_and_drops_what_gives_access() {
        let cases = [
            ("", ""),
            ("list-type=2&prefix=wal%2F", "list-type=2&prefix=wal%2F"),
            (
                "X-Amz-Signature=abc&X-Amz-Date=20260101T000000Z",
                "X-Amz-Signature=***&X-Amz-Date=20260101T000000Z",
            ),
            ("x-amz-SECURITY-token=abc", "x-amz-SECURITY-token=***"),
            ("X%2DAmz%2DCredential=AKIA", "X%2DAmz%2DCredential=***"),
            (
                "AWSAccessKeyId=A&Signature=s&Expires=1",
                "AWSAccessKeyId=***&Signature=***&Expires=1",
            ),
            (
                "token=t&password=p&passwd=p&client_secret=s",
                "token=***&password=***&passwd=***&client_secret=***",
            ),
            ("continuation-token=abc", "continuation-token=abc"),
            ("uploads&partNumber=1", "uploads&partNumber=1"),
            ("a=b\nc", "a=b\\nc"),
        ];
        for (query, want) in cases {
            assert_eq!(Redacted(query).to_string(), want, "{query:?}");
        }
    }

    #[test]
    fn a_bad_filter_is_named() {
        let fault = filter("info,=").unwrap_err().to_string();
        assert!(fault.contains("FENCEGATE_LOG") && fault.contains("info,="), "{fault}");
    }
}
