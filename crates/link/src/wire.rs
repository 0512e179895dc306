//! Readers of the tables in `schema/session.fbs` over a verified buffer.
//!
//! Field number `n` of a table has the vtable slot `4 + 2 * n`. Absent texts read as empty and
//! absent numbers as 0, which are the schema's defaults. Only this file reads raw offsets, and a
//! reader can only be obtained from [`root`], which verifies the whole buffer first.
#![expect(
    unsafe_code,
    reason = "flatbuffers marks reading by offset unsafe; every read here is of a field that the \
              table's own Verifiable has checked under the same slot and type"
)]

use flatbuffers::{
    Follow, ForwardsUOffset, InvalidFlatbuffer, Table, VOffsetT, Vector, Verifiable, Verifier,
    VerifierOptions,
};

/// Returns the vtable slot of the field with this number.
pub(crate) const fn slot(field: VOffsetT) -> VOffsetT {
    4 + 2 * field
}

/// `MessageType.FullSession`.
pub(crate) const MESSAGE_FULL_SESSION: u8 = 6;
/// `SessionPayload.SyncData`.
pub(crate) const PAYLOAD_SYNC_DATA: u8 = 1;
/// `SessionPayload.Cleans`.
pub(crate) const PAYLOAD_CLEANS: u8 = 2;
/// `SessionPayload.ChecksumModule`.
pub(crate) const PAYLOAD_CHECKSUM: u8 = 3;

/// A list of names.
pub(crate) type Names<'a> = Vector<'a, ForwardsUOffset<&'a str>>;
/// A list of tables.
pub(crate) type Tables<'a, T> = Vector<'a, ForwardsUOffset<T>>;

/// Maps a field's kind to its type inside the buffer.
macro_rules! stored {
    (byte) => { i8 };
    (ulong) => { u64 };
    (text) => { ForwardsUOffset<&str> };
    (bytes) => { ForwardsUOffset<Vector<'_, u8>> };
    (names) => { ForwardsUOffset<Names<'_>> };
    ([$table:ident]) => { ForwardsUOffset<Tables<'_, $table<'_>>> };
}

/// Defines the reader of one field.
macro_rules! reader {
    ($field:ident $id:literal byte) => {
        pub(crate) fn $field(&self) -> i8 {
            // SAFETY: slot and type as verified.
            unsafe { self.0.get::<i8>(slot($id), Some(0)) }.unwrap_or_default()
        }
    };
    ($field:ident $id:literal ulong) => {
        pub(crate) fn $field(&self) -> u64 {
            // SAFETY: slot and type as verified.
            unsafe { self.0.get::<u64>(slot($id), Some(0)) }.unwrap_or_default()
        }
    };
    ($field:ident $id:literal text) => {
        pub(crate) fn $field(&self) -> &'a str {
            // SAFETY: slot and type as verified, UTF-8 included.
            unsafe { self.0.get::<ForwardsUOffset<&'a str>>(slot($id), None) }.unwrap_or_default()
        }
    };
    ($field:ident $id:literal bytes) => {
        pub(crate) fn $field(&self) -> &'a [u8] {
            // SAFETY: slot and type as verified.
            unsafe { self.0.get::<ForwardsUOffset<Vector<'a, u8>>>(slot($id), None) }
                .map(|v| v.bytes())
                .unwrap_or_default()
        }
    };
    ($field:ident $id:literal names) => {
        pub(crate) fn $field(&self) -> Option<Names<'a>> {
            // SAFETY: slot and type as verified.
            unsafe { self.0.get::<ForwardsUOffset<Names<'a>>>(slot($id), None) }
        }
    };
    ($field:ident $id:literal [$table:ident]) => {
        pub(crate) fn $field(&self) -> Option<Tables<'a, $table<'a>>> {
            // SAFETY: slot and type as verified.
            unsafe { self.0.get::<ForwardsUOffset<Tables<'a, $table<'a>>>>(slot($id), None) }
        }
    };
}

macro_rules! followed {
    ($name:ident) => {
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name<'a>(Table<'a>);

        impl<'a> Follow<'a> for $name<'a> {
            type Inner = Self;

            unsafe fn follow(buffer: &'a [u8], at: usize) -> Self {
                // SAFETY: the caller guarantees that a table is at this offset.
                Self(unsafe { Table::new(buffer, at) })
            }
        }
    };
}

macro_rules! table {
    ($name:ident { $($id:literal $field:ident: $kind:tt,)* }) => {
        followed!($name);

        impl<'a> $name<'a> {
            $(reader!($field $id $kind);)*
        }

        impl Verifiable for $name<'_> {
            fn run_verifier(v: &mut Verifier, at: usize) -> Result<(), InvalidFlatbuffer> {
                v.visit_table(at)?
                    $(.visit_field::<stored!($kind)>(stringify!($field), slot($id), false)?)*
                    .finish();
                Ok(())
            }
        }
    };
}

table!(DataValue { 0 operation: byte, 1 id: text, 2 index: text, 3 version: ulong, 4 data: bytes, });
table!(DataContext { 0 id: text, 1 index: text, 2 data: bytes, });
table!(DataClean { 0 index: text, });
table!(ChecksumModule { 0 index: text, 1 checksum: text, });
table!(SyncData { 0 values: [DataValue], 1 contexts: [DataContext], });
table!(Cleans { 0 items: [DataClean], });
table!(Start {
    0 module: text,
    1 mode: byte,
    2 index: names,
    3 option: byte,
    4 architecture: text,
    5 hostname: text,
    6 osname: text,
    7 osplatform: text,
    8 ostype: text,
    9 osversion: text,
    10 agentversion: text,
    11 agentname: text,
    12 agentid: text,
    13 groups: names,
    14 global_version: ulong,
    15 cluster_name: text,
    16 feed_offset: ulong,
});

followed!(FullSession);
followed!(Message);

/// The payload of a `FullSession`, by its type byte.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SessionPayload<'a> {
    None,
    SyncData(SyncData<'a>),
    Cleans(Cleans<'a>),
    Checksum(ChecksumModule<'a>),
}

impl<'a> FullSession<'a> {
    pub(crate) fn start(&self) -> Option<Start<'a>> {
        // SAFETY: slot and type as verified.
        unsafe { self.0.get::<ForwardsUOffset<Start<'a>>>(slot(0), None) }
    }

    /// Returns the payload. The verifier has refused unknown types.
    pub(crate) fn payload(&self) -> SessionPayload<'a> {
        // SAFETY: slot and type as verified, for each type byte its own table.
        unsafe {
            match self.0.get::<u8>(slot(1), Some(0)) {
                Some(PAYLOAD_SYNC_DATA) => self
                    .0
                    .get::<ForwardsUOffset<SyncData<'a>>>(slot(2), None)
                    .map_or(SessionPayload::None, SessionPayload::SyncData),
                Some(PAYLOAD_CLEANS) => self
                    .0
                    .get::<ForwardsUOffset<Cleans<'a>>>(slot(2), None)
                    .map_or(SessionPayload::None, SessionPayload::Cleans),
                Some(PAYLOAD_CHECKSUM) => self
                    .0
                    .get::<ForwardsUOffset<ChecksumModule<'a>>>(slot(2), None)
                    .map_or(SessionPayload::None, SessionPayload::Checksum),
                _ => SessionPayload::None,
            }
        }
    }
}

impl Verifiable for FullSession<'_> {
    fn run_verifier(v: &mut Verifier, at: usize) -> Result<(), InvalidFlatbuffer> {
        let mut table =
            v.visit_table(at)?.visit_field::<ForwardsUOffset<Start>>("start", slot(0), false)?;
        let kind = match table.deref(slot(1))? {
            Some(at) => table.verifier().get_u8(at)?,
            None => 0,
        };
        match (kind, table.deref(slot(2))?) {
            (0, None) => {}
            (PAYLOAD_SYNC_DATA, Some(at)) => {
                ForwardsUOffset::<SyncData>::run_verifier(table.verifier(), at)?;
            }
            (PAYLOAD_CLEANS, Some(at)) => {
                ForwardsUOffset::<Cleans>::run_verifier(table.verifier(), at)?;
            }
            (PAYLOAD_CHECKSUM, Some(at)) => {
                ForwardsUOffset::<ChecksumModule>::run_verifier(table.verifier(), at)?;
            }
            _ => return InvalidFlatbuffer::new_inconsistent_union("payload", "payload_type"),
        }
        table.finish();
        Ok(())
    }
}

impl<'a> Message<'a> {
    /// Returns the session if the message carries one.
    pub(crate) fn full_session(&self) -> Option<FullSession<'a>> {
        // SAFETY: slot and type as verified; the session only under its own type byte.
        unsafe {
            if self.0.get::<u8>(slot(0), Some(0)) != Some(MESSAGE_FULL_SESSION) {
                return None;
            }
            self.0.get::<ForwardsUOffset<FullSession<'a>>>(slot(1), None)
        }
    }
}

impl Verifiable for Message<'_> {
    /// Content of a type other than a session is not verified, and there is no reader for it
    /// either.
    fn run_verifier(v: &mut Verifier, at: usize) -> Result<(), InvalidFlatbuffer> {
        let mut table = v.visit_table(at)?;
        let kind = match table.deref(slot(0))? {
            Some(at) => table.verifier().get_u8(at)?,
            None => 0,
        };
        match (kind, table.deref(slot(1))?) {
            (MESSAGE_FULL_SESSION, Some(at)) => {
                ForwardsUOffset::<FullSession>::run_verifier(table.verifier(), at)?;
            }
            (MESSAGE_FULL_SESSION, None) => {
                return InvalidFlatbuffer::new_inconsistent_union("content", "content_type");
            }
            _ => {}
        }
        table.finish();
        Ok(())
    }
}

/// Verifies the whole buffer, then returns its root.
pub(crate) fn root<'a>(
    buffer: &'a [u8],
    options: &VerifierOptions,
) -> Result<Message<'a>, InvalidFlatbuffer> {
    flatbuffers::root_with_opts::<Message>(options, buffer)
}
