//! Fencing tokens: parse, print, compare.

use std::fmt;
use std::num::NonZeroU64;

/// A fencing token: `1 ..= 2^63 - 1`, greater for every later grant of a resource, for ever.
///
/// Written in decimal without sign, leading zero or white space. Tokens of different resources
/// have no order that means anything.
///
/// # Reference
/// M. Kleppmann, "How to do distributed locking" (2016), section "Making the lock safe with fencing".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

/// Why a piece of text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Nothing there.
    #[error("it is empty; send the number that the lease was granted with")]
    Empty,
    /// Something other than the digits 0 to 9.
    #[error(
        "it has something other than the digits 0-9; send it in decimal, without sign or spaces"
    )]
    NotADigit,
    /// `0`, or digits after a leading zero.
    #[error("it starts with zero; tokens start at 1 and have no leading zero")]
    LeadingZero,
    /// 2^63 or more.
    #[error("it is 2^63 or more; the greatest token is 9223372036854775807")]
    TooLarge,
}

// === impl Token ===

impl Token {
    /// The smallest token.
    pub const MIN: Token = Token(NonZeroU64::MIN);
    /// The greatest token, 2^63 - 1: what a signed 64-bit column can hold.
    pub const MAX: Token = Token(match NonZeroU64::new(i64::MAX as u64) {
        Some(max) => max,
        None => unreachable!(),
    });

    /// The token with this number, if it is in `1 ..= 2^63 - 1`.
    pub fn new(number: u64) -> Option<Token> {
        NonZeroU64::new(number).map(Token).filter(|token| *token <= Token::MAX)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// The next greater token; `None` at [`Token::MAX`].
    pub fn next(self) -> Option<Token> {
        Token::new(self.get() + 1)
    }

    /// Reads a token from the bytes of a header value or a JSON string, exactly.
    ///
    /// # Errors
    /// [`TokenError`] says which rule the text breaks. Nothing is ever read as zero.
    pub fn parse(text: &[u8]) -> Result<Token, TokenError> {
        match text {
            [] => return Err(TokenError::Empty),
            [b'0', ..] if text.iter().all(u8::is_ascii_digit) => {
                return Err(TokenError::LeadingZero);
            }
            _ => {}
        }
        let mut number: u64 = 0;
        for &byte in text {
            if !byte.is_ascii_digit() {
                return Err(TokenError::NotADigit);
            }
            // Saturation keeps a long run of digits above the limit instead of wrapping below it.
            number = number.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
        }
        Token::new(number).ok_or(TokenError::TooLarge)
    }
}

impl std::str::FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Token, TokenError> {
        Token::parse(text.as_bytes())
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

// JSON carries tokens as strings: a 53-bit number type on the other side would corrupt them.
impl serde::Serialize for Token {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Token {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Token::parse(text.as_bytes())
            .map_err(|fault| serde::de::Error::custom(format_args!("not a fencing token: {fault}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_accepts_exactly_the_decimal_numbers_from_1_to_2_63_minus_1() {
        let cases: &[(&str, Result<u64, TokenError>)] = &[
            ("1", Ok(1)),
            ("33", Ok(33)),
            ("9223372036854775807", Ok(i64::MAX as u64)),
            ("", Err(TokenError::Empty)),
            ("0", Err(TokenError::LeadingZero)),
            ("03", Err(TokenError::LeadingZero)),
            ("+3", Err(TokenError::NotADigit)),
            ("-3", Err(TokenError::NotADigit)),
            (" 3", Err(TokenError::NotADigit)),
            ("3 ", Err(TokenError::NotADigit)),
            ("3, 3", Err(TokenError::NotADigit)),
            ("0x5", Err(TokenError::NotADigit)),
            ("3.0", Err(TokenError::NotADigit)),
            ("٣", Err(TokenError::NotADigit)),
            ("9223372036854775808", Err(TokenError::TooLarge)),
            ("18446744073709551617", Err(TokenError::TooLarge)),
            ("111111111111111111111", Err(TokenError::TooLarge)),
        ];
        for (text, want) in cases {
            assert_eq!(Token::parse(text.as_bytes()).map(Token::get), *want, "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_token_prints_as_what_parses_to_it(number in 1..=i64::MAX as u64) {
            let token = Token::new(number).unwrap();
            proptest::prop_assert_eq!(Token::parse(token.to_string().as_bytes()), Ok(token));
        }

        #[test]
        fn no_other_text_parses(text in "[ -~]{0,24}") {
            if let Ok(token) = Token::parse(text.as_bytes()) {
                proptest::prop_assert_eq!(token.to_string(), text);
            }
        }
    }
}
