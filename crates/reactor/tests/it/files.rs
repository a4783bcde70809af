//! Files are sent from memory without a copy, and in order with what is queued.

use std::fs;
use std::future::poll_fn;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use blitz_reactor::{
    File, Folder, Found, Share, Socket, SymbolicLinks, TooManyWait, blocking, blocking_in,
    counters, sleep, spawn, timeout,
};

use crate::{on_both_drivers, outside, pair, pattern, read_to_end, with_blocking_peer};

/// A folder with one file, which is removed with this value.
struct Tree(PathBuf);

impl Tree {
    fn with(content: &[u8]) -> Tree {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = format!("blitz-sent-files-{}-{number}", std::process::id());
        // Memory file systems, where temporary files may be, cannot read without waiting.
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(root);
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("file"), content).unwrap();
        Tree(root)
    }

    /// Whether its file system can read without waiting. Those that cannot are always read on threads.
    fn reads_at_once(&self) -> bool {
        let of_type = ["-f", "-c", "%T"];
        let stat = Command::new("stat").args(of_type).arg(&self.0).output();
        let name = stat.unwrap().stdout;
        let name = name.trim_ascii();
        ![&b"tmpfs"[..], b"overlayfs", b"fuseblk", b"nfs"].contains(&name)
    }

    fn open(&self) -> File {
        let folder = Folder::open(&self.0, &Arc::default()).unwrap().unwrap();
        match folder.find(b"file", SymbolicLinks::Deny).unwrap() {
            Some(Found::File(file)) => file,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

async fn send_some(socket: &Socket, file: &File, at: usize, len: usize) -> Option<usize> {
    let sent = poll_fn(|cx| file.poll_send(socket, cx, at as u64, len)).await;
    sent.unwrap()
}

#[test]
fn a_file_is_sent_between_queued_bytes() {
    const LEN: usize = 5_000_001;
    on_both_drivers(|| async {
        let content = pattern(LEN);
        let tree = Tree::with(&content);
        if !tree.reads_at_once() {
            return;
        }
        let (client, server) = pair().await;
        let file_bytes = counters().file_bytes_sent;
        spawn(async move {
            let file = tree.open();
            for (head, tail) in [("one ", " two "), ("three ", " four")] {
                server.send(head);
                let mut at = 3;
                while at < LEN {
                    match send_some(&server, &file, at, LEN - at).await {
                        Some(sent) => at += sent,
                        None => panic!("a file that was just written is in memory"),
                    }
                }
                assert_eq!(send_some(&server, &file, LEN, 5).await, None, "the end");
                server.send(tail);
            }
            server.finish();
        });
        let received = read_to_end(&client).await;
        let file = &content[3..];
        let expected = [b"one ", file, b" two ", b"three ", file, b" four"].concat();
        assert!(received == expected, "{} bytes", received.len());
        let sent = counters().file_bytes_sent - file_bytes;
        assert_eq!(sent, 2 * (LEN as u64 - 3));
    });
}

#[test]
fn a_peer_that_reads_nothing_is_waited_for_and_what_it_leaves_ends_the_wait() {
    const LEN: usize = 64 << 20;
    on_both_drivers(|| async {
        let tree = Tree::with(b"");
        if !tree.reads_at_once() {
            return;
        }
        fs::File::create(tree.0.join("file"))
            .unwrap()
            .set_len(LEN as u64)
            .unwrap();
        let (socket, peer) = with_blocking_peer().await;
        let (socket, file) = (Rc::new(socket), tree.open());
        let before = file.read_blocking(0, LEN).unwrap();
        assert_eq!(before.len(), LEN);
        let sender = Rc::clone(&socket);
        let send_all = async move {
            let mut at = 0;
            loop {
                let some = poll_fn(|cx| file.poll_send(&sender, cx, at as u64, LEN - at));
                match some.await {
                    Ok(Some(sent)) => at += sent,
                    // The reset is reported when the bytes are sent otherwise.
                    Ok(None) | Err(_) => return at,
                }
            }
        };
        let mut send_all = Box::pin(send_all);
        let mut tries = 0;
        // Deadlines of sending see that it waits.
        while socket.queued() == 0 {
            let waited = timeout(Duration::from_millis(100), &mut send_all).await;
            assert!(waited.is_err(), "the kernel takes no 64 MiB");
            tries += 1;
            assert!(tries < 100, "it does not wait");
        }
        outside(move || drop(peer)).await;
        let ended = timeout(Duration::from_secs(10), send_all).await;
        assert!(ended.unwrap() < LEN);
        drop(socket);
        sleep(Duration::from_millis(1)).await;
    });
}

#[test]
fn a_socket_can_be_dropped_while_a_file_waits_for_room() {
    on_both_drivers(|| async {
        let tree = Tree::with(&pattern(32 << 20));
        if !tree.reads_at_once() {
            return;
        }
        for _ in 0..3 {
            let (socket, peer) = with_blocking_peer().await;
            let file = tree.open();
            let all = async {
                let mut at = 0;
                while let Some(sent) = send_some(&socket, &file, at, 32 << 20).await {
                    at += sent;
                }
            };
            assert!(timeout(Duration::from_millis(50), all).await.is_err());
            drop(socket);
            let rest = outside(move || {
                let mut peer = peer;
                std::io::copy(&mut peer, &mut std::io::sink())
            });
            // Its end depends on what was unread.
            let _ = rest.await;
        }
    });
}

#[test]
fn slow_jobs_of_a_share_leave_threads_for_others() {
    on_both_drivers(|| async {
        let slow = Arc::new(Share::default());
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        let ended = Rc::new(std::cell::Cell::new((0, 0)));
        for _ in 0..1000 {
            let (slow, wait, ended) = (Arc::clone(&slow), Arc::clone(&wait), Rc::clone(&ended));
            spawn(async move {
                let job = move || wait.lock().unwrap().recv().is_err();
                let (run, refused) = match blocking_in(&slow, job).await {
                    Ok(true) => (1, 0),
                    Ok(false) => panic!("nothing was sent"),
                    Err(TooManyWait) => (0, 1),
                };
                ended.set((ended.get().0 + run, ended.get().1 + refused));
            });
        }
        let others = async {
            assert_eq!(blocking(|| 1).await, 1);
            let other = Arc::new(Share::default());
            assert_eq!(blocking_in(&other, || 2).await, Ok(2));
        };
        timeout(Duration::from_secs(10), others)
            .await
            .expect("threads are left");
        let refusals = async {
            while ended.get().1 < 740 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let refused = timeout(Duration::from_secs(10), refusals).await;
        assert!(refused.is_ok(), "{:?}", ended.get());
        let (run, refused) = ended.get();
        assert_eq!(run, 0);
        assert!((740..=744).contains(&refused), "{refused} were refused");
        drop(release);
        while ended.get().0 + ended.get().1 < 1000 {
            sleep(Duration::from_millis(1)).await;
        }
    });
}
