//! Log filters: `debug`, or `notify=debug,egress=trace`.

use std::fmt;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// The target of the spans that mark the stages of a run.
pub(crate) const STAGE: &str = "stage";

/// The components that log, as events name them in `target`.
pub const COMPONENTS: &[&str] = &[
    "engine",
    "launcher",
    "supervisor",
    "init",
    "notify",
    "watcher",
    "mount_agent",
    "tripwire",
    "egress",
    "dns",
    "sweep",
    "session",
    "http",
    "mcp",
    STAGE,
];

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// Part of a filter that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterError {
    /// Not the name of a component.
    Component(String),
    /// Not a level.
    Level(String),
}

impl fmt::Display for FilterError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterError::Component(name) => {
                write!(out, "no component `{name}`; there are {}", COMPONENTS.join(", "))
            }
            FilterError::Level(name) => {
                write!(out, "no level `{name}`; there are {}", LEVELS.join(", "))
            }
        }
    }
}

impl std::error::Error for FilterError {}

/// A level for each component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(Vec<(&'static str, LevelFilter)>);

impl LogFilter {
    /// The same level for every component.
    pub fn all(level: LevelFilter) -> Self {
        LogFilter(COMPONENTS.iter().map(|name| (*name, level)).collect())
    }

    /// Parses a filter. A level without a component is for all of them; later parts win.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let mut filter = LogFilter::all(LevelFilter::OFF);
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                None => filter = LogFilter::all(level(part)?),
                Some((name, wanted)) => {
                    let entry = filter.0.iter_mut().find(|(known, _)| *known == name);
                    let entry = entry.ok_or_else(|| FilterError::Component(name.to_owned()))?;
                    entry.1 = level(wanted)?;
                }
            }
        }
        Ok(filter)
    }

    /// The filter of events.
    pub(crate) fn events(&self) -> Targets {
        Targets::new().with_targets(self.0.iter().filter(|(name, _)| *name != STAGE).copied())
    }

    /// The filter of stages.
    pub(crate) fn stages(&self) -> Targets {
        Targets::new().with_targets(self.0.iter().filter(|(name, _)| *name == STAGE).copied())
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.0.iter().filter(|(_, level)| *level != LevelFilter::OFF);
        let parts: Vec<String> = parts.map(|(name, level)| format!("{name}={level}")).collect();
        out.write_str(&parts.join(","))
    }
}

fn level(name: &str) -> Result<LevelFilter, FilterError> {
    let is_known = LEVELS.contains(&name);
    let parsed = name.parse().ok().filter(|_| is_known);
    parsed.ok_or_else(|| FilterError::Level(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{FilterError, LevelFilter, LogFilter};

    #[test]
    fn later_parts_of_a_filter_win() {
        let filter = LogFilter::parse("info, notify=trace,dns=off").unwrap();
        let level = |name: &str| filter.0.iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(level("engine"), LevelFilter::INFO);
        assert_eq!(level("notify"), LevelFilter::TRACE);
        assert_eq!(level("dns"), LevelFilter::OFF);
        assert_eq!(LogFilter::parse(&filter.to_string()), Ok(filter));
        assert_eq!(LogFilter::parse(""), Ok(LogFilter::all(LevelFilter::OFF)));
    }

    #[test]
    fn every_target_of_an_event_is_a_component() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut directories: Vec<_> =
            crates.read_dir().unwrap().map(|entry| entry.unwrap().path().join("src")).collect();
        let mut count = 0;
        while let Some(directory) = directories.pop() {
            for path in
                directory.read_dir().into_iter().flatten().map(|entry| entry.unwrap().path())
            {
                if path.is_dir() {
                    directories.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                for (_, rest) in text
                    .match_indices("!(target: \"")
                    .map(|(at, mark)| text.split_at(at + mark.len()))
                {
                    let target = rest.split('"').next().unwrap_or_default();
                    assert!(super::COMPONENTS.contains(&target), "{}: {target}", path.display());
                    count += 1;
                }
            }
        }
        assert!(count > 20, "{count} events found");
    }

    #[test]
    fn wrong_part_of_a_filter_is_named() {
        assert_eq!(LogFilter::parse("server=debug"), Err(FilterError::Component("server".into())));
        assert_eq!(LogFilter::parse("notify=loud"), Err(FilterError::Level("loud".into())));
        assert_eq!(LogFilter::parse("loud"), Err(FilterError::Level("loud".into())));
        assert_eq!(LogFilter::parse("5"), Err(FilterError::Level("5".into())));
    }
}
