//! The service, used over HTTP as third-party programs use it.

mod archives;
mod asked;
mod attacked;
mod bodies;
mod client;
mod connections;
mod contract;
mod ends;
mod health;
mod isolation;
mod languages;
mod limits;
mod page;
mod profiles;
mod remote;
mod sandboxes;
mod seed;
mod socket;
mod stage;
mod tokens;
mod zygote;
