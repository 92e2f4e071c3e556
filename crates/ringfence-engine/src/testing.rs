//! A temporary home directory for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use ringfence_policy::{AbsPath, Access, Facts};

use crate::configure::PolicyScope;
use crate::files::PolicyFiles;
use crate::own_policy::{new_own_policy, own_policy_file};
use crate::permanent_grant::{
    AllowError, Amendment, GrantTarget, PermanentGrant, Permitted, allow_permanent,
};

/// A home directory with a project in it.
pub(crate) struct TestHome(pub(crate) AbsPath);

impl TestHome {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = fs::canonicalize(std::env::temp_dir())
            .unwrap()
            .join(format!("ringfence-allow-{}-{number}", std::process::id()));
        fs::create_dir_all(path.join("p")).unwrap();
        Self(AbsPath::new(path).unwrap())
    }

    pub(crate) fn facts(&self) -> Facts {
        Facts {
            workspace: self.0.join("p"),
            home: self.0.clone(),
            user: "me".into(),
            platform: ringfence_policy::Platform::Linux,
            variables: BTreeMap::new(),
            path_dirs: Vec::new(),
            programs: BTreeSet::new(),
            installations: BTreeSet::new(),
            git: None,
            remotes: Vec::new(),
            store: self.0.join(".cache/ringfence/projects/p"),
            state: self.0.join(".local/state/ringfence"),
        }
    }

    pub(crate) fn policy(&self) -> PathBuf {
        self.0.as_path().join(".config/ringfence/policy.toml")
    }

    pub(crate) fn write(&self, text: &str) {
        fs::create_dir_all(self.policy().parent().unwrap()).unwrap();
        fs::write(self.policy(), text).unwrap();
    }

    /// The user's own policy for the project.
    pub(crate) fn own_policy(&self) -> PathBuf {
        own_policy_file(&self.facts()).as_path().to_owned()
    }

    pub(crate) fn write_own(&self, text: &str) {
        fs::create_dir_all(self.own_policy().parent().unwrap()).unwrap();
        fs::write(self.own_policy(), text).unwrap();
    }

    /// The text of the user's own policy for the project, without the header.
    pub(crate) fn read_own(&self) -> String {
        let text = fs::read_to_string(self.own_policy()).unwrap();
        text.strip_prefix(&format!("{}\n", new_own_policy(&self.facts()))).unwrap().to_owned()
    }

    pub(crate) fn read(&self) -> String {
        fs::read_to_string(self.policy()).unwrap()
    }

    /// Allows it in all projects.
    pub(crate) fn allow(&self, name: &str, access: Access) -> Result<PermanentGrant, AllowError> {
        self.amend(name, access, |amendment| amendment.write())
    }

    /// The result of [`TestHome::allow`], without writing.
    pub(crate) fn preview(&self, name: &str, access: Access) -> Result<PermanentGrant, AllowError> {
        self.amend(name, access, |amendment| amendment.preview())
    }

    fn amend(
        &self,
        name: &str,
        access: Access,
        with: fn(&Amendment<'_>) -> Result<PermanentGrant, AllowError>,
    ) -> Result<PermanentGrant, AllowError> {
        let opening = GrantTarget::Path(self.0.join(name), access);
        let (files, facts) = (PolicyFiles::default(), self.facts());
        with(&Amendment {
            subject: Permitted::Opening(&opening),
            scope: PolicyScope::Global,
            files: &files,
            facts: &facts,
        })
    }

    /// Allows it in this project.
    pub(crate) fn allow_here(
        &self,
        name: &str,
        access: Access,
    ) -> Result<PermanentGrant, AllowError> {
        allow_permanent(&self.0.join(name), access, &PolicyFiles::default(), &self.facts())
    }
}

impl Drop for TestHome {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.as_path());
    }
}
