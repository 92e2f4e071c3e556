//! Paths of the host and of a sandbox.

use ringfence_policy::AbsPath;

/// A directory of the host, and its path in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedDir {
    /// The path on the host.
    pub host: AbsPath,
    /// The path in the sandbox.
    pub guest: AbsPath,
}

/// Translation between paths of the host and of a sandbox.
///
/// The longest mapped directory around a path decides, so a directory below another may be mapped
/// elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathMap {
    dirs: Vec<MappedDir>,
}

impl PathMap {
    /// Every path is the same in the sandbox.
    pub fn identity() -> Self {
        Self::new([MappedDir { host: AbsPath::root(), guest: AbsPath::root() }])
    }

    /// Only these directories exist on both sides.
    pub fn new(dirs: impl IntoIterator<Item = MappedDir>) -> Self {
        Self { dirs: dirs.into_iter().collect() }
    }

    /// As before, but `host` and everything below it is `guest` in the sandbox.
    #[must_use]
    pub fn with(mut self, host: AbsPath, guest: AbsPath) -> Self {
        self.dirs.push(MappedDir { host, guest });
        self
    }

    /// The path in the sandbox; `None` if the sandbox does not have it.
    pub fn to_guest(&self, path: &AbsPath) -> Option<AbsPath> {
        translate(path, self.dirs.iter().map(|dir| (&dir.host, &dir.guest)))
    }

    /// The path on the host; `None` if the host does not have it.
    pub fn to_host(&self, path: &AbsPath) -> Option<AbsPath> {
        translate(path, self.dirs.iter().map(|dir| (&dir.guest, &dir.host)))
    }
}

fn translate<'a>(
    path: &AbsPath,
    dirs: impl Iterator<Item = (&'a AbsPath, &'a AbsPath)>,
) -> Option<AbsPath> {
    let (from, to) =
        dirs.filter(|(from, _)| path.is_within(from)).max_by_key(|(from, _)| from.depth())?;
    Some(to.join(path.relative_to(from)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(dirs: &[(&str, &str)]) -> PathMap {
        let path = |text: &str| AbsPath::new(text).unwrap();
        PathMap::new(
            dirs.iter().map(|(host, guest)| MappedDir { host: path(host), guest: path(guest) }),
        )
    }

    /// Checks both directions.
    #[track_caller]
    fn check(map: &PathMap, host: &str, guest: &str) {
        let path = |text: &str| AbsPath::new(text).unwrap();
        assert_eq!(map.to_guest(&path(host)), Some(path(guest)), "to guest: {host}");
        assert_eq!(map.to_host(&path(guest)), Some(path(host)), "to host: {guest}");
    }

    #[track_caller]
    fn check_absent(map: &PathMap, host: &str, guest: &str) {
        let path = |text: &str| AbsPath::new(text).unwrap();
        assert_eq!(map.to_guest(&path(host)), None, "to guest: {host}");
        assert_eq!(map.to_host(&path(guest)), None, "to host: {guest}");
    }

    #[test]
    fn identity_keeps_every_path() {
        let map = PathMap::identity();
        check(&map, "/", "/");
        check(&map, "/home/me/x", "/home/me/x");
    }

    #[test]
    fn longest_mapped_directory_decides() {
        let map = map(&[("/home/me/p", "/guest"), ("/home/me/p/data", "/data")]);
        check(&map, "/home/me/p", "/guest");
        check(&map, "/home/me/p/src/a", "/guest/src/a");
        check(&map, "/home/me/p/data/b", "/data/b");
    }

    #[test]
    fn added_directory_is_elsewhere_in_the_sandbox() {
        let path = |text: &str| AbsPath::new(text).unwrap();
        let map = PathMap::identity().with(path("/home/me/p"), path("/guest"));
        check(&map, "/home/me/p/a", "/guest/a");
        check(&map, "/usr/bin", "/usr/bin");
    }

    #[test]
    fn path_outside_every_mapped_directory_has_no_translation() {
        let map = map(&[("/home/me/p", "/guest")]);
        check_absent(&map, "/home/me/private", "/guests");
        check_absent(&map, "/", "/");
        check_absent(&PathMap::default(), "/a", "/a");
    }
}
