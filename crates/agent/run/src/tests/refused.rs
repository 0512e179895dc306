//! A refused group configuration. The agent may then watch less than it should, and nothing is
//! removed from the server because of that.

use super::*;
use registry::WriteContext;

#[tokio::test(flavor = "multi_thread")]
async fn check_deletes_nothing_while_the_group_config_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut settings) = house(folder.path()).await;
    settings.sync.heartbeat = Duration::from_millis(100);
    let base = std::fs::canonicalize(folder.path()).unwrap();
    let (here, there) = (base.join("tree/file"), base.join("other/file"));
    std::fs::create_dir(base.join("other")).unwrap();
    std::fs::write(&here, "here").unwrap();
    std::fs::write(&there, "there").unwrap();
    // The rules with those of its groups.
    let watched = AgentSettings {
        rules: Rules::of_paths([base.join("tree"), base.join("other")]),
        ..settings.clone()
    };
    let stored = |file: &Path| stored_bytes(folder.path(), file);
    let agent = Agent::start(&watched, Console::new()).unwrap();
    until("both are reported", || (stored(&here), stored(&there)) == (Some(4), Some(5))).await;
    agent.stop().await.unwrap();

    // These settings are invalid together with any group configuration.
    settings.inventory = InventoryConfig {
        packages: false,
        root: "not-absolute".into(),
        ..InventoryConfig::default()
    };
    server
        .registry
        .set_group_config(&WriteContext::server(), "default", "[scan]\nthreads = 1\n")
        .unwrap();
    std::fs::remove_file(settings.folder.join("agent.db")).unwrap();
    std::fs::write(&here, "here too").unwrap();
    let clock = Arc::new(HangingClock::default());
    clock.hang();
    let agent = start(&settings, clock.clone());
    until("it is refused", || !agent.shared.syncer.config().refused.is_empty()).await;
    assert!(agent.shared.syncer.check_due().is_some(), "its database was lost");
    clock.go_on();
    until("the check is done", || agent.shared.syncer.check_due().is_none()).await;
    until("the rest is reported", || stored(&here) == Some(8)).await;
    assert_eq!(stored(&there), Some(5), "it was taken away");
    agent.stop().await.unwrap();
    server.stop().await;
}
