//! A file that was found: its bytes or the open file, and what responses say of it.

use std::io;
use std::sync::Arc;

use blitz_http::files::{File, FileFacts};
use bytes::Bytes;

use super::Folder;
use super::open_files::{LargeFile, Permit};
use crate::compress::compress_file;
use crate::files::{ContentCoding, Representation, media_type};

/// Larger files are not remembered, and are read while they are sent.
pub(super) const SMALL_MAX: u64 = 64 * 1024;

/// See [`Content::identity`].
pub(super) type Identity = (FileFacts, Option<ContentCoding>, bool);

/// Where a file was found.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) files: &'a Arc<Folder>,
    /// Beneath the folder.
    pub(super) path: &'a [u8],
    /// The path without the ending of a coding.
    pub(super) name: &'a [u8],
}

/// A file that was found.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) source: Source,
    pub(super) facts: FileFacts,
    pub(super) representation: Representation,
    pub(super) media_type: &'static str,
    pub(super) coding: Option<ContentCoding>,
    /// Whether another coding exists, so that responses depend on `Accept-Encoding`.
    pub(super) varies: bool,
    /// The size of the file, if it was compressed here.
    pub(super) compressed_from: Option<u64>,
}

/// Where the bytes are.
#[derive(Debug)]
pub(super) enum Source {
    Memory(Bytes),
    File(LargeFile),
}

impl Content {
    /// The file, its coding, and whether there are others: a lookup that finds the same need not read it.
    pub(super) fn identity(&self) -> Identity {
        (self.facts, self.coding, self.varies)
    }

    /// The file that is read while it is sent.
    pub(super) fn large(&self) -> Option<&LargeFile> {
        match &self.source {
            Source::File(large) => Some(large),
            Source::Memory(_) => None,
        }
    }

    /// Whether it can be sent without opening a file.
    pub(super) fn is_at_hand(&self) -> bool {
        self.large().is_none_or(LargeFile::is_open)
    }

    /// That of a file. A large one keeps the permit.
    ///
    /// # Errors
    /// A small file cannot be read.
    pub(super) fn new(
        file: File,
        place: Place<'_>,
        (coding, varies): (Option<ContentCoding>, bool),
        permit: Permit,
    ) -> io::Result<Content> {
        let mut facts = *file.facts();
        let source = match usize::try_from(facts.size) {
            Ok(size) if facts.size <= SMALL_MAX => {
                let bytes = file.read_blocking(0, size)?;
                // It may have become shorter. Such a file was just changed, and is not remembered.
                facts.size = bytes.len() as u64;
                Source::Memory(bytes.into())
            }
            _ => Source::File(LargeFile::new(file, place.files, place.path, permit)),
        };
        Ok(Content {
            compressed_from: None,
            representation: Representation::new(&facts, coding),
            source,
            facts,
            media_type: media_type(place.name),
            coding,
            varies,
        })
    }

    /// The same for a small file that is compressed here; as it is, if that fails.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn compressed(
        file: File,
        place: Place<'_>,
        coding: ContentCoding,
        permit: Permit,
    ) -> io::Result<Content> {
        let mut content = Content::new(file, place, (None, true), permit)?;
        let Source::Memory(bytes) = &content.source else {
            return Ok(content);
        };
        let Some(compressed) = compress_file(coding, bytes) else {
            return Ok(content);
        };
        content.compressed_from = Some(content.facts.size);
        content.coding = Some(coding);
        content.representation = Representation {
            size: compressed.len() as u64,
            is_weak: true,
            ..Representation::new(&content.facts, content.coding)
        };
        content.source = Source::Memory(compressed.into());
        Ok(content)
    }
}
