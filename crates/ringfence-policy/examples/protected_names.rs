//! Prints docs/protected-names.md.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    io::stdout().write_all(ringfence_policy::builtin::render_page().as_bytes())
}
