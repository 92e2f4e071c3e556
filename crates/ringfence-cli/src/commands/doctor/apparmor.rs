//! The AppArmor profile that allows user namespaces to this binary.

use std::path::Path;

use crate::error::CliError;

/// The command that installs the profile.
pub(super) const INSTALL: &str = "ringfence doctor --apparmor | sudo tee /etc/apparmor.d/ringfence && sudo apparmor_parser -r /etc/apparmor.d/ringfence";

/// A profile that changes nothing for `binary` but user namespaces: Ubuntu allows them only to
/// programs with a profile.
pub(super) fn profile(binary: &Path) -> Result<String, CliError> {
    let path = binary.to_str().filter(|path| !path.contains(['\n', '\r', '\0']));
    let path = path.ok_or_else(|| CliError::Usage {
        what: format!("{} cannot be written into a profile", binary.display()),
        hint: "install ringfence at a path of plain text".into(),
    })?;
    // AppArmor reads these characters as patterns, and `\` before one as the character itself.
    let quoted: String = path
        .chars()
        .flat_map(|c| {
            let is_special =
                matches!(c, '\\' | '"' | '*' | '?' | '[' | ']' | '{' | '}' | '^' | '@');
            is_special.then_some('\\').into_iter().chain([c])
        })
        .collect();
    Ok(format!(
        "# Allows user namespaces to ringfence, and changes nothing else.
# Printed by `ringfence doctor --apparmor`. Install it with:
#   {INSTALL}
abi <abi/4.0>,
include <tunables/global>

profile ringfence \"{quoted}\" flags=(unconfined) {{
  userns,

  include if exists <local/ringfence>
}}
"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_names_the_binary_without_patterns() {
        let text = profile(Path::new("/opt/my tools/ring*fence")).unwrap();
        assert!(text.contains("\nprofile ringfence \"/opt/my tools/ring\\*fence\" flags=(unconfined) {\n  userns,\n"), "{text}");
        assert!(profile(Path::new("/opt/a\nb")).is_err());
    }
}
