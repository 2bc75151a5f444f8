//! Shared memory within one process: participants that open a segment for themselves stand for other processes.

#![expect(unsafe_code, reason = "reads and writes messages in shared memory")]
#![expect(clippy::unwrap_used, reason = "a panic is the failure that a test reports, in its helpers too")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use overdrive_tensor::dtype::{DType, Kind};
use overdrive_tensor::error::Error;
use overdrive_tensor::shm::layout::{POOL, RING, SINGLE};
use overdrive_tensor::shm::ring::{Mode, Ring, Stop};
use overdrive_tensor::shm::segment::Segment;
use overdrive_tensor::shm::{file, list, pool};

const SECOND: u64 = 1_000_000_000;

fn single(bytes: usize) -> Arc<Segment> {
    Segment::create(SINGLE, 1, bytes, |fd, start| file::reserve(fd, start, bytes as u64)).unwrap()
}

fn exists(id: [u8; 16]) -> bool {
    file::open(&id).unwrap().is_some()
}

#[test]
fn the_last_to_leave_removes_the_name() {
    let segment = single(100);
    let piece = segment.hold_only().unwrap();
    let id = segment.id();
    drop(segment);
    let other = Segment::attach(id, &[SINGLE], false, true).unwrap();
    let held = other.hold(0, 1, 100, 0).unwrap();
    drop(other);
    assert!(matches!(Segment::attach(id, &[POOL, RING], false, true), Err(Error::Handle { .. })));
    assert!(list::rows().iter().any(|row| row.id == id && row.participants == 2 && row.kind == "tensor"));
    drop(piece);
    assert!(exists(id));
    drop(held);
    assert!(!exists(id));
    assert!(matches!(Segment::attach(id, &[SINGLE], false, true), Err(Error::Handle { .. })));
}

#[test]
fn what_was_released_is_not_held_again() {
    let segment = single(64);
    let piece = segment.hold_only().unwrap();
    assert!(segment.hold(0, 2, 64, 0).is_err());
    assert!(segment.hold(1, 1, 64, 0).is_err());
    assert!(segment.hold(0, 1, 65, 0).is_err());
    drop(piece);
    let pool = pool::create(4096, 4).unwrap();
    let piece = pool::allocate(&pool, 64).unwrap();
    let (block, generation) = (piece.block, piece.generation);
    drop(piece);
    assert!(pool.hold(block, generation, 64, 0).is_err());
}

#[test]
fn a_lease_holds_for_its_time() {
    let segment = single(64);
    let id = segment.id();
    let piece = segment.hold_only().unwrap();
    let lease = piece.lease(SECOND / 5).unwrap();
    drop((piece, segment));
    assert!(exists(id));
    assert!(!list::collect(&id).unwrap());
    let segment = Segment::attach(id, &[SINGLE], false, true).unwrap();
    let piece = segment.hold(0, 1, 64, lease).unwrap();
    let late = piece.lease(SECOND / 5).unwrap();
    assert_ne!(lease, late);
    drop((piece, segment));
    assert!(exists(id));
    std::thread::sleep(Duration::from_millis(250));
    assert!(list::collect(&id).unwrap());
    assert!(!exists(id));
}

#[test]
fn attaching_twice_shares_one_mapping() {
    let segment = single(64);
    let _piece = segment.hold_only().unwrap();
    let again = Segment::attach(segment.id(), &[SINGLE], false, false).unwrap();
    assert!(Arc::ptr_eq(&segment, &again));
    let reading = Segment::attach(segment.id(), &[SINGLE], true, false).unwrap();
    assert!(!Arc::ptr_eq(&segment, &reading));
}

#[test]
fn sizes_that_cannot_be_had() {
    let huge = Segment::create(SINGLE, 1, 1 << 50, |fd, start| file::reserve(fd, start, 1 << 50));
    assert!(matches!(huge, Err(Error::NoSharedSpace { .. })), "{huge:?}");
    assert!(huge.unwrap_err().to_string().contains("--shm-size"));
    assert!(matches!(Segment::create(SINGLE, 1, usize::MAX, |_, _| Ok(())), Err(Error::TooLarge)));
    assert!(Segment::create(SINGLE, 1, 10, |_, _| Ok(())).is_err(), "a file that was not filled");
}

#[test]
fn pieces_of_a_pool_never_overlap_and_come_back() {
    let pool = pool::create(64 << 10, 16).unwrap();
    let mut live: Vec<overdrive_tensor::shm::segment::Piece> = Vec::new();
    let mut random = 12345u64;
    let mut next = |limit: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % limit
    };
    let (start, length) = pool.data();
    for _ in 0..3000 {
        if next(2) == 0 || live.is_empty() {
            match pool::allocate(&pool, next(20_000) as usize) {
                Ok(piece) => {
                    let range = piece.data.addr()..piece.data.addr() + piece.bytes;
                    assert!(range.start >= start.addr() && range.end <= start.addr() + length);
                    assert_eq!(range.start % 64, 0);
                    for other in &live {
                        let other = other.data.addr()..other.data.addr() + other.bytes;
                        assert!(
                            range.is_empty()
                                || other.is_empty()
                                || range.end <= other.start
                                || other.end <= range.start
                        );
                    }
                    live.push(piece);
                }
                Err(Error::PoolFull { .. }) => assert!(!live.is_empty()),
                Err(error) => panic!("{error}"),
            }
        } else {
            let at = next(live.len() as u64) as usize;
            live.swap_remove(at);
        }
        assert_eq!(pool::usage(&pool).0, live.len());
    }
    live.clear();
    assert_eq!(pool::allocate(&pool, 64 << 10).unwrap().bytes, 64 << 10);
    assert!(matches!(pool::allocate(&pool, (64 << 10) + 1), Err(Error::PoolFull { .. })));
}

#[test]
fn a_dead_participant_loses_its_pieces() {
    let pool = pool::create(4096, 4).unwrap();
    let piece = pool::allocate(&pool, 4096).unwrap();
    let other = Segment::attach(pool.id(), &[POOL], false, true).unwrap();
    let held = other.hold(piece.block, piece.generation, 4096, 0).unwrap();
    drop(piece);
    assert!(matches!(pool::allocate(&pool, 1), Err(Error::PoolFull { .. })));
    // As after kill -9: the lock goes, the mark stays.
    file::leave_place(other_fd(&other), other.place());
    let again = pool::allocate(&pool, 4096).unwrap();
    assert!(other.hold(held.block, held.generation, 4096, 0).is_err() || again.block != held.block);
    std::mem::forget((held, other));
}

/// The descriptor of a segment, by which a test drops its lock.
fn other_fd(segment: &Segment) -> i32 {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let hex: String = segment.id().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut fds: Vec<i32> = links
        .filter(|link| std::fs::read_link(link.path()).is_ok_and(|to| to.to_string_lossy().contains(&hex)))
        .map(|link| link.file_name().to_string_lossy().parse().unwrap())
        .collect();
    fds.sort_unstable();
    *fds.last().unwrap() // the latest opening
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(20))
}

fn never() -> impl FnMut() -> bool {
    || false
}

fn send(ring: &Ring, value: u64) -> Result<(), Stop> {
    ring.send(DType::native(Kind::U64), &[1], soon(), &mut never(), &mut |to| {
        // SAFETY: a slot of at least eight bytes.
        unsafe { to.cast::<u64>().write_unaligned(value) }
    })
}

fn receive(ring: &Arc<Ring>) -> Result<u64, Stop> {
    let message = ring.receive(soon(), &mut never())?;
    assert_eq!(message.shape, [1]);
    // SAFETY: the message has one element of eight bytes.
    Ok(unsafe { message.data.cast::<u64>().read_unaligned() })
}

#[test]
fn every_consumer_gets_every_message_in_order() {
    const N: u64 = 20_000;
    let ring = Ring::create(8, 64, Mode::Broadcast).unwrap();
    let consumers: Vec<_> = (0..3)
        .map(|_| {
            let mine = Ring::attach(ring.id()).unwrap();
            mine.join(soon(), &mut never()).unwrap();
            std::thread::spawn(move || {
                for expected in 0..N {
                    assert_eq!(receive(&mine), Ok(expected));
                }
                assert_eq!(receive(&mine), Err(Stop::Finished));
            })
        })
        .collect();
    assert_eq!(ring.n_consumers(), 3);
    (0..N).for_each(|value| send(&ring, value).unwrap());
    ring.finish(soon(), &mut never()).unwrap();
    consumers.into_iter().for_each(|consumer| consumer.join().unwrap());
    assert_eq!(ring.n_used(), 0);
    assert_eq!(send(&ring, 0), Err(Stop::Finished));
}

#[test]
fn each_message_goes_to_one_worker() {
    const N: u64 = 20_000;
    let ring = Ring::create(8, 64, Mode::Work).unwrap();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let mine = Ring::attach(ring.id()).unwrap();
            std::thread::spawn(move || {
                let mut got = Vec::new();
                while let Ok(value) = receive(&mine) {
                    got.push(value);
                }
                got
            })
        })
        .collect();
    let senders: Vec<_> = (0..2)
        .map(|half| {
            let mine = Ring::attach(ring.id()).unwrap();
            std::thread::spawn(move || (0..N / 2).for_each(|i| send(&mine, half * N / 2 + i).unwrap()))
        })
        .collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    ring.finish(soon(), &mut never()).unwrap();
    let mut all: Vec<u64> =
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect();
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..N), "{} of {N} messages", all.len());
}

#[test]
fn messages_wait_for_the_first_consumer_and_the_ring_is_full_meanwhile() {
    let ring = Ring::create(3, 64, Mode::Broadcast).unwrap();
    (0..3).for_each(|value| send(&ring, value).unwrap());
    let late = Some(Instant::now() + Duration::from_millis(30));
    let full = ring.send(DType::native(Kind::U8), &[1], late, &mut never(), &mut |_| ());
    assert_eq!(full, Err(Stop::TimedOut));
    assert_eq!(ring.n_used(), 3);
    let consumer = Ring::attach(ring.id()).unwrap();
    assert_eq!((0..3).map(|_| receive(&consumer).unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    let late = Some(Instant::now() + Duration::from_millis(10));
    assert!(matches!(consumer.receive(late, &mut never()), Err(Stop::TimedOut)));
    assert!(matches!(consumer.receive(None, &mut || true), Err(Stop::Interrupted)));
}

#[test]
fn a_message_stays_until_it_is_dropped() {
    for mode in [Mode::Broadcast, Mode::Work] {
        let ring = Ring::create(2, 64, mode).unwrap();
        let consumer = Ring::attach(ring.id()).unwrap();
        send(&ring, 1).unwrap();
        send(&ring, 2).unwrap();
        let first = consumer.receive(soon(), &mut never()).unwrap();
        let second = consumer.receive(soon(), &mut never()).unwrap();
        assert_eq!(consumer.views(), 2);
        let late = Some(Instant::now() + Duration::from_millis(30));
        assert_eq!(
            ring.send(DType::native(Kind::U8), &[1], late, &mut never(), &mut |_| ()),
            Err(Stop::TimedOut)
        );
        drop(second); // the next slot in turn is the first's
        let late = Some(Instant::now() + Duration::from_millis(30));
        assert_eq!(
            ring.send(DType::native(Kind::U8), &[1], late, &mut never(), &mut |_| ()),
            Err(Stop::TimedOut)
        );
        drop(first);
        send(&ring, 3).unwrap();
        assert_eq!(receive(&consumer), Ok(3));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let ring = Ring::create(2, 64, Mode::Work).unwrap();
    let try_send =
        |shape: &[isize]| ring.send(DType::native(Kind::U8), shape, soon(), &mut never(), &mut |_| ());
    assert!(matches!(try_send(&[65]), Err(Stop::Failed(Error::TooLong { .. }))));
    assert!(matches!(try_send(&[1; 9]), Err(Stop::Failed(Error::TooManyAxes { .. }))));
    assert!(matches!(try_send(&[-1]), Err(Stop::Failed(Error::NegativeLength { .. }))));
    assert_eq!(try_send(&[0, 5]), Ok(()));
    assert!(Ring::create(0, 64, Mode::Work).is_err());
    assert!(matches!(Ring::create(2, usize::MAX, Mode::Work), Err(Error::TooLarge)));
}

#[test]
fn a_dead_consumer_frees_its_slots() {
    for mode in [Mode::Broadcast, Mode::Work] {
        let ring = Ring::create(2, 64, mode).unwrap();
        let consumer = Ring::attach(ring.id()).unwrap();
        consumer.join(soon(), &mut never()).unwrap();
        send(&ring, 1).unwrap();
        send(&ring, 2).unwrap();
        let first = consumer.receive(soon(), &mut never()).unwrap();
        let second = consumer.receive(soon(), &mut never()).unwrap();
        let hex: String = ring.id().iter().map(|byte| format!("{byte:02x}")).collect();
        let fd = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .flatten()
            .filter(|link| {
                std::fs::read_link(link.path()).is_ok_and(|to| to.to_string_lossy().contains(&hex))
            })
            .map(|link| link.file_name().to_string_lossy().parse::<i32>().unwrap())
            .max()
            .unwrap();
        (0..256).for_each(|place| file::leave_place(fd, place));
        std::mem::forget((first, second, consumer));
        send(&ring, 3).unwrap();
        let next = Ring::attach(ring.id()).unwrap();
        assert_eq!(receive(&next), Ok(3));
    }
}
