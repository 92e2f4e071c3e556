//! The tools as clients see them: input and output schemas.

use std::sync::Arc;

use ringfence_api::{AskAnswer, Denial, ExecuteResult, Permission};
use ringfence_tools::{
    EditParams, EditResult, ListParams, ListResult, ReadParams, ReadResultBody, SearchParams,
    SearchResult, WriteOutput, WriteParams,
};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A command for the shell.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShellParams {
    /// The command as typed at a prompt; may span several lines.
    pub(crate) command: String,
    /// Time limit in milliseconds: the command is interrupted, then killed; the shell lives on.
    #[serde(default, alias = "timeoutMs")]
    pub(crate) timeout_ms: Option<u64>,
}

/// A program run outside the shell.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecParams {
    /// The program and its arguments; nothing is expanded.
    #[schemars(length(min = 1))]
    pub(crate) command: Vec<String>,
    /// Data for its standard input.
    #[serde(default)]
    pub(crate) input: Option<String>,
    /// Time limit in milliseconds, after which it is killed.
    #[serde(default, alias = "timeoutMs")]
    pub(crate) timeout_ms: Option<u64>,
}

/// An access the user is asked to allow.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermissionParams {
    /// The kind of access.
    pub(crate) access: PermissionAccess,
    /// The path (relative to the project, to `~/` or absolute), `HOST:PORT`, or the command line.
    pub(crate) resource: String,
    /// The reason, in one sentence; the user reads it.
    pub(crate) reason: String,
}

/// The kind of access requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PermissionAccess {
    /// Read a path and everything below it.
    Read,
    /// Read and write a path and everything below it.
    Write,
    /// Run the program at a path.
    Execute,
    /// Connect to one port of one host.
    Connect,
    /// Run a command that a rule on its text denies.
    Command,
}

/// The result of a permission request.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PermissionReply {
    pub(crate) status: PermissionReplyStatus,
    /// The requested path, host or command, as ringfence understood it.
    pub(crate) resource: String,
    /// The user's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<AskAnswer>,
    /// The result in one sentence.
    pub(crate) message: String,
    /// The command the user types to allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// The denial that no answer can override.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) denial: Option<Denial>,
    /// The permission the user would have to give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permission: Option<Permission>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PermissionReplyStatus {
    /// The access is allowed now.
    Granted,
    /// The access is allowed, but not yet in effect; `message` says when.
    Pending,
    /// The user denied it, or no answer could allow it.
    Denied,
    /// No user can be asked here; `command` is for the user to type.
    RequiresPermission,
}

/// Why a tool failed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToolFailure {
    /// A stable code.
    pub(crate) code: String,
    pub(crate) message: String,
    /// Advice that helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// The denial, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) denial: Option<Box<Denial>>,
}

/// All tools.
pub(crate) fn tools() -> Vec<Tool> {
    let hints = |title: &str| {
        ToolAnnotations::with_title(title)
            .read_only(false)
            .destructive(true)
            .idempotent(false)
            .open_world(true)
    };
    let looks = |title: &str| {
        ToolAnnotations::with_title(title)
            .read_only(true)
            .destructive(false)
            .idempotent(true)
            .open_world(false)
    };
    let files = |title: &str| hints(title).open_world(false);
    vec![
        tool::<ShellParams, ExecuteResult>("shell", SHELL, hints("Run a command in the shell")),
        tool::<ExecParams, ExecuteResult>("exec", EXEC, hints("Run a program")),
        tool::<ReadParams, ReadResultBody>("read_file", READ, looks("Read a file")),
        tool::<WriteParams, WriteOutput>(
            "write_file",
            WRITE,
            files("Write a file").idempotent(true),
        ),
        tool::<EditParams, EditResult>("edit_file", EDIT, files("Change a part of a file")),
        tool::<ListParams, ListResult>("list_files", LIST, looks("List files")),
        tool::<SearchParams, SearchResult>(
            "search_files",
            SEARCH,
            looks("Search for text in files"),
        ),
        tool::<PermissionParams, PermissionReply>(
            "request_permission",
            ASK,
            hints("Ask the user for access").destructive(false),
        ),
    ]
}

const SHELL: &str = "Runs a command in a persistent shell in a sandbox: the directory, environment variables and functions persist from one call to the \
    next. The project is writable; secrets, other projects and hosts that are not allowed cannot be reached. Denied accesses are in \
    `denials`, with the rule; `request_permission` asks the user to allow it. One call runs at a time; others wait.";
const EXEC: &str = "Runs one program in the same sandbox without the shell, in the project's directory and with no shell expansion, \
    also while the shell is busy.";
const READ: &str = "Reads a file, or some lines or bytes of it, under the same rules as the shell.";
const WRITE: &str = "Creates or replaces a file atomically, under the same rules as the shell.";
const EDIT: &str = "Replaces exact text in a file and leaves every other byte as it is.";
const LIST: &str = "Lists a directory, optionally with a glob and recursively.";
const SEARCH: &str = "Searches files for a regular expression or a text, line by line.";
const ASK: &str = "Asks the user to allow a path, a host or a command that the sandbox denies, before or after an attempt. Ask for the \
    least that is needed, and say why. If no user can be asked, the answer has the command for the user to type.";

fn tool<Given: JsonSchema, Answered: JsonSchema>(
    name: &'static str,
    description: &'static str,
    hints: ToolAnnotations,
) -> Tool {
    Tool::new(name, description, given::<Given>())
        .with_raw_output_schema(answered::<Answered>())
        .with_annotations(hints)
}

/// Schema of a tool's input. Subschemas are inlined, because models read it.
fn given<T: JsonSchema>() -> Arc<JsonObject> {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = SchemaGenerator::new(settings).into_root_schema_for::<T>().to_value();
    for name in ["$schema", "title", "description"] {
        schema.as_object_mut().and_then(|schema| schema.shift_remove(name));
    }
    schema["properties"]
        .as_object_mut()
        .into_iter()
        .flatten()
        .for_each(|(_, property)| shorten(property));
    object(schema)
}

/// Removes keys that are of no use to a caller.
fn shorten(property: &mut Value) {
    let Some(object) = property.as_object_mut() else { return };
    object.shift_remove("format");
    if object.get("default").is_some_and(Value::is_null) {
        object.shift_remove("default");
    }
}

/// Schema of a result, or of the error that every tool may return instead. Names and types only:
/// every client receives it in every session, and the documentation has the meanings.
fn answered<T: JsonSchema>() -> Arc<JsonObject> {
    let mut generator = SchemaGenerator::new(SchemaSettings::draft2020_12().for_serialize());
    let mut schema = T::json_schema(&mut generator).to_value();
    let definitions = Value::Object(generator.take_definitions(true));
    let required = schema["required"].take();
    let required = if required.is_array() { required } else { json!([]) };
    let mut properties: JsonObject = JsonObject::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        properties.insert(name.clone(), kind(property, &definitions));
    }
    properties.insert("error".into(), json!({ "type": "object" }));
    object(
        json!({ "type": "object", "properties": properties, "anyOf": [{ "required": required }, { "required": ["error"] }] }),
    )
}

/// The type of a property, and of the items of a list.
fn kind(schema: &Value, definitions: &Value) -> Value {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        return kind(&definitions[name], definitions);
    }
    if let Some(choices) = ["anyOf", "oneOf"].iter().find_map(|name| schema[*name].as_array()) {
        let mut types: Vec<Value> = Vec::new();
        for choice in choices {
            match &kind(choice, definitions)["type"] {
                Value::Null => return json!({}),
                Value::Array(several) => types.extend(several.iter().cloned()),
                one => types.push(one.clone()),
            }
        }
        types.dedup();
        return json!({ "type": if types.len() == 1 { types.remove(0) } else { types.into() } });
    }
    match &schema["type"] {
        Value::Null if schema.get("const").or(schema.get("enum")).is_some() => {
            json!({ "type": "string" })
        }
        Value::Null => json!({}),
        of => json!({ "type": of }),
    }
}

fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(object) => Arc::new(object),
        _ => Arc::default(),
    }
}
