//! Error responses shared by all handlers, for the OpenAPI document.

#![expect(dead_code, reason = "they only describe responses")]

use utoipa::IntoResponses;

use crate::error::ProblemJson;

/// Responses of every path that needs a token.
#[derive(IntoResponses)]
pub(in crate::server) enum AuthErrors {
    /// Missing or unknown token
    #[response(status = 401, headers(("WWW-Authenticate" = String, description = "`Bearer`")))]
    Stranger(ProblemJson),
    /// The token or the page's origin does not permit this
    #[response(status = 403)]
    Forbidden(ProblemJson),
    /// Unknown host name
    #[response(status = 421)]
    Misdirected(ProblemJson),
    /// Too many requests per second, or too many waiting
    #[response(status = 429, headers(("Retry-After" = u64, description = "Seconds to wait before a retry")))]
    TooFast(ProblemJson),
    /// Internal error in the service
    #[response(status = 500)]
    Failed(ProblemJson),
}

/// Responses of paths that need no token.
#[derive(IntoResponses)]
pub(in crate::server) enum PublicErrors {
    /// The page's origin does not permit this
    #[response(status = 403)]
    Forbidden(ProblemJson),
    /// Unknown host name
    #[response(status = 421)]
    Misdirected(ProblemJson),
}

/// Parameter errors.
#[derive(IntoResponses)]
pub(in crate::server) enum ParameterErrors {
    /// An invalid name or parameter
    #[response(status = 400)]
    Wrong(ProblemJson),
}

/// Errors of a JSON body.
#[derive(IntoResponses)]
pub(in crate::server) enum BodyErrors {
    /// An invalid name, parameter or body
    #[response(status = 400)]
    Wrong(ProblemJson),
    /// The body took too long to arrive
    #[response(status = 408)]
    TooSlow(ProblemJson),
    /// Too large
    #[response(status = 413)]
    TooLarge(ProblemJson),
    /// Not JSON
    #[response(status = 415)]
    Other(ProblemJson),
    /// Valid JSON with unexpected content
    #[response(status = 422)]
    Unexpected(ProblemJson),
}

/// Errors of a form with an archive.
#[derive(IntoResponses)]
pub(in crate::server) enum FormErrors {
    /// No archive, or a rejected one; nothing of it was stored
    #[response(status = 400)]
    Wrong(ProblemJson),
    /// The body took too long to arrive
    #[response(status = 408)]
    TooSlow(ProblemJson),
    /// Too large
    #[response(status = 413)]
    TooLarge(ProblemJson),
    /// Not a form
    #[response(status = 415)]
    Other(ProblemJson),
}

/// Not found
#[derive(IntoResponses)]
#[response(status = 404)]
pub(in crate::server) struct NotFoundError(ProblemJson);

/// Conflict with the current state: changed meanwhile, in use, or cancelled
#[derive(IntoResponses)]
#[response(status = 409)]
pub(in crate::server) struct ConflictError(ProblemJson);

/// No longer available
#[derive(IntoResponses)]
#[response(status = 410)]
pub(in crate::server) struct GoneError(ProblemJson);

/// Larger than the limit
#[derive(IntoResponses)]
#[response(status = 413)]
pub(in crate::server) struct TooLargeError(ProblemJson);

/// Commands cannot be confined or started at this moment
#[derive(IntoResponses)]
#[response(status = 503, headers(("Retry-After" = u64, description = "Seconds to wait before a retry")))]
pub(in crate::server) struct UnavailableError(ProblemJson);

/// The tenant's quota is exceeded
#[derive(IntoResponses)]
#[response(status = 507)]
pub(in crate::server) struct QuotaError(ProblemJson);

/// The body took too long to arrive
#[derive(IntoResponses)]
#[response(status = 408)]
pub(in crate::server) struct RequestTimeoutError(ProblemJson);

/// The policy denies it
#[derive(IntoResponses)]
#[response(status = 422)]
pub(in crate::server) struct PolicyDeniedError(ProblemJson);
