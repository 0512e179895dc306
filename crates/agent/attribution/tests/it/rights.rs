//! Without a right or outside of the first namespaces, the start fails and names what is missing.

use std::process::Command;

use attribution::{Attribution, Options};

/// Starts the attribution; run by the other test in other namespaces.
#[test]
#[ignore = "run by start_names_the_missing_right"]
fn start_and_print_the_error() {
    match Attribution::start(Options::default()) {
        Ok(_) => println!("started"),
        Err(error) => println!("{error}"),
    }
}

#[test]
fn start_names_the_missing_right() {
    if !needs::root("to create namespaces") {
        return;
    }
    let cases: [(&[&str], &str); 4] = [
        (&["--mount"], "started"),
        (&["--user"], "needs CAP_NET_ADMIN in the first user namespace"),
        (&["--net"], "first process and network namespaces"),
        (&["--pid", "--fork"], "first process and network namespaces"),
    ];
    for (namespace, expected) in cases {
        let output = Command::new("unshare")
            .args(namespace)
            .arg(std::env::current_exe().unwrap())
            .args(needs::own_process_words(module_path!(), "start_and_print_the_error"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(expected), "{namespace:?}: {text}");
    }
}
