//! Names that a scan must check: a fast test on the last component alone.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::hash::{BuildHasherDefault, Hasher};

use crate::builtin::{POINTERS, SETTINGS};
use crate::glob::{Glob, NameMatch, NameShape};
use crate::grants::{Effect, Grants};

/// Names that a deny or protect rule may match, optimised for a million lookups.
///
/// False positives are possible, false negatives are not: for a name with the result `false`, no
/// pattern matches, it is the last component of no deny or protect rule, and it is no name of a
/// setting.
#[derive(Debug, Clone, Default)]
pub struct NameIndex {
    literals: HashSet<Vec<u8>, BuildHasherDefault<Fnv>>,
    /// A bit for each length of a literal: most names need no hashing.
    lengths: u64,
    prefixes: Vec<Vec<u8>>,
    suffixes: Vec<Vec<u8>>,
    contains: Vec<Vec<u8>>,
    /// Globs of no other shape.
    others: Vec<Glob>,
    /// All globs: for names that are not ASCII, where folding is not bytewise.
    all: Vec<Glob>,
    everything: bool,
}

impl NameIndex {
    /// Collects the names from `grants`.
    pub fn new(grants: &Grants) -> Self {
        let mut index = Self::default();
        for pattern in &grants.patterns {
            index.add_glob(&pattern.glob);
        }
        for rule in &grants.rules {
            if let (Effect::Deny | Effect::Protect, Some(name)) = (&rule.effect, rule.root.name()) {
                index.add_literal(name.as_encoded_bytes().to_ascii_lowercase());
            }
        }
        // A directory with such a name would bring the setting below it along.
        for setting in SETTINGS.iter().chain(POINTERS) {
            setting
                .names()
                .for_each(|name| index.add_literal(name.as_bytes().to_ascii_lowercase()));
        }
        index
    }

    fn add_glob(&mut self, glob: &Glob) {
        let mut has_other = false;
        for shape in glob.name_shapes() {
            match shape {
                NameShape::Literal(name) => self.add_literal(name),
                NameShape::Prefix(text) => self.prefixes.push(text),
                NameShape::Suffix(text) => self.suffixes.push(text),
                NameShape::Contains(text) => self.contains.push(text),
                NameShape::Other => has_other = true,
                NameShape::Anything => self.everything = true,
            }
        }
        if has_other {
            self.others.push(glob.clone());
        }
        self.all.push(glob.clone());
    }

    fn add_literal(&mut self, name: Vec<u8>) {
        self.lengths |= length_bit(name.len());
        self.literals.insert(name);
    }

    /// True if a deny or protect rule may match an entry with this last component.
    pub fn may_match(&self, name: &OsStr) -> bool {
        const LONGEST: usize = 255;
        let bytes = name.as_encoded_bytes();
        let mut buffer = [0; LONGEST];
        let (Some(folded), true) = (buffer.get_mut(..bytes.len()), bytes.is_ascii()) else {
            return self.interesting_by_matching(name);
        };
        folded.copy_from_slice(bytes);
        folded.make_ascii_lowercase();
        let folded = &*folded;
        self.everything
            || (self.lengths & length_bit(folded.len()) != 0 && self.literals.contains(folded))
            || self.suffixes.iter().any(|text| folded.ends_with(text))
            || self.prefixes.iter().any(|text| folded.starts_with(text))
            || self.contains.iter().any(|text| holds(folded, text))
            || self.others.iter().any(|glob| glob.matches_name(name) != NameMatch::No)
    }

    fn interesting_by_matching(&self, name: &OsStr) -> bool {
        self.everything
            || self.literals.contains(&name.as_encoded_bytes().to_ascii_lowercase())
            || self.all.iter().any(|glob| glob.matches_name(name) != NameMatch::No)
    }
}

/// Long names share the last bit.
fn length_bit(length: usize) -> u64 {
    1 << length.min(63)
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    let Some((&first, _)) = part.split_first() else {
        return true;
    };
    let last_start = text.len().saturating_sub(part.len() - 1);
    (0..last_start).any(|i| text[i] == first && text[i..].starts_with(part))
}

/// FNV-1a: names are short, and collisions are harmless: a sandboxed program that creates them only
/// slows down its own files.
#[derive(Debug, Clone)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
