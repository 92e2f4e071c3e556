//! The service: skills and sandboxes of many tenants behind HTTP.

#![forbid(unsafe_code)]
