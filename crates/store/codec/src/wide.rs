//! Loops that are compiled three times: for every processor, and for AVX2 and AVX-512, which are
//! detected at run time. All versions do the same arithmetic and return the same bits.

/// Defines a function that calls `$plain`, which must be inlined into it, compiled for wide
/// registers if the processor has them.
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
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn widest($($arg: $type),*) $(-> $out)? {
                    $plain($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512dq")
                    && std::arch::is_x86_feature_detected!("avx512vl")
                {
                    #[expect(unsafe_code, reason = "a function for some processors has no safe call")]
                    // SAFETY: the processor has the features for which the function is compiled.
                    return unsafe { widest($($arg),*) };
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    #[expect(unsafe_code, reason = "a function for some processors has no safe call")]
                    // SAFETY: the processor has the features for which the function is compiled.
                    return unsafe { wide($($arg),*) };
                }
            }
            $plain($($arg),*)
        }
    };
}

pub(crate) use for_wide_registers;
