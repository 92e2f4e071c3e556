//! What requests are answered with that are not carried out, once for all functions.

#![expect(dead_code, reason = "they describe what is answered, and are no answers")]

use utoipa::IntoResponses;

use crate::answer::Problem;

/// Whatever asks for a token.
#[derive(IntoResponses)]
pub(in crate::door) enum Refused {
    /// No token that the service knows
    #[response(status = 401, headers(("WWW-Authenticate" = String, description = "`Bearer`")))]
    Stranger(Problem),
    /// Not with this token, or not from a page of this origin
    #[response(status = 403)]
    Forbidden(Problem),
    /// The service is not known by this name
    #[response(status = 421)]
    Misdirected(Problem),
    /// More than is allowed in a second, or than may wait
    #[response(status = 429, headers(("Retry-After" = u64, description = "After how many seconds to try again")))]
    TooFast(Problem),
    /// Something of the service's own failed
    #[response(status = 500)]
    Failed(Problem),
}

/// What anybody may see.
#[derive(IntoResponses)]
pub(in crate::door) enum Outside {
    /// Not from a page of this origin
    #[response(status = 403)]
    Forbidden(Problem),
    /// The service is not known by this name
    #[response(status = 421)]
    Misdirected(Problem),
}

/// Names and choices.
#[derive(IntoResponses)]
pub(in crate::door) enum NotMeant {
    /// A name or a choice that means nothing
    #[response(status = 400)]
    Wrong(Problem),
}

/// A body of JSON.
#[derive(IntoResponses)]
pub(in crate::door) enum NoBody {
    /// A name, a choice or a body that means nothing
    #[response(status = 400)]
    Wrong(Problem),
    /// It took too long to arrive
    #[response(status = 408)]
    TooSlow(Problem),
    /// Too large
    #[response(status = 413)]
    TooLarge(Problem),
    /// No JSON
    #[response(status = 415)]
    Other(Problem),
    /// JSON, but not what is expected
    #[response(status = 422)]
    Unexpected(Problem),
}

/// A form with an archive in it.
#[derive(IntoResponses)]
pub(in crate::door) enum NoForm {
    /// No archive, or one that is refused; nothing of it was kept
    #[response(status = 400)]
    Wrong(Problem),
    /// It took too long to arrive
    #[response(status = 408)]
    TooSlow(Problem),
    /// Too large
    #[response(status = 413)]
    TooLarge(Problem),
    /// No form
    #[response(status = 415)]
    Other(Problem),
}

/// There is no such thing
#[derive(IntoResponses)]
#[response(status = 404)]
pub(in crate::door) struct Absent(Problem);

/// Not as things stand: it is another by now, in use by others, or was cancelled
#[derive(IntoResponses)]
#[response(status = 409)]
pub(in crate::door) struct Conflict(Problem);

/// It was there, and is gone
#[derive(IntoResponses)]
#[response(status = 410)]
pub(in crate::door) struct Gone(Problem);

/// More than is handed out
#[derive(IntoResponses)]
#[response(status = 413)]
pub(in crate::door) struct TooMuch(Problem);

/// No command can be confined, or started, at this moment
#[derive(IntoResponses)]
#[response(status = 503, headers(("Retry-After" = u64, description = "After how many seconds to try again")))]
pub(in crate::door) struct Unable(Problem);

/// Beyond the tenant's quota
#[derive(IntoResponses)]
#[response(status = 507)]
pub(in crate::door) struct Full(Problem);

/// It took too long to arrive
#[derive(IntoResponses)]
#[response(status = 408)]
pub(in crate::door) struct TooSlow(Problem);

/// The policy denies it
#[derive(IntoResponses)]
#[response(status = 422)]
pub(in crate::door) struct Denied(Problem);
