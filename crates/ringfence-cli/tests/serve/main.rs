//! The service, asked over HTTP as programs of others ask it.

mod archives;
mod client;
mod door;
mod ends;
mod isolation;
mod limits;
mod page;
mod seed;
mod stage;
mod tokens;
