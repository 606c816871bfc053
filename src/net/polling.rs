//! Polling of futures whose parts wake each other, and work that takes long within a poll.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{block_in_place, coop};

/// How often something is polled in a row while it wakes itself. Then other tasks come first.
/// Tried by `polling::what_wakes_itself_without_end_leaves_room_for_other_tasks`.
const MOST_PASSES: usize = 4;

/// Polls on behalf of a task. A wake-up that the polled parts cause themselves meanwhile leads to another pass; the task
/// is not scheduled for it, which would also wake an idle thread of the runtime. What is pending and was not woken is not
/// polled: its task may have been woken for something else.
#[derive(Debug)]
pub struct WakeFilter {
    wakes: Arc<TaskWakes>,
    /// Wakes through `wakes`.
    waker: Waker,
}

#[derive(Debug)]
struct TaskWakes {
    task: AtomicWaker,
    is_polling: AtomicBool,
    /// Whether there is a reason to poll.
    woken: AtomicBool,
}

/// Threshold of bytes above which a pass over them takes long.
pub const LONG_BYTES: usize = 512 * 1024;

/// Runs `work`. If it is `long`, the other tasks of this runtime worker move to other workers meanwhile.
pub fn block_in_place_if<T>(long: bool, work: impl FnOnce() -> T) -> T {
    let workers = Handle::current().runtime_flavor();
    match workers {
        RuntimeFlavor::MultiThread if long => block_in_place(work),
        _ => work(),
    }
}

/// Takes a text of this length apart. If it is long, the other tasks of this runtime worker move to other workers.
pub fn taking_apart<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    block_in_place_if(bytes > LONG_BYTES, work)
}

impl WakeFilter {
    /// Calls `poll` until it is ready or nothing has woken it meanwhile, at most a few times; not at all if it was pending
    /// and nothing has woken it since.
    pub fn poll<T>(
        &self,
        context: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.wakes.task.register(context.waker());
        if !self.wakes.woken.load(SeqCst) {
            return Poll::Pending;
        }
        self.wakes.is_polling.store(true, SeqCst);
        let mut own_context = Context::from_waker(&self.waker);
        let mut result = Poll::Pending;
        // The bounds let other tasks run. A task that has used its budget is woken each time that it reads.
        for _ in 0..MOST_PASSES {
            self.wakes.woken.store(false, SeqCst);
            result = poll(&mut own_context);
            let is_idle = result.is_ready() || !self.wakes.woken.load(SeqCst);
            if is_idle || !coop::has_budget_remaining() {
                break;
            }
        }
        self.wakes.is_polling.store(false, SeqCst);
        if result.is_ready() {
            // A caller that gets a result polls again.
            self.wakes.woken.store(true, SeqCst);
        } else if self.wakes.woken.load(SeqCst) {
            context.waker().wake_by_ref();
        }
        result
    }

    /// Calls `action`, which is a reason to poll. Its wake-ups do not reach the task, because a poll follows.
    pub(crate) fn before_poll<T>(&self, action: impl FnOnce() -> T) -> T {
        self.wakes.is_polling.store(true, SeqCst);
        let result = action();
        self.wakes.is_polling.store(false, SeqCst);
        self.wakes.woken.store(true, SeqCst);
        result
    }

    /// The future, polled in this way.
    pub async fn run<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let wake_filter = Self::default();
        std::future::poll_fn(|context| {
            wake_filter.poll(context, |context| Pin::as_mut(&mut future).poll(context))
        })
        .await
    }
}

impl Default for WakeFilter {
    fn default() -> Self {
        let wakes = Arc::new(TaskWakes {
            task: AtomicWaker::new(),
            is_polling: AtomicBool::new(false),
            woken: AtomicBool::new(true),
        });
        Self {
            waker: Waker::from(Arc::clone(&wakes)),
            wakes,
        }
    }
}

impl Wake for TaskWakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, SeqCst);
        if !self.is_polling.load(SeqCst) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// Polls `future` once. Returns the result and how often its task was woken.
    fn poll_once<T>(future: impl Future<Output = T>) -> (Poll<T>, usize) {
        let wakes = Arc::new(Counting::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let result = std::pin::pin!(WakeFilter::run(future)).poll(&mut Context::from_waker(&waker));
        (result, wakes.0.load(SeqCst))
    }

    #[test]
    fn a_wake_up_during_a_poll_is_another_pass_and_none_of_the_task() {
        let mut left = 3;
        let (result, wakes) = poll_once(poll_fn(|context| match left {
            0 => Poll::Ready(()),
            _ => {
                left -= 1;
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }));
        assert_eq!((result, wakes), (Poll::Ready(()), 0));
    }

    #[test]
    fn what_wakes_itself_without_end_leaves_room_for_other_tasks() {
        let mut polls = 0;
        let (result, wakes) = poll_once(poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        assert_eq!((result, wakes, polls), (Poll::Pending, 1, MOST_PASSES));
    }

    #[test]
    fn what_is_pending_and_was_not_woken_is_not_polled() {
        let wake_filter = WakeFilter::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut kept: Option<Waker> = None;
        let mut polls = 0;
        let mut poll = |result: Poll<()>| {
            let _result = wake_filter.poll(&mut context, |context| {
                polls += 1;
                kept = Some(context.waker().clone());
                result
            });
            (polls, kept.clone())
        };
        assert_eq!(poll(Poll::Pending).0, 1);
        let (count, waker) = poll(Poll::Pending);
        assert_eq!(count, 1);
        if let Some(waker) = waker {
            waker.wake();
        }
        assert_eq!(poll(Poll::Ready(())).0, 2);
        assert_eq!(poll(Poll::Pending).0, 3, "after a result");
        assert_eq!(poll(Poll::Pending).0, 3);
        wake_filter.before_poll(|| ());
        assert_eq!(poll(Poll::Pending).0, 4);
    }

    #[test]
    fn a_later_wake_up_wakes_the_task() {
        let mut kept = None;
        let (result, wakes) = poll_once(poll_fn(|context| {
            kept = Some(context.waker().clone());
            Poll::<()>::Pending
        }));
        assert_eq!((result, wakes), (Poll::Pending, 0));
        let wakes = Arc::new(Counting::default());
        let wake_filter = WakeFilter::default();
        let waker = Waker::from(Arc::clone(&wakes));
        let pending = wake_filter.poll(&mut Context::from_waker(&waker), |context| {
            kept = Some(context.waker().clone());
            Poll::<()>::Pending
        });
        assert!(pending.is_pending());
        if let Some(waker) = kept {
            waker.wake();
        }
        assert_eq!(wakes.0.load(SeqCst), 1);
    }
}
