//! Schemas of types from other crates, for the OpenAPI document.
//!
//! Those types describe themselves to `schemars`; this module gives them names for the handlers.
//! Each schema has a single source.

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

/// Declares names for schemas described by `schemars`; [`complete_document`] fills in the schemas.
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
    AskAnswer = ringfence_api::AskAnswer,
    SkillFileContent = ringfence_skills::SkillFileContent,
    Denial = ringfence_api::Denial,
    SkillEditResult = ringfence_skills::SkillEditResult,
    ListEntry = ringfence_tools::ListEntry,
    ExecuteResult = ringfence_api::ExecuteResult,
    ExecutionSummary = ExecutionSummarySchema,
    SkillFiles = ringfence_skills::SkillFiles,
    AuditRecord = AuditRecordSchema,
    AskView = crate::asks::AskView,
    SkillInfo = ringfence_skills::SkillInfo,
    UploadResult = ringfence_skills::UploadResult,
}

/// An event of an event stream.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what is sent piece by piece")]
pub(super) struct ServerSentEvent {
    /// The event name.
    event: String,
    /// JSON.
    #[schema(content_media_type = "application/json")]
    data: String,
}

/// A record of an audit log, chained to the previous one by its hash.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AuditRecord")]
struct AuditRecordSchema {
    #[serde(flatten)]
    record: ringfence_audit::Record,
    /// Its number, from 1.
    seq: u64,
    /// The hash of the previous record.
    previous: String,
    /// SHA-256 of all fields before.
    hash: String,
}

/// An execution without its output; [`complete_document`] fills in the schema.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ExecutionSummary")]
struct ExecutionSummarySchema {}

/// The document with all schemas filled in.
pub(super) fn complete_document(document: &OpenApi) -> Value {
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
    add_brief_schemas(schemas);
    schemas.values_mut().for_each(merge_constants);
    whole
}

/// Merges constants that are each described separately into one enum: most client generators
/// support only enums.
fn merge_constants(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(merge_constants),
        Value::Object(object) => {
            object.values_mut().for_each(merge_constants);
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

/// Derives the schema of an execution in a list: everything but its output.
fn add_brief_schemas(schemas: &mut Map<String, Value>) {
    let mut result = schemas["ExecuteResult"].clone();
    for name in OUTPUT {
        result["properties"].as_object_mut().map(|properties| properties.remove(*name));
    }
    if let Some(required) = result["required"].as_array_mut() {
        required.retain(|name| !OUTPUT.contains(&name.as_str().unwrap_or_default()));
    }
    let mut execution = schemas["Execution"].clone();
    let nothing_or = json!([{ "type": "null" }, { "$ref": "#/components/schemas/ResultSummary" }]);
    execution["properties"]["result"]["oneOf"] = nothing_or;
    schemas.insert("ResultSummary".into(), result);
    schemas.insert("ExecutionSummary".into(), execution);
}
