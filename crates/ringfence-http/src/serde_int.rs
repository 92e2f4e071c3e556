//! Whole numbers, as those who send JSON write them.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// A whole number, also one that is written as `5.0`: to JSON they are the same. None is larger
/// than what every client can hold.
pub(crate) fn integer<'de, T: TryFrom<u64>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_u64(IntegerVisitor(PhantomData))
}

/// The same, or nothing.
pub(crate) fn perhaps<'de, T: TryFrom<u64>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    deserializer.deserialize_option(OptionalIntegerVisitor(PhantomData))
}

struct IntegerVisitor<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for IntegerVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number that is not too large")
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
        // Beyond that, not every whole number is one of these.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if number.fract() != 0.0 || !(0.0..=EXACT).contains(&number) {
            return Err(E::custom(format_args!("{number} is no whole number")));
        }
        self.visit_u64(number as u64)
    }
}

struct OptionalIntegerVisitor<T>(PhantomData<T>);

impl<'de, T: TryFrom<u64>> Visitor<'de> for OptionalIntegerVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number or nothing")
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
    struct Held {
        #[serde(deserialize_with = "integer")]
        small: u32,
        #[serde(default, deserialize_with = "perhaps")]
        large: Option<u64>,
    }

    #[track_caller]
    fn check(text: &str, expect: Option<(u32, Option<u64>)>) {
        let expect = expect.map(|(small, large)| Held { small, large });
        assert_eq!(serde_json::from_str(text).ok(), expect, "{text}");
    }

    #[test]
    fn a_whole_number_is_one_however_it_is_written() {
        check(r#"{"small": 5}"#, Some((5, None)));
        check(r#"{"small": 5.0, "large": null}"#, Some((5, None)));
        check(r#"{"small": 0, "large": 9223372036854775807}"#, Some((0, Some(i64::MAX as u64))));
        for wrong in ["-1", "0.5", "4294967296", "1e300", "\"5\"", "true", "null", "-1.0"] {
            check(&format!(r#"{{"small": {wrong}}}"#), None);
        }
        check(r#"{"small": 0, "large": 9223372036854775808}"#, None);
    }
}
