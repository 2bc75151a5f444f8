//! The store as several processes use it: what is put comes out whole or not at all, whoever else is at work.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use overdrive_store::{Key, Store, Usage};

const LIMIT: u64 = 1 << 18;

/// An empty directory, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("overdrive-store-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a temporary directory");
        Place(path)
    }

    fn root(&self) -> PathBuf {
        self.0.join("overdrive/code")
    }

    fn store(&self) -> Store {
        Store::new(self.root(), owner(), LIMIT)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Who we are.
fn owner() -> u32 {
    fs::metadata("/proc/self").expect("this process").uid()
}

fn key(n: u64) -> Key {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    // Every one sweeps.
    key[31] = 0;
    key
}

fn payload(n: u64) -> Vec<u8> {
    (0..2000 + n % 997).map(|i| (i * (n | 1)) as u8).collect()
}

fn file(root: &Path, key: &Key) -> PathBuf {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    root.join(hex(&key[..1])).join(hex(&key[1..]))
}

#[test]
fn what_is_put_comes_out_here_and_elsewhere() {
    let place = Place::new("put");
    let store = place.store();
    assert_eq!(store.get(&key(1)), None);
    assert_eq!(store.usage().expect("nothing there is fine"), Usage::default());
    store.put(&key(1), b"one");
    store.put(&key(2), b"");
    assert_eq!(place.store().get(&key(1)).as_deref(), Some(&b"one"[..]));
    assert_eq!(place.store().get(&key(2)).as_deref(), Some(&b""[..]));
    store.put(&key(1), b"another");
    assert_eq!(place.store().get(&key(1)).as_deref(), Some(&b"another"[..]));
    assert_eq!(store.usage().expect("ours").entries, 2);
    assert_eq!(store.problem(), None);
}

#[test]
fn files_are_the_users_alone() {
    let place = Place::new("modes");
    place.store().put(&key(1), b"one");
    let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
    assert_eq!(mode(&place.root()), 0o700);
    assert_eq!(mode(&file(&place.root(), &key(1))), 0o600);
}

#[test]
fn what_others_can_write_is_not_read() {
    let place = Place::new("foreign");
    let store = place.store();
    store.put(&key(1), b"one");
    let path = file(&place.root(), &key(1));

    fs::set_permissions(&path, Permissions::from_mode(0o620)).expect("ours");
    assert_eq!(store.get(&key(1)), None, "a file that a group writes");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
    assert!(store.get(&key(1)).is_some());

    fs::set_permissions(place.root(), Permissions::from_mode(0o777)).expect("ours");
    assert_eq!(store.get(&key(1)), None, "a directory that others write");
    store.put(&key(2), b"two");
    assert!(store.problem().expect("a reason").contains("can be written by other users"));
    assert!(store.clear().is_err());
    fs::set_permissions(place.root(), Permissions::from_mode(0o700)).expect("ours");
    assert_eq!(store.get(&key(2)), None, "nor written");

    let stranger = Store::new(place.root(), owner() + 1, LIMIT);
    assert_eq!(stranger.get(&key(1)), None, "another user's directory");
    stranger.put(&key(3), b"three");
    assert!(stranger.problem().expect("a reason").contains("belongs to another user"));
    assert_eq!(store.get(&key(3)), None);
}

#[test]
fn links_and_things_that_are_no_files_are_not_read() {
    let place = Place::new("links");
    let store = place.store();
    store.put(&key(1), b"one");
    let path = file(&place.root(), &key(1));
    let away = place.0.join("away");
    fs::rename(&path, &away).expect("ours");
    symlink(&away, &path).expect("ours");
    assert_eq!(store.get(&key(1)), None, "a link to a file that would do");
    fs::remove_file(&path).expect("ours");
    fs::create_dir(&path).expect("ours");
    assert_eq!(store.get(&key(1)), None);

    let root = place.root();
    let moved = place.0.join("moved");
    fs::rename(&root, &moved).expect("ours");
    symlink(&moved, &root).expect("ours");
    store.put(&key(2), b"two");
    assert!(store.problem().expect("a reason").contains("is not a directory"));
    assert_eq!(store.get(&key(2)), None);
}

#[test]
fn a_damaged_file_is_nothing_and_is_replaced() {
    let place = Place::new("damaged");
    let store = place.store();
    let path = file(&place.root(), &key(1));
    for damage in [&b""[..], b"\x7fELF", &[0; 4000]] {
        store.put(&key(1), b"one");
        fs::write(&path, damage).expect("ours");
        assert_eq!(store.get(&key(1)), None);
        store.put(&key(1), b"one");
        assert_eq!(store.get(&key(1)).as_deref(), Some(&b"one"[..]));
    }
    store.put(&key(2), b"two");
    fs::copy(&path, file(&place.root(), &key(2))).expect("ours");
    assert_eq!(store.get(&key(2)), None, "a whole file of another key");
}

#[test]
fn where_nothing_can_be_written_nothing_happens() {
    let place = Place::new("readonly");
    fs::write(place.0.join("overdrive"), "a file where a directory should be").expect("ours");
    let store = place.store();
    store.put(&key(1), b"one");
    assert_eq!(store.get(&key(1)), None);
    assert!(store.problem().is_some());
}

#[test]
fn the_least_recently_used_go_when_there_is_too_much() {
    let place = Place::new("bounded");
    let store = place.store();
    let at = |age: u64| SystemTime::now() - Duration::from_secs(age);
    let aged = |n: u64, age: u64| {
        store.put(&key(n), &payload(n));
        let file = fs::File::options().write(true).open(file(&place.root(), &key(n))).expect("ours");
        file.set_modified(at(age)).expect("ours");
    };
    // The first is the oldest, but it is used.
    aged(0, 900_000);
    for n in 1..=80 {
        aged(n, 800_000 - 1000 * n);
    }
    assert!(store.usage().expect("ours").bytes <= LIMIT);
    assert_eq!(store.get(&key(0)).as_deref(), Some(&payload(0)[..]), "not too much so far");
    for n in 81..=140 {
        aged(n, 800_000 - 1000 * n);
    }
    let usage = store.usage().expect("ours");
    assert!(usage.bytes <= LIMIT, "{usage:?}");
    assert!(usage.bytes > LIMIT / 2, "{usage:?}");
    assert!(store.get(&key(0)).is_some(), "was used");
    assert!(store.get(&key(140)).is_some(), "is new");
    assert_eq!(store.get(&key(1)), None, "was not used for longest");
}

#[test]
fn what_is_large_or_not_ours_is_left_alone() {
    let place = Place::new("others");
    let store = place.store();
    store.put(&key(1), &vec![0; LIMIT as usize / 2]);
    assert_eq!(store.get(&key(1)), None, "would push out the rest");
    store.put(&key(2), b"two");
    let shard = file(&place.root(), &key(2)).parent().expect("a directory").to_owned();
    let others = [place.root().join("notes.txt"), shard.join("notes.txt")];
    for other in &others {
        fs::write(other, "mine").expect("ours");
    }
    let left = shard.join(".new-1-2-3");
    fs::write(&left, "half an ent").expect("ours");
    let removed = store.clear().expect("ours");
    assert_eq!(removed.entries, 1);
    assert!(others.iter().all(|other| other.exists()));
    assert!(!left.exists());
    assert_eq!(store.get(&key(2)), None);
}

#[test]
fn what_killed_processes_left_goes_after_an_hour() {
    let place = Place::new("left");
    let store = place.store();
    store.put(&key(1), b"one");
    let shard = file(&place.root(), &key(1)).parent().expect("a directory").to_owned();
    let (old, new) = (shard.join(".new-1-2-3"), shard.join(".new-4-5-6"));
    for path in [&old, &new] {
        fs::write(path, "half").expect("ours");
    }
    let old_file = fs::File::options().write(true).open(&old).expect("ours");
    old_file.set_modified(SystemTime::now() - Duration::from_secs(4000)).expect("ours");
    store.put(&key(2), b"two");
    assert!(!old.exists() && new.exists());
}

const WRITER: &str = "OVERDRIVE_TEST_STORE_WRITER";

/// Not a test of its own: what `killed_writers_leave_no_bad_entry` starts and kills.
#[test]
fn writer() {
    let Some(root) = std::env::var_os(WRITER) else { return };
    let store = Store::new(PathBuf::from(root), owner(), LIMIT);
    for n in (0..64).cycle() {
        store.put(&key(n), &payload(n));
        if store.get(&key(n)).is_some_and(|found| found != payload(n)) {
            std::process::abort();
        }
    }
}

#[test]
fn killed_writers_leave_no_bad_entry() {
    let place = Place::new("killed");
    let store = place.store();
    let program = std::env::current_exe().expect("this test");
    let mut found = 0;
    for round in 0..200u64 {
        let start = || {
            Command::new(&program)
                .args(["--exact", "writer"])
                .env(WRITER, place.root())
                .stdout(std::process::Stdio::null())
                .spawn()
                .expect("this program")
        };
        // Two at once, so that one also sees what the other does.
        let mut writers = [start(), start()];
        std::thread::sleep(Duration::from_micros(4000 + 137 * (round % 61)));
        for writer in &mut writers {
            assert_eq!(writer.try_wait().expect("a child"), None, "a writer read a bad entry");
            writer.kill().expect("a child");
            writer.wait().expect("a child");
        }
        for n in 0..64 {
            match store.get(&key(n)) {
                Some(bytes) => {
                    assert_eq!(bytes, payload(n), "round {round}");
                    found += 1;
                }
                None => assert_eq!(store.problem(), None),
            }
        }
    }
    assert!(found > 200, "the writers came to write nothing: {found}");
}
