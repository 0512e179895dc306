//! The table of functions: the types that they take and give.

use std::sync::LazyLock;

use crate::tree::Type::{self, Matrix, Scalar, String, Vector};

/// A function.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: &'static str,
    /// The types of the arguments. The last one holds for all further arguments.
    pub args: &'static [Type],
    /// Further arguments that may follow the first `args.len() - 1`: 0 if the number is fixed, -1 for
    /// any number.
    pub variadic: i32,
    pub returns: Type,
}

/// Arguments, further arguments, value, and the names of the functions with these types.
type Row = (&'static [Type], i32, Type, &'static str);

const TABLE: &[Row] = &[
    (
        &[Vector],
        0,
        Vector,
        "abs absent acos acosh asin asinh atan atanh ceil cos cosh deg exp floor histogram_avg \
         histogram_count histogram_stddev histogram_stdvar histogram_sum ln log10 log2 rad sgn sin \
         sinh sort sort_desc sqrt tan tanh timestamp",
    ),
    (
        &[Matrix],
        0,
        Vector,
        "absent_over_time avg_over_time changes count_over_time delta deriv first_over_time idelta \
         increase irate last_over_time mad_over_time max_over_time min_over_time \
         present_over_time rate resets stddev_over_time stdvar_over_time sum_over_time \
         ts_of_first_over_time ts_of_last_over_time ts_of_max_over_time ts_of_min_over_time",
    ),
    (
        &[Vector],
        1,
        Vector,
        "day_of_month day_of_week day_of_year days_in_month hour minute month year",
    ),
    (&[], 0, Scalar, "end pi range start step time"),
    (&[Scalar, Scalar], 0, Scalar, "max_of min_of"),
    (&[Vector], 0, Scalar, "scalar"),
    (&[Scalar], 0, Vector, "vector"),
    (&[Vector, Scalar], 1, Vector, "round"),
    (&[Vector, Scalar], 0, Vector, "clamp_max clamp_min"),
    (&[Vector, Scalar, Scalar], 0, Vector, "clamp"),
    (&[Scalar, Vector], 0, Vector, "histogram_quantile"),
    (&[Scalar, Scalar, Vector], 0, Vector, "histogram_fraction"),
    (&[Scalar, Matrix], 0, Vector, "quantile_over_time"),
    (&[Matrix, Scalar], 0, Vector, "predict_linear"),
    (&[Matrix, Scalar, Scalar], 0, Vector, "double_exponential_smoothing"),
    (&[Vector, String], -1, Vector, "sort_by_label sort_by_label_desc"),
    (&[Vector, String, String, String], -1, Vector, "label_join"),
    (&[Vector, String, String, String, String], 0, Vector, "label_replace"),
];

/// All functions, sorted by name.
static FUNCTIONS: LazyLock<Vec<Function>> = LazyLock::new(|| {
    let of_row = |(args, variadic, returns, names): &Row| {
        let (args, variadic, returns) = (*args, *variadic, *returns);
        names.split_whitespace().map(move |name| Function { name, args, variadic, returns })
    };
    let mut all: Vec<Function> = TABLE.iter().flat_map(of_row).collect();
    all.sort_by_key(|function| function.name);
    all
});

/// Returns the function of a name.
pub fn function(name: &str) -> Option<&'static Function> {
    let at = FUNCTIONS.binary_search_by(|function| function.name.cmp(name)).ok()?;
    FUNCTIONS.get(at)
}
