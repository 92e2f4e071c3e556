//! Prints docs/protected-names.md.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    io::stdout().write_all(ringfence_policy::builtin::page().as_bytes())
}
