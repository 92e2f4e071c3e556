//! A private store for each test.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_skills::{SkillId, SkillName, SkillStore, StoreError, UploadBounds, UploadResult};

use crate::pack::{Item, Pack};

pub(crate) struct SkillStage {
    pub(crate) root: PathBuf,
    pub(crate) store: SkillStore,
}

/// A valid head without warnings.
pub(crate) fn skill_md(name: &str) -> String {
    format!("---\nname: {name}\ndescription: What it is for.\n---\nDo it.\n")
}

pub(crate) fn name(text: &str) -> SkillName {
    text.parse().unwrap()
}

pub(crate) fn id(skill: &str) -> SkillId {
    SkillId { user: name("ada"), agent: name("helper"), skill: name(skill) }
}

/// The `SKILL.md` of a skill, and more files.
pub(crate) fn skill(skill: &str, files: &[(&str, &str)]) -> Vec<Item> {
    let mut items = vec![Item::file(format!("{skill}/SKILL.md"), skill_md(skill)).deflated()];
    items.extend(files.iter().map(|(path, text)| Item::file(format!("{skill}/{path}"), text)));
    items
}

/// Everything below a directory: types, modes and content.
pub(crate) fn shape(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut shape = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let found = path.symlink_metadata().unwrap();
            let mode = found.permissions().mode() & 0o7777;
            let text = match found.is_dir() {
                true => format!("directory {mode:o}"),
                false if found.is_file() => format!(
                    "file {mode:o} {}",
                    String::from_utf8_lossy(&std::fs::read(&path).unwrap())
                ),
                false => "other".into(),
            };
            if found.is_dir() {
                waiting.push(path.clone());
            }
            shape.insert(path.strip_prefix(root).unwrap().to_owned(), text);
        }
    }
    shape
}

impl SkillStage {
    pub(crate) fn new(directory: &Path) -> SkillStage {
        let root = directory.join("store");
        let store = SkillStore::open(&root, SkillStage::bounds()).unwrap();
        SkillStage { root, store }
    }

    pub(crate) fn bounds() -> UploadBounds {
        UploadBounds { patience: Duration::from_secs(20), ..UploadBounds::default() }
    }

    pub(crate) fn upload(&self, pack: &Pack) -> Result<UploadResult, StoreError> {
        self.upload_bytes(pack.bytes())
    }

    pub(crate) fn upload_bytes(&self, bytes: Vec<u8>) -> Result<UploadResult, StoreError> {
        self.store.upload(&name("ada"), &name("helper"), Cursor::new(bytes), None)
    }

    /// Uploads a skill.
    pub(crate) fn put(&self, skill_name: &str, files: &[(&str, &str)]) -> PathBuf {
        self.upload(&Pack::new(skill(skill_name, files))).unwrap();
        self.at(skill_name)
    }

    pub(crate) fn at(&self, skill: &str) -> PathBuf {
        self.root.join("skills").join("ada/helper").join(skill)
    }

    /// Asserts that staging and trash are empty.
    #[track_caller]
    pub(crate) fn check_clear(&self) {
        for part in ["staging", "trash"] {
            let left: Vec<PathBuf> = std::fs::read_dir(self.root.join(part))
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .collect();
            assert_eq!(left, [] as [PathBuf; 0], "{part}");
        }
    }
}
