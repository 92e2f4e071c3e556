//! Who may do what, and how much of it.

mod caller;
mod pace;
mod quotas;
mod token;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ringfence_audit::now_ms;
use ringfence_policy::AbsPath;
use ringfence_skills::Name;

pub(crate) use caller::{Caller, Scope};
pub(crate) use pace::Pace;
pub use quotas::Quotas;
pub use token::SHORTEST_TOKEN;
pub(crate) use token::{Kept, Key, Made};

use crate::house::{make_directory, of, put};
use crate::{ServeError, Settings};

/// The administrator's token is known by this.
pub(crate) const ADMIN: &str = "admin";

pub(crate) struct Tenants {
    data: AbsPath,
    key: Key,
    tokens: RwLock<Vec<Kept>>,
    /// Given with the start of the service, and kept nowhere.
    given: Option<Kept>,
    usual: Quotas,
    /// Of those that were asked about.
    quotas: Mutex<HashMap<Name, Quotas>>,
    paces: Mutex<HashMap<String, Pace>>,
    /// How many bytes tenants had when somebody looked.
    weighed: Mutex<HashMap<Name, (Instant, u64)>>,
    /// How many places are taken, by whom and for what.
    taken: Mutex<HashMap<String, usize>>,
}

impl Tenants {
    /// Answers also the administrator's token, if it was made just now.
    pub(crate) fn open(data: &AbsPath, settings: &Settings) -> Result<(Self, Option<String>), ServeError> {
        let key = Key::open(&data.join("key"))?;
        let path = data.join("tokens.json");
        let tokens: Vec<Kept> = match fs::read(path.as_path()) {
            Ok(bytes) => {
                let kept = |source| ServeError::Kept { path: path.as_path().to_owned(), source };
                serde_json::from_slice(&bytes).map_err(kept)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(of(&path, source)),
        };
        let given = match &settings.admin_token {
            Some(word) => Some(Kept::given(word, &key).ok_or(ServeError::Token)?),
            None => None,
        };
        let tenants = Self {
            data: data.clone(),
            key,
            tokens: RwLock::new(tokens),
            given,
            usual: settings.quotas,
            quotas: Mutex::default(),
            paces: Mutex::default(),
            weighed: Mutex::default(),
            taken: Mutex::default(),
        };
        let has_admin = tenants.given.is_some() || tenants.read().iter().any(|kept| kept.id == ADMIN);
        if has_admin {
            return Ok((tenants, None));
        }
        let made = Made { label: "the administrator's, of the first start".into(), ..Made::default() };
        let word = tenants.make_as(ADMIN.into(), made).map_err(|source| of(&path, source))?.1;
        Ok((tenants, Some(word)))
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Vec<Kept>> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose word this is.
    pub(crate) fn caller(&self, word: &[u8]) -> Option<Caller> {
        let digest = self.key.digest(word);
        // All of them are compared, found or not: how long it takes says nothing.
        let mut found = None;
        let tokens = self.read();
        for kept in self.given.iter().chain(tokens.iter()) {
            if kept.is(&digest) {
                found = Some(kept);
            }
        }
        found.filter(|kept| kept.expires_ms.is_none_or(|end| now_ms() < end)).map(Caller::of)
    }

    /// Whether the token of this id is still worth something.
    pub(crate) fn knows(&self, id: &str) -> bool {
        let tokens = self.read();
        let is_it = |kept: &&Kept| kept.id == id && kept.expires_ms.is_none_or(|end| now_ms() < end);
        self.given.iter().chain(tokens.iter()).any(|kept| is_it(&kept))
    }

    /// How many bytes a tenant has. To look takes a while: what was little a moment ago is little.
    pub(crate) fn weighed<E>(&self, user: &Name, most: u64, look: impl FnOnce() -> Result<u64, E>) -> Result<u64, E> {
        const MOMENT: Duration = Duration::from_secs(5);
        let last = lock(&self.weighed).get(user).copied();
        if let Some((_, bytes)) = last.filter(|(since, bytes)| since.elapsed() < MOMENT && *bytes <= most) {
            return Ok(bytes);
        }
        let bytes = look()?;
        lock(&self.weighed).insert(user.clone(), (Instant::now(), bytes));
        Ok(bytes)
    }

    /// Takes one of `most` places; answers whether there was one.
    pub(crate) fn enter(&self, what: &str, most: usize) -> bool {
        let mut taken = lock(&self.taken);
        let number = taken.entry(what.to_owned()).or_default();
        let is_free = *number < most;
        *number += usize::from(is_free);
        is_free
    }

    pub(crate) fn leave(&self, what: &str) {
        let mut taken = lock(&self.taken);
        if let Some(number) = taken.get_mut(what) {
            *number -= 1;
            if *number == 0 {
                taken.remove(what);
            }
        }
    }

    /// A new token and its word, which is told this once.
    pub(crate) fn make(&self, made: Made) -> io::Result<(Kept, String)> {
        self.make_as(token::new_id()?, made)
    }

    fn make_as(&self, id: String, made: Made) -> io::Result<(Kept, String)> {
        let (kept, word) = Kept::new(id, made, &self.key)?;
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        let next: Vec<Kept> = tokens.iter().cloned().chain([kept.clone()]).collect();
        self.keep(&next)?;
        *tokens = next;
        Ok((kept, word))
    }

    /// Whether there was one of this id.
    pub(crate) fn revoke(&self, id: &str) -> io::Result<bool> {
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        let next: Vec<Kept> = tokens.iter().filter(|kept| kept.id != id).cloned().collect();
        if next.len() == tokens.len() {
            return Ok(false);
        }
        self.keep(&next)?;
        *tokens = next;
        Ok(true)
    }

    pub(crate) fn tokens(&self) -> Vec<Kept> {
        self.read().clone()
    }

    fn keep(&self, tokens: &[Kept]) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(tokens).map_err(io::Error::other)?;
        put(self.data.join("tokens.json").as_path(), &text)
    }

    /// What a tenant may use.
    pub(crate) fn quotas(&self, user: &Name) -> Quotas {
        let mut known = lock(&self.quotas);
        *known.entry(user.clone()).or_insert_with(|| match fs::read(self.quotas_file(user).as_path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.usual,
            Err(error) => unread(&error),
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| unread(&error)),
        })
    }

    pub(crate) fn set_quotas(&self, user: &Name, quotas: Quotas) -> io::Result<()> {
        make_directory(self.data.join("tenants").join(user.as_ref()).as_path())?;
        let text = serde_json::to_vec_pretty(&quotas).map_err(io::Error::other)?;
        put(self.quotas_file(user).as_path(), &text)?;
        lock(&self.quotas).insert(user.clone(), quotas);
        Ok(())
    }

    fn quotas_file(&self, user: &Name) -> AbsPath {
        self.data.join("tenants").join(user.as_ref()).join("quotas.json")
    }

    /// Takes one request of whoever this is; else says after how many seconds to come again.
    pub(crate) fn take(&self, who: &str, per_second: u32) -> Result<(), u64> {
        let mut paces = lock(&self.paces);
        // Strangers could make as many names as they like.
        const MOST: usize = 10_000;
        if paces.len() >= MOST && !paces.contains_key(who) {
            paces.retain(|_, pace| !pace.is_rested());
        }
        paces.entry(who.to_owned()).or_default().take(per_second)
    }
}

/// What was set and cannot be read is not guessed: nothing may be used until it is set again.
fn unread(error: &dyn std::error::Error) -> Quotas {
    crate::door::log::failed(error);
    Quotas { executions: 0, sandboxes: 0, storage_bytes: 0, requests_per_second: 1 }
}

pub(crate) fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
