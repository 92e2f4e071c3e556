//! The description of all that is served, from the functions that serve it.

use axum::Json;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::sandboxes::{self, commands, files, grants, terminal};
use super::{asks, audit, executions, live, skills, tenants};

#[derive(OpenApi)]
#[openapi(
    info(title = "ringfence", description = "Skills and sandboxes of many tenants."),
    paths(
        skills::upload, skills::list, skills::files, skills::content, skills::edit, skills::remove,
        executions::execute, executions::list, executions::status, executions::cancel, executions::events, executions::socket,
        sandboxes::create, sandboxes::list, sandboxes::show, sandboxes::extend, sandboxes::remove, commands::exec, commands::interrupt,
        terminal::terminal, files::get, files::put, files::remove, files::watch, grants::grant, grants::list,
        asks::list, asks::answer, audit::list, audit::verify, live::events, live::metrics, live::healthy, live::ready,
        tenants::me, tenants::list, tenants::show, tenants::set_quotas, tenants::policy, tenants::set_policy,
        tenants::tokens, tenants::make_token, tenants::revoke, document
    ),
    security(("token" = [])),
    modifiers(&Token)
)]
struct Document;

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    }
}

/// This description
#[utoipa::path(get, path = "/openapi.json", tag = "service", security(()), responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(super) async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}
