//! Order, refusals, hangs and ends of a saver, on a disk that does what a test says.

use std::io;
use std::sync::Condvar;

use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::StateFile;

/// How a disk behaves, and what is on it.
#[derive(Debug, Default)]
struct Behaviour {
    written: Vec<(&'static str, u32)>,
    refuses: Option<&'static str>,
    hangs: bool,
    is_writing: bool,
}

#[derive(Clone, Debug, Default)]
struct TestDisk(Arc<(Mutex<Behaviour>, Condvar)>);

impl TestDisk {
    fn set(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    fn write(&self, key: &'static str, value: u32) -> Result<(), StateFileError> {
        let mut state = self.0.0.lock().unwrap();
        assert!(!state.is_writing, "two writes at once");
        state.is_writing = true;
        let patience = Duration::from_secs(60);
        let waited = self.0.1.wait_timeout_while(state, patience, |it| it.hangs);
        let (mut state, waited) = waited.unwrap();
        assert!(!waited.timed_out(), "nobody lets the disk go on");
        state.is_writing = false;
        if state.refuses == Some(key) {
            return Err(StateFileError::Io {
                action: "write",
                path: key.into(),
                source: io::ErrorKind::StorageFull.into(),
            });
        }
        state.written.push((key, value));
        Ok(())
    }

    fn written(&self) -> Vec<(&'static str, u32)> {
        self.0.0.lock().unwrap().written.clone()
    }

    fn saver(&self) -> (Saver<&'static str, u32>, Writer<&'static str, u32>) {
        let disk = self.clone();
        Saver::new("numbers", move |key: &&'static str, value| {
            disk.write(key, *value)
        })
    }

    fn started(&self) -> (Saver<&'static str, u32>, AbortOnDropHandle<Infallible>) {
        let (saver, writer) = self.saver();
        (saver, AbortOnDropHandle::new(tokio::spawn(writer.run())))
    }

    /// Lets tasks run until the thread is in its write.
    async fn until_writing(&self) {
        while !self.0.0.lock().unwrap().is_writing {
            tokio::task::yield_now().await;
        }
    }
}

/// Opens the disk when a test ends: the runtime waits for the thread that writes.
struct GoesOn(TestDisk);

impl Drop for GoesOn {
    fn drop(&mut self) {
        self.0.set(|disk| disk.hangs = false);
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_is_in_its_file_when_it_is_told_to_be() {
    let directory = tempfile::tempdir().unwrap();
    let file = StateFile::new(directory.path().join("s.json"), 1);
    let of_writer = file.clone();
    let (saver, writer) = Saver::new("a number", move |(), value: &u32| of_writer.save(value));
    let _writer = AbortOnDropHandle::new(tokio::spawn(writer.run()));
    for value in 1..10 {
        saver.put((), value).finished().await.unwrap();
        assert_eq!(file.load::<u32>().unwrap(), Some(value));
        assert!(!saver.is_unsaved(&()));
    }
}

#[tokio::test(start_paused = true)]
async fn of_each_key_only_the_newest_value_is_written() {
    let disk = TestDisk::default();
    let (saver, writer) = disk.saver();
    let mut first = saver.put("a", 1);
    drop(saver.put("c", 4));
    let mut newest = saver.put("a", 3);
    drop(saver.put("b", 2));
    assert_eq!(saver.unsaved(), ["a", "b", "c"]);
    let _writer = AbortOnDropHandle::new(tokio::spawn(writer.run()));
    first.finished().await.unwrap();
    newest.finished().await.unwrap();
    saver.put("d", 5).finished().await.unwrap();
    assert_eq!(disk.written(), [("a", 3), ("b", 2), ("c", 4), ("d", 5)]);
    assert!(saver.unsaved().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_value_that_comes_while_the_one_before_is_written_is_written_after_it() {
    let disk = TestDisk::default();
    let _goes_on = GoesOn(disk.clone());
    disk.set(|disk| disk.hangs = true);
    let (saver, _writer) = disk.started();
    let mut first = saver.put("a", 1);
    disk.until_writing().await;
    let mut second = saver.put("a", 3);
    let mut last = saver.put("b", 2);
    disk.set(|disk| disk.hangs = false);
    first.finished().await.unwrap();
    second.finished().await.unwrap();
    last.finished().await.unwrap();
    assert_eq!(disk.written(), [("a", 1), ("a", 3), ("b", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_told_at_once_and_tried_again() {
    let disk = TestDisk::default();
    disk.set(|disk| disk.refuses = Some("a"));
    let (saver, _writer) = disk.started();
    let begun = Instant::now();
    let error = saver.put("a", 1).finished().await.unwrap_err();
    assert!(matches!(error, NotSaved::Refused(_)), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(1));
    let trouble = saver.trouble().unwrap();
    assert!(
        trouble.starts_with("numbers cannot be saved: "),
        "{trouble}"
    );
    // Others have no part in it, and its being tried again is not put off by them.
    for value in 0..10 {
        saver.put("b", value).finished().await.unwrap();
        tokio::time::sleep(RETRY_PAUSE / 2).await;
    }
    assert!(saver.is_unsaved(&"a") && saver.trouble().is_some());
    disk.set(|disk| disk.refuses = None);
    tokio::time::sleep(RETRY_PAUSE * 2).await;
    assert_eq!(disk.written().last(), Some(&("a", 1)));
    assert_eq!((saver.trouble(), saver.unsaved().len()), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn a_newer_value_waits_for_no_retry() {
    let disk = TestDisk::default();
    disk.set(|disk| disk.refuses = Some("a"));
    let (saver, _writer) = disk.started();
    saver.put("a", 1).finished().await.unwrap_err();
    disk.set(|disk| disk.refuses = None);
    let begun = Instant::now();
    saver.put("a", 2).finished().await.unwrap();
    assert!(begun.elapsed() < RETRY_PAUSE);
    assert_eq!(disk.written(), [("a", 2)]);
    assert_eq!(saver.trouble(), None);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_disk_that_hangs_goes_on_after_a_while() {
    let disk = TestDisk::default();
    let _goes_on = GoesOn(disk.clone());
    disk.set(|disk| disk.hangs = true);
    let (saver, _writer) = disk.started();
    let begun = Instant::now();
    let mut first = saver.put("a", 1);
    disk.until_writing().await;
    // Time does not pass by itself while a thread is busy.
    tokio::time::advance(SAVE_MAY_TAKE / 2).await;
    let mut later = saver.put("b", 1);
    tokio::time::advance(SAVE_MAY_TAKE / 2).await;
    for saving in [&mut first, &mut later] {
        let error = saving.finished().await.unwrap_err();
        assert!(matches!(error, NotSaved::Late), "{error:?}");
    }
    assert_eq!(begun.elapsed().as_secs(), SAVE_MAY_TAKE.as_secs());
    while saver.trouble().is_none() {
        tokio::task::yield_now().await;
    }
    // From now on nobody waits at all.
    for value in 2..100 {
        let error = saver.put("a", value).finished().await.unwrap_err();
        assert!(matches!(error, NotSaved::Late), "{error:?}");
    }
    assert_eq!(begun.elapsed().as_secs(), SAVE_MAY_TAKE.as_secs());
    disk.set(|disk| disk.hangs = false);
    while !saver.unsaved().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(disk.written(), [("a", 1), ("a", 99), ("b", 1)]);
    assert_eq!(saver.trouble(), None);
    saver.put("a", 100).finished().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_writer_waiting_is_bounded_too() {
    let (saver, _writer) = TestDisk::default().saver();
    let begun = Instant::now();
    let error = saver.put("a", 1).finished().await.unwrap_err();
    assert!(matches!(error, NotSaved::Late), "{error:?}");
    assert_eq!(begun.elapsed().as_secs(), SAVE_MAY_TAKE.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_panics_is_told_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let good = directory.path().join("good");
    let of_writer = good.clone();
    let (saver, writer) = Saver::new("a number", move |(), value: &u32| {
        assert!(of_writer.exists(), "as a bug would");
        StateFile::new(&of_writer, 1).save(value)
    });
    let _writer = AbortOnDropHandle::new(tokio::spawn(writer.run()));
    let error = saver.put((), 1).finished().await.unwrap_err();
    assert!(matches!(error, NotSaved::Refused(_)), "{error:?}");
    std::fs::write(&good, "").unwrap();
    saver.put((), 2).finished().await.unwrap();
}

#[test]
fn nothing_is_written_after_the_writer_is_gone() {
    let disk = TestDisk::default();
    let (saver, writer) = disk.saver();
    drop(writer);
    // As on a thread that had not begun yet.
    saver.0.write(&"a", &1).unwrap();
    assert!(disk.written().is_empty());
}
