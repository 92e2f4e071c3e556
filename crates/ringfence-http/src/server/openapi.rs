//! The OpenAPI description, generated from the handlers.

use std::sync::LazyLock;

use axum::Json;
use serde_json::Value;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::sandboxes::{self, commands, files, grants, terminal};
use super::schema::complete_document;
use super::schema::errors::PublicErrors;
use super::{asks, audit, executions, live, skills, tenants};

#[derive(OpenApi)]
#[openapi(
    info(title = "ringfence", description = "Skills and sandboxes of many tenants."),
    paths(
        skills::upload, skills::list, skills::files, skills::content, skills::edit, skills::remove,
        executions::execute, executions::list, executions::status, executions::cancel, executions::events, executions::socket,
        sandboxes::create, sandboxes::list, sandboxes::show, sandboxes::extend, sandboxes::remove, commands::exec, commands::interrupt,
        terminal::terminal, files::get, files::put, files::make, files::remove, files::watch, grants::grant, grants::list,
        asks::list, asks::answer, audit::list, audit::verify, live::events, live::metrics, live::healthy, live::ready,
        tenants::who_am_i, tenants::list, tenants::show, tenants::set_quotas, tenants::policy, tenants::set_policy,
        tenants::tokens, tenants::make_token, tenants::revoke, document
    ),
    components(schemas(crate::events::ServiceEvent, super::stream::ExecutionEvent)),
    security(("token" = [])),
    modifiers(&BearerScheme)
)]
struct OpenApiDoc;

struct BearerScheme;

impl Modify for BearerScheme {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        components
            .add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    }
}

/// The OpenAPI document of the service.
pub fn openapi() -> &'static Value {
    static WHOLE: LazyLock<Value> = LazyLock::new(|| complete_document(&OpenApiDoc::openapi()));
    &WHOLE
}

/// Get this description
#[utoipa::path(get, path = "/openapi.json", tag = "service", operation_id = "describe", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = Object), PublicErrors))]
pub(super) async fn document() -> Json<&'static Value> {
    Json(openapi())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Visits every value below `value` with its key.
    fn each<'a>(value: &'a Value, see: &mut dyn FnMut(&str, &'a Value)) {
        match value {
            Value::Object(object) => object.iter().for_each(|(key, value)| {
                see(key, value);
                each(value, see);
            }),
            Value::Array(array) => array.iter().for_each(|value| {
                see("", value);
                each(value, see);
            }),
            _ => {}
        }
    }

    #[test]
    fn every_referenced_schema_is_described() {
        let document = openapi();
        let mut named = BTreeSet::new();
        each(document, &mut |key, value| {
            if key == "$ref" {
                let name = value.as_str().unwrap();
                let path = name.strip_prefix('#').unwrap();
                assert!(document.pointer(path).is_some(), "{name}");
                named.insert(name.rsplit('/').next().unwrap());
            }
        });
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            let says = ["$ref", "properties", "enum", "oneOf", "anyOf", "const"]
                .iter()
                .any(|key| schema.get(key).is_some());
            assert!(says, "{name}: {schema}");
            let is_referenced_in_prose = matches!(name.as_str(), "ServiceEvent" | "ExecutionEvent");
            assert!(
                is_referenced_in_prose || named.contains(name.as_str()),
                "nothing references {name}"
            );
        }
    }

    #[test]
    fn operation_ids_are_unique() {
        let mut names = BTreeSet::new();
        each(openapi(), &mut |key, value| {
            if key == "operationId" {
                assert!(names.insert(value.as_str().unwrap()), "{value}");
            }
        });
        assert!(names.len() >= 30, "{names:?}");
    }

    /// The patterns are in attributes, which take no constants.
    #[test]
    fn name_parameters_carry_the_name_pattern() {
        let mut paths = BTreeSet::new();
        each(openapi(), &mut |_, value| {
            let of = |name: &str| value["name"] == name && value["in"].is_string();
            if ["userId", "agentId", "skillId"].into_iter().any(of) {
                assert_eq!(
                    value["schema"]["pattern"],
                    ringfence_skills::SkillName::PATTERN,
                    "{value}"
                );
                assert_eq!(
                    value["schema"]["maxLength"],
                    ringfence_skills::SkillName::LONGEST,
                    "{value}"
                );
                assert_eq!(value["required"], value["in"] == "path", "{value}");
            }
            if of("path") {
                paths.extend(value["schema"]["pattern"].as_str());
            }
        });
        paths.insert(
            openapi()["components"]["schemas"]["Edit"]["properties"]["path"]["pattern"]
                .as_str()
                .unwrap(),
        );
        assert_eq!(paths.len(), 1, "{paths:?}");
    }

    #[test]
    fn every_json_response_references_a_schema() {
        for (path, methods) in openapi()["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                for (status, answer) in operation["responses"].as_object().unwrap() {
                    let schema = &answer["content"]["application/json"]["schema"];
                    let has_schema =
                        schema.is_null() || schema.get("$ref").is_some() || path == "/openapi.json";
                    assert!(has_schema, "{method} {path} {status}: {schema}");
                }
            }
        }
    }
}
