//! Threads for what may wait for ever: a file system, a name service, the start of a program.
//!
//! A shared pool has a limit, and one thing that hangs takes all of it. Here each thing that may
//! hang has an owner, a name, with one job at a time. If the same question is asked again, it waits
//! for that job, and if somebody has waited for it without success, not at all. Another question
//! abandons the job, but its thread still counts, so an owner never has more than [`MOST`]. The
//! list of owners belongs to the process: a reload of the configuration replaces everything else,
//! and must find the threads that still wait.

#![forbid(unsafe_code)]

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout_at;

/// The most threads of an owner: that of the last question, and two that were abandoned.
pub const MOST: usize = 3;
/// Time that an answer that came too late is kept for the next question.
const KEPT: Duration = Duration::from_secs(60);
/// The size of a thread's stack, bytes. Name services have modules of others, which need more than
/// our code. A thread uses only the memory that it touches.
const STACK: usize = 256 << 10;

static OWNERS: Mutex<BTreeMap<String, Owner>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Owner {
    threads: usize,
    last: Option<LastJob>,
}

struct LastJob {
    question: String,
    slot: Arc<Slot>,
    /// Whether somebody has waited for the job's answer without success.
    is_late: bool,
}

/// The place where a job leaves its answer.
#[derive(Default)]
struct Slot {
    answer: Mutex<Answer>,
    answered: Notify,
    /// The lock of the asker who waits for the answer. Askers wait one after the other: the one who
    /// began the job is the first.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
enum Answer {
    #[default]
    Awaited,
    Given(Box<dyn Any + Send>, Instant),
    Taken,
}

impl Slot {
    fn put(&self, answer: Box<dyn Any + Send>) {
        *lock(&self.answer) = Answer::Given(answer, Instant::now());
        self.answered.notify_one();
    }

    /// Takes the answer; `None`: it is still awaited.
    fn take(&self) -> Option<Answer> {
        let mut answer = lock(&self.answer);
        (!matches!(*answer, Answer::Awaited)).then(|| mem::replace(&mut *answer, Answer::Taken))
    }

    /// Whether somebody who asks now may have the answer of this job: it is awaited, or came less
    /// than 60 s ago.
    fn is_fresh(&self) -> bool {
        match &*lock(&self.answer) {
            Answer::Awaited => true,
            Answer::Given(_, at) => at.elapsed() < KEPT,
            Answer::Taken => false,
        }
    }
}

/// A job that was begun in a thread, and whose answer can be waited for.
pub struct Job<T> {
    owner: String,
    slot: Arc<Slot>,
    is_late: bool,
    answer: PhantomData<fn() -> T>,
}

impl<T: 'static> Job<T> {
    /// Waits for the answer; `None` if another asker has taken it. Safe to cancel.
    pub async fn answer(&self) -> Option<T> {
        let _turn = self.slot.turn.lock().await;
        loop {
            let answered = self.slot.answered.notified();
            if let Some(answer) = self.slot.take() {
                with_last(&self.owner, &self.slot, |last| *last = None);
                let Answer::Given(answer, _) = answer else { return None };
                return answer.downcast().ok().map(|answer| *answer);
            }
            answered.await;
        }
    }
}

/// The thread's side of a job, with which it answers. As long as it is there, the thread counts.
pub struct JobEnd<T> {
    owner: String,
    slot: Option<Arc<Slot>>,
    answer: PhantomData<fn(T)>,
}

impl<T: Send + 'static> JobEnd<T> {
    /// Gives the answer before the thread is done. If nobody waits any more, the answer is dropped.
    pub fn answer(&mut self, answer: T) {
        if let Some(slot) = self.slot.take() {
            slot.put(Box::new(answer));
        }
    }

    /// Gives the answer as the last thing that the thread does.
    pub fn finish(mut self, answer: T) {
        let slot = self.slot.take();
        // Before the answer, because the next question may follow at once.
        drop(self);
        if let Some(slot) = slot {
            slot.put(Box::new(answer));
        }
    }
}

impl<T> Drop for JobEnd<T> {
    fn drop(&mut self) {
        if let Some(slot) = &self.slot {
            with_last(&self.owner, slot, |last| *last = None);
        }
        let mut owners = lock(&OWNERS);
        if let Some(owner) = owners.get_mut(&self.owner) {
            owner.threads = owner.threads.saturating_sub(1);
        }
        owners.retain(|_, owner| owner.threads > 0 || owner.last.is_some());
    }
}

/// Asks `question` of `owner`: `work` answers it in a thread, unless an earlier job with this
/// question is under way.
///
/// # Errors
/// There is no answer within `patience`; or there is none yet, and somebody has waited for it
/// before; too many threads of this owner still wait; or the system has no thread for it.
pub async fn ask<T: Send + 'static>(
    owner: &str,
    question: &str,
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    ask_at_most(MOST, owner, question, patience, move |end| end.finish(work())).await
}

/// Asks `question` of `owner`, which may have at most `most` threads: `work` answers it in a
/// thread, unless an earlier job with this question is under way. `work` answers through its
/// [`JobEnd`], and may go on after that.
///
/// # Errors
/// As [`ask`]. That there are too many threads is [`io::ErrorKind::ResourceBusy`].
pub async fn ask_at_most<T: Send + 'static>(
    most: usize,
    owner: &str,
    question: &str,
    patience: Duration,
    work: impl FnOnce(JobEnd<T>) + Send + 'static,
) -> io::Result<T> {
    let until = Instant::now() + patience;
    let mut work = Some(work);
    loop {
        let job = find_or_begin(most, owner, question, &mut work)?;
        let until = if job.is_late { Instant::now() } else { until };
        match timeout_at(until.into(), job.answer()).await {
            Ok(Some(answer)) => return Ok(answer),
            // Another asker has it.
            Ok(None) => {}
            Err(_) => {
                with_last(owner, &job.slot, |last| {
                    last.iter_mut().for_each(|last| last.is_late = true)
                });
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer yet"));
            }
        }
    }
}

/// Begins a job without waiting for it, unless a thread of this owner is still there. The last
/// answer of the owner is dropped.
///
/// # Errors
/// A thread of this owner is still there, or the system has no thread.
pub fn begin<T: Send + 'static>(
    owner: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Job<T>> {
    forget(owner);
    find_or_begin(1, owner, "", &mut Some(move |end: JobEnd<T>| end.finish(work())))
}

fn find_or_begin<T: 'static, W: FnOnce(JobEnd<T>) + Send + 'static>(
    most: usize,
    owner: &str,
    question: &str,
    work: &mut Option<W>,
) -> io::Result<Job<T>> {
    let name = owner.to_owned();
    let mut owners = lock(&OWNERS);
    let owner = owners.entry(name.clone()).or_default();
    let is_it = |last: &&LastJob| last.question == question && last.slot.is_fresh();
    if let Some(LastJob { slot, is_late, .. }) = owner.last.as_ref().filter(is_it) {
        let slot = Arc::clone(slot);
        let is_late = *is_late;
        return Ok(Job { owner: name, slot, is_late, answer: PhantomData });
    }
    if owner.threads >= most {
        let text = format!("{} earlier attempts still wait", owner.threads);
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
    }
    let Some(work) = work.take() else { return Err(io::ErrorKind::ResourceBusy.into()) };
    let slot = Arc::new(Slot::default());
    owner.threads += 1;
    owner.last =
        Some(LastJob { question: question.to_owned(), slot: Arc::clone(&slot), is_late: false });
    drop(owners);
    let end = JobEnd { owner: name.clone(), slot: Some(Arc::clone(&slot)), answer: PhantomData };
    // If it fails, `end` goes with it.
    thread::Builder::new().name("waits".to_owned()).stack_size(STACK).spawn(move || work(end))?;
    Ok(Job { owner: name, slot, is_late: false, answer: PhantomData })
}

/// Drops the last answer of `owner`, also one that is still to come.
pub fn forget(owner: &str) {
    if let Some(owner) = lock(&OWNERS).get_mut(owner) {
        owner.last = None;
    }
}

/// Calls `change` for the owner's last job, if that is the one with this slot.
fn with_last(owner: &str, slot: &Arc<Slot>, change: impl FnOnce(&mut Option<LastJob>)) {
    let mut owners = lock(&OWNERS);
    if let Some(owner) = owners.get_mut(owner)
        && owner.last.as_ref().is_some_and(|last| Arc::ptr_eq(&last.slot, slot))
    {
        change(&mut owner.last);
    }
}

/// Locks `mutex`, even if a thread has panicked with the lock: no change under these locks can fail
/// half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Work that hangs until it is let go.
    fn hung<T: Send + 'static>() -> (mpsc::Sender<T>, impl FnOnce() -> T + Send + 'static) {
        let (go, wait) = mpsc::channel();
        (go, move || wait.recv().unwrap())
    }

    fn threads(owner: &str) -> usize {
        lock(&OWNERS).get(owner).map_or(0, |owner| owner.threads)
    }

    /// Each attempt began a thread, until a pool had no other for anybody.
    #[tokio::test]
    async fn what_hangs_has_one_thread_is_waited_for_once_and_its_late_answer_counts() {
        let (go, work) = hung();
        let start = Instant::now();
        let error = ask("late", "a", Duration::from_millis(100), work).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        for _ in 0..100 {
            ask("late", "a", LONG, || 0).await.unwrap_err();
        }
        assert!(start.elapsed() < LONG, "the others wait too");
        assert_eq!(threads("late"), 1);
        assert_eq!(ask("another", "a", LONG, || 8).await.unwrap(), 8);
        go.send(7).unwrap();
        let later = loop {
            match ask("late", "a", LONG, || 9).await {
                Ok(answer) => break answer,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        assert_eq!((later, threads("late")), (7, 0));
        assert_eq!(ask("late", "a", LONG, || 9).await.unwrap(), 9);
    }

    #[tokio::test]
    async fn another_question_abandons_two_and_no_third() {
        let mut go: Vec<mpsc::Sender<()>> = Vec::new();
        let mut errors = Vec::new();
        for question in ["a", "b", "c", "d"] {
            let (one, work) = hung();
            go.push(one);
            errors.push(ask("other", question, Duration::ZERO, work).await.unwrap_err().kind());
        }
        let late = io::ErrorKind::TimedOut;
        assert_eq!(errors, [late, late, late, io::ErrorKind::ResourceBusy]);
        go[0].send(()).unwrap();
        while threads("other") == 3 {
            tokio::task::yield_now().await;
        }
        ask("other", "e", LONG, || ()).await.unwrap();
    }

    /// Each of them has an answer, and there is one thread at a time.
    #[tokio::test]
    async fn those_who_ask_the_same_at_the_same_time_do_not_take_each_others_answer() {
        let (go, work) = hung();
        let first = async { ask("same", "a", LONG, work).await.unwrap() };
        let second = async { ask("same", "a", LONG, || (2, threads("same"))).await.unwrap() };
        let third = async {
            assert_eq!(threads("same"), 1);
            go.send((1, 1)).unwrap();
            ask("same", "a", LONG, || (3, threads("same"))).await.unwrap()
        };
        assert_eq!(tokio::join!(first, second, third), ((1, 1), (2, 1), (3, 1)));
    }

    /// A reader that is there after its daemon has given up would stay for ever.
    #[tokio::test]
    async fn an_answer_that_nobody_waits_for_is_dropped_with_what_asked() {
        let (go, work) = hung::<Arc<()>>();
        ask("dropped", "", Duration::ZERO, work).await.unwrap_err();
        forget("dropped");
        let answer = Arc::new(());
        go.send(Arc::clone(&answer)).unwrap();
        while Arc::strong_count(&answer) > 1 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_thread_that_goes_on_after_its_answer_counts_until_its_end() {
        let (go, wait) = hung();
        let work = |mut end: JobEnd<u32>| {
            end.answer(7);
            wait()
        };
        assert_eq!(ask_at_most(1, "stays", "", LONG, work).await.unwrap(), 7);
        assert_eq!(threads("stays"), 1);
        assert_eq!(begin("stays", || 8).err().unwrap().kind(), io::ErrorKind::ResourceBusy);
        go.send(()).unwrap();
        let job = loop {
            match begin("stays", || 8) {
                Ok(job) => break job,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        assert_eq!(job.answer().await, Some(8));
    }
}
