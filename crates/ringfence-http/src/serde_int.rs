//! Integers in JSON, however clients write them.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Reads an integer, also one written as `5.0`: JSON does not distinguish them. Values above
/// `i64::MAX` are rejected, since not every client can hold them.
pub(crate) fn integer<'de, T: TryFrom<u64>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_u64(IntegerVisitor(PhantomData))
}

/// Reads an optional integer.
pub(crate) fn optional_integer<'de, T: TryFrom<u64>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    deserializer.deserialize_option(OptionalIntegerVisitor(PhantomData))
}

struct IntegerVisitor<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for IntegerVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer in range")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        let held = i64::try_from(number).ok().and_then(|_| T::try_from(number).ok());
        held.ok_or_else(|| E::custom(format_args!("{number} is too large")))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        u64::try_from(number)
            .map_err(|_| E::custom(format_args!("{number} is too small")))
            .and_then(|number| self.visit_u64(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        // Above this, f64 cannot represent every integer.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if number.fract() != 0.0 || !(0.0..=EXACT).contains(&number) {
            return Err(E::custom(format_args!("{number} is not an integer")));
        }
        self.visit_u64(number as u64)
    }
}

struct OptionalIntegerVisitor<T>(PhantomData<T>);

impl<'de, T: TryFrom<u64>> Visitor<'de> for OptionalIntegerVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer or null")
    }

    fn visit_none<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        integer(deserializer).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct IntFixture {
        #[serde(deserialize_with = "integer")]
        small: u32,
        #[serde(default, deserialize_with = "optional_integer")]
        large: Option<u64>,
    }

    #[track_caller]
    fn check(text: &str, expect: Option<(u32, Option<u64>)>) {
        let expect = expect.map(|(small, large)| IntFixture { small, large });
        assert_eq!(serde_json::from_str(text).ok(), expect, "{text}");
    }

    #[test]
    fn integers_are_read_in_every_notation() {
        check(r#"{"small": 5}"#, Some((5, None)));
        check(r#"{"small": 5.0, "large": null}"#, Some((5, None)));
        check(r#"{"small": 0, "large": 9223372036854775807}"#, Some((0, Some(i64::MAX as u64))));
        for wrong in ["-1", "0.5", "4294967296", "1e300", "\"5\"", "true", "null", "-1.0"] {
            check(&format!(r#"{{"small": {wrong}}}"#), None);
        }
        check(r#"{"small": 0, "large": 9223372036854775808}"#, None);
    }
}
