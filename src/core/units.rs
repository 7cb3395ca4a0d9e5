//! Durations and sizes as people write them: "15s", "250ms", "64KiB".

use std::fmt;
use std::time::Duration;

/// A duration written with a unit: `ms`, `s`, `m`, `h` or `d`. One number, one unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// A size written with a unit: `B`, `KiB`, `MiB`, `GiB`. One number, one unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// Why a text is neither.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a number and a known unit.
    #[error("{text:?} is not a {what}; write a whole number and a unit, such as {example}")]
    Malformed {
        /// What stood there.
        text: String,
        /// What it should be.
        what: &'static str,
        /// How it is written.
        example: &'static str,
    },
    /// Past 64 bits.
    #[error("{text:?} is too large")]
    TooLarge {
        /// What stood there.
        text: String,
    },
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit))
}

// === impl Span ===

impl Span {
    /// Reads `"15s"`.
    ///
    /// # Errors
    /// [`UnitError`] if there is no unit, an unknown one, a fraction or a sign.
    pub fn parse(text: &str) -> Result<Span, UnitError> {
        let malformed = || UnitError::Malformed {
            text: text.into(),
            what: "duration",
            example: "\"250ms\", \"15s\" or \"5m\"",
        };
        let (number, unit) = split(text).ok_or_else(malformed)?;
        let scale = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(malformed()),
        };
        let millis =
            number.checked_mul(scale).ok_or_else(|| UnitError::TooLarge { text: text.into() })?;
        Ok(Span(Duration::from_millis(millis)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        match millis {
            0 => f.write_str("0s"),
            m if m % 86_400_000 == 0 => write!(f, "{}d", m / 86_400_000),
            m if m % 3_600_000 == 0 => write!(f, "{}h", m / 3_600_000),
            m if m % 60_000 == 0 => write!(f, "{}m", m / 60_000),
            m if m % 1_000 == 0 => write!(f, "{}s", m / 1_000),
            m => write!(f, "{m}ms"),
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl Size ===

impl Size {
    /// Reads `"64KiB"`.
    ///
    /// # Errors
    /// [`UnitError`] if there is no unit, an unknown one, a fraction or a sign.
    pub fn parse(text: &str) -> Result<Size, UnitError> {
        let malformed = || UnitError::Malformed {
            text: text.into(),
            what: "size",
            example: "\"64KiB\", \"2MiB\" or \"1GiB\"",
        };
        let (number, unit) = split(text).ok_or_else(malformed)?;
        let scale = match unit {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(malformed()),
        };
        number.checked_mul(scale).map(Size).ok_or_else(|| UnitError::TooLarge { text: text.into() })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0B"),
            n if n % (1 << 30) == 0 => write!(f, "{}GiB", n >> 30),
            n if n % (1 << 20) == 0 => write!(f, "{}MiB", n >> 20),
            n if n % (1 << 10) == 0 => write!(f, "{}KiB", n >> 10),
            n => write!(f, "{n}B"),
        }
    }
}

impl fmt::Debug for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! as_text {
    ($type:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$type, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                $type::parse(&text).map_err(serde::de::Error::custom)
            }
        }

        impl std::str::FromStr for $type {
            type Err = UnitError;

            fn from_str(text: &str) -> Result<$type, UnitError> {
                $type::parse(text)
            }
        }
    };
}

as_text!(Span);
as_text!(Size);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_required_and_nothing_else_is_read() {
        assert_eq!(Span::parse("15s"), Ok(Span(Duration::from_secs(15))));
        assert_eq!(Span::parse("1500ms").map(|s| s.to_string()), Ok("1500ms".into()));
        assert_eq!(Span::parse("90m").map(|s| s.to_string()), Ok("90m".into()));
        assert_eq!(Size::parse("64KiB"), Ok(Size(65_536)));
        for bad in [
            "",
            "15",
            "s",
            "1.5s",
            "-1s",
            "15 s",
            "15S",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert!(Span::parse(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "15", "KiB", "1KB", "1.5MiB", "18446744073709551615GiB"] {
            assert!(Size::parse(bad).is_err(), "{bad:?}");
        }
    }
}
