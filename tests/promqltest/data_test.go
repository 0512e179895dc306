package promqltest

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	stale "github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
)

// endMs is the time up to which the random series have samples, milliseconds. They begin at 0.
const endMs = 40 * 60 * 1000

// sample is a sample of a random series.
type sample struct {
	ms    int64
	value float64
}

// randomSeries is a series with its samples.
type randomSeries struct {
	labels  labels.Labels
	samples []sample
}

// randomData returns series of several kinds, sorted by their labels.
func randomData(rnd *rand.Rand) []randomSeries {
	var out []randomSeries
	add := func(values func() float64, pairs ...string) {
		out = append(out, randomSeries{labels.FromStrings(pairs...), samplesOf(rnd, values)})
	}
	for _, job := range []string{"a", "b"} {
		for _, instance := range []string{"h1", "h2", "h10"} {
			add(counter(rnd, 0), "__name__", "requests_total", "job", job, "instance", instance)
			// More than 2^53, so that most numbers are rounded.
			add(counter(rnd, 1<<60), "__name__", "large_total", "job", job, "instance", instance)
			add(gauge(rnd), "__name__", "temperature", "job", job, "instance", instance)
			add(odd(rnd), "__name__", "odd", "job", job, "instance", instance)
			add(func() float64 { return float64(rnd.Intn(2)) }, "__name__", "up", "job", job, "instance", instance)
		}
		out = append(out, buckets(rnd, job)...)
		add(gauge(rnd), "__name__", "cpu.user", "job", job, "a b", "x.y")
	}
	add(gauge(rnd), "__name__", "temperature", "zone", "1")
	add(counter(rnd, 0), "__name__", "lonely_count")
	slices.SortFunc(out, func(a, b randomSeries) int { return labels.Compare(a.labels, b.labels) })
	return out
}

// samplesOf returns samples at regular or irregular times, with gaps and markers of staleness.
func samplesOf(rnd *rand.Rand, values func() float64) []sample {
	step := []int64{10_000, 15_000, 30_000, 60_000, 7_777}[rnd.Intn(5)]
	jitter := int64(0)
	if rnd.Intn(2) == 0 {
		jitter = step / 2
	}
	gaps := rnd.Float64() * 0.05
	var out []sample
	for ms := rnd.Int63n(step); ms < endMs; ms += step {
		at := ms
		if jitter > 0 {
			at += rnd.Int63n(jitter)
		}
		out = append(out, sample{at, values()})
		if rnd.Float64() < gaps {
			if rnd.Intn(2) == 0 {
				out = append(out, sample{at + 1, math.Float64frombits(stale.StaleNaN)})
			}
			ms += rnd.Int63n(10 * 60 * 1000)
		}
	}
	return out
}

// counter returns the values of a counter with resets.
func counter(rnd *rand.Rand, start float64) func() float64 {
	now, resets, isWhole := start, rnd.Float64()*0.1, rnd.Intn(2) == 0
	return func() float64 {
		if rnd.Float64() < resets {
			now = 0
		}
		rise := rnd.ExpFloat64() * 100
		if isWhole || start > 0 {
			rise = math.Floor(rise)
		}
		now += rise
		return now
	}
}

func gauge(rnd *rand.Rand) func() float64 {
	scale := math.Pow(10, float64(rnd.Intn(7)-3))
	return func() float64 { return rnd.NormFloat64() * scale }
}

// odd returns values at which arithmetic has corner cases.
func odd(rnd *rand.Rand) func() float64 {
	values := []float64{
		0, math.Copysign(0, -1), 1, -1, 0.1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64,
		// Not smaller: the logarithm of Go is wrong for numbers that are not normal on amd64.
		1e-300, 1 << 53, 1<<53 + 2, 1e16, -1e100, 1e100,
	}
	usual := rnd.Float64()
	return func() float64 {
		if rnd.Float64() < usual {
			return float64(rnd.Intn(5))
		}
		return values[rnd.Intn(len(values))]
	}
}

// buckets returns the buckets of a classic histogram, of which some do not rise.
func buckets(rnd *rand.Rand, job string) []randomSeries {
	bounds := []string{"0.1", "0.5", "1", "2.5", "+Inf"}
	out := make([]randomSeries, len(bounds))
	counts := make([]float64, len(bounds))
	for at, bound := range bounds {
		out[at].labels = labels.FromStrings("__name__", "latency_bucket", "job", job, "le", bound)
	}
	for ms := int64(0); ms < endMs; ms += 15_000 {
		first := rnd.Intn(len(bounds))
		for at := range out {
			if at >= first {
				counts[at] += float64(rnd.Intn(20))
			}
			if rnd.Intn(20) > 0 {
				out[at].samples = append(out[at].samples, sample{ms, counts[at]})
			}
		}
	}
	return out
}

// load writes series in three parts, the first to appear first.
func load(t *testing.T, to storage.AppendableV2, all []randomSeries) {
	const part = endMs / 3
	for from := int64(0); from < endMs+part; from += part {
		appender := to.AppenderV2(context.Background())
		for _, one := range all {
			for _, s := range one.samples {
				if s.ms < from || s.ms >= from+part {
					continue
				}
				if _, err := appender.Append(0, one.labels, 0, s.ms, s.value, nil, nil, storage.AppendV2Options{}); err != nil {
					t.Fatal(fmt.Errorf("%s at %d: %w", one.labels, s.ms, err))
				}
			}
		}
		if err := appender.Commit(); err != nil {
			t.Fatal(err)
		}
	}
}
