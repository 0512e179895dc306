//! Metric protocols: RESP, OpenTSDB, Influx line, Prometheus remote write; the query port.
