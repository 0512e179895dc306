//! Turns the text into tokens. Inside braces every word is a label; inside brackets there are only
//! durations.

use crate::error::{ParseError, TextSpan};
use crate::number::{BadNumber, number};
use crate::quote::quote;
use crate::token::{Keyword, Token};
use crate::tree::BinaryOp;

/// The part of the text that the lexer is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LexerState {
    Expression,
    Braces,
    /// `colon`: the colon of a subquery has been read. `empty`: nothing has been read.
    Brackets {
        colon: bool,
        empty: bool,
    },
}

pub(crate) struct Lexer<'t> {
    text: &'t str,
    /// Offset of the next character, bytes.
    at: usize,
    inside: LexerState,
    /// Open parentheses.
    open: u32,
}

impl<'t> Lexer<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, at: 0, inside: LexerState::Expression, open: 0 }
    }

    /// Returns the next token and its place.
    pub(crate) fn next(&mut self) -> Result<(Token, TextSpan), ParseError> {
        self.skip_blanks();
        let start = self.at;
        let token = match self.inside {
            LexerState::Expression => self.in_expression(),
            LexerState::Braces => self.in_braces(),
            LexerState::Brackets { colon, empty } => self.in_brackets(colon, empty),
        };
        let token = token.map_err(|message| {
            ParseError::new(self.text, TextSpan { start, end: self.text.len() }, message)
        })?;
        Ok((token, TextSpan { start, end: self.at }))
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn consume(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        loop {
            self.take_while(is_space);
            if self.peek() != Some('#') {
                return;
            }
            self.take_while(|c| c != '\n' && c != '\r');
        }
    }

    fn in_expression(&mut self) -> Result<Token, String> {
        let Some(c) = self.peek() else {
            return if self.open == 0 {
                Ok(Token::End)
            } else {
                Err("unclosed left parenthesis".into())
            };
        };
        if is_name_start(c) || c == ':' {
            return Ok(self.word());
        }
        if let Some(token) = self.number_or_string(c)? {
            return Ok(token);
        }
        self.take();
        Ok(match c {
            '[' => {
                self.inside = LexerState::Brackets { colon: false, empty: true };
                Token::LeftBracket
            }
            ']' => return Err("unexpected right bracket ']'".into()),
            '{' => {
                self.inside = LexerState::Braces;
                Token::LeftBrace
            }
            '@' => Token::At,
            '=' if self.consume('=') => Token::Op(BinaryOp::Equal),
            '=' if self.peek() == Some('~') => {
                return Err("unexpected character after '=': '~'".into());
            }
            '=' => Token::Assign,
            '!' if self.consume('=') => Token::Op(BinaryOp::NotEqual),
            '!' => return Err(format!("unexpected character after '!': {}", self.show_next())),
            '<' if self.consume('=') => Token::Op(BinaryOp::LessEqual),
            '<' if self.consume('/') => Token::Op(BinaryOp::TrimUpper),
            '<' => Token::Op(BinaryOp::Less),
            '>' if self.consume('=') => Token::Op(BinaryOp::GreaterEqual),
            '>' if self.consume('/') => Token::Op(BinaryOp::TrimLower),
            '>' => Token::Op(BinaryOp::Greater),
            c => match self.operator(c)? {
                Some(token) => token,
                None => return Err(format!("unexpected character: {}", show(Some(c)))),
            },
        })
    }

    /// Returns the token of a character that means the same in expressions and durations.
    fn operator(&mut self, c: char) -> Result<Option<Token>, String> {
        Ok(Some(match c {
            ',' => Token::Comma,
            '+' => Token::Op(BinaryOp::Add),
            '-' => Token::Op(BinaryOp::Sub),
            '*' => Token::Op(BinaryOp::Mul),
            '/' => Token::Op(BinaryOp::Div),
            '%' => Token::Op(BinaryOp::Mod),
            '^' => Token::Op(BinaryOp::Pow),
            '(' => {
                self.open += 1;
                Token::LeftParen
            }
            ')' => {
                let open = self.open.checked_sub(1);
                self.open = open.ok_or("unexpected right parenthesis ')'")?;
                Token::RightParen
            }
            _ => return Ok(None),
        }))
    }

    fn in_braces(&mut self) -> Result<Token, String> {
        let Some(c) = self.peek() else {
            return Err("unexpected end of input inside braces".into());
        };
        if is_name_start(c) {
            self.take_while(is_name);
            return Ok(Token::Identifier);
        }
        if is_quote(c) {
            return self.string();
        }
        self.take();
        Ok(match c {
            ',' => Token::Comma,
            '=' if self.consume('~') => Token::MatchRegexp,
            '=' => Token::Assign,
            '!' if self.consume('~') => Token::MatchNotRegexp,
            '!' if self.consume('=') => Token::Op(BinaryOp::NotEqual),
            '!' => {
                let next = self.show_next();
                return Err(format!("unexpected character after '!' inside braces: {next}"));
            }
            '{' => return Err("unexpected left brace '{'".into()),
            '}' => {
                self.inside = LexerState::Expression;
                Token::RightBrace
            }
            c => return Err(format!("unexpected character inside braces: {}", show(Some(c)))),
        })
    }

    fn in_brackets(&mut self, colon: bool, empty: bool) -> Result<Token, String> {
        let Some(c) = self.peek() else {
            return Err(if empty {
                "unexpected end of input in duration expression".into()
            } else {
                "unclosed left bracket".into()
            });
        };
        self.inside = LexerState::Brackets { colon, empty: false };
        if is_name_start(c) {
            return match self.word() {
                Token::Keyword(
                    word @ (Keyword::Step | Keyword::Range | Keyword::MaxOf | Keyword::MinOf),
                ) => Ok(Token::Keyword(word)),
                _ => Err(format!("unexpected character in duration expression: {}", show(Some(c)))),
            };
        }
        if c.is_ascii_digit() || c == '.' {
            return self.number();
        }
        self.take();
        match c {
            ']' => {
                self.inside = LexerState::Expression;
                Ok(Token::RightBracket)
            }
            '[' => Err("unexpected left bracket '['".into()),
            ':' if empty => Err("unexpected colon before duration in duration expression".into()),
            ':' if colon => Err("unexpected repeated colon in duration expression".into()),
            ':' => {
                self.inside = LexerState::Brackets { colon: true, empty: false };
                Ok(Token::Colon)
            }
            c => self.operator(c)?.ok_or_else(|| {
                format!("unexpected character in duration expression: {}", show(Some(c)))
            }),
        }
    }

    fn number_or_string(&mut self, c: char) -> Result<Option<Token>, String> {
        let digit_follows = || self.rest().chars().nth(1).is_some_and(|c| c.is_ascii_digit());
        if c.is_ascii_digit() || (c == '.' && digit_follows()) {
            return self.number().map(Some);
        }
        if is_quote(c) { self.string().map(Some) } else { Ok(None) }
    }

    /// Reads a word in an expression.
    fn word(&mut self) -> Token {
        let word = self.take_while(|c| is_name(c) || c == ':');
        let token = Token::of_word(word);
        let fills =
            matches!(token, Token::Keyword(Keyword::Fill | Keyword::FillLeft | Keyword::FillRight));
        // Only before a parenthesis, so that metrics may have these names.
        let opens = || self.rest().trim_start_matches(is_space).starts_with('(');
        if fills && !opens() { Token::Identifier } else { token }
    }

    fn number(&mut self) -> Result<Token, String> {
        let start = self.at;
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
        self.take_while(is_part);
        let so_far = |lexer: &Self| lexer.text.get(start..lexer.at).unwrap_or_default();
        let hexadecimal = so_far(self).starts_with("0x") || so_far(self).starts_with("0X");
        if so_far(self).ends_with(['e', 'E']) && !hexadecimal && self.rest().starts_with(['+', '-'])
        {
            self.take();
            self.take_while(is_part);
        }
        let text = so_far(self);
        match number(text) {
            Ok(_) | Err(BadNumber::OutOfRange) => Ok(Token::Number),
            Err(BadNumber::Syntax) if is_like_duration(text) => Ok(Token::Duration),
            Err(BadNumber::Syntax) => {
                Err(format!("bad number or duration syntax: {}", quote(text.as_bytes())))
            }
        }
    }

    fn string(&mut self) -> Result<Token, String> {
        let quote = self.take().unwrap_or_default();
        loop {
            match self.take() {
                Some(c) if c == quote => return Ok(Token::String),
                Some('\\') if quote != '`' => {
                    self.take().ok_or("escape sequence not terminated")?;
                }
                Some('\n') if quote != '`' => return Err("unterminated quoted string".into()),
                None if quote == '`' => return Err("unterminated raw string".into()),
                None => return Err("unterminated quoted string".into()),
                Some(_) => {}
            }
        }
    }

    fn show_next(&self) -> String {
        show(self.peek())
    }
}

fn show(c: Option<char>) -> String {
    c.map_or_else(|| "end of input".into(), |c| format!("{c:?}"))
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`')
}

/// Returns true if a name may begin with the character: a Unicode letter or `_`.
pub(crate) fn is_name_start(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

/// Returns true if a name may contain the character after its first one.
pub(crate) fn is_name(c: char) -> bool {
    is_name_start(c) || c.is_ascii_digit() || c == '.'
}

/// Returns true for pairs of digits and a unit; their order is checked later.
fn is_like_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let Some(unit) = rest.get(number..).filter(|_| number > 0) else { return false };
        let Some(after) = unit.strip_prefix(['s', 'm', 'h', 'd', 'w', 'y']) else { return false };
        rest = after.strip_prefix('s').unwrap_or(after);
    }
    !text.is_empty()
}
