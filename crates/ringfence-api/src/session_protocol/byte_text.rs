//! Bytes in JSON.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{base64, decode_base64};

/// Bytes: a string if they are UTF-8, else `{"base64": "…"}`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ByteText(pub Vec<u8>);

impl From<&[u8]> for ByteText {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

/// The JSON of [`ByteText`].
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields, expecting = "expected a string or an object with `base64`")]
enum ByteTextJson<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// Any bytes, as RFC 4648 base64 with padding.
    Encoded { base64: String },
}

impl Serialize for ByteText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => ByteTextJson::Text(text.into()),
            Err(_) => ByteTextJson::Encoded { base64: base64(&self.0) },
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ByteText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match ByteTextJson::deserialize(deserializer)? {
            ByteTextJson::Text(text) => Ok(Self(text.into_owned().into_bytes())),
            ByteTextJson::Encoded { base64 } => {
                decode_base64(&base64).map(Self).ok_or_else(|| de::Error::custom("invalid base64"))
            }
        }
    }
}

impl JsonSchema for ByteText {
    fn schema_name() -> Cow<'static, str> {
        "ByteText".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        ByteTextJson::json_schema(generator)
    }
}
