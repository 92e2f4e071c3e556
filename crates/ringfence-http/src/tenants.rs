//! Tenants: tokens, quotas and rate limits.

mod caller;
mod quotas;
mod rate_limit;
mod registry;
mod token;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ringfence_audit::now_ms;
use ringfence_policy::AbsPath;
use ringfence_skills::SkillName;

pub(crate) use ringfence_api::lock;

pub(crate) use caller::{ApiCaller, TokenScope};
pub use quotas::Quotas;
pub(crate) use rate_limit::TokenBucket;
pub use token::MIN_TOKEN_LENGTH;
pub(crate) use token::{StoredToken, TokenDigestKey, TokenSpec};

use registry::Registry;
use token::hex;

use crate::state::{data_error, make_directory, write_synced};
use crate::{ServeError, ServiceSettings};

/// The id of the administrator's token.
pub(crate) const ADMIN: &str = "admin";

/// Tokens that expired longer ago than this are dropped.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

pub(crate) struct TenantRegistry {
    data: AbsPath,
    key: TokenDigestKey,
    tokens: RwLock<Registry>,
    /// Held by the thread that changes the tokens.
    saving: Mutex<()>,
    /// The administrator's token from the settings; it is stored nowhere.
    given: Option<StoredToken>,
    default_quotas: Quotas,
    /// Cached quotas.
    quotas: Mutex<HashMap<SkillName, Quotas>>,
    rate_limits: Mutex<HashMap<String, TokenBucket>>,
    /// Cached storage usage of tenants.
    weighed: Mutex<HashMap<SkillName, Arc<Weighed>>>,
    /// Slots in use, by tenant and activity.
    taken: Mutex<HashMap<String, usize>>,
    /// Bytes of request bodies held, by tenant and storage.
    held: Mutex<HashMap<String, u64>>,
}

/// Storage usage of a tenant's skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    Bytes(u64),
    /// Too many names to count, or directories too deep.
    Uncountable,
}

/// The last count of a tenant's usage, and its start time.
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
    /// Also returns the administrator's token, if it was just created.
    pub(crate) fn open(
        data: &AbsPath,
        settings: &ServiceSettings,
    ) -> Result<(Self, Option<String>), ServeError> {
        let path = data.join("tokens.json");
        let key_path = data.join("key");
        let tokens: Vec<StoredToken> = match fs::read(path.as_path()) {
            Ok(bytes) => {
                let kept =
                    |source| ServeError::Unreadable { path: path.as_path().to_owned(), source };
                serde_json::from_slice(&bytes).map_err(kept)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(data_error(&path, source)),
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
            Some(word) => Some(StoredToken::from_admin_text(word, &key).ok_or(ServeError::Token)?),
            None => None,
        };
        let tenants = Self {
            data: data.clone(),
            key,
            tokens: RwLock::new(Registry::from_tokens(tokens)),
            saving: Mutex::default(),
            given,
            default_quotas: settings.quotas,
            quotas: Mutex::default(),
            rate_limits: Mutex::default(),
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
        let word = tenants
            .create_token_with_id(ADMIN.into(), made)
            .map_err(|source| data_error(&path, source))?
            .1;
        Ok((tenants, Some(word)))
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Registry> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller with this token.
    pub(crate) fn caller(&self, word: &[u8]) -> Option<ApiCaller> {
        let digest = hex(&self.key.digest(word));
        let given = self.given.as_ref().filter(|kept| kept.digest() == digest);
        let tokens = self.read();
        given
            .or_else(|| tokens.with_digest(&digest))
            .filter(|kept| kept.is_valid())
            .map(ApiCaller::from_token)
    }

    /// True if the token with this id is still valid.
    pub(crate) fn is_token_valid(&self, id: &str) -> bool {
        let given = self.given.as_ref().filter(|kept| kept.id == id);
        given.is_some() || self.read().with_id(id).is_some_and(StoredToken::is_valid)
    }

    /// A tenant's usage, if it was counted a moment ago.
    pub(crate) fn cached_usage(&self, user: &SkillName) -> Option<Weight> {
        self.weighed(user).fresh()
    }

    /// A tenant's usage. Counting takes a while: of several concurrent callers, one counts.
    pub(crate) fn count_usage<E>(
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

    /// Drops the count after a change of a tenant's skills through the API. A count in progress is
    /// discarded.
    pub(crate) fn invalidate_usage(&self, user: &SkillName) {
        lock(&self.weighed).remove(user);
    }

    fn weighed(&self, user: &SkillName) -> Arc<Weighed> {
        lock(&self.weighed).entry(user.clone()).or_default().clone()
    }

    /// Takes one of `most` slots; false if none is free.
    pub(crate) fn take_slot(&self, what: &str, most: usize) -> bool {
        let mut taken = lock(&self.taken);
        let number = taken.entry(what.to_owned()).or_default();
        let is_free = *number < most;
        *number += usize::from(is_free);
        is_free
    }

    pub(crate) fn release_slot(&self, what: &str) {
        let mut taken = lock(&self.taken);
        if let Some(number) = taken.get_mut(what) {
            *number -= 1;
            if *number == 0 {
                taken.remove(what);
            }
        }
    }

    /// Counts bytes, unless more than `most` would be held; returns false then.
    pub(crate) fn hold_bytes(&self, what: &str, bytes: u64, most: u64) -> bool {
        let mut held = lock(&self.held);
        let before = held.get(what).copied().unwrap_or_default();
        let is_free = before.saturating_add(bytes) <= most;
        if is_free {
            held.insert(what.to_owned(), before + bytes);
        }
        is_free
    }

    pub(crate) fn release_bytes(&self, what: &str, bytes: u64) {
        let mut held = lock(&self.held);
        if let Some(number) = held.get_mut(what) {
            *number = number.saturating_sub(bytes);
            if *number == 0 {
                held.remove(what);
            }
        }
    }

    /// Creates a token; its text is returned only once.
    pub(crate) fn create_token(&self, made: TokenSpec) -> io::Result<(StoredToken, String)> {
        self.create_token_with_id(token::new_id()?, made)
    }

    fn create_token_with_id(
        &self,
        id: String,
        made: TokenSpec,
    ) -> io::Result<(StoredToken, String)> {
        let (kept, word) = StoredToken::new(id, made, &self.key)?;
        let _saving = lock(&self.saving);
        // A token that was revoked meanwhile creates no tokens.
        if kept.minted_by.as_ref().is_some_and(|minter| !self.is_token_valid(minter)) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let yesterday = now_ms().saturating_sub(DAY_MS);
        let mut next =
            self.read().without(|token| token.expires_ms.is_some_and(|end| end < yesterday));
        next.add(kept.clone());
        self.store_tokens(next)?;
        Ok((kept, word))
    }

    /// Revokes a token and all its descendants, and returns them.
    pub(crate) fn revoke(&self, id: &str) -> io::Result<Vec<StoredToken>> {
        let _saving = lock(&self.saving);
        let (gone, next) = {
            let tokens = self.read();
            let gone = tokens.descendants(id);
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
            self.store_tokens(next)?;
        }
        Ok(gone)
    }

    pub(crate) fn tokens(&self) -> Vec<StoredToken> {
        self.read().all().cloned().collect()
    }

    /// Stores the tokens, then activates them. Requests are authenticated meanwhile.
    fn store_tokens(&self, next: Registry) -> io::Result<()> {
        let text =
            serde_json::to_vec_pretty(&next.all().collect::<Vec<_>>()).map_err(io::Error::other)?;
        write_synced(self.data.join("tokens.json").as_path(), &text)?;
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    /// The quotas of a tenant.
    pub(crate) fn quotas(&self, user: &SkillName) -> Quotas {
        let mut known = lock(&self.quotas);
        *known.entry(user.clone()).or_insert_with(|| {
            match fs::read(self.quotas_file(user).as_path()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.default_quotas,
                Err(error) => unread(&error),
                Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| unread(&error)),
            }
        })
    }

    pub(crate) fn set_quotas(&self, user: &SkillName, quotas: Quotas) -> io::Result<()> {
        make_directory(self.data.join("tenants").join(user.as_ref()).as_path())?;
        let text = serde_json::to_vec_pretty(&quotas).map_err(io::Error::other)?;
        write_synced(self.quotas_file(user).as_path(), &text)?;
        lock(&self.quotas).insert(user.clone(), quotas);
        Ok(())
    }

    fn quotas_file(&self, user: &SkillName) -> AbsPath {
        self.data.join("tenants").join(user.as_ref()).join("quotas.json")
    }

    /// Takes one request of `who` from the rate limit, or returns the seconds to wait.
    pub(crate) fn take_request(&self, who: &str, per_second: u32) -> Result<(), u64> {
        let mut rate_limits = lock(&self.rate_limits);
        // Callers without a token could create any number of entries.
        const MOST: usize = 10_000;
        if rate_limits.len() >= MOST && !rate_limits.contains_key(who) {
            rate_limits.retain(|_, bucket| !bucket.is_full());
        }
        rate_limits.entry(who.to_owned()).or_default().take(per_second)
    }
}

/// Quotas that cannot be read are not guessed: nothing is allowed until they are set again.
fn unread(error: &dyn std::error::Error) -> Quotas {
    crate::server::log::log_failure(error);
    Quotas { executions: 0, sandboxes: 0, storage_bytes: 0, requests_per_second: 1 }
}
