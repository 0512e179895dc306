use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;

type Sender = u8;

/// Polls an addition once.
fn add(charge: &mut Charge<Sender>, bytes: usize) -> Poll<Result<(), ExceededLimit>> {
    pin!(charge.add(bytes)).poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns true if the body was refused for the sake of another.
fn is_refused(charge: &mut Charge<Sender>) -> bool {
    pin!(charge.refused()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

const ADDED: Poll<Result<(), ExceededLimit>> = Poll::Ready(Ok(()));

/// Returns an incomplete body that holds these bytes.
fn body(budget: &Budget<Sender>, sender: Sender, bytes: usize) -> Charge<Sender> {
    let mut charge = budget.begin(sender);
    assert_eq!(add(&mut charge, bytes), ADDED);
    charge
}

#[test]
fn begun_body_costs_nothing_until_bytes_arrive() {
    let budget = Budget::new(10, 10);
    let begun: Vec<_> = (0..100).map(|n| budget.begin(n)).collect();
    assert_eq!(budget.used(), 0);
    let full = body(&budget, 200, 10);
    assert_eq!(budget.used(), 10);
    drop((begun, full));
    assert_eq!(budget.used(), 0);
}

#[test]
fn older_body_waits_until_the_youngest_is_dropped() {
    let budget = Budget::new(10, 10);
    let (mut oldest, mut middle) = (body(&budget, 1, 3), body(&budget, 2, 3));
    let mut youngest = body(&budget, 3, 4);
    assert!(add(&mut oldest, 2).is_pending());
    assert!(is_refused(&mut youngest) && !is_refused(&mut middle));
    assert!(add(&mut oldest, 2).is_pending(), "its bytes are still there");
    assert!(add(&mut middle, 1).is_pending(), "an older body waits");
    assert!(!is_refused(&mut middle), "what is leaving is enough");
    drop(youngest);
    assert_eq!(add(&mut oldest, 2), ADDED);
    assert_eq!(add(&mut middle, 1), ADDED);
    assert_eq!(budget.used(), 9);
}

#[test]
fn youngest_body_is_refused_by_its_own_bytes() {
    let budget = Budget::new(10, 10);
    let mut oldest = body(&budget, 1, 6);
    let mut youngest = body(&budget, 2, 4);
    assert_eq!(add(&mut youngest, 1), Poll::Ready(Err(ExceededLimit::Budget)));
    assert_eq!(youngest.complete(), Err(ExceededLimit::Budget));
    assert!(!is_refused(&mut oldest));
}

#[test]
fn oldest_body_waits_for_complete_ones() {
    let budget = Budget::new(10, 10);
    let mut complete = body(&budget, 1, 8);
    assert_eq!(complete.complete(), Ok(()));
    let mut oldest = body(&budget, 2, 2);
    assert!(add(&mut oldest, 3).is_pending());
    assert!(!is_refused(&mut complete));
    assert_eq!(budget.reserve(3, 1).unwrap_err(), ExceededLimit::Budget);
    complete.resize(5);
    assert_eq!(add(&mut oldest, 3), ADDED);
    assert_eq!(oldest.complete(), Ok(()));
}

#[test]
fn body_above_the_whole_budget_is_refused_at_once() {
    let budget = Budget::new(10, 100);
    let mut alone = body(&budget, 1, 10);
    assert_eq!(add(&mut alone, 1), Poll::Ready(Err(ExceededLimit::Budget)));
    assert_eq!(add(&mut budget.begin(1), usize::MAX), Poll::Ready(Err(ExceededLimit::Budget)));
}

#[test]
fn sender_above_its_share_loses_its_own_youngest_body() {
    let budget = Budget::new(100, 10);
    let (mut first, mut second) = (body(&budget, 1, 5), body(&budget, 1, 5));
    let mut other = body(&budget, 2, 10);
    assert_eq!(add(&mut first, 1), ADDED, "the share is free once the second is refused");
    assert!(is_refused(&mut second) && !is_refused(&mut other));
    let mut third = budget.begin(1);
    assert_eq!(add(&mut third, 5), Poll::Ready(Err(ExceededLimit::Share)));
    assert_eq!(budget.reserve(1, 5).unwrap_err(), ExceededLimit::Share);
    assert!(budget.has_space(1, 4) && !budget.has_space(1, 5));
    drop((first, second, third, other));
    assert_eq!(budget.used(), 0);
}

#[test]
fn reserved_bytes_resize_to_what_they_account_for() {
    let budget = Budget::new(10, 10);
    let mut share = budget.reserve(1, 6).unwrap();
    share.resize(2);
    assert!(!budget.has_space(2, 9) && budget.has_space(2, 8));
    share.resize(12);
    assert_eq!(budget.used(), 12);
    assert!(!budget.has_space(2, 1));
    drop(share);
    assert_eq!(budget.used(), 0);
}

#[test]
fn younger_body_takes_no_bytes_that_an_older_one_waits_for() {
    let budget = Budget::new(10, 10);
    let mut complete = body(&budget, 1, 7);
    assert_eq!(complete.complete(), Ok(()));
    let (mut oldest, mut younger) = (body(&budget, 2, 1), budget.begin(3));
    assert!(add(&mut oldest, 3).is_pending());
    assert!(add(&mut younger, 1).is_pending(), "it would fit");
    assert!(budget.reserve(4, 1).is_err(), "so would this");
    complete.resize(5);
    assert_eq!(add(&mut oldest, 3), ADDED);
    assert_eq!(add(&mut younger, 1), ADDED);
}

#[test]
fn admitted_body_wakes_the_next_one() {
    let budget = Budget::new(10, 10);
    let mut complete = body(&budget, 1, 10);
    assert_eq!(complete.complete(), Ok(()));
    let (mut first, mut second) = (budget.begin(2), budget.begin(3));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(add(&mut first, 1).is_pending());
    assert!(pin!(second.add(1)).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(complete);
    assert!(!woken.0.load(Ordering::Relaxed), "the first one goes before it");
    assert_eq!(add(&mut first, 1), ADDED);
    assert!(woken.0.load(Ordering::Relaxed));
}

/// A waker that records that it was called.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A body in the model.
struct Body {
    charge: Charge<Sender>,
    /// Bytes that have not arrived yet.
    left: usize,
    held: usize,
    sender: Sender,
    /// The size of a charge that waits.
    waits: Option<usize>,
    complete: bool,
    woken: Arc<Woken>,
}

const BYTES_MAX: usize = 1_000;
const SHARE_MAX: usize = 600;

/// The bodies in the order of age, with the budget under test.
struct Model {
    budget: Budget<Sender>,
    bodies: Vec<Body>,
    completed: usize,
}

impl Model {
    fn new() -> Self {
        Self { budget: Budget::new(BYTES_MAX, SHARE_MAX), bodies: Vec::new(), completed: 0 }
    }

    fn begin(&mut self, sender: Sender, length: usize) {
        let charge = self.budget.begin(sender);
        let (left, held, waits, complete, woken) = (length, 0, None, false, Arc::default());
        self.bodies.push(Body { charge, left, held, sender, waits, complete, woken });
    }

    /// Runs the task of one body until it waits for the budget, or has received `bytes`.
    fn step(&mut self, index: usize, bytes: usize) {
        let Some(body) = self.bodies.get_mut(index) else { return };
        if body.complete {
            self.bodies.remove(index);
            return;
        }
        let woken = body.woken.0.swap(false, Ordering::Relaxed);
        if body.waits.is_some() && !woken {
            return;
        }
        let piece = body.waits.unwrap_or(bytes.min(body.left));
        let waker = Waker::from(Arc::clone(&body.woken));
        let mut context = Context::from_waker(&waker);
        let number = body.charge.number;
        let first = self.budget.0.state.lock().incomplete.first().copied();
        let oldest = first.map_or(number, |first| first.min(number));
        let refused = pin!(body.charge.refused()).poll(&mut context);
        let added = match refused {
            Poll::Ready(spent) => Poll::Ready(Err(spent)),
            Poll::Pending => pin!(body.charge.add(piece)).poll(&mut context),
        };
        if refused.is_pending() {
            let refusal = self.budget.0.state.lock().refusal(oldest);
            assert_ne!(
                refusal,
                Some(ExceededLimit::Budget),
                "the oldest incomplete body is refused"
            );
        }
        match added {
            Poll::Pending => body.waits = Some(piece),
            Poll::Ready(Ok(())) => {
                (body.waits, body.held, body.left) = (None, body.held + piece, body.left - piece);
                body.complete = body.left == 0 && body.charge.complete().is_ok();
                self.completed += usize::from(body.complete);
            }
            Poll::Ready(Err(_)) => {
                self.bodies.remove(index);
            }
        }
    }

    /// Checks the limits and the sums.
    fn check(&self) {
        let state = self.budget.0.state.lock();
        assert!(state.used <= BYTES_MAX);
        assert_eq!(state.used, self.bodies.iter().map(|body| body.held).sum::<usize>());
        for sender in 0..4 {
            let of_sender = self.bodies.iter().filter(|body| body.sender == sender);
            let refused = |b: &&Body| state.refusal(b.charge.number).is_some();
            let held: usize = of_sender.filter(|b| !refused(b)).map(|body| body.held).sum();
            assert_eq!(state.held_by(sender), held);
            assert!(held <= SHARE_MAX);
        }
    }
}

proptest! {
    /// A waiting body is only polled after it was woken, so a lost wake-up would leave it there.
    #[test]
    fn random_arrivals_stay_within_the_budget_and_all_end(
        steps in prop::collection::vec((0_usize..40, 1_usize..400, 0_u8..4), 1..300)
    ) {
        let mut model = Model::new();
        for (which, bytes, sender) in steps {
            if which < 6 {
                model.begin(sender, bytes * 3 / 2);
            } else {
                model.step(which - 6, bytes);
            }
            model.check();
        }
        let (begun, mut rounds) = (model.bodies.len(), 0);
        let finished = model.completed;
        while !model.bodies.is_empty() {
            for index in (0..model.bodies.len()).rev() {
                model.step(index, 50);
                model.check();
            }
            rounds += 1;
            prop_assert!(rounds < 100 * (begun + 1), "a body waits for ever");
        }
        prop_assert!(begun == 0 || finished > 0 || model.completed > 0, "none completed");
        let state = model.budget.0.state.lock();
        prop_assert!(state.used == 0 && state.leaving == 0);
        prop_assert!(state.by_sender.is_empty() && state.charges.is_empty());
        prop_assert!(state.incomplete.is_empty() && state.waiting.is_empty());
    }
}
