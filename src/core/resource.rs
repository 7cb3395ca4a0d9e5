//! Names: the resource that one lease protects, and the holder's label.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// What one lease protects and one mark guards, such as `wal/main`.
///
/// 1 to 1,024 bytes of UTF-8 without control characters. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(Arc<str>);

/// The label a lease was acquired under. It names the holder to people; it is not a credential.
///
/// 1 to 255 bytes of UTF-8 without control characters. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(Arc<str>);

/// Why a text cannot be the name of a resource or of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("the name is empty")]
    Empty,
    /// More bytes than the limit.
    #[error("the name has {bytes} bytes; at most {limit} are allowed")]
    TooLong {
        /// How many it has.
        bytes: usize,
        /// How many it may have.
        limit: usize,
    },
    /// A control character (Unicode category Cc), at this byte.
    #[error("the name has a control character at byte {at}")]
    Control {
        /// Offset in bytes.
        at: usize,
    },
}

fn check(name: &str, limit: usize) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > limit {
        return Err(NameError::TooLong { bytes: name.len(), limit });
    }
    match name.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, _)) => Err(NameError::Control { at }),
        None => Ok(()),
    }
}

macro_rules! name {
    ($type:ident, $limit:expr) => {
        impl $type {
            /// Most bytes a name may have.
            pub const MAX_BYTES: usize = $limit;

            /// Checks the name and keeps it.
            ///
            /// # Errors
            /// [`NameError`] if it is empty, too long, or has a control character.
            pub fn new(name: &str) -> Result<$type, NameError> {
                check(name, Self::MAX_BYTES)?;
                Ok($type(Arc::from(name)))
            }

            /// The name itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$type, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                $type::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

name!(Resource, 1_024);
name!(Holder, 255);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_1_to_1024_bytes_without_control_characters() {
        let long = "é".repeat(512);
        assert!(Resource::new("wal/main").is_ok());
        assert!(Resource::new(&long).is_ok());
        assert_eq!(Resource::new(""), Err(NameError::Empty));
        assert_eq!(
            Resource::new(&format!("{long}x")),
            Err(NameError::TooLong { bytes: 1_025, limit: 1_024 })
        );
        for bad in ["a\nb", "a\0b", "a\u{7f}b", "a\u{85}b"] {
            assert_eq!(Resource::new(bad), Err(NameError::Control { at: 1 }), "{bad:?}");
        }
    }
}
