//! Turns tokens into the tree, by precedence climbing.
//!
//! The operators from the loosest to the tightest: `or`; `and unless`; comparisons and trims; `+ -`;
//! `* / % atan2` and a sign; `^`, which is the only one that groups to the right. The modifiers behind
//! an expression (`[..]`, `offset`, `@`, `anchored`, `smoothed`) bind more tightly than any of them.

use crate::error::{ParseError, TextSpan};
use crate::function::function;
use crate::lexer::Lexer;
use crate::limits::{DEPTH_MAX, TEXT_BYTES_MAX};
use crate::quote::{quote, unquote};
use crate::token::{Keyword, Token};
use crate::tree::{
    Aggregate, Aggregation, Binary, BinaryOp, Cardinality, Expr, ExprKind, UnarySign,
    VectorMatching,
};
use crate::{check, duration, number};

pub(crate) type Parsed<T> = Result<T, ParseError>;

pub(crate) fn parse(text: &str) -> Parsed<Expr> {
    let mut parser = Parser::new(text)?;
    if parser.token == Token::End {
        return Err(parser.error(TextSpan::default(), "no expression found in input"));
    }
    let mut expr = parser.expr(0)?;
    parser.end()?;
    check::check(text, &mut expr)?;
    Ok(expr)
}

pub(crate) struct Parser<'t> {
    text: &'t str,
    lexer: Lexer<'t>,
    /// The next token.
    pub(crate) token: Token,
    pub(crate) span: TextSpan,
    /// The token before it.
    pub(crate) last: TextSpan,
    /// Open calls of [`Parser::expr`] and of durations.
    depth: u16,
    /// Regular expressions compiled so far.
    pub(crate) regexps: usize,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Parsed<Self> {
        let mut lexer = Lexer::new(text);
        if text.len() > TEXT_BYTES_MAX {
            let message = format!(
                "the expression has {} bytes, at most {TEXT_BYTES_MAX} are read",
                text.len()
            );
            return Err(ParseError::new(text, TextSpan::default(), message));
        }
        let (token, span) = lexer.next()?;
        Ok(Self { text, lexer, token, span, last: TextSpan::default(), depth: 0, regexps: 0 })
    }

    pub(crate) fn error(&self, span: TextSpan, message: impl Into<String>) -> ParseError {
        ParseError::new(self.text, span, message)
    }

    /// Returns the error for an unexpected token.
    pub(crate) fn unexpected(&self, context: &str, expected: &str) -> ParseError {
        let mut message = format!("unexpected {}", self.token.describe(self.text_of(self.span)));
        if !context.is_empty() {
            message = format!("{message} in {context}");
        }
        if !expected.is_empty() {
            message = format!("{message}, expected {expected}");
        }
        self.error(self.span, message)
    }

    pub(crate) fn text_of(&self, span: TextSpan) -> &'t str {
        self.text.get(span.start..span.end).unwrap_or_default()
    }

    /// Moves to the next token. Returns the place of the one before.
    pub(crate) fn advance(&mut self) -> Parsed<TextSpan> {
        let (token, span) = self.lexer.next()?;
        self.last = std::mem::replace(&mut self.span, span);
        self.token = token;
        Ok(self.last)
    }

    /// Moves past a token if it is the next one.
    pub(crate) fn consume(&mut self, wanted: Token) -> Parsed<bool> {
        let found = self.token == wanted;
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Moves past a token, which must be the next one.
    pub(crate) fn expect(&mut self, wanted: Token, context: &str, shown: &str) -> Parsed<TextSpan> {
        if self.token == wanted { self.advance() } else { Err(self.unexpected(context, shown)) }
    }

    fn end(&self) -> Parsed<()> {
        if self.token == Token::End { Ok(()) } else { Err(self.unexpected("", "")) }
    }

    pub(crate) fn deeper(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(self.too_deep(self.span)) } else { Ok(()) }
    }

    pub(crate) fn shallower(&mut self) {
        self.depth -= 1;
    }

    pub(crate) fn too_deep(&self, span: TextSpan) -> ParseError {
        self.error(span, format!("the expression has more than {DEPTH_MAX} levels"))
    }

    /// Returns a node of the tree.
    pub(crate) fn node(&self, kind: ExprKind, span: TextSpan) -> Parsed<Expr> {
        let height = 1 + kind.children().map(|child| child.height).max().unwrap_or(0);
        if height > DEPTH_MAX {
            return Err(self.too_deep(span));
        }
        Ok(Expr { kind, span, height })
    }

    /// Reads an expression up to an operator that binds less tightly than `least`.
    fn expr(&mut self, least: u8) -> Parsed<Expr> {
        self.deeper()?;
        let mut left = match self.sign() {
            Some(sign) => self.unary(sign)?,
            None => self.operand()?,
        };
        while let Token::Op(op) = self.token
            && op.precedence() >= least
        {
            self.advance()?;
            left = self.binary(op, left)?;
        }
        self.shallower();
        Ok(left)
    }

    pub(crate) fn sign(&self) -> Option<UnarySign> {
        match self.token {
            Token::Op(BinaryOp::Add) => Some(UnarySign::Plus),
            Token::Op(BinaryOp::Sub) => Some(UnarySign::Minus),
            _ => None,
        }
    }

    fn unary(&mut self, sign: UnarySign) -> Parsed<Expr> {
        let start = self.advance()?;
        let mut expr = self.expr(BinaryOp::Pow.precedence())?;
        let span = start.to(expr.span);
        if let ExprKind::Number { value, .. } = &mut expr.kind {
            if sign == UnarySign::Minus {
                *value = -*value;
            }
            expr.span = span;
            return Ok(expr);
        }
        self.node(ExprKind::Unary { sign, expr: Box::new(expr) }, span)
    }

    fn binary(&mut self, op: BinaryOp, left: Expr) -> Parsed<Expr> {
        let returns_bool = self.consume(Token::Keyword(Keyword::Bool))?;
        let matching = Some(self.matching()?);
        let groups_right = op == BinaryOp::Pow;
        let right = self.expr(op.precedence() + u8::from(!groups_right))?;
        let span = left.span.to(right.span);
        let binary = Binary { op, left, right, returns_bool, matching };
        self.node(ExprKind::Binary(Box::new(binary)), span)
    }

    /// Reads `on (..) group_left (..)`.
    fn matching(&mut self) -> Parsed<VectorMatching> {
        let mut matching = VectorMatching {
            cardinality: Cardinality::OneToOne,
            labels: Vec::new(),
            on: self.token == Token::Keyword(Keyword::On),
            include: Vec::new(),
        };
        if matches!(self.token, Token::Keyword(Keyword::On | Keyword::Ignoring)) {
            self.advance()?;
            matching.labels = self.labels()?;
            self.group(&mut matching)?;
        }
        if let Token::Keyword(Keyword::Fill | Keyword::FillLeft | Keyword::FillRight) = self.token {
            let message = "binop fill modifiers are experimental and not enabled";
            return Err(self.error(self.span, message));
        }
        Ok(matching)
    }

    /// Reads `group_left (..)` or `group_right (..)`, if it is there.
    fn group(&mut self, matching: &mut VectorMatching) -> Parsed<()> {
        matching.cardinality = match self.token {
            Token::Keyword(Keyword::GroupLeft) => Cardinality::ManyToOne,
            Token::Keyword(Keyword::GroupRight) => Cardinality::OneToMany,
            _ => return Ok(()),
        };
        self.advance()?;
        if self.token == Token::LeftParen {
            matching.include = self.labels()?;
        }
        Ok(())
    }

    /// Reads labels in parentheses.
    fn labels(&mut self) -> Parsed<Vec<String>> {
        const CONTEXT: &str = "grouping opts";
        self.expect(Token::LeftParen, CONTEXT, "\"(\"")?;
        let mut labels = Vec::new();
        while self.token != Token::RightParen {
            labels.push(self.label(CONTEXT)?);
            if self.token != Token::RightParen && !self.consume(Token::Comma)? {
                return Err(self.unexpected(CONTEXT, "\",\" or \")\""));
            }
        }
        self.advance()?;
        Ok(labels)
    }

    fn label(&mut self, context: &str) -> Parsed<String> {
        let is_word = match self.token {
            Token::Identifier | Token::MetricIdentifier | Token::Aggregation(_) => true,
            Token::Keyword(word) => word != Keyword::Without,
            Token::Op(op) => op.text().starts_with(|c: char| c.is_ascii_alphabetic()),
            _ => false,
        };
        let label = match self.token {
            Token::String => self.name_of_string()?,
            _ if is_word => self.text_of(self.span).to_owned(),
            _ => return Err(self.unexpected(context, "label")),
        };
        let span = self.advance()?;
        if label.is_empty() {
            let shown = quote(label.as_bytes());
            return Err(self.error(span, format!("invalid label name for grouping: {shown}")));
        }
        Ok(label)
    }

    /// Returns the bytes of the string that is the next token.
    pub(crate) fn bytes_of_string(&self) -> Parsed<Vec<u8>> {
        let text = self.text_of(self.span);
        unquote(text).ok_or_else(|| {
            let shown = quote(text.as_bytes());
            self.error(self.span, format!("error unquoting string {shown}: invalid syntax"))
        })
    }

    /// Returns the string that is the next token, as a name.
    pub(crate) fn name_of_string(&self) -> Parsed<String> {
        String::from_utf8(self.bytes_of_string()?).map_err(|bad| {
            let shown = quote(bad.as_bytes());
            self.error(self.span, format!("the name is not UTF-8: {shown}"))
        })
    }

    /// Reads an operand with the modifiers after it.
    fn operand(&mut self) -> Parsed<Expr> {
        let mut expr = self.primary()?;
        loop {
            expr = match self.token {
                Token::LeftBracket => self.range(expr)?,
                Token::Keyword(Keyword::Offset) => self.offset(expr)?,
                Token::Keyword(Keyword::Anchored) => self.extended(expr, true)?,
                Token::Keyword(Keyword::Smoothed) => self.extended(expr, false)?,
                Token::At => self.at(expr)?,
                _ => return Ok(expr),
            };
        }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let start = self.span;
        match self.token {
            Token::Number | Token::Duration => {
                let (value, is_duration) = self.literal()?;
                self.node(ExprKind::Number { value, is_duration }, start)
            }
            Token::String => {
                let bytes = self.bytes_of_string()?;
                self.advance()?;
                self.node(ExprKind::String(bytes), start)
            }
            Token::LeftParen => {
                self.advance()?;
                let inner = self.expr(0)?;
                let end = self.expect(Token::RightParen, "", "")?;
                self.node(ExprKind::Paren(Box::new(inner)), start.to(end))
            }
            Token::LeftBrace => self.vector(None, start),
            _ => self.named(),
        }
    }

    /// Reads a number or a duration. Returns its value, seconds for a duration.
    pub(crate) fn literal(&mut self) -> Parsed<(f64, bool)> {
        let (span, is_duration) = (self.span, self.token == Token::Duration);
        let text = self.text_of(span);
        let value = if is_duration {
            let milliseconds = duration::parse(text).map_err(|text| self.error(span, text))?;
            milliseconds as f64 / 1000.0
        } else {
            number::number(text).map_err(|_| {
                let shown = quote(text.as_bytes());
                let message = format!(
                    "error parsing number: strconv.ParseFloat: parsing {shown}: value out of range"
                );
                self.error(span, message)
            })?
        };
        self.advance()?;
        Ok((value, is_duration))
    }

    /// Reads what begins with a name: a call, an aggregation or a selector.
    fn named(&mut self) -> Parsed<Expr> {
        let (token, start) = (self.token, self.span);
        self.metric_name()?;
        let name = self.text_of(start);
        let opens = self.token == Token::LeftParen;
        match token {
            Token::Identifier if opens => self.call(name, start),
            Token::Keyword(word) if word.is_function() && opens => self.call(name, start),
            Token::Aggregation(op)
                if opens
                    || matches!(self.token, Token::Keyword(Keyword::By | Keyword::Without)) =>
            {
                self.aggregate(op, start)
            }
            _ => self.vector(Some(name.to_owned()), start),
        }
    }

    /// Moves past a token that may be the name of a metric.
    fn metric_name(&mut self) -> Parsed<()> {
        let is_name = match self.token {
            Token::Identifier | Token::MetricIdentifier | Token::Aggregation(_) => true,
            Token::Keyword(word) => word.is_metric(),
            Token::Op(op) => op.is_set(),
            _ => false,
        };
        if is_name { self.advance().map(drop) } else { Err(self.unexpected("", "")) }
    }

    fn vector(&mut self, name: Option<String>, start: TextSpan) -> Parsed<Expr> {
        let selector = self.selector(name)?;
        self.node(ExprKind::Vector(selector), start.to(self.last))
    }

    fn call(&mut self, name: &str, start: TextSpan) -> Parsed<Expr> {
        let found = function(&name.to_ascii_lowercase()).filter(|found| {
            // Only the words of the grammar are in any case of letters.
            found.name == name || Token::of_word(name) != Token::Identifier
        });
        let Some(function) = found else {
            let shown = quote(name.as_bytes());
            return Err(self.error(start, format!("unknown function with name {shown}")));
        };
        let args = self.args()?;
        self.node(ExprKind::Call { function, args }, start.to(self.last))
    }

    /// Reads arguments in parentheses.
    fn args(&mut self) -> Parsed<Vec<Expr>> {
        self.expect(Token::LeftParen, "", "")?;
        let mut args = Vec::new();
        if self.consume(Token::RightParen)? {
            return Ok(args);
        }
        loop {
            args.push(self.expr(0)?);
            let comma = self.span;
            if !self.consume(Token::Comma)? {
                self.expect(Token::RightParen, "", "")?;
                return Ok(args);
            }
            if self.token == Token::RightParen {
                let message = "trailing commas not allowed in function call args";
                return Err(self.error(comma, message));
            }
        }
    }

    fn aggregate(&mut self, op: Aggregation, start: TextSpan) -> Parsed<Expr> {
        let mut modifier = self.grouping()?;
        if self.token != Token::LeftParen {
            return Err(self.unexpected("aggregation", ""));
        }
        let args = self.args()?;
        if modifier.is_none() {
            modifier = self.grouping()?;
        }
        let span = start.to(self.last);
        let (labels, without) = modifier.unwrap_or_default();
        if args.is_empty() {
            let message = "no arguments for aggregate expression provided";
            return Err(self.error(span, message));
        }
        let (wanted, given) = (1 + usize::from(op.param().is_some()), args.len());
        if wanted != given {
            let message = format!(
                "wrong number of arguments for aggregate expression provided, expected {wanted}, \
                 got {given}"
            );
            return Err(self.error(span, message));
        }
        let mut args = args.into_iter();
        let param = if wanted == 2 { args.next() } else { None };
        let Some(expr) = args.next() else { return Err(self.unexpected("aggregation", "")) };
        let aggregate = Aggregate { op, expr, param, labels, without };
        self.node(ExprKind::Aggregate(Box::new(aggregate)), span)
    }

    /// Reads `by (..)` or `without (..)`, if it is there. Returns the labels, and true for `without`.
    fn grouping(&mut self) -> Parsed<Option<(Vec<String>, bool)>> {
        let without = match self.token {
            Token::Keyword(Keyword::By) => false,
            Token::Keyword(Keyword::Without) => true,
            _ => return Ok(None),
        };
        self.advance()?;
        Ok(Some((self.labels()?, without)))
    }
}
