//! Documents of packages.

use model::{PackageBody, PackageDocument};

fn bash() -> PackageBody {
    PackageBody {
        name: "bash".into(),
        version: "5.2-1".into(),
        architecture: "amd64".into(),
        kind: "deb".into(),
        size: Some(1024),
        ..PackageBody::default()
    }
}

#[test]
fn document_is_read_back_with_its_key() {
    let document = PackageDocument::new(bash());
    assert_eq!(document.holdfast.item, "bash:amd64");
    assert_eq!(PackageDocument::from_json(&document.to_json()), Some(document));
    assert_eq!(PackageDocument::from_json(b"{}"), None);
}

#[test]
fn package_field_change_alters_checksum_and_difference() {
    let before = PackageDocument::new(bash());
    for field in ["version", "vendor", "size", "installed", "source", "description"] {
        let mut json = serde_json::to_value(bash()).unwrap();
        json[field] = if field == "size" { 7.into() } else { "other".into() };
        let after: PackageBody = serde_json::from_value(json).unwrap();
        assert_eq!(before.package.difference(&after), [field]);
        assert_ne!(PackageDocument::new(after).checksum, before.checksum, "{field}");
    }
    assert!(before.package.difference(&bash()).is_empty());
    assert_eq!(PackageDocument::new(bash()), before);
}
