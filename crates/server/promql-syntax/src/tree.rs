//! The tree of an expression.

use crate::Regexp;
use crate::error::TextSpan;
use crate::function::Function;

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Scalar,
    /// An instant vector: one value for each series.
    Vector,
    /// A range vector: the samples of a window for each series.
    Matrix,
    String,
}

impl Type {
    /// Returns the name that JSON has.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Vector => "vector",
            Self::Matrix => "matrix",
            Self::String => "string",
        }
    }

    /// Returns the name that errors and documents have.
    pub fn documented(self) -> &'static str {
        match self {
            Self::Vector => "instant vector",
            Self::Matrix => "range vector",
            other => other.name(),
        }
    }
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: TextSpan,
    /// Levels of the tree below and with this node.
    pub(crate) height: u16,
}

/// The kinds of expressions.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// `is_duration` says that the text had a unit; the value is in seconds then.
    Number {
        value: f64,
        is_duration: bool,
    },
    /// The bytes of a string, which need not be UTF-8.
    String(Vec<u8>),
    Vector(VectorSelector),
    Matrix {
        selector: VectorSelector,
        range: Length,
    },
    Subquery {
        expr: Box<Expr>,
        range: Length,
        step: Option<Length>,
        at: AtModifier,
        offset: Length,
    },
    Paren(Box<Expr>),
    Unary {
        sign: UnarySign,
        expr: Box<Expr>,
    },
    Binary(Box<Binary>),
    Aggregate(Box<Aggregate>),
    Call {
        function: &'static Function,
        args: Vec<Expr>,
    },
}

/// `left op right` with its modifiers.
#[derive(Debug, Clone, PartialEq)]
pub struct Binary {
    pub op: BinaryOp,
    pub left: Expr,
    pub right: Expr,
    /// `bool`: the answer of a comparison is 0 or 1.
    pub returns_bool: bool,
    /// `None` unless both sides are vectors.
    pub matching: Option<VectorMatching>,
}

/// `op by (labels) (param, expr)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    pub op: Aggregation,
    pub expr: Expr,
    pub param: Option<Expr>,
    pub labels: Vec<String>,
    /// True for `without`: the labels are removed.
    pub without: bool,
}

/// The series of a metric, or of all metrics, that fit all matchers.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSelector {
    /// The name written before the braces; its matcher is the last one.
    pub name: Option<String>,
    pub matchers: Vec<LabelMatcher>,
    pub at: AtModifier,
    /// Modifier `offset`; zero where there is none.
    pub offset: Length,
    pub anchored: bool,
    pub smoothed: bool,
}

/// A length of time: milliseconds, or an expression that gives them when the query runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Length {
    pub ms: i64,
    pub expr: Option<DurationExpr>,
}

impl Length {
    pub(crate) const ZERO: Self = Self { ms: 0, expr: None };

    pub(crate) fn is_set(&self) -> bool {
        self.ms != 0 || self.expr.is_some()
    }
}

/// Modifier `@`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtModifier {
    #[default]
    Evaluation,
    /// Milliseconds since the epoch.
    Time(i64),
    Start,
    End,
}

/// A sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnarySign {
    Plus,
    Minus,
}

impl UnarySign {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Plus => "+",
            Self::Minus => "-",
        }
    }
}

/// One label matcher of a selector.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelMatcher {
    pub label: String,
    pub op: MatchOp,
    pub value: Vec<u8>,
    /// The compiled value of `=~` and `!~`.
    pub regexp: Option<Regexp>,
}

impl LabelMatcher {
    /// Returns true if a label with this value is selected; a missing label has the empty value.
    pub fn matches(&self, value: &str) -> bool {
        let is_equal = || value.as_bytes() == self.value;
        let fits = || self.regexp.as_ref().is_some_and(|regexp| regexp.is_match(value));
        match self.op {
            MatchOp::Equal => is_equal(),
            MatchOp::NotEqual => !is_equal(),
            MatchOp::Regexp => fits(),
            MatchOp::NotRegexp => !fits(),
        }
    }
}

/// The operator of a label matcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchOp {
    Equal,
    NotEqual,
    Regexp,
    NotRegexp,
}

impl MatchOp {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Regexp => "=~",
            Self::NotRegexp => "!~",
        }
    }
}

/// The rule by which the series of two vectors are matched.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorMatching {
    pub cardinality: Cardinality,
    pub labels: Vec<String>,
    /// `on`: the labels are those that count, not those to be ignored.
    pub on: bool,
    /// Labels copied from the `one` side (`group_left`, `group_right`).
    pub include: Vec<String>,
}

/// The number of series of each side that may match each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cardinality {
    OneToOne,
    ManyToOne,
    OneToMany,
    ManyToMany,
}

impl Cardinality {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OneToOne => "one-to-one",
            Self::ManyToOne => "many-to-one",
            Self::OneToMany => "one-to-many",
            Self::ManyToMany => "many-to-many",
        }
    }
}

/// Declares an enum of words with their texts.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($word:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($word,)* }

        impl $name {
            pub(crate) const ALL: &[Self] = &[$(Self::$word,)*];

            /// Returns the text in an expression.
            pub fn text(self) -> &'static str {
                match self { $(Self::$word => $text,)* }
            }
        }
    };
}

words!(
    /// A binary operator.
    BinaryOp {
        Add = "+",
        Sub = "-",
        Mul = "*",
        Div = "/",
        Mod = "%",
        Pow = "^",
        Atan2 = "atan2",
        Equal = "==",
        NotEqual = "!=",
        Less = "<",
        LessEqual = "<=",
        Greater = ">",
        GreaterEqual = ">=",
        TrimUpper = "</",
        TrimLower = ">/",
        And = "and",
        Or = "or",
        Unless = "unless",
    }
);

impl BinaryOp {
    pub fn is_comparison(self) -> bool {
        use BinaryOp::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
        matches!(self, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual)
    }

    pub fn is_set(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Unless)
    }

    /// Returns how tightly the operator binds; more is tighter.
    pub(crate) fn precedence(self) -> u8 {
        match self {
            Self::Or => 1,
            Self::And | Self::Unless => 2,
            Self::Add | Self::Sub => 4,
            Self::Mul | Self::Div | Self::Mod | Self::Atan2 => 5,
            Self::Pow => 6,
            _ => 3,
        }
    }
}

words!(
    /// An aggregation over series.
    Aggregation {
        Sum = "sum",
        Avg = "avg",
        Count = "count",
        Min = "min",
        Max = "max",
        Group = "group",
        Stddev = "stddev",
        Stdvar = "stdvar",
        Topk = "topk",
        Bottomk = "bottomk",
        CountValues = "count_values",
        Quantile = "quantile",
        Limitk = "limitk",
        LimitRatio = "limit_ratio",
    }
);

impl Aggregation {
    /// Returns the type of the parameter before the vector, if there is one.
    pub fn param(self) -> Option<Type> {
        match self {
            Self::CountValues => Some(Type::String),
            Self::Topk | Self::Bottomk | Self::Quantile | Self::Limitk | Self::LimitRatio => {
                Some(Type::Scalar)
            }
            _ => None,
        }
    }
}

/// A duration that is known only when the query runs, or a literal within one.
#[derive(Debug, Clone, PartialEq)]
pub struct DurationExpr {
    pub kind: DurationKind,
    /// Written in parentheses.
    pub wrapped: bool,
    pub span: TextSpan,
    pub(crate) height: u16,
}

/// The kinds of durations.
#[derive(Debug, Clone, PartialEq)]
pub enum DurationKind {
    /// Seconds; `is_duration` says that the text had a unit.
    Literal {
        seconds: f64,
        is_duration: bool,
    },
    /// The step of the query.
    Step,
    /// The time from the start to the end of the query.
    Range,
    Unary {
        sign: UnarySign,
        of: Box<DurationExpr>,
    },
    Binary {
        op: DurationOp,
        left: Box<DurationExpr>,
        right: Box<DurationExpr>,
    },
}

words!(
    /// An operator between two durations.
    DurationOp {
        Add = "+",
        Sub = "-",
        Mul = "*",
        Div = "/",
        Mod = "%",
        Pow = "^",
        MinOf = "min_of",
        MaxOf = "max_of",
    }
);

impl Expr {
    /// Returns the type of the value.
    pub fn ty(&self) -> Type {
        match &self.kind {
            ExprKind::Number { .. } => Type::Scalar,
            ExprKind::String(_) => Type::String,
            ExprKind::Vector(_) | ExprKind::Aggregate(_) => Type::Vector,
            ExprKind::Matrix { .. } | ExprKind::Subquery { .. } => Type::Matrix,
            ExprKind::Paren(inner) => inner.ty(),
            ExprKind::Unary { expr, .. } => expr.ty(),
            ExprKind::Binary(binary) => match (binary.left.ty(), binary.right.ty()) {
                (Type::Scalar, Type::Scalar) => Type::Scalar,
                _ => Type::Vector,
            },
            ExprKind::Call { function, .. } => function.returns,
        }
    }
}

impl ExprKind {
    /// Returns the expressions directly below.
    pub fn children(&self) -> impl Iterator<Item = &Expr> {
        let (fixed, args): ([Option<&Expr>; 2], &[Expr]) = match self {
            Self::Number { .. } | Self::String(_) | Self::Vector(_) | Self::Matrix { .. } => {
                ([None, None], &[])
            }
            Self::Subquery { expr, .. } | Self::Paren(expr) | Self::Unary { expr, .. } => {
                ([Some(expr), None], &[])
            }
            Self::Binary(binary) => ([Some(&binary.left), Some(&binary.right)], &[]),
            Self::Aggregate(aggregate) => ([aggregate.param.as_ref(), Some(&aggregate.expr)], &[]),
            Self::Call { args, .. } => ([None, None], args),
        };
        fixed.into_iter().flatten().chain(args)
    }
}
