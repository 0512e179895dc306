//! Reads the fields of a protobuf message in place, without decoding it into structs.

/// The reason why a message cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

const CUT: Malformed = Malformed("a field is cut");

/// The content of a field, by its wire type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> Field<'a> {
    /// Returns the bytes of a length-delimited field, or an error for any other wire type.
    pub(crate) fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed("a field is of another type")),
        }
    }
}

/// The fields of a message that were not read yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    /// Returns the number and content of the next field, or `None` at the end of the message.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Field<'a>)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).unwrap_or(0);
        if number == 0 {
            return Err(Malformed("a field has no number"));
        }
        let content = match tag & 7 {
            0 => Field::Varint(self.varint()?),
            1 => {
                let (bytes, rest) = self.0.split_first_chunk().ok_or(CUT)?;
                self.0 = rest;
                Field::Fixed64(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| CUT)?;
                let (bytes, rest) = self.0.split_at_checked(length).ok_or(CUT)?;
                self.0 = rest;
                Field::Bytes(bytes)
            }
            5 => {
                self.0 = self.0.get(4..).ok_or(CUT)?;
                Field::Fixed32
            }
            _ => return Err(Malformed("a field is of an unknown type")),
        };
        Ok(Some((number, content)))
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(CUT)?;
        if *first < 0x80 {
            self.0 = rest;
            return Ok(u64::from(*first));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (i, byte) in self.0.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if *byte < 0x80 {
                self.0 = self.0.get(i + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(Malformed("a number is cut or too long"))
    }
}
