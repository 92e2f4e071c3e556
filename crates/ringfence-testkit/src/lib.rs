//! What the tests of ringfence stand on.
