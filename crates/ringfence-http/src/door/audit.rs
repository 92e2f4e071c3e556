//! The audit log of a tenant.

use std::collections::VecDeque;

use axum::extract::State;
use axum::{Extension, Json};
use ringfence_audit::{Reader, parse_rfc3339, verify as check};
use ringfence_policy::AbsPath;
use ringfence_skills::Name;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::schema;
use super::schema::answers::{NotMeant, Refused};
use super::skills::apart;
use super::words::{Asked, at_most};
use crate::Shared;
use crate::answer::{Answer, Fault};
use crate::tenants::{Caller, Scope};

/// Whose log, and which records.
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Chosen {
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
pub(super) struct Records {
    /// Oldest first.
    #[schema(value_type = Vec<schema::Line>)]
    records: Vec<Value>,
    /// Whether there are older ones that are meant as well.
    more: bool,
}

/// Whether a log is whole.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Verified {
    /// Nothing was changed, left out, put in or cut off.
    intact: bool,
    records: u64,
    /// What is wrong, in words.
    findings: Vec<String>,
}

fn log(house: &Shared, caller: &Caller, user: Option<String>) -> Answer<AbsPath> {
    caller.has(Scope::Audit)?;
    let user = match user {
        Some(user) => Some(Name::try_from(user.as_str())?),
        None => caller.user.clone(),
    };
    match user {
        Some(user) => {
            caller.may(Scope::Audit, &user)?;
            Ok(house.tenant(user.as_ref()).join("audit"))
        }
        None => Ok(house.data.join("audit")),
    }
}

/// Read an audit log
#[utoipa::path(get, path = "/v1/audit", tag = "watching", operation_id = "readAudit", params(Chosen),
    responses((status = 200, description = "Oldest first", body = Records), NotMeant, Refused))]
pub(super) async fn list(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Asked(chosen): Asked<Chosen>,
) -> Answer<Json<Records>> {
    let log = log(&house, &caller, chosen.user_id.clone())?;
    let since = match &chosen.since {
        Some(text) => parse_rfc3339(text).ok_or_else(|| {
            Fault::wrong("since", "`since` is no RFC 3339 time").hint("2026-01-31T12:00:00Z")
        })?,
        None => 0,
    };
    let most = at_most(chosen.limit, 200)?;
    apart(move || read(&log, &chosen, since, most).map(Json)).await
}

fn read(log: &AbsPath, chosen: &Chosen, since: u64, most: usize) -> Answer<Records> {
    let text = chosen.text.as_ref().map(|text| text.to_lowercase());
    let mut records = VecDeque::new();
    let mut more = false;
    let opened = Reader::open(log.as_path(), since).map_err(|error| Fault::ours(&error))?;
    let Some(mut reader) = opened else { return Ok(Records { records: Vec::new(), more }) };
    while let Some(line) = reader.line().map_err(|error| Fault::ours(&error))? {
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
    Ok(Records { records: records.into(), more })
}

/// Whose log.
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// The tenant; without one, the token's own, or the service's own log.
    #[param(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
}

/// Look whether an audit log is whole
#[utoipa::path(get, path = "/v1/audit/verify", tag = "watching", operation_id = "verifyAudit", params(Whose),
    responses((status = 200, description = "What was found", body = Verified), NotMeant, Refused))]
pub(super) async fn verify(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Asked(whose): Asked<Whose>,
) -> Answer<Json<Verified>> {
    let log = log(&house, &caller, whose.user_id)?;
    apart(move || {
        if !log.as_path().exists() {
            return Ok(Json(Verified { intact: true, records: 0, findings: Vec::new() }));
        }
        let report = check(log.as_path(), &[]).map_err(|error| Fault::ours(&error))?;
        let findings = report.findings.iter().map(ToString::to_string).collect();
        Ok(Json(Verified { intact: report.is_intact(), records: report.records, findings }))
    })
    .await
}
