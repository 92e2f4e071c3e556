//! Types of others, in the description of all that is served.
//!
//! They say themselves what they are on the wire, to `schemars`; here they get names that the
//! functions which serve them can use. Nothing is written down twice, so nothing can differ.

pub(super) mod errors;

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::openapi::schema::{Object, Schema};
use utoipa::openapi::{OpenApi, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::executions::OUTPUT;

/// Names for what is described elsewhere: the schema itself is filled in by [`whole`].
macro_rules! described {
    ($($name:ident = $type:ty,)*) => {
        $(
            pub(crate) struct $name;

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    Schema::Object(Object::new()).into()
                }
            }

            impl ToSchema for $name {
                fn name() -> Cow<'static, str> {
                    stringify!($name).into()
                }
            }
        )*

        fn describe(generator: &mut SchemaGenerator) -> Vec<(&'static str, Value)> {
            vec![$((stringify!($name), generator.subschema_for::<$type>().to_value())),*]
        }
    };
}

described! {
    Answer = ringfence_api::AskAnswer,
    Content = ringfence_skills::SkillFileContent,
    Denial = ringfence_api::Denial,
    Edited = ringfence_skills::SkillEditResult,
    Entry = ringfence_tools::ListEntry,
    ExecuteResult = ringfence::ExecuteResult,
    ExecutionBrief = ExecutionSummarySchema,
    Files = ringfence_skills::SkillFiles,
    Line = AuditRecordSchema,
    Question = crate::asks::AskView,
    SkillInfo = ringfence_skills::SkillInfo,
    Uploaded = ringfence_skills::UploadResult,
}

/// An event of a stream.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what is sent piece by piece")]
pub(super) struct ServerSentEvent {
    /// What it is.
    event: String,
    /// JSON.
    #[schema(content_media_type = "application/json")]
    data: String,
}

/// A record of an audit log, sealed to the one before it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Line")]
struct AuditRecordSchema {
    #[serde(flatten)]
    record: ringfence_audit::Record,
    /// Its number, from 1.
    seq: u64,
    /// The hash of the record before it.
    previous: String,
    /// SHA-256 of all that stands before.
    hash: String,
}

/// An execution without what it wrote; [`whole`] says what is left.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ExecutionBrief")]
struct ExecutionSummarySchema {}

/// The document, with everything in it that others describe.
pub(super) fn whole(document: &OpenApi) -> Value {
    let mut whole = serde_json::to_value(document).expect("it is plain data");
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    let described = describe(&mut generator);
    let definitions = generator.take_definitions(true);
    let schemas = whole["components"]["schemas"].as_object_mut().expect("there are some");
    for (name, schema) in &described {
        debug_assert_eq!(
            schema["$ref"],
            format!("#/components/schemas/{name}"),
            "it goes by another name"
        );
        schemas.remove(*name);
    }
    for (name, schema) in definitions {
        let there = schemas.insert(name.clone(), schema);
        debug_assert!(there.is_none(), "two things are called {name}");
    }
    shorten(schemas);
    schemas.values_mut().for_each(gather);
    whole
}

/// Makes one list of words that are each described by themselves: most who make clients know
/// those only.
fn gather(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(gather),
        Value::Object(object) => {
            object.values_mut().for_each(gather);
            let words = object.get("oneOf").and_then(Value::as_array).cloned().unwrap_or_default();
            if words.is_empty() || !words.iter().all(|word| word["const"].is_string()) {
                return;
            }
            let meant = words.iter().map(|word| {
                format!("- `{}`: {}", word["const"].as_str().unwrap_or_default(), described(word))
            });
            let said = object.get("description").and_then(Value::as_str).unwrap_or_default();
            let description = format!("{said}\n\n{}", meant.collect::<Vec<_>>().join("\n"));
            object.remove("oneOf");
            object.insert("type".into(), "string".into());
            object.insert("enum".into(), words.iter().map(|word| word["const"].clone()).collect());
            object.insert("description".into(), description.trim().into());
        }
        _ => {}
    }
}

fn described(word: &Value) -> String {
    word["description"].as_str().unwrap_or_default().replace('\n', " ")
}

/// What lists have of executions: all but what they wrote.
fn shorten(schemas: &mut Map<String, Value>) {
    let mut result = schemas["ExecuteResult"].clone();
    for name in OUTPUT {
        result["properties"].as_object_mut().map(|properties| properties.remove(*name));
    }
    if let Some(required) = result["required"].as_array_mut() {
        required.retain(|name| !OUTPUT.contains(&name.as_str().unwrap_or_default()));
    }
    let mut execution = schemas["Execution"].clone();
    let nothing_or = json!([{ "type": "null" }, { "$ref": "#/components/schemas/ResultBrief" }]);
    execution["properties"]["result"]["oneOf"] = nothing_or;
    schemas.insert("ResultBrief".into(), result);
    schemas.insert("ExecutionBrief".into(), execution);
}
