//! Both text forms, what they refuse and where, and merging.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::time::Duration;

use proptest::prelude::*;
use settings::{
    HashAlgorithm, Merged, Settings, SettingsError, Span, WatchSettings, WatchedAttribute, merged,
    sum,
};

fn refused(text: &str) -> String {
    Settings::parse(text).unwrap_err().to_string()
}

#[test]
fn group_settings_toml_round_trips() {
    let text = "[scan]\ninterval = \"10m\"\nthreads = 4\n\n[sync]\nheartbeat = \"5s\"\n\n\
                [[watch]]\npath = \"/srv\"\nmax_depth = 3\nignore = [\"*.log\"]\n";
    let settings = Settings::parse(text).unwrap();
    assert_eq!(settings.scan.interval, Some(Span(Duration::from_mins(10))));
    assert_eq!(settings.watch[0].path, "/srv");
    assert_eq!(Settings::parse(&settings.to_toml()).unwrap(), settings);
    assert_eq!(Settings::parse("").unwrap().to_toml(), "");
    assert_eq!(sum(""), "");
    assert_eq!(sum("a"), "0cc175b9c0f1b6a831c399e269772661");
}

#[test]
fn forbidden_group_setting_is_refused_with_its_line() {
    for (text, line, word) in [
        ("[scan]\ninterval = \"1s\"\nserver = \"x\"\n", 3, "server"),
        ("\nserver = \"https://evil\"\n", 2, "server"),
        ("data = \"/\"\n", 1, "data"),
        ("[inventory]\nroot = \"/mnt\"\n", 2, "root"),
        ("[queue]\ndurability = \"process\"\n", 2, "durability"),
        ("[scan]\ninterval = \"often\"\n", 2, "often"),
        ("[scan]\nthreads = 9\n", 2, "9"),
        ("[sync]\nheartbeat = \"1h\"\n", 2, "must be from"),
        ("[[watch]]\npath = \"relative\"\n", 2, "absolute"),
        ("[[watch]]\npath = \"/a/../b\"\n", 2, ".."),
        ("[[watch]]\npath = \"/a\"\nignore = [\"{\"]\n", 3, "gitignore"),
        ("[[watch]]\npath = \"/a\"\nignore = [\"[a\"]\n", 3, "gitignore"),
        ("[[watch]]\npath = \"/a\"\nhashes = [\"crc\"]\n", 3, "crc"),
        ("[metrics]\nprocesses = [\"\"]\n", 2, "comm"),
    ] {
        let error = refused(text);
        assert!(error.starts_with(&format!("line {line}: ")), "{text}: {error}");
        assert!(error.contains(word), "{text}: {error}");
    }
    let twice = refused("[[watch]]\npath = \"/a\"\n[[watch]]\npath = \"/a/.\"\n");
    assert!(twice.contains("/a is watched twice"), "{twice}");
}

#[test]
fn agent_config_xml_converts_to_settings() {
    let text = "<?xml version=\"1.0\"?>\n<agent_config os=\"Linux\">\n  <!-- why -->\n  <syscheck>\n\
        <disabled>no</disabled><frequency>600</frequency>\n\
        <directories check_all=\"yes\" recursion_level=\"0\" tags=\"a, b\">/srv/,/opt</directories>\n\
        <directories check_all=\"no\" realtime=\"no\" check_sha256sum=\"yes\" check_perm=\"yes\">/etc</directories>\n\
        <ignore>/srv/cache</ignore><ignore type=\"sregex\">.log$|.swp$|tmp</ignore>\n\
        </syscheck>\n</agent_config>\n<agent_config><wodle name=\"syscollector\">\
        <interval>1h</interval><packages>no</packages></wodle></agent_config>\n";
    let settings = Settings::parse(text).unwrap();
    assert_eq!(settings.scan.interval, Some(Span(Duration::from_mins(10))));
    assert_eq!(settings.inventory.packages, Some(false));
    assert_eq!(settings.inventory.interval, Some(Span(Duration::from_hours(1))));
    let patterns = ["*.log", "*.swp", "*tmp*"].map(String::from);
    let tags = Some(vec!["a".to_owned(), "b".into()]);
    let mut srv =
        WatchSettings { path: "/srv".into(), max_depth: Some(1), tags, ..WatchSettings::default() };
    let mut opt = WatchSettings { path: "/opt".into(), ..srv.clone() };
    srv.ignore = Some(["/cache".to_owned()].into_iter().chain(patterns.clone()).collect());
    opt.ignore = Some(patterns.to_vec());
    let etc = WatchSettings {
        path: "/etc".into(),
        hashes: Some(vec![HashAlgorithm::Sha256]),
        attributes: Some(vec![WatchedAttribute::Hash, WatchedAttribute::Mode]),
        ignore: opt.ignore.clone(),
        realtime: Some(false),
        ..WatchSettings::default()
    };
    assert_eq!(settings.watch, [srv, opt, etc]);
    // The result can be written as TOML, the form that agents receive.
    assert_eq!(Settings::parse(&settings.to_toml()).unwrap(), settings);
}

#[test]
fn unsupported_agent_config_is_refused_by_name_and_line() {
    let inside =
        |text: &str| format!("<agent_config>\n<syscheck>\n{text}\n</syscheck>\n</agent_config>");
    for (text, line, word) in [
        ("<agent_config>\n<localfile/>\n</agent_config>".to_owned(), 2, "<localfile>"),
        ("<agent_config>\n<rootcheck/>\n</agent_config>".to_owned(), 2, "<rootcheck>"),
        ("<agent_config name=\"web\"></agent_config>".to_owned(), 1, "name=\"web\""),
        ("<agent_config>\n<wodle name=\"osquery\"/></agent_config>".to_owned(), 2, "syscollector"),
        ("<other/>".to_owned(), 1, "agent_config"),
        ("<agent_config>\n<syscheck>\n</agent_config>".to_owned(), 3, "not XML"),
        ("<!DOCTYPE a [<!ENTITY b \"c\">]>\n<agent_config/>".to_owned(), 1, "not XML"),
        (inside("<directories realtime=\"maybe\">/a</directories>"), 3, "maybe"),
        (inside("<directories report_changes=\"yes\">/a</directories>"), 3, "report_changes"),
        (inside("<directories restrict=\"x\">/a</directories>"), 3, "restrict"),
        (inside("<directories>a</directories>"), 3, "absolute"),
        (inside("<directories>/a/*/b</directories>"), 3, "wildcards"),
        (inside("<directories>/a</directories>\n<directories>/a</directories>"), 4, "twice"),
        (inside("<ignore>/a</ignore>"), 3, "below no"),
        (inside("<directories>/a</directories><ignore type=\"sregex\">^/a/b</ignore>"), 3, "^/a/b"),
        (inside("<frequency>0</frequency>"), 3, "0 s"),
        (inside("<frequency>soon</frequency>"), 3, "soon"),
        (inside("<max_eps>50</max_eps>"), 3, "<max_eps>"),
        (inside("<disabled>yes</disabled>"), 3, "<disabled>"),
        (inside("<directories check_attrs=\"yes\">/a</directories>"), 3, "check_attrs"),
    ] {
        let error = refused(&text);
        assert!(error.starts_with(&format!("line {line}: ")), "{text}: {error}");
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[test]
fn last_of_several_groups_wins_key_by_key() {
    let one = Settings::parse(
        "[scan]\ninterval = \"1h\"\nthreads = 2\n[[watch]]\npath = \"/a\"\nmax_depth = 1\n\
         [[watch]]\npath = \"/b\"\n",
    );
    let two = Settings::parse(
        "[scan]\ninterval = \"1m\"\n[[watch]]\npath = \"/c\"\n[[watch]]\npath = \"/a\"\n",
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    let both = merged([&one, &two]).unwrap();
    assert_eq!(both.scan.interval, Some(Span(Duration::from_mins(1))));
    assert_eq!(both.scan.threads, Some(2));
    let paths: Vec<&str> = both.watch.iter().map(|watch| watch.path.as_str()).collect();
    assert_eq!(paths, ["/a", "/b", "/c"]);
    assert_eq!(both.watch[0].max_depth, None, "the last rule for a path counts as a whole");
    assert_ne!(Merged::from(&both).sum, Merged::from(&merged([&two, &one]).unwrap()).sum);
    assert_eq!(Merged::from(&merged([]).unwrap()), Merged::default());
}

/// Returns an `agent_config` with this number of blocks and of terms in each, and a path of its own
/// in each.
fn blocks(blocks: usize, terms: usize) -> String {
    let block = |n: usize| {
        let terms: Vec<String> = (0..terms).map(|t| format!("x{t}")).collect();
        format!(
            "<syscheck><directories>/srv/{n}</directories><ignore type=\"sregex\">{}</ignore>\
             </syscheck>",
            terms.join("|")
        )
    };
    format!("<agent_config>{}</agent_config>", (0..blocks).map(block).collect::<String>())
}

#[test]
fn pattern_limits_apply_per_form_and_across_groups() {
    let long = format!("<ignore type=\"sregex\">{}</ignore>", "a".repeat(5_000));
    let text = format!(
        "<agent_config>\n<syscheck>\n<directories>/a</directories>\n{long}</syscheck></agent_config>"
    );
    let error = refused(&text);
    assert!(error.starts_with("line 4: ") && error.contains("bytes"), "{error}");
    let error = refused(&blocks(21, 1_000));
    assert!(error.contains("21000 patterns"), "{error}");
    let list = vec!["\"a\""; 1_000].join(",");
    let one = Settings::parse(&format!("[[watch]]\npath = \"/a\"\nignore = [{list}]\n")).unwrap();
    let group = |name: &str, paths: usize| {
        let watch =
            |n: usize| WatchSettings { path: format!("/{name}/{n}"), ..one.watch[0].clone() };
        Settings { watch: (0..paths).map(watch).collect(), ..Settings::default() }
    };
    assert!(merged([&group("a", 11), &group("b", 9)]).is_ok());
    let error = merged([&group("a", 11), &group("b", 10)]);
    assert_eq!(error, Err(SettingsError::TooManyPatterns(21_000)));
    assert_eq!(merged([&group("a", 21)]), Err(SettingsError::TooManyPatterns(21_000)));
}

#[test]
fn heartbeat_interval_is_at_most_a_third_of_silence() {
    let slow = Settings::parse("[sync]\nheartbeat = \"5m\"\n").unwrap();
    assert_eq!(slow.check_silence(Duration::from_mins(15)), Ok(()));
    let error = slow.check_silence(Duration::from_mins(2)).unwrap_err().to_string();
    assert!(error.contains("300s") && error.contains("40s"), "{error}");
    assert_eq!(Settings::default().check_silence(Duration::from_secs(1)), Ok(()));
}

proptest! {
    #[test]
    fn random_settings_text_parses_or_is_refused(text in "\\PC{0,200}", xml in any::<bool>()) {
        let text = if xml { format!("<agent_config><syscheck>{text}</syscheck></agent_config>") } else { text };
        if let Ok(settings) = Settings::parse(&text) {
            // An accepted text can be distributed and reads back as the same settings.
            prop_assert_eq!(Settings::parse(&settings.to_toml()).unwrap(), settings);
        }
    }
}

#[test]
fn packages_are_off_if_either_option_turns_them_off() {
    for (options, packages) in [
        ("<packages>no</packages><disabled>no</disabled>", Some(false)),
        ("<disabled>no</disabled><packages>no</packages>", Some(false)),
        ("<disabled>yes</disabled><packages>yes</packages>", Some(false)),
        ("<packages>yes</packages><disabled>no</disabled>", Some(true)),
        ("<disabled>no</disabled>", Some(true)),
        ("", None),
    ] {
        let text =
            format!("<agent_config><wodle name=\"syscollector\">{options}</wodle></agent_config>");
        assert_eq!(Settings::parse(&text).unwrap().inventory.packages, packages, "{options}");
    }
}

#[test]
fn duration_without_a_unit_is_refused_with_the_right_form() {
    for (text, form) in [
        ("[scan]\ninterval = 300\n", "write \"300s\" or \"5m\""),
        ("[sync]\nheartbeat = 7\n", "write \"7s\""),
    ] {
        let error = refused(text);
        assert!(error.contains(form), "{text}: {error}");
    }
}
