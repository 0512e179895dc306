//! Receives rows in datagrams.

use std::io;

use series::{Ack, Batch, Store};
use tokio::net::UdpSocket;
use tokio::sync::watch;

use super::{ACCEPT_PAUSE, count};
use readers::RowCollector;
use readers::{DictionaryQuota, RespReader};

/// Most datagrams in one batch.
const DATAGRAMS_MAX: usize = 256;
/// Largest datagram, in bytes.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// Serves RESP over UDP until `stop` changes. Samples do not span datagrams. Refusals are counted
/// but not reported to the sender.
///
/// # Errors
/// Returns an error if the socket fails permanently.
pub async fn serve_udp(
    socket: UdpSocket,
    store: Store,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let dictionaries = DictionaryQuota::default();
    loop {
        let first = tokio::select! {
            _ = stop.changed() => break,
            read = socket.recv_from(&mut buffer) => read,
        };
        let mut length = match first {
            Ok((length, _)) => length,
            // Usually the ICMP error of an earlier datagram. The pause keeps a permanent error from
            // occupying a core.
            Err(e) => {
                tracing::warn!("udp: {e}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let mut collector = RowCollector::new(&store);
        for _ in 0..DATAGRAMS_MAX {
            let datagram = buffer.get(..length).unwrap_or_default();
            let mut reader = RespReader::new(dictionaries.clone());
            let done = reader.read(datagram, &mut collector);
            reader.end(datagram.get(done..).unwrap_or_default(), &mut collector);
            match socket.try_recv_from(&mut buffer) {
                Ok((next, _)) => length = next,
                Err(_) => break,
            }
        }
        let taken = collector.finish();
        count("udp", &taken);
        for batch in taken.batches {
            if let Err(e) = store.submit_async(batch, Ack::Flushed).await {
                tracing::warn!("udp: a batch was refused: {e}");
            }
        }
    }
    // An error is ignored: closing the store reports a failed log again.
    let _ = store.write_async(Batch::new(), Ack::Persisted).await;
    Ok(())
}
