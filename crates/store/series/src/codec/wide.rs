//! Loops that are compiled twice: for every processor, and for those with wide registers (AVX2), which
//! are asked for when it runs. Both do the same arithmetic and give the same bits.

/// A function that is `$plain`, which must be inlined into it, compiled for wide registers where the
/// processor has them.
macro_rules! for_wide_registers {
    (
        $(#[$doc:meta])*
        $public:vis fn $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? = $plain:ident;
    ) => {
        $(#[$doc])*
        $public fn $name($($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn wide($($arg: $type),*) $(-> $out)? {
                    $plain($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    #[expect(unsafe_code, reason = "a function for some processors has no safe call")]
                    // SAFETY: the processor has what the function is compiled for.
                    return unsafe { wide($($arg),*) };
                }
            }
            $plain($($arg),*)
        }
    };
}

pub(crate) use for_wide_registers;
