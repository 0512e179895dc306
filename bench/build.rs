//! Peers that are C libraries: found, or left out with a message at run time.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_rocksdb, has_wiredtiger)");
    println!("cargo::rerun-if-changed=peers");
    #[cfg(feature = "journal")]
    peers::build();
}

#[cfg(feature = "journal")]
mod peers {
    use std::path::Path;

    pub fn build() {
        let header = Path::new("/usr/include/rocksdb/c.h");
        println!("cargo::rerun-if-changed={}", header.display());
        if header.exists() {
            cc::Build::new().file("peers/rocksdb.c").warnings(true).compile("peer_rocksdb");
            println!("cargo::rustc-link-lib=rocksdb");
            println!("cargo::rustc-cfg=has_rocksdb");
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers/wiredtiger");
        println!("cargo::rerun-if-changed={}", folder.join("done").display());
        if folder.join("libwiredtiger.a").exists() {
            cc::Build::new()
                .file("peers/wiredtiger.c")
                .include(&folder)
                .warnings(true)
                .compile("peer_wiredtiger");
            println!("cargo::rustc-link-search=native={}", folder.display());
            println!("cargo::rustc-link-lib=static=wiredtiger");
            println!("cargo::rustc-cfg=has_wiredtiger");
        }
    }
}
