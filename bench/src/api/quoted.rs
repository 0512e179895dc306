//! Figures of the published program, which cannot run here. They are quoted, not measured, and no
//! ratio uses them. "real Python API over a stand-in for its database" was measured once elsewhere
//! with one client; "its document" was published by its makers.

/// Case, subject, metric, unit, value.
pub const PEERS: [(&str, &str, &str, &str, f64); 22] = [
    ("GET /agents/summary/status", "wazuh 4.12 (quoted)", "wall_ms", "ms", 2216.0),
    ("GET /agents/summary/status", "wazuh 4.12 (quoted)", "queries", "", 83.0),
    ("GET /agents/summary/status", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 243.0),
    ("GET /agents/summary/status", "wazuh 4.13.1 (quoted)", "queries", "", 6.0),
    ("GET /agents/summary/status", "its document, before", "queries", "", 102.0),
    ("GET /agents/summary/status", "its document, after", "queries", "", 6.0),
    ("GET /agents?limit=500", "wazuh 4.12 (quoted)", "wall_ms", "ms", 1325.0),
    ("GET /agents?limit=500", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 262.0),
    ("GET /agents?limit=1", "wazuh 4.12 (quoted)", "wall_ms", "ms", 1307.0),
    ("GET /agents?limit=1", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 166.0),
    ("GET /agents/summary", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 480.0),
    ("GET /overview/agents", "wazuh 4.12 (quoted)", "wall_ms", "ms", 3216.0),
    ("GET /overview/agents", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 942.0),
    (
        "PUT /agents/restart",
        "wazuh 4.13.1 (quoted, unconfirmed datagrams)",
        "wall_ms",
        "ms",
        1156.0,
    ),
    ("PUT /agents/restart, all inactive", "wazuh 4.12 (quoted)", "wall_ms", "ms", 100_900.0),
    ("PUT /agents/restart, all inactive", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 429.0),
    ("PUT /agents/restart, all inactive", "its document, before", "wall_ms", "ms", 27_300.0),
    ("PUT /agents/restart, all inactive", "its document, after", "wall_ms", "ms", 600.0),
    ("login", "wazuh 4.12 (quoted)", "wall_ms", "ms", 215.0),
    ("login", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 200.0),
    ("agent ids over the socket", "wazuh 4.13.1 (quoted)", "wall_ms", "ms", 47.0),
    ("agent ids over the socket", "wazuh 4.12 (quoted)", "queries", "", 20.0),
];
