//! The service, asked over HTTP as programs of others ask it.

mod archives;
mod asked;
mod attacked;
mod bodies;
mod client;
mod contract;
mod door;
mod ends;
mod health;
mod isolation;
mod languages;
mod limits;
mod nursery;
mod page;
mod profiles;
mod remote;
mod sandboxes;
mod seed;
mod socket;
mod stage;
mod tokens;
