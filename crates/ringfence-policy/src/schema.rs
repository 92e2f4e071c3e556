//! The JSON Schema of policy files.

use crate::policy::Policy;

/// The schema, generated from the types of the parser.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Policy).to_value();
    schema["title"] = "ringfence policy".into();
    schema
}

#[cfg(test)]
mod tests {
    use super::schema;

    #[test]
    fn the_schema_is_closed_and_named() {
        let schema = schema();
        assert_eq!(schema["title"], "ringfence policy");
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["required"], serde_json::json!(["version"]));
        for (name, definition) in schema["$defs"].as_object().unwrap() {
            let open_object =
                definition["type"] == "object" && definition["additionalProperties"] != false;
            assert!(!open_object, "{name} takes unknown keys");
        }
        assert_eq!(schema["properties"]["on-gap"]["anyOf"][0]["$ref"], "#/$defs/OnGap");
    }
}
