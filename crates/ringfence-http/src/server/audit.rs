//! The audit log of a tenant.

use std::collections::VecDeque;

use axum::extract::State;
use axum::{Extension, Json};
use ringfence_audit::{LogReader, parse_rfc3339, verify as check};
use ringfence_policy::AbsPath;
use ringfence_skills::SkillName;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::extract::{QueryParams, check_limit};
use super::schema;
use super::schema::errors::{AuthErrors, ParameterErrors};
use super::skills::run_blocking;
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::tenants::{ApiCaller, TokenScope};

/// Selects a log and its records.
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditFilter {
    /// The tenant. Default: the token's own tenant, or else the service's own log.
    #[param(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
    /// Only denials.
    #[serde(default)]
    blocked: bool,
    /// Only this operation: `execute`, `exit`, `read`, `write`, `connect`, `upload` …
    operation: Option<String>,
    /// Only records of this execution or sandbox.
    session: Option<String>,
    /// Only records that contain this text, ignoring case.
    text: Option<String>,
    /// Only records since this time: RFC 3339.
    #[param(format = DateTime)]
    since: Option<String>,
    /// The maximum number of records; the newest are returned.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Audit records.
#[derive(Serialize, ToSchema)]
pub(super) struct AuditPage {
    /// Oldest first.
    #[schema(value_type = Vec<schema::AuditRecord>)]
    records: Vec<Value>,
    /// True if older records match as well.
    more: bool,
}

/// The result of a log verification.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditVerification {
    /// True if no record was changed, removed, inserted or cut off.
    intact: bool,
    records: u64,
    /// The problems found, as text.
    findings: Vec<String>,
}

fn log(app: &SharedState, caller: &ApiCaller, user: Option<String>) -> ApiResult<AbsPath> {
    caller.require_scope(TokenScope::Audit)?;
    let user = match user {
        Some(user) => Some(SkillName::try_from(user.as_str())?),
        None => caller.user.clone(),
    };
    match user {
        Some(user) => {
            caller.require_access(TokenScope::Audit, &user)?;
            Ok(app.tenant(user.as_ref()).join("audit"))
        }
        None => Ok(app.data.join("audit")),
    }
}

/// Read an audit log
#[utoipa::path(get, path = "/v1/audit", tag = "watching", operation_id = "readAudit", params(AuditFilter),
    responses((status = 200, description = "Oldest first", body = AuditPage), ParameterErrors, AuthErrors))]
pub(super) async fn list(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    QueryParams(filter): QueryParams<AuditFilter>,
) -> ApiResult<Json<AuditPage>> {
    let log = log(&app, &caller, filter.user_id.clone())?;
    let since = match &filter.since {
        Some(text) => parse_rfc3339(text).ok_or_else(|| {
            ApiError::bad_request("since", "`since` is not an RFC 3339 time")
                .hint("2026-01-31T12:00:00Z")
        })?,
        None => 0,
    };
    let most = check_limit(filter.limit, 200)?;
    run_blocking(move || read(&log, &filter, since, most).map(Json)).await
}

fn read(log: &AbsPath, filter: &AuditFilter, since: u64, most: usize) -> ApiResult<AuditPage> {
    let text = filter.text.as_ref().map(|text| text.to_lowercase());
    let mut records = VecDeque::new();
    let mut more = false;
    let opened =
        LogReader::open(log.as_path(), since).map_err(|error| ApiError::internal(&error))?;
    let Some(mut reader) = opened else { return Ok(AuditPage { records: Vec::new(), more }) };
    while let Some(line) = reader.line().map_err(|error| ApiError::internal(&error))? {
        let Ok(record) = serde_json::from_slice::<Value>(&line.bytes) else { continue };
        let is = |name: &str, wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| record[name] == **wanted)
        };
        let is_selected = is("operation", &filter.operation)
            && is("session", &filter.session)
            && (!filter.blocked || record["result"] == "blocked")
            && text.as_ref().is_none_or(|text| {
                String::from_utf8_lossy(&line.bytes).to_lowercase().contains(text)
            })
            && record["timestamp"]
                .as_str()
                .and_then(parse_rfc3339)
                .is_none_or(|time| time >= since);
        if is_selected {
            records.push_back(record);
            if records.len() > most {
                records.pop_front();
                more = true;
            }
        }
    }
    Ok(AuditPage { records: records.into(), more })
}

/// Selects a log.
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditOwner {
    /// The tenant. Default: the token's own tenant, or else the service's own log.
    #[param(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
}

/// Verify the integrity of an audit log
#[utoipa::path(get, path = "/v1/audit/verify", tag = "watching", operation_id = "verifyAudit", params(AuditOwner),
    responses((status = 200, description = "The result", body = AuditVerification), ParameterErrors, AuthErrors))]
pub(super) async fn verify(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    QueryParams(whose): QueryParams<AuditOwner>,
) -> ApiResult<Json<AuditVerification>> {
    let log = log(&app, &caller, whose.user_id)?;
    run_blocking(move || {
        if !log.as_path().exists() {
            return Ok(Json(AuditVerification { intact: true, records: 0, findings: Vec::new() }));
        }
        let report = check(log.as_path(), &[]).map_err(|error| ApiError::internal(&error))?;
        let findings = report.findings.iter().map(ToString::to_string).collect();
        Ok(Json(AuditVerification {
            intact: report.is_intact(),
            records: report.records,
            findings,
        }))
    })
    .await
}
