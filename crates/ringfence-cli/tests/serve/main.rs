//! The service, asked over HTTP as programs of others ask it.

mod archives;
mod asked;
mod attacked;
mod client;
mod door;
mod ends;
mod isolation;
mod limits;
mod page;
mod sandboxes;
mod seed;
mod socket;
mod stage;
mod tokens;
