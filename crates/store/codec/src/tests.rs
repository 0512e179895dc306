use proptest::prelude::*;

use super::*;

fn round_trip(kind: Kind, values: &[u64]) -> usize {
    let mut bytes = Vec::new();
    encode(kind, values, &mut Scratch::default(), &mut bytes);
    let mut out = Vec::new();
    let mut input = Input(&bytes);
    let found = decode(&mut input, values.len(), &mut Vec::new(), &mut out).unwrap();
    assert!(input.is_empty());
    assert_eq!(out, values);
    assert!(values.is_empty() || found == kind);
    bytes.len()
}

fn floats(values: &[f64]) -> usize {
    round_trip(Kind::F64, &values.iter().map(|v| v.to_bits()).collect::<Vec<_>>())
}

fn a_float() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (-100_000i64..100_000, 0u32..6)
            .prop_map(|(d, e)| (d as f64 / 10f64.powi(e as i32)).to_bits()),
        prop::sample::select(vec![
            0.0,
            -0.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MIN_POSITIVE,
            5e-324,
            f64::MAX,
            9_007_199_254_740_993.0,
            2_251_799_813_685_248.0,
            -2_251_799_813_685_249.0,
            0.1,
        ])
        .prop_map(f64::to_bits),
        a_class(),
    ]
}

/// Generates bit patterns of every class: zeros and subnormals, the smallest and largest exponents,
/// those around one and around the end of exact integers, infinities, and quiet and signalling NaNs
/// of either sign.
fn a_class() -> impl Strategy<Value = u64> {
    let exponent =
        prop::sample::select(vec![0u64, 1, 1022, 1023, 1024, 1074, 1075, 1076, 2046, 2047]);
    let fraction = prop_oneof![
        Just(0),
        Just(1),
        Just(1 << 51),
        Just((1 << 52) - 1),
        any::<u64>().prop_map(|bits| bits >> 12),
    ];
    (any::<bool>(), exponent, fraction)
        .prop_map(|(sign, exponent, fraction)| u64::from(sign) << 63 | exponent << 52 | fraction)
}

proptest! {
    #[test]
    fn floats_round_trip_bit_by_bit(values in prop::collection::vec(a_float(), 0..400)) {
        round_trip(Kind::F64, &values);
    }

    #[test]
    fn decimals_with_exceptions_round_trip(
        digits in prop::collection::vec(-1_000_000i64..1_000_000, 1..600),
        exponent in 0i32..9,
        odd in prop::collection::vec((any::<prop::sample::Index>(), a_float()), 0..20),
    ) {
        let ten = 10f64.powi(exponent);
        let mut values: Vec<u64> = digits.iter().map(|d| (*d as f64 / ten).to_bits()).collect();
        for (index, value) in odd {
            let at = index.index(values.len());
            values[at] = value;
        }
        round_trip(Kind::F64, &values);
    }

    #[test]
    fn integers_of_every_width_round_trip(
        values in prop::collection::vec(any::<i64>(), 0..400), shift in 0u32..64,
    ) {
        let values: Vec<u64> = values.iter().map(|v| (v >> shift) as u64).collect();
        round_trip(Kind::I64, &values);
    }

    #[test]
    fn simd_and_scalar_encodings_are_identical(
        values in prop::collection::vec(a_float(), 0..400), shift in 0u32..64, exponent in 0usize..9,
    ) {
        let numbers: Vec<i64> = values.iter().map(|v| *v as i64 >> shift).collect();
        let (mut wide, mut plain, mut work) = (Vec::new(), Vec::new(), Vec::new());
        integers::encode(&numbers, &mut work, &mut wide);
        integers::append(&numbers, &mut work, &mut plain);
        prop_assert_eq!(wide, plain);
        let (mut wide, mut plain) = (Vec::new(), Vec::new());
        let differ = all_digits(&values, TENS[exponent], &mut wide);
        prop_assert_eq!(differ, round_all(&values, TENS[exponent], &mut plain));
        prop_assert_eq!(wide, plain);
    }

    #[test]
    fn times_round_trip(
        first in any::<i64>(), steps in prop::collection::vec(0i64..20_000, 0..400),
        unit in prop::sample::select(vec![1i64, 1000, 1_000_000, 1_000_000_000]),
    ) {
        let mut t = first / unit * unit;
        let times: Vec<i64> = steps.iter().map(|s| { t = t.wrapping_add(s * unit); t }).collect();
        let mut bytes = Vec::new();
        encode_times(&times, &mut Scratch::default(), &mut bytes);
        let mut out = Vec::new();
        decode_times(&mut Input(&bytes), times.len(), &mut Vec::new(), &mut out).unwrap();
        prop_assert_eq!(out, times);
    }

    #[test]
    fn decoding_random_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), n in 0usize..2100) {
        let _ = decode(&mut Input(&bytes), n, &mut Vec::new(), &mut Vec::new());
        let _ = decode_times(&mut Input(&bytes), n, &mut Vec::new(), &mut Vec::new());
    }
}

#[test]
fn random_walk_of_two_decimals_compresses_near_its_noise() {
    let (mut state, mut digits) = (7u64, 10_000i64);
    let values: Vec<f64> = (0..720)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            digits += (state >> 57) as i64 - 64;
            digits as f64 / 100.0
        })
        .collect();
    let bytes = floats(&values);
    assert!(bytes < 720, "{bytes} bytes for 720 values of 7 bits of noise");
}

#[test]
fn constant_column_encodes_like_its_expanded_values() {
    for (value, count) in [(0, 1), (10, 2), (-7, 128), (256, 2048)] {
        let (mut all, mut one) = (Vec::new(), Vec::new());
        integers::encode(&vec![value; count], &mut Vec::new(), &mut all);
        integers::encode_same(value, &mut one);
        assert_eq!(all, one);
    }
}

#[test]
fn regular_times_encode_to_a_few_bytes() {
    let times: Vec<i64> =
        (0..1000).map(|i| 1_700_000_000_000_000_000 + i * 10_000_000_000).collect();
    let mut bytes = Vec::new();
    encode_times(&times, &mut Scratch::default(), &mut bytes);
    assert!(bytes.len() <= 12, "{}", bytes.len());
}

#[test]
fn encoded_columns_match_the_format_document() {
    let mut bytes = Vec::new();
    let values: Vec<u64> = [1.25f64, 1.5, 1.75, -0.0].iter().map(|v| v.to_bits()).collect();
    encode(Kind::F64, &values, &mut Scratch::default(), &mut bytes);
    // exponent 2; one exception (index 3, -0.0); differences; first 125; width 5, smallest 0;
    // 25, 25, 0 in 5 bits each
    assert_eq!(bytes, [2, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 0xfa, 1, 5, 0, 0x39, 0x03]);
}
