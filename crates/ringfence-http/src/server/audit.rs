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

use super::extract::{QueryParams, at_most};
use super::schema;
use super::schema::errors::{AuthErrors, ParameterErrors};
use super::skills::apart;
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::tenants::{ApiCaller, TokenScope};

/// Whose log, and which records.
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditFilter {
    /// The tenant; without one, the token's own, or the service's own log.
    #[param(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
    /// Only what was refused.
    #[serde(default)]
    blocked: bool,
    /// Only this operation: `execute`, `exit`, `read`, `write`, `connect`, `upload` …
    operation: Option<String>,
    /// Only of this execution or sandbox.
    session: Option<String>,
    /// Only what names this somewhere, in whatever case.
    text: Option<String>,
    /// Only since then: RFC 3339.
    #[param(format = DateTime)]
    since: Option<String>,
    /// How many at most, the newest of all.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Records.
#[derive(Serialize, ToSchema)]
pub(super) struct AuditPage {
    /// Oldest first.
    #[schema(value_type = Vec<schema::Line>)]
    records: Vec<Value>,
    /// Whether there are older ones that are meant as well.
    more: bool,
}

/// Whether a log is whole.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditVerification {
    /// Nothing was changed, left out, put in or cut off.
    intact: bool,
    records: u64,
    /// What is wrong, in words.
    findings: Vec<String>,
}

fn log(house: &SharedState, caller: &ApiCaller, user: Option<String>) -> ApiResult<AbsPath> {
    caller.has(TokenScope::Audit)?;
    let user = match user {
        Some(user) => Some(SkillName::try_from(user.as_str())?),
        None => caller.user.clone(),
    };
    match user {
        Some(user) => {
            caller.may(TokenScope::Audit, &user)?;
            Ok(house.tenant(user.as_ref()).join("audit"))
        }
        None => Ok(house.data.join("audit")),
    }
}

/// Read an audit log
#[utoipa::path(get, path = "/v1/audit", tag = "watching", operation_id = "readAudit", params(AuditFilter),
    responses((status = 200, description = "Oldest first", body = AuditPage), ParameterErrors, AuthErrors))]
pub(super) async fn list(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    QueryParams(chosen): QueryParams<AuditFilter>,
) -> ApiResult<Json<AuditPage>> {
    let log = log(&house, &caller, chosen.user_id.clone())?;
    let since = match &chosen.since {
        Some(text) => parse_rfc3339(text).ok_or_else(|| {
            ApiError::wrong("since", "`since` is no RFC 3339 time").hint("2026-01-31T12:00:00Z")
        })?,
        None => 0,
    };
    let most = at_most(chosen.limit, 200)?;
    apart(move || read(&log, &chosen, since, most).map(Json)).await
}

fn read(log: &AbsPath, chosen: &AuditFilter, since: u64, most: usize) -> ApiResult<AuditPage> {
    let text = chosen.text.as_ref().map(|text| text.to_lowercase());
    let mut records = VecDeque::new();
    let mut more = false;
    let opened = LogReader::open(log.as_path(), since).map_err(|error| ApiError::ours(&error))?;
    let Some(mut reader) = opened else { return Ok(AuditPage { records: Vec::new(), more }) };
    while let Some(line) = reader.line().map_err(|error| ApiError::ours(&error))? {
        let Ok(record) = serde_json::from_slice::<Value>(&line.bytes) else { continue };
        let is = |name: &str, wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| record[name] == **wanted)
        };
        let is_meant = is("operation", &chosen.operation)
            && is("session", &chosen.session)
            && (!chosen.blocked || record["result"] == "blocked")
            && text.as_ref().is_none_or(|text| {
                String::from_utf8_lossy(&line.bytes).to_lowercase().contains(text)
            })
            && record["timestamp"]
                .as_str()
                .and_then(parse_rfc3339)
                .is_none_or(|time| time >= since);
        if is_meant {
            records.push_back(record);
            if records.len() > most {
                records.pop_front();
                more = true;
            }
        }
    }
    Ok(AuditPage { records: records.into(), more })
}

/// Whose log.
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditOwner {
    /// The tenant; without one, the token's own, or the service's own log.
    #[param(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
}

/// Look whether an audit log is whole
#[utoipa::path(get, path = "/v1/audit/verify", tag = "watching", operation_id = "verifyAudit", params(AuditOwner),
    responses((status = 200, description = "What was found", body = AuditVerification), ParameterErrors, AuthErrors))]
pub(super) async fn verify(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    QueryParams(whose): QueryParams<AuditOwner>,
) -> ApiResult<Json<AuditVerification>> {
    let log = log(&house, &caller, whose.user_id)?;
    apart(move || {
        if !log.as_path().exists() {
            return Ok(Json(AuditVerification { intact: true, records: 0, findings: Vec::new() }));
        }
        let report = check(log.as_path(), &[]).map_err(|error| ApiError::ours(&error))?;
        let findings = report.findings.iter().map(ToString::to_string).collect();
        Ok(Json(AuditVerification {
            intact: report.is_intact(),
            records: report.records,
            findings,
        }))
    })
    .await
}
