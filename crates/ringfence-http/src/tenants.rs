//! Who may do what, and how much of it.

mod caller;
mod quotas;
mod rate_limit;
mod registry;
mod token;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ringfence_audit::now_ms;
use ringfence_policy::AbsPath;
use ringfence_skills::SkillName;

pub(crate) use caller::{ApiCaller, TokenScope};
pub use quotas::Quotas;
pub(crate) use rate_limit::TokenBucket;
pub use token::SHORTEST_TOKEN;
pub(crate) use token::{StoredToken, TokenDigestKey, TokenSpec};

use registry::Registry;
use token::hex;

use crate::state::{make_directory, of, put};
use crate::{ServeError, ServiceSettings};

/// The administrator's token is known by this.
pub(crate) const ADMIN: &str = "admin";

/// Tokens that expired longer ago than this are forgotten.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

pub(crate) struct TenantRegistry {
    data: AbsPath,
    key: TokenDigestKey,
    tokens: RwLock<Registry>,
    /// Held by the thread that changes the tokens.
    saving: Mutex<()>,
    /// Given with the start of the service, and kept nowhere.
    given: Option<StoredToken>,
    usual: Quotas,
    /// Of those that were asked about.
    quotas: Mutex<HashMap<SkillName, Quotas>>,
    paces: Mutex<HashMap<String, TokenBucket>>,
    /// How many bytes tenants had when they were last counted.
    weighed: Mutex<HashMap<SkillName, Arc<Weighed>>>,
    /// How many places are taken, by whom and for what.
    taken: Mutex<HashMap<String, usize>>,
    /// Bytes that are held, by tenant and place.
    held: Mutex<HashMap<String, u64>>,
}

/// Bytes of a tenant's skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    Bytes(u64),
    /// More names than are counted, or directories that are too deep.
    Uncountable,
}

/// What was counted of a tenant, and when that was begun.
#[derive(Debug, Default)]
struct Weighed {
    counting: Mutex<()>,
    last: Mutex<Option<(Instant, Weight)>>,
}

impl Weighed {
    fn fresh(&self) -> Option<Weight> {
        const MOMENT: Duration = Duration::from_secs(5);
        lock(&self.last).filter(|(since, _)| since.elapsed() < MOMENT).map(|(_, weight)| weight)
    }
}

impl TenantRegistry {
    /// Answers also the administrator's token, if it was made just now.
    pub(crate) fn open(
        data: &AbsPath,
        settings: &ServiceSettings,
    ) -> Result<(Self, Option<String>), ServeError> {
        let path = data.join("tokens.json");
        let key_path = data.join("key");
        let tokens: Vec<StoredToken> = match fs::read(path.as_path()) {
            Ok(bytes) => {
                let kept = |source| ServeError::Kept { path: path.as_path().to_owned(), source };
                serde_json::from_slice(&bytes).map_err(kept)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(of(&path, source)),
        };
        if !tokens.is_empty() && !key_path.as_path().exists() {
            return Err(ServeError::NoKey {
                key: key_path.as_path().to_owned(),
                tokens: path.as_path().to_owned(),
                count: tokens.len(),
            });
        }
        let key = TokenDigestKey::open(&key_path)?;
        let given = match &settings.admin_token {
            Some(word) => Some(StoredToken::given(word, &key).ok_or(ServeError::Token)?),
            None => None,
        };
        let tenants = Self {
            data: data.clone(),
            key,
            tokens: RwLock::new(Registry::of(tokens)),
            saving: Mutex::default(),
            given,
            usual: settings.quotas,
            quotas: Mutex::default(),
            paces: Mutex::default(),
            weighed: Mutex::default(),
            taken: Mutex::default(),
            held: Mutex::default(),
        };
        let has_admin = tenants.given.is_some() || tenants.read().with_id(ADMIN).is_some();
        if has_admin {
            return Ok((tenants, None));
        }
        let made = TokenSpec {
            label: "the administrator's, of the first start".into(),
            ..TokenSpec::default()
        };
        let word = tenants.make_as(ADMIN.into(), made).map_err(|source| of(&path, source))?.1;
        Ok((tenants, Some(word)))
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Registry> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose word this is.
    pub(crate) fn caller(&self, word: &[u8]) -> Option<ApiCaller> {
        let digest = hex(&self.key.digest(word));
        let given = self.given.as_ref().filter(|kept| kept.digest() == digest);
        let tokens = self.read();
        given
            .or_else(|| tokens.with_digest(&digest))
            .filter(|kept| kept.is_valid())
            .map(ApiCaller::of)
    }

    /// Whether the token of this id is still worth something.
    pub(crate) fn knows(&self, id: &str) -> bool {
        let given = self.given.as_ref().filter(|kept| kept.id == id);
        given.is_some() || self.read().with_id(id).is_some_and(StoredToken::is_valid)
    }

    /// How many bytes a tenant has, if that was counted a moment ago.
    pub(crate) fn weight(&self, user: &SkillName) -> Option<Weight> {
        self.weighed(user).fresh()
    }

    /// How many bytes a tenant has. To count takes a while: of several who ask, one counts.
    pub(crate) fn weigh<E>(
        &self,
        user: &SkillName,
        count: impl FnOnce() -> Result<Weight, E>,
    ) -> Result<Weight, E> {
        let weighed = self.weighed(user);
        let _one = lock(&weighed.counting);
        if let Some(weight) = weighed.fresh() {
            return Ok(weight);
        }
        let begun = Instant::now();
        let weight = count()?;
        *lock(&weighed.last) = Some((begun, weight));
        Ok(weight)
    }

    /// Skills of a tenant were changed from outside: what was counted is out of date. A count that
    /// is going on ends up where nothing looks for it.
    pub(crate) fn forget_weight(&self, user: &SkillName) {
        lock(&self.weighed).remove(user);
    }

    fn weighed(&self, user: &SkillName) -> Arc<Weighed> {
        lock(&self.weighed).entry(user.clone()).or_default().clone()
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

    /// Counts bytes, if no more than `most` are held then; answers whether they were counted.
    pub(crate) fn hold(&self, what: &str, bytes: u64, most: u64) -> bool {
        let mut held = lock(&self.held);
        let before = held.get(what).copied().unwrap_or_default();
        let is_free = before.saturating_add(bytes) <= most;
        if is_free {
            held.insert(what.to_owned(), before + bytes);
        }
        is_free
    }

    pub(crate) fn release(&self, what: &str, bytes: u64) {
        let mut held = lock(&self.held);
        if let Some(number) = held.get_mut(what) {
            *number = number.saturating_sub(bytes);
            if *number == 0 {
                held.remove(what);
            }
        }
    }

    /// A new token and its word, which is told this once.
    pub(crate) fn make(&self, made: TokenSpec) -> io::Result<(StoredToken, String)> {
        self.make_as(token::new_id()?, made)
    }

    fn make_as(&self, id: String, made: TokenSpec) -> io::Result<(StoredToken, String)> {
        let (kept, word) = StoredToken::new(id, made, &self.key)?;
        let _saving = lock(&self.saving);
        // One that was revoked since it was read mints nothing.
        if kept.minted_by.as_ref().is_some_and(|minter| !self.knows(minter)) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let yesterday = now_ms().saturating_sub(DAY_MS);
        let mut next =
            self.read().without(|token| token.expires_ms.is_some_and(|end| end < yesterday));
        next.add(kept.clone());
        self.keep(next)?;
        Ok((kept, word))
    }

    /// Revokes a token and every token that comes from it. Answers which.
    pub(crate) fn revoke(&self, id: &str) -> io::Result<Vec<StoredToken>> {
        let _saving = lock(&self.saving);
        let (gone, next) = {
            let tokens = self.read();
            let gone = tokens.descent(id);
            let next = tokens.without(|token| gone.contains(&token.id));
            (
                tokens
                    .all()
                    .filter(|token| gone.contains(&token.id))
                    .cloned()
                    .collect::<Vec<StoredToken>>(),
                next,
            )
        };
        if !gone.is_empty() {
            self.keep(next)?;
        }
        Ok(gone)
    }

    pub(crate) fn tokens(&self) -> Vec<StoredToken> {
        self.read().all().cloned().collect()
    }

    /// Writes them down, then lets them hold. Requests are authenticated meanwhile.
    fn keep(&self, next: Registry) -> io::Result<()> {
        let text =
            serde_json::to_vec_pretty(&next.all().collect::<Vec<_>>()).map_err(io::Error::other)?;
        put(self.data.join("tokens.json").as_path(), &text)?;
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    /// What a tenant may use.
    pub(crate) fn quotas(&self, user: &SkillName) -> Quotas {
        let mut known = lock(&self.quotas);
        *known.entry(user.clone()).or_insert_with(|| {
            match fs::read(self.quotas_file(user).as_path()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.usual,
                Err(error) => unread(&error),
                Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| unread(&error)),
            }
        })
    }

    pub(crate) fn set_quotas(&self, user: &SkillName, quotas: Quotas) -> io::Result<()> {
        make_directory(self.data.join("tenants").join(user.as_ref()).as_path())?;
        let text = serde_json::to_vec_pretty(&quotas).map_err(io::Error::other)?;
        put(self.quotas_file(user).as_path(), &text)?;
        lock(&self.quotas).insert(user.clone(), quotas);
        Ok(())
    }

    fn quotas_file(&self, user: &SkillName) -> AbsPath {
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
    crate::server::log::failed(error);
    Quotas { executions: 0, sandboxes: 0, storage_bytes: 0, requests_per_second: 1 }
}

pub(crate) fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
