//! Repetition counts: few in CI, many under `cargo xtask stress`.

/// Set by `cargo xtask stress`.
pub const STRESS_VARIABLE: &str = "RINGFENCE_STRESS";

/// Returns `many` under `cargo xtask stress`, else `few`.
///
/// For races and generated inputs, where every repetition is another chance to fail.
pub fn repetitions(few: usize, many: usize) -> usize {
    if std::env::var_os(STRESS_VARIABLE).is_some_and(|value| !value.is_empty()) {
        many
    } else {
        few
    }
}
