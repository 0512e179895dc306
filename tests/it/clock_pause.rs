//! A server that was off for some days: its clock is followed at once if the kernel says that it is
//! synchronised.

use std::fs;

use crate::common::mounted::folder_to_watch;
use crate::common::shifted::{DAY, ShiftedClock};
use crate::common::{Api, Running, eventually, folder, run};

fn says_synchronised(api: &Api) -> Result<(), String> {
    let events = api.history("/coverage");
    let says = |event: &serde_json::Value| event["detail"].to_string().contains("synchronised");
    if events.iter().any(says) { Ok(()) } else { Err(format!("{events:?}")) }
}

#[test]
fn clock_after_a_pause_is_followed_if_it_is_synchronised() {
    let base = folder("clock-pause");
    let (data, tree) = (base.join("data"), folder_to_watch(base.join("tree")));
    let (data, tree) = (data.to_str().unwrap(), tree.to_str().unwrap());
    fs::write(base.join("tree/file"), "x").unwrap();
    let clock = ShiftedClock::new(&base, "server");
    let start = |synchronised: bool| {
        let words = ["up", "--data", data, "--watch", tree, "--api", "127.0.0.1:0", "--plain-http"];
        let mut env = clock.env().to_vec();
        env.extend(synchronised.then_some(("HOLDFAST_SYNCHRONISED", "1")));
        let up = Running::start_with(&words, &base.join("log"), &env);
        up.line("ready: ");
        up
    };
    let held = || {
        let (code, out, error) = run(&["clock", "show", "--data", data]);
        assert!(code == 0 || code == 1, "{error}");
        (code == 1, out)
    };
    let mut now = 0;
    for (days, synchronised, is_held) in
        [(0, true, false), (10, true, false), (3, false, true), (0, true, false), (40, true, true)]
    {
        now += days * DAY;
        clock.set(now);
        let up = start(synchronised);
        assert_eq!(held().0, is_held, "{days} days, synchronised {synchronised}: {}", held().1);
        if days == 10 {
            eventually("the step is said", || says_synchronised(&Api::of(data.as_ref())));
        }
        assert_eq!(up.stop(), 0);
    }
}
