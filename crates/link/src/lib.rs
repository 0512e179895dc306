//! The wire: FlatBuffers sessions, their verification and limits.
