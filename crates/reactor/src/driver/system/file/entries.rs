//! The entries of a folder.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use super::{OpenFolder, OpenPath, SymbolicLinks, nanoseconds};

/// Bytes of entries that are read at a time.
const BUFFER_BYTES: usize = 32 * 1024;

/// The most entries that are looked at, with those that are left out.
const SEEN_MAX: usize = 100_000;

/// Of `struct linux_dirent64`: the inode and the offset of the next entry, 8 bytes each, then the length of this one,
/// a byte for its type, and its name, which ends with NUL.
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

/// An entry of a folder: a regular file or a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// Its name, without slashes.
    pub name: Vec<u8>,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// Bytes, for a file.
    pub size: u64,
    /// When its content was changed, since 1970: seconds and nanoseconds.
    pub modified: (i64, u32),
}

/// How many entries of a folder are read.
#[derive(Debug, Clone, Copy)]
pub struct EntryLimits {
    /// The most entries.
    pub entries: usize,
    /// The most bytes of their names.
    pub name_bytes: usize,
}

/// The entries of a folder that `takes` takes by their names, and whether these are all.
pub(crate) fn entries(
    root: &OpenFolder,
    path: &[u8],
    links: SymbolicLinks,
    limits: EntryLimits,
    mut takes: impl FnMut(&[u8]) -> bool,
) -> io::Result<(Vec<FolderEntry>, bool)> {
    let folder = root.open_beneath(path, links)?;
    let (mut found, mut bytes, mut seen) = (Vec::new(), 0, 0);
    let is_all = for_each_name(&folder, |name| {
        seen += 1;
        if seen > SEEN_MAX {
            return false;
        }
        if !takes(name) {
            return true;
        }
        let entry = look_at(root, &folder, (path, name), links);
        let Some(entry) = entry else {
            return true;
        };
        bytes += name.len();
        let has_room = found.len() < limits.entries && bytes <= limits.name_bytes;
        if has_room {
            found.push(entry);
        }
        has_room
    })?;
    Ok((found, is_all))
}

/// Calls `each` with the names of the entries until it returns `false`; returns whether these were all.
fn for_each_name(folder: &OpenPath, mut each: impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
    let mut buffer = vec![0_u8; BUFFER_BYTES];
    loop {
        // SAFETY: the buffer is live, and the kernel writes at most its length.
        let read = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                folder.0.as_raw_fd(),
                buffer.as_mut_ptr(),
                buffer.len(),
            )
        };
        let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
        if read == 0 {
            return Ok(true);
        }
        let mut rest = &buffer[..read.min(buffer.len())];
        while let [low, high, ..] = rest.get(LENGTH_AT..).unwrap_or_default() {
            let length = usize::from(u16::from_ne_bytes([*low, *high]));
            if length <= NAME_AT || length > rest.len() {
                break;
            }
            let (entry, after) = rest.split_at(length);
            rest = after;
            let name = &entry[NAME_AT..];
            let end = name.iter().position(|byte| *byte == 0);
            let name = &name[..end.unwrap_or(name.len())];
            if !matches!(name, b"." | b".." | b"") && !each(name) {
                return Ok(false);
            }
        }
    }
}

/// An entry, which a symbolic link has if it is followed; `None` for others than files and folders, and for those that have
/// gone.
fn look_at(
    root: &OpenFolder,
    folder: &OpenPath,
    (path, name): (&[u8], &[u8]),
    links: SymbolicLinks,
) -> Option<FolderEntry> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    let text = CString::new(name).ok()?;
    // SAFETY: the name ends with NUL, and the structure is live and has the size that the call expects.
    let found = unsafe {
        libc::fstatat(
            folder.0.as_raw_fd(),
            text.as_ptr(),
            stat.as_mut_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
        )
    };
    if found != 0 {
        return None;
    }
    // SAFETY: the call has filled it in.
    let mut stat = unsafe { stat.assume_init() };
    if stat.st_mode & libc::S_IFMT == libc::S_IFLNK {
        stat = target(root, &[path, b"/", name].concat(), links)?;
    }
    let is_folder = match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => false,
        libc::S_IFDIR => true,
        _ => return None,
    };
    Some(FolderEntry {
        name: name.to_vec(),
        is_folder,
        size: match is_folder {
            true => 0,
            false => u64::try_from(stat.st_size).unwrap_or_default(),
        },
        modified: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
    })
}

/// The target of a symbolic link, by the rules by which it is opened for delivery.
fn target(root: &OpenFolder, path: &[u8], links: SymbolicLinks) -> Option<libc::stat> {
    // In the folder itself the path begins with a slash, which would be that of the machine.
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let opened = root.open_beneath(path, links).ok()?;
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the structure is live and has the size that the call expects.
    let is_known = unsafe { libc::fstat(opened.0.as_raw_fd(), stat.as_mut_ptr()) } == 0;
    // SAFETY: the call has filled it in.
    is_known.then(|| unsafe { stat.assume_init() })
}
