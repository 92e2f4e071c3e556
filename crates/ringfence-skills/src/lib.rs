//! Skills of many tenants on disk.

#![forbid(unsafe_code)]
