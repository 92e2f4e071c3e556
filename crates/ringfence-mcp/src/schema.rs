//! The tools, as clients are told of them: what each is given, and what it answers.

use std::sync::Arc;

use ringfence_api::{
    AskAnswer, CommandRefusal, Denial, Gap, GrantedAccess, LimitBreach, Permission, QuarantinedFile,
};
use ringfence_tools::{
    EditParams, EditResult, ListParams, ListResult, ReadParams, ReadResultBody, SearchParams,
    SearchResult, WriteOutput, WriteParams,
};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A line for the shell.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShellParams {
    /// What would be typed at a prompt; several lines are one command as well.
    pub(crate) command: String,
    /// After so many milliseconds it is interrupted, and ended if it does not mind; the shell lives
    /// on.
    #[serde(default, alias = "timeoutMs")]
    pub(crate) timeout_ms: Option<u64>,
}

/// A program beside the shell.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecParams {
    /// The program and its arguments; nothing in them is expanded.
    #[schemars(length(min = 1))]
    pub(crate) command: Vec<String>,
    /// What it reads from its standard input.
    #[serde(default)]
    pub(crate) input: Option<String>,
    /// After so many milliseconds it is ended.
    #[serde(default, alias = "timeoutMs")]
    pub(crate) timeout_ms: Option<u64>,
}

/// Something that a person is to open.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermissionParams {
    /// What for.
    pub(crate) access: PermissionAccess,
    /// The path (from the project, from `~/` or from the root), `HOST:PORT`, or the command line.
    pub(crate) resource: String,
    /// Why, in a sentence; the person reads it.
    pub(crate) reason: String,
}

/// What something is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PermissionAccess {
    /// To read a path, and what is below it.
    Read,
    /// To read and write it.
    Write,
    /// To start the program at a path.
    Execute,
    /// To reach one port of one host.
    Connect,
    /// To run a command that a rule on its text refuses.
    Command,
}

/// What became of a command.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandReply {
    pub(crate) stdout: String,
    /// How many bytes are missing in the middle of it; a line there names the resource that has
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stdout_dropped: Option<u64>,
    pub(crate) stderr: String,
    /// How many bytes are missing in the middle of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stderr_dropped: Option<u64>,
    /// What earlier commands that still run have written since the last call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) background: Option<String>,
    /// 128 + the signal that ended it, 124 for the time limit, 126 where a rule refused its text.
    pub(crate) exit_code: i32,
    pub(crate) timed_out: bool,
    /// The limits that it went beyond.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) breaches: Vec<LimitBreach>,
    pub(crate) duration_ms: u64,
    /// Where the shell is now.
    pub(crate) cwd: Option<String>,
    /// `lives-on`, or `ended`: the next command starts in a new one.
    pub(crate) shell: String,
    /// Whether the sandbox stood in the way.
    pub(crate) blocked: bool,
    pub(crate) blocked_reason: Option<String>,
    pub(crate) blocked_resource: Option<String>,
    /// What was refused, with the rule that did.
    pub(crate) denials: Vec<Denial>,
    /// How often something else was refused.
    pub(crate) denials_dropped: u64,
    /// What went through because a person said so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) granted: Vec<GrantedAccess>,
    /// What a person could be asked by `request_permission`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permission: Option<Permission>,
    /// Why it was not started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<CommandRefusal>,
    /// What the policy asks for and cannot be had here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) gaps: Vec<Gap>,
    /// What it planted and was moved away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) quarantined: Vec<QuarantinedFile>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// What came of asking.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PermissionReply {
    pub(crate) status: PermissionReplyStatus,
    /// What was asked for, as it was understood.
    pub(crate) resource: String,
    /// What the person said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<AskAnswer>,
    /// In a sentence.
    pub(crate) message: String,
    /// What a person types to allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// What stands in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) denial: Option<Denial>,
    /// What a person would have to say yes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permission: Option<Permission>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PermissionReplyStatus {
    /// It can be used.
    Granted,
    /// It will be, and says when.
    Pending,
    /// Somebody said no, or nobody could have said yes.
    Denied,
    /// There is nobody to ask here; `command` is for a person to type.
    RequiresPermission,
}

/// Why a tool did not do what it was asked for.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToolFailure {
    /// A stable word.
    pub(crate) code: String,
    pub(crate) message: String,
    /// What helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// The refusal, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) denial: Option<Box<Denial>>,
}

/// All of them.
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
        tool::<ShellParams, CommandReply>("shell", SHELL, hints("Run a command in the shell")),
        tool::<ExecParams, CommandReply>("exec", EXEC, hints("Run a program")),
        tool::<ReadParams, ReadResultBody>("read_file", READ, looks("Read a file")),
        tool::<WriteParams, WriteOutput>(
            "write_file",
            WRITE,
            files("Write a file").idempotent(true),
        ),
        tool::<EditParams, EditResult>("edit_file", EDIT, files("Change a part of a file")),
        tool::<ListParams, ListResult>("list_files", LIST, looks("List files")),
        tool::<SearchParams, SearchResult>("search_files", SEARCH, looks("Look for text in files")),
        tool::<PermissionParams, PermissionReply>(
            "request_permission",
            ASK,
            hints("Ask the person for access").destructive(false),
        ),
    ]
}

const SHELL: &str = "Runs a command in a persistent shell in a sandbox: the directory, variables and functions stay from one call to the \
    next. The project is writable; secrets, other projects and hosts that are not allowed are out of reach. What was refused is in \
    `denials`, with the rule; `request_permission` asks the person to open it. One call at a time: others wait for their turn.";
const EXEC: &str = "Runs one program in the same sandbox beside the shell, in the project's directory and without a shell's expansions, \
    also while the shell is busy.";
const READ: &str = "Reads a file, or some lines or bytes of it, under the same rules as the shell.";
const WRITE: &str =
    "Makes or replaces a file, wholly or not at all, under the same rules as the shell.";
const EDIT: &str = "Replaces exact text in a file and leaves every other byte as it is.";
const LIST: &str = "Lists a directory, also by a glob and several levels deep.";
const SEARCH: &str = "Looks for a regular expression or a text in files, line by line.";
const ASK: &str = "Asks the person to open a path, a host or a command that the sandbox refuses, before it is tried or after. Ask for the \
    least that is needed, and say why. Where nobody can be asked, the answer has the command that a person types.";

fn tool<Given: JsonSchema, Answered: JsonSchema>(
    name: &'static str,
    description: &'static str,
    hints: ToolAnnotations,
) -> Tool {
    Tool::new(name, description, given::<Given>())
        .with_raw_output_schema(answered::<Answered>())
        .with_annotations(hints)
}

/// What a tool is given. Nothing in it refers to something else: models read it.
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

/// Takes away what says nothing to a caller.
fn shorten(property: &mut Value) {
    let Some(object) = property.as_object_mut() else { return };
    object.shift_remove("format");
    if object.get("default").is_some_and(Value::is_null) {
        object.shift_remove("default");
    }
}

/// Schema of an answer, or of the error that every tool may answer instead. Only names and types:
/// every client is sent them with every session, and the documentation says what they mean.
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

/// The type of a property, and of what is in a list.
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
