//! What requests are answered with that are not carried out, once for all functions.

#![expect(dead_code, reason = "they describe what is answered, and are no answers")]

use utoipa::IntoResponses;

use crate::error::ProblemJson;

/// Whatever asks for a token.
#[derive(IntoResponses)]
pub(in crate::server) enum AuthErrors {
    /// No token that the service knows
    #[response(status = 401, headers(("WWW-Authenticate" = String, description = "`Bearer`")))]
    Stranger(ProblemJson),
    /// Not with this token, or not from a page of this origin
    #[response(status = 403)]
    Forbidden(ProblemJson),
    /// The service is not known by this name
    #[response(status = 421)]
    Misdirected(ProblemJson),
    /// More than is allowed in a second, or than may wait
    #[response(status = 429, headers(("Retry-After" = u64, description = "After how many seconds to try again")))]
    TooFast(ProblemJson),
    /// Something of the service's own failed
    #[response(status = 500)]
    Failed(ProblemJson),
}

/// What anybody may see.
#[derive(IntoResponses)]
pub(in crate::server) enum PublicErrors {
    /// Not from a page of this origin
    #[response(status = 403)]
    Forbidden(ProblemJson),
    /// The service is not known by this name
    #[response(status = 421)]
    Misdirected(ProblemJson),
}

/// Names and choices.
#[derive(IntoResponses)]
pub(in crate::server) enum ParameterErrors {
    /// A name or a choice that means nothing
    #[response(status = 400)]
    Wrong(ProblemJson),
}

/// A body of JSON.
#[derive(IntoResponses)]
pub(in crate::server) enum BodyErrors {
    /// A name, a choice or a body that means nothing
    #[response(status = 400)]
    Wrong(ProblemJson),
    /// It took too long to arrive
    #[response(status = 408)]
    TooSlow(ProblemJson),
    /// Too large
    #[response(status = 413)]
    TooLarge(ProblemJson),
    /// No JSON
    #[response(status = 415)]
    Other(ProblemJson),
    /// JSON, but not what is expected
    #[response(status = 422)]
    Unexpected(ProblemJson),
}

/// A form with an archive in it.
#[derive(IntoResponses)]
pub(in crate::server) enum FormErrors {
    /// No archive, or one that is refused; nothing of it was kept
    #[response(status = 400)]
    Wrong(ProblemJson),
    /// It took too long to arrive
    #[response(status = 408)]
    TooSlow(ProblemJson),
    /// Too large
    #[response(status = 413)]
    TooLarge(ProblemJson),
    /// No form
    #[response(status = 415)]
    Other(ProblemJson),
}

/// There is no such thing
#[derive(IntoResponses)]
#[response(status = 404)]
pub(in crate::server) struct NotFoundError(ProblemJson);

/// Not as things stand: it is another by now, in use by others, or was cancelled
#[derive(IntoResponses)]
#[response(status = 409)]
pub(in crate::server) struct ConflictError(ProblemJson);

/// It was there, and is gone
#[derive(IntoResponses)]
#[response(status = 410)]
pub(in crate::server) struct GoneError(ProblemJson);

/// More than is handed out
#[derive(IntoResponses)]
#[response(status = 413)]
pub(in crate::server) struct TooLargeError(ProblemJson);

/// No command can be confined, or started, at this moment
#[derive(IntoResponses)]
#[response(status = 503, headers(("Retry-After" = u64, description = "After how many seconds to try again")))]
pub(in crate::server) struct UnavailableError(ProblemJson);

/// Beyond the tenant's quota
#[derive(IntoResponses)]
#[response(status = 507)]
pub(in crate::server) struct QuotaError(ProblemJson);

/// It took too long to arrive
#[derive(IntoResponses)]
#[response(status = 408)]
pub(in crate::server) struct RequestTimeoutError(ProblemJson);

/// The policy denies it
#[derive(IntoResponses)]
#[response(status = 422)]
pub(in crate::server) struct PolicyDeniedError(ProblemJson);
