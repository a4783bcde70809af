//! Files that a core remembers, so that most requests need no other thread: small ones, and large ones while they are
//! being sent.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Folder;
use super::content::{Content, Source};
use crate::files::AcceptedCodings;

/// The most files of a core.
const ENTRIES_MAX: usize = 1024;

/// The most bytes of a core, names included.
const BYTES_MAX: usize = 32 << 20;

/// After this time a file is looked for again: the longest time for which a changed file is still sent as it was.
const FRESH_TIME: Duration = Duration::from_secs(1);

/// A file is not remembered that was changed within this time: it may be changed once more without that being seen,
/// because the times of files have the grain of the kernel's clock.
const SETTLING_TIME: Duration = Duration::from_secs(2);

/// The most paths of a core that are known to have no file. One more, and all are forgotten.
const MISSING_MAX: usize = 4096;

/// Bytes of an entry beside its content and its path.
const OVERHEAD: usize = 512;

/// The files that a core remembers. The oldest that was not used lately is forgotten first.
pub(super) struct FileCache {
    hasher: RandomState,
    entries: HashMap<u64, Entry>,
    /// In the order of their insertion, for a clock.
    order: VecDeque<u64>,
    bytes: usize,
    /// When paths without a file were looked for. They take no room from files.
    missing: HashMap<u64, Instant>,
}

struct Entry {
    files: Arc<Folder>,
    path: Box<str>,
    codings: AcceptedCodings,
    kept: Kept,
    checked: Instant,
    is_used: bool,
    bytes: usize,
}

/// A file of the cache.
enum Kept {
    Small(Rc<Content>),
    /// Its responses keep it open.
    Large(Weak<Content>),
}

/// A file that is remembered.
pub(super) enum Remembered {
    /// It was looked for lately.
    Fresh(Rc<Content>),
    /// It is to be looked for again.
    Stale(Rc<Content>),
}

impl Default for FileCache {
    fn default() -> FileCache {
        FileCache {
            hasher: RandomState::new(),
            entries: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            missing: HashMap::new(),
        }
    }
}

impl FileCache {
    /// The file for a normalised path.
    pub(super) fn get(
        &mut self,
        files: &Arc<Folder>,
        path: &str,
        codings: AcceptedCodings,
        now: Instant,
    ) -> Option<Remembered> {
        let key = self.key(files, path, codings);
        let entry = self.entries.get_mut(&key)?;
        if !entry.is_of(files, path, codings) {
            return None;
        }
        entry.is_used = true;
        let content = entry.kept.content()?;
        Some(
            match now.saturating_duration_since(entry.checked) < FRESH_TIME {
                true => Remembered::Fresh(content),
                false => Remembered::Stale(content),
            },
        )
    }

    /// Notes that the file was found unchanged by a lookup that began at this time.
    pub(super) fn confirm(
        &mut self,
        files: &Arc<Folder>,
        path: &str,
        codings: AcceptedCodings,
        content: &Rc<Content>,
        checked: Instant,
    ) {
        let key = self.key(files, path, codings);
        let entry = self.entries.get_mut(&key);
        let same = entry.filter(|entry| {
            let kept = entry.kept.content();
            kept.is_some_and(|kept| Rc::ptr_eq(&kept, content))
        });
        if let Some(entry) = same {
            entry.checked = entry.checked.max(checked);
        }
    }

    /// Remembers a file that a lookup has found which began at this time.
    pub(super) fn insert(
        &mut self,
        files: &Arc<Folder>,
        path: &str,
        codings: AcceptedCodings,
        content: &Rc<Content>,
        (checked, wall): (Instant, SystemTime),
    ) {
        let key = self.key(files, path, codings);
        self.remove(key);
        let (kept, bytes) = match &content.source {
            Source::Memory(bytes) => (Kept::Small(Rc::clone(content)), bytes.len()),
            Source::File(_) => (Kept::Large(Rc::downgrade(content)), 0),
        };
        let bytes = bytes + path.len() + OVERHEAD;
        if !has_settled(content, wall) || bytes > BYTES_MAX {
            return;
        }
        while self.entries.len() >= ENTRIES_MAX || self.bytes + bytes > BYTES_MAX {
            self.forget_one();
        }
        self.bytes += bytes;
        self.order.push_back(key);
        let entry = Entry {
            files: Arc::clone(files),
            path: path.into(),
            codings,
            kept,
            checked,
            is_used: false,
            bytes,
        };
        self.entries.insert(key, entry);
    }

    /// Forgets the file of a path, which has another answer now.
    pub(super) fn forget(&mut self, files: &Arc<Folder>, path: &str, codings: AcceptedCodings) {
        let key = self.key(files, path, codings);
        self.remove(key);
    }

    /// Whether a lookup has found no file for this request lately.
    pub(super) fn is_missing(
        &self,
        files: &Arc<Folder>,
        asked: (&str, AcceptedCodings, bool),
        now: Instant,
    ) -> bool {
        if self.missing.is_empty() {
            return false;
        }
        let looked_for = self.missing.get(&self.key_of_missing(files, asked));
        looked_for.is_some_and(|at| now.saturating_duration_since(*at) < FRESH_TIME)
    }

    /// Notes that a lookup, which began at this time, has found no file for this request: its path, the codings, and
    /// whether it takes a page in place of the file.
    pub(super) fn note_missing(
        &mut self,
        files: &Arc<Folder>,
        asked: (&str, AcceptedCodings, bool),
        checked: Instant,
    ) {
        if self.missing.len() >= MISSING_MAX {
            self.missing.clear();
        }
        let key = self.key_of_missing(files, asked);
        self.missing.insert(key, checked);
    }

    fn key_of_missing(&self, files: &Arc<Folder>, asked: (&str, AcceptedCodings, bool)) -> u64 {
        self.hasher.hash_one((Arc::as_ptr(files).addr(), asked))
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = FileCache::default();
    }

    fn key(&self, files: &Arc<Folder>, path: &str, codings: AcceptedCodings) -> u64 {
        self.hasher
            .hash_one((Arc::as_ptr(files).addr(), path, codings))
    }

    fn remove(&mut self, key: u64) {
        if let Some(entry) = self.entries.remove(&key) {
            self.bytes -= entry.bytes;
            self.order.retain(|other| *other != key);
        }
    }

    /// Forgets the oldest entry that was not used since its last turn.
    fn forget_one(&mut self) {
        while let Some(key) = self.order.pop_front() {
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            if std::mem::take(&mut entry.is_used) {
                self.order.push_back(key);
                continue;
            }
            let entry = self.entries.remove(&key);
            self.bytes -= entry.map_or(0, |entry| entry.bytes);
            return;
        }
    }
}

impl Kept {
    /// `None` for a large file that is not being sent any more.
    fn content(&self) -> Option<Rc<Content>> {
        match self {
            Kept::Small(content) => Some(Rc::clone(content)),
            Kept::Large(content) => content.upgrade(),
        }
    }
}

impl Entry {
    fn is_of(&self, files: &Arc<Folder>, path: &str, codings: AcceptedCodings) -> bool {
        Arc::ptr_eq(&self.files, files) && *self.path == *path && self.codings == codings
    }
}

/// Whether the file was left alone for a while before its lookup.
fn has_settled(content: &Content, wall: SystemTime) -> bool {
    let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, _) = content.facts.changed;
    let (seconds, now) = (i128::from(seconds), i128::from(since.as_secs()));
    // Times in the future are of another clock.
    seconds < now - i128::from(SETTLING_TIME.as_secs())
}

#[cfg(test)]
mod tests {
    use blitz_http::files::FileFacts;

    use super::*;
    use crate::files::Representation;
    use crate::folder::FolderSettings;

    fn content(size: usize, changed: i64) -> Rc<Content> {
        let facts = FileFacts {
            size: size as u64,
            modified: (1, 0),
            changed: (changed, 0),
            identity: (1, 1),
        };
        Rc::new(Content {
            source: Source::Memory(vec![0; size].into()),
            facts,
            compressed_from: None,
            representation: Representation::new(&facts, None),
            media_type: "text/plain",
            coding: None,
            varies: false,
        })
    }

    fn files() -> Arc<Folder> {
        Arc::new(Folder::new(FolderSettings {
            root: "/srv".into(),
            index: Vec::new(),
            extensions: Vec::new(),
            fallback: None,
            hidden: false,
            is_before_upstream: false,
            compression: None,
            list: false,
            links: blitz_http::files::SymbolicLinks::Inside,
        }))
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_files_that_are_used() {
        let (files, codings) = (files(), AcceptedCodings::default());
        let now = Instant::now();
        let times = (now, UNIX_EPOCH + Duration::from_secs(100));
        let mut cache = FileCache::default();
        cache.insert(&files, "/used", codings, &content(10, 1), times);
        for number in 0..3 * ENTRIES_MAX {
            let path = format!("/{number}");
            cache.insert(&files, &path, codings, &content(10, 1), times);
            assert!(
                cache.get(&files, "/used", codings, now).is_some(),
                "{number}"
            );
        }
        assert_eq!(cache.entries.len(), ENTRIES_MAX);
        assert_eq!(cache.order.len(), ENTRIES_MAX);
        for number in 0..ENTRIES_MAX {
            let path = format!("/large/{number}");
            cache.insert(&files, &path, codings, &content(64 * 1024, 1), times);
            assert!(cache.bytes <= BYTES_MAX);
        }
        let total: usize = cache.entries.values().map(|entry| entry.bytes).sum();
        assert_eq!(cache.bytes, total);
    }

    #[test]
    fn a_file_is_fresh_for_a_second_and_not_kept_if_it_was_just_changed() {
        let (files, codings) = (files(), AcceptedCodings::default());
        let now = Instant::now();
        let wall = UNIX_EPOCH + Duration::from_secs(100);
        let mut cache = FileCache::default();
        let old = content(1, 97);
        cache.insert(&files, "/old", codings, &old, (now, wall));
        let state = |cache: &mut FileCache, now| match cache.get(&files, "/old", codings, now) {
            None => "none",
            Some(Remembered::Fresh(_)) => "fresh",
            Some(Remembered::Stale(_)) => "stale",
        };
        assert_eq!(state(&mut cache, now), "fresh");
        assert_eq!(state(&mut cache, now + FRESH_TIME), "stale");
        cache.confirm(&files, "/old", codings, &old, now + FRESH_TIME);
        assert_eq!(state(&mut cache, now + FRESH_TIME), "fresh");
        for changed in [98, 100, 1000] {
            cache.insert(&files, "/old", codings, &content(1, changed), (now, wall));
            assert_eq!(state(&mut cache, now), "none", "{changed}");
        }
        // Another configuration of the same folder has files of its own.
        cache.insert(&files, "/old", codings, &old, (now, wall));
        let other = Arc::new((*files).clone());
        assert!(cache.get(&other, "/old", codings, now).is_none());
    }
}
