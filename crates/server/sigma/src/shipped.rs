//! The rules that the first start writes into the folder.

/// File name and content of each rule.
pub(crate) const SHIPPED: [(&str, &str); 10] = [
    ("account_database_changed.yml", include_str!("../shipped/account_database_changed.yml")),
    ("authorized_keys_changed.yml", include_str!("../shipped/authorized_keys_changed.yml")),
    ("boot_file_changed.yml", include_str!("../shipped/boot_file_changed.yml")),
    ("cron_changed.yml", include_str!("../shipped/cron_changed.yml")),
    ("ld_preload_changed.yml", include_str!("../shipped/ld_preload_changed.yml")),
    ("package_removed.yml", include_str!("../shipped/package_removed.yml")),
    ("pam_changed.yml", include_str!("../shipped/pam_changed.yml")),
    ("setuid_file_appeared.yml", include_str!("../shipped/setuid_file_appeared.yml")),
    ("sshd_config_changed.yml", include_str!("../shipped/sshd_config_changed.yml")),
    ("systemd_unit_changed.yml", include_str!("../shipped/systemd_unit_changed.yml")),
];
