//! Git settings inside a sandbox, passed by environment variables (git 2.31 and newer).

use std::ffi::{OsStr, OsString};

const COUNT: &str = "GIT_CONFIG_COUNT";

/// Settings for operations that no command can finish in the user's repository: the files they
/// write would make git on the host copy files or change the working tree by itself.
const SETTINGS: [(&str, &str); 2] = [("rerere.enabled", "false"), ("merge.autoStash", "false")];

/// Adds the settings after those that the user passes by environment variables.
pub(crate) fn add_settings(variables: &mut Vec<(OsString, OsString)>) {
    let given =
        variables.iter().find(|(name, _)| name == COUNT).map(|(_, value)| value.as_os_str());
    // git refuses to start with an invalid number, so that is left unchanged.
    let Some(first) = given.map_or(Some(0), parse_count) else { return };
    let last = first + SETTINGS.len();
    variables.retain(|(name, _)| name != COUNT);
    for (number, (key, value)) in (first..last).zip(SETTINGS) {
        for (name, value) in [
            (format!("GIT_CONFIG_KEY_{number}"), key),
            (format!("GIT_CONFIG_VALUE_{number}"), value),
        ] {
            variables.retain(|(known, _)| known.as_os_str() != OsStr::new(&name));
            variables.push((name.into(), value.into()));
        }
    }
    variables.push((COUNT.into(), last.to_string().into()));
}

fn parse_count(text: &OsStr) -> Option<usize> {
    const MAX_COUNT: usize = 1 << 16;
    let text = text.to_str()?;
    if text.is_empty() {
        Some(0)
    } else {
        text.parse().ok().filter(|parse_count| *parse_count < MAX_COUNT)
    }
}

#[cfg(test)]
mod tests {
    use super::add_settings;

    #[track_caller]
    fn check(given: &[(&str, &str)], expected: &[(&str, &str)]) {
        let mut variables = given.iter().map(|(name, value)| (name.into(), value.into())).collect();
        add_settings(&mut variables);
        let mut found: Vec<_> = variables
            .iter()
            .map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap()))
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn settings_are_added_after_those_of_the_user() {
        let own = [
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "a.b"),
            ("GIT_CONFIG_VALUE_0", "c"),
            ("GIT_CONFIG_KEY_1", "stale"),
        ];
        check(
            &own,
            &[
                ("GIT_CONFIG_COUNT", "3"),
                ("GIT_CONFIG_KEY_0", "a.b"),
                ("GIT_CONFIG_KEY_1", "rerere.enabled"),
                ("GIT_CONFIG_KEY_2", "merge.autoStash"),
                ("GIT_CONFIG_VALUE_0", "c"),
                ("GIT_CONFIG_VALUE_1", "false"),
                ("GIT_CONFIG_VALUE_2", "false"),
            ],
        );
        check(&[("GIT_CONFIG_COUNT", "x")], &[("GIT_CONFIG_COUNT", "x")]);
    }
}
