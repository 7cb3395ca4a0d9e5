//! Secrets of the configuration: written in place, in the environment, or in a file; never printed.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `"text"`, `{ env = "NAME" }` or `{ file = "path" }`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum SecretSource {
    /// In the configuration file itself.
    Text(String),
    /// In an environment variable.
    Env(EnvSource),
    /// In a file; white space at its end is dropped. Relative to the configuration file.
    File(FileSource),
}

/// `{ env = "NAME" }`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EnvSource {
    /// The variable.
    pub env: String,
}

/// `{ file = "path" }`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileSource {
    /// The file.
    pub file: PathBuf,
}

/// A secret's bytes. Compared in constant time, never shown.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// Why a secret could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The variable is not set.
    #[error("the environment variable {name} is not set; set it or write the secret elsewhere")]
    NoVariable {
        /// Which variable.
        name: String,
    },
    /// The file cannot be read.
    #[error("the secret file {} cannot be read; check that it exists and who may read it", path.display())]
    NoFile {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// Nothing in it.
    #[error("the secret in {place} is empty")]
    Empty {
        /// Where it was looked for.
        place: String,
    },
}

// === impl SecretSource ===

impl SecretSource {
    /// Reads the secret.
    ///
    /// # Errors
    /// [`SecretError`] if it is missing or empty.
    pub fn read(&self) -> Result<Secret, SecretError> {
        let (bytes, place) = match self {
            SecretSource::Text(text) => (text.clone().into_bytes(), "the configuration".to_owned()),
            SecretSource::Env(EnvSource { env }) => {
                let value = std::env::var_os(env)
                    .ok_or_else(|| SecretError::NoVariable { name: env.clone() })?;
                (std::os::unix::ffi::OsStringExt::into_vec(value), format!("the variable {env}"))
            }
            SecretSource::File(FileSource { file }) => {
                let read = std::fs::read(file);
                let bytes =
                    read.map_err(|cause| SecretError::NoFile { path: file.clone(), cause })?;
                (bytes.trim_ascii_end().to_vec(), format!("the file {}", file.display()))
            }
        };
        if bytes.is_empty() {
            return Err(SecretError::Empty { place });
        }
        Ok(Secret(bytes))
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::Text(_) => f.write_str("\"***\""),
            SecretSource::Env(source) => source.fmt(f),
            SecretSource::File(source) => source.fmt(f),
        }
    }
}

impl Serialize for SecretSource {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            SecretSource::Text(_) => serializer.serialize_str("***"),
            SecretSource::Env(source) => source.serialize(serializer),
            SecretSource::File(source) => source.serialize(serializer),
        }
    }
}

// === impl Secret ===

impl Secret {
    /// Whether `presented` is this secret, in time that does not depend on where they differ.
    pub fn matches(&self, presented: &[u8]) -> bool {
        subtle::ConstantTimeEq::ct_eq(self.0.as_slice(), presented).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
