//! Absolute paths as bytes: the path type of the policy model.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Component, Path, PathBuf};

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An absolute path without `.`, `..`, empty components or a trailing slash.
///
/// Built from text only: the caller resolves symlinks.
///
/// Comparisons use bytes, not parsed components: there are hundreds of rules, and a sandbox starts
/// in a few milliseconds.
#[derive(Clone)]
pub struct AbsPath(PathBuf);

impl AbsPath {
    /// Normalises `path`; `None` if it is not absolute or contains a NUL byte.
    ///
    /// `..` is resolved textually, and `/..` is `/`.
    pub fn new(path: impl AsRef<Path>) -> Option<Self> {
        let path = path.as_ref();
        if !path.is_absolute() || path.as_os_str().as_encoded_bytes().contains(&0) {
            return None;
        }
        // Fast path: nearly every path is normal already, and this runs for each rule at each
        // start.
        if path.as_os_str().as_encoded_bytes().strip_prefix(b"/").is_some_and(is_normal) {
            return Some(Self(path.to_path_buf()));
        }
        let mut clean = PathBuf::from("/");
        for component in path.components() {
            match component {
                Component::Normal(name) => clean.push(name),
                Component::ParentDir => {
                    clean.pop();
                }
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        Some(Self(clean))
    }

    /// The root directory.
    pub fn root() -> Self {
        Self(PathBuf::from("/"))
    }

    /// `self` with `relative` appended, normalised; an absolute `relative` replaces `self`.
    pub fn join(&self, relative: impl AsRef<Path>) -> Self {
        let relative = relative.as_ref();
        if is_normal(relative.as_os_str().as_encoded_bytes()) {
            return Self(self.0.join(relative));
        }
        Self::new(self.0.join(relative)).unwrap_or_else(|| self.clone())
    }

    /// The parent directory; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let bytes = self.as_bytes();
        let cut = bytes.iter().rposition(|byte| *byte == b'/').filter(|_| bytes.len() > 1)?;
        Some(Self(os_string(bytes[..cut.max(1)].to_vec()).into()))
    }

    /// The last component; `None` for the root.
    pub fn name(&self) -> Option<&OsStr> {
        self.0.file_name()
    }

    /// True if this path is `root` or lies below it.
    pub fn is_within(&self, root: &AbsPath) -> bool {
        // Both are normalised, so bytes are enough; this runs for every rule at every access.
        let (path, root) = (self.as_bytes(), root.as_bytes());
        path.starts_with(root)
            && (path.len() == root.len() || root == b"/" || path[root.len()] == b'/')
    }

    /// Like [`is_within`](Self::is_within), ignoring the case of ASCII letters.
    pub fn is_within_in_any_case(&self, root: &AbsPath) -> bool {
        let (path, root) = (self.as_bytes(), root.as_bytes());
        // Most rules fail at the byte after their root, which is the cheapest to check.
        let ends_there = path.get(root.len()).is_none_or(|byte| *byte == b'/') || root == b"/";
        ends_there && path.get(..root.len()).is_some_and(|start| start.eq_ignore_ascii_case(root))
    }

    /// The part below `root`; `None` if the path is not within it.
    pub fn relative_to(&self, root: &AbsPath) -> Option<&Path> {
        self.0.strip_prefix(&root.0).ok()
    }

    /// Number of components after the root directory.
    pub fn depth(&self) -> usize {
        let bytes = self.as_bytes();
        if bytes == b"/" { 0 } else { bytes.iter().filter(|byte| **byte == b'/').count() }
    }

    /// From the path itself up to the root directory.
    pub fn ancestors(&self) -> impl Iterator<Item = AbsPath> + '_ {
        self.0.ancestors().map(|path| Self(path.to_path_buf()))
    }

    /// As a `Path` of the standard library.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// The bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_os_str().as_encoded_bytes()
    }

    /// Display form; bytes that are not UTF-8 are replaced.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        self.0.to_string_lossy()
    }
}

/// True if the path is relative and already normalised.
fn is_normal(bytes: &[u8]) -> bool {
    !bytes.contains(&0)
        && bytes.split(|&byte| byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."))
}

impl PartialEq for AbsPath {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for AbsPath {}

impl std::hash::Hash for AbsPath {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl PartialOrd for AbsPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AbsPath {
    /// Orders a directory directly before the paths below it: the separator sorts first.
    fn cmp(&self, other: &Self) -> Ordering {
        let (ours, theirs) = (self.as_bytes(), other.as_bytes());
        let same = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
        let key = |bytes: &[u8]| {
            bytes.get(same).map(|byte| if *byte == b'/' { 0 } else { u16::from(*byte) + 1 })
        };
        key(ours).cmp(&key(theirs))
    }
}

impl AsRef<Path> for AbsPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for AbsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl fmt::Debug for AbsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for AbsPath {
    /// Text in readable formats, exact bytes in ringfence's binary formats.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&self.0.to_string_lossy())
        } else {
            serializer.serialize_bytes(self.0.as_os_str().as_encoded_bytes())
        }
    }
}

impl<'de> Deserialize<'de> for AbsPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: OsString = if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.into()
        } else {
            os_string(deserializer.deserialize_byte_buf(PathBytes)?)
        };
        AbsPath::new(Path::new(&text))
            .ok_or_else(|| serde::de::Error::custom("path is not absolute"))
    }
}

/// Accepts bytes as one slice: `Vec<u8>` would take them one by one.
struct PathBytes;

impl<'de> Visitor<'de> for PathBytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of a path")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }

    fn visit_byte_buf<E: serde::de::Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
        Ok(bytes)
    }
}

#[cfg(unix)]
fn os_string(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

#[cfg(not(unix))]
fn os_string(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::AbsPath;

    #[track_caller]
    fn check(input: &str, expect: Option<&str>) {
        assert_eq!(AbsPath::new(input).map(|p| p.to_string()).as_deref(), expect);
    }

    #[test]
    fn paths_are_absolute_and_normal() {
        check("/a//b/./c/", Some("/a/b/c"));
        check("/a/../../b", Some("/b"));
        check("/", Some("/"));
        check("a/b", None);
        check("", None);
        check("/a\0b", None);
    }

    #[track_caller]
    fn check_join(relative: &str, expect: &str) {
        assert_eq!(AbsPath::new("/a/b").unwrap().join(relative).to_string(), expect);
    }

    #[test]
    fn joining_normalises_too() {
        check_join("c", "/a/b/c");
        check_join("c/d/", "/a/b/c/d");
        check_join("../c", "/a/c");
        check_join("./c//d", "/a/b/c/d");
        check_join("/x/../y", "/y");
        check_join("", "/a/b");
        check_join("c\0d", "/a/b");
    }

    #[test]
    fn paths_sort_directly_after_their_directory() {
        let mut paths = ["/a/b-c", "/a/b/x", "/a/b", "/a", "/", "/a/b/x/y"]
            .map(|text| AbsPath::new(text).unwrap());
        paths.sort();
        assert_eq!(
            paths.map(|path| path.to_string()),
            ["/", "/a", "/a/b", "/a/b/x", "/a/b/x/y", "/a/b-c"]
        );
    }

    #[test]
    fn a_sibling_with_the_same_prefix_is_not_within() {
        let root = AbsPath::new("/home/me/project").unwrap();
        assert!(AbsPath::new("/home/me/project/x").unwrap().is_within(&root));
        assert!(!AbsPath::new("/home/me/project-two").unwrap().is_within(&root));
    }
}
