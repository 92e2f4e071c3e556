//! API tokens. Only their digests are stored.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use ringfence_audit::now_ms;
use ringfence_policy::AbsPath;
use ringfence_skills::SkillName;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{ADMIN, TokenScope};
use crate::ServeError;
use crate::state::data_error;

/// The shortest token accepted from the operator: too long to guess.
pub const MIN_TOKEN_LENGTH: usize = 16;

/// The HMAC key of token digests: a reader of the digests alone cannot test guesses.
pub(crate) struct TokenDigestKey([u8; 32]);

impl TokenDigestKey {
    pub(super) fn open(path: &AbsPath) -> Result<Self, ServeError> {
        let fail = |source| data_error(path, source);
        match fs::read(path.as_path()) {
            Ok(bytes) => {
                let wrong = |_| io::Error::new(io::ErrorKind::InvalidData, "not 32 bytes long");
                bytes.try_into().map(Self).map_err(wrong).map_err(fail)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = random::<32>().map_err(fail)?;
                let mut options = OpenOptions::new();
                let mut file = options
                    .create_new(true)
                    .write(true)
                    .mode(0o600)
                    .open(path.as_path())
                    .map_err(fail)?;
                file.write_all(&key).and_then(|()| file.sync_all()).map_err(fail)?;
                Ok(Self(key))
            }
            Err(source) => Err(fail(source)),
        }
    }

    /// HMAC-SHA-256 of a token.
    pub(crate) fn digest(&self, word: &[u8]) -> [u8; 32] {
        let pad = |with: u8| -> Vec<u8> {
            (0..64).map(|i| self.0.get(i).copied().unwrap_or(0) ^ with).collect()
        };
        let inner = Sha256::new().chain_update(pad(0x36)).chain_update(word).finalize();
        Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
    }
}

/// A token as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredToken {
    pub(crate) id: String,
    pub(crate) label: String,
    /// The only tenant it is valid for; `None` for all tenants.
    pub(crate) user: Option<SkillName>,
    pub(crate) scopes: Vec<TokenScope>,
    pub(crate) created_ms: u64,
    pub(crate) expires_ms: Option<u64>,
    /// The id of the token that created it, unless that is the administrator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) minted_by: Option<String>,
    digest: String,
}

/// The attributes of a new token.
#[derive(Debug, Clone, Default)]
pub(crate) struct TokenSpec {
    pub(crate) label: String,
    pub(crate) user: Option<SkillName>,
    pub(crate) scopes: Vec<TokenScope>,
    pub(crate) expires_ms: Option<u64>,
    pub(crate) minted_by: Option<String>,
}

impl StoredToken {
    pub(super) fn new(
        id: String,
        made: TokenSpec,
        key: &TokenDigestKey,
    ) -> io::Result<(Self, String)> {
        let word = format!("rf_{id}_{}", hex(&random::<24>()?));
        let digest = hex(&key.digest(word.as_bytes()));
        let TokenSpec { label, user, scopes, expires_ms, minted_by } = made;
        let scopes = if id == ADMIN { TokenScope::ALL.to_vec() } else { scopes };
        Ok((
            Self { id, label, user, scopes, created_ms: now_ms(), expires_ms, minted_by, digest },
            word,
        ))
    }

    /// The administrator's token chosen by the operator; `None` if it is too short or not valid in
    /// a header.
    pub(super) fn from_admin_text(word: &str, key: &TokenDigestKey) -> Option<Self> {
        let is_word =
            word.bytes().all(|byte| byte.is_ascii_graphic()) && word.len() >= MIN_TOKEN_LENGTH;
        is_word.then(|| Self {
            id: ADMIN.into(),
            label: "the administrator's, given at the start".into(),
            user: None,
            scopes: TokenScope::ALL.to_vec(),
            created_ms: now_ms(),
            expires_ms: None,
            minted_by: None,
            digest: hex(&key.digest(word.as_bytes())),
        })
    }

    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// True until it expires.
    pub(super) fn is_valid(&self) -> bool {
        self.expires_ms.is_none_or(|end| now_ms() < end)
    }
}

pub(super) fn new_id() -> io::Result<String> {
    Ok(hex(&random::<6>()?))
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // A read of so few bytes is never partial.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_matches_rfc_4231() {
        // RFC 4231, test case 2, with the key padded by zeros as the algorithm does itself.
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let digest = TokenDigestKey(key).digest(b"what do ya want for nothing?");
        assert_eq!(
            hex(&digest),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn only_the_exact_token_matches_its_digest() {
        let key = TokenDigestKey([7; 32]);
        let (kept, word) = StoredToken::new("x".into(), TokenSpec::default(), &key).unwrap();
        assert_eq!(kept.digest(), hex(&key.digest(word.as_bytes())));
        assert_ne!(kept.digest(), hex(&key.digest(&word.as_bytes()[1..])));
        assert_ne!(kept.digest(), hex(&TokenDigestKey([8; 32]).digest(word.as_bytes())));
        assert!(!serde_json::to_string(&kept).unwrap().contains(&word));
        assert!(StoredToken::from_admin_text("0123456789abcde", &key).is_none());
        assert!(StoredToken::from_admin_text("0123456789 abcdef", &key).is_none());
    }
}
